"""The prose of docs/results/reproduction.md."""

HEAD = """# The paper's claims, judged

U. Şimşekli et al., *Asynchronous Stochastic Quasi-Newton MCMC for Non-Convex Optimization*, ICML 2018, at
full size. The 10M and 20M sets and the paper's cluster cannot be had here. The rules were committed before
the runs ("Rules of the verdicts", 18 November 2026).
"""

METHODS = """## How it was judged

Every claim has a margin and a test in `src/asyncqn_paper/rules.py`, written before the full runs (a quick run
with ten seeds had been looked at, for errors of the program); no margin and no test has changed since.
In each setting, a combination of what the paper leaves open, a claim holds, fails or is undecided:
paired differences over 100 seeds (five draws of the problem with 20 seeds each) against the margin, at two
standard errors. Runs that do not arrive within 6000 units count as 6000. The verdict is *yes* if at least
nine in ten decided settings hold, *no* if at most one in ten does, else *depends on* the axis that
separates them best. Every setting with its numbers is a row of [reproduction.csv](reproduction.csv), every
run one of [tables](tables).

Axes: **who pays for messages**, for all three methods alike (*nobody*; *every exchange*: each message,
broadcasts included, keeps the master's link for one of its ten units; *answers only*: what the master
sends is free; a *tree* of broadcasts); the **integrator** (*explicit* is equation (7); *modified* moves θ
by the new momentum, as the supplement does); **H₀** (by pairs, or c I, which is an oracle of the
curvature, for as-L-BFGS alone or for both quasi-Newton methods); the **target** (ε = 0.1 and 0.05 of U*,
and 0.05 of U* with the constants of −log p); quorum, reuse of the overlap, start, and the table's or tuned
numbers.

With u₀ = 0 the explicit form spends a worker's first cycle on a step of length zero, the modified one does
not. The table's N_O = N_Ω/3 makes N_S = 2 N_O, although the text asks for N_S ≫ N_O.

**Correlated posteriors.** The paper calls its posterior strongly correlated. If the precision has eigenvalues
from 1 (the prior's) to L, the mean of |correlation| over d coordinates is at most (L − 1)/(2√(L(d − 1))):
a mean of 0.5 at d = 100 needs L ≥ 101, and one weak direction along (1, …, 1) attains it. But the table's
a-SGD is stable at W = 40 only for L < 39.8, which allows a mean of 0.31. So no problem with a mean of 0.5
is consistent with the table (proof in `src/asyncqn_paper/problems.py`).

**An independent program**, a heap of events and dense BFGS in plain NumPy (`tests/independent.py`), gives the
same iterates and times to nine digits on short runs, and the same times within errors, with random numbers of
its own, on three cells that are not published here.

What the proof leaves out: [the theory](theory.md). More on noise and restarts: [tempering](tempering.md).
`python -m asyncqn_paper --full --output docs/results` goes on from here; `make reproduce` is a quick look.
"""
