"""The prose of docs/results/reproduction.md."""

HEAD = """# The paper's figures, found again

U. Şimşekli et al., *Asynchronous Stochastic Quasi-Newton MCMC for Non-Convex Optimization*, ICML 2018.
Each figure is drawn in one setting that is consistent with all that the paper prints. A rule found it on
tuning seeds; these are fresh ones ([how](#how-it-was-judged)).
"""

SAYS = {
    "fig1": "simulations reflect real runs.",
    "fig2": "mb-L-BFGS slows with σ_w², as-L-BFGS is fastest.",
    "fig3": "iterations rise with W, time falls.",
    "fig4": "far ahead of mb-L-BFGS, slightly of a-SGD.",
    "fig5": "near-linear speedup to W = 10; 20 needs a smaller step.",
    "s1": "the speedup in iterations is linear.",
}
"""The claims of the first screen in few words."""

NOTES = {
    "fig1": """In the other settings ten runs do not decide.
""",
    "fig2": """At a single σ_w² the least lead is {lead}; at 400 as-L-BFGS is ahead.
Where the link is free, no H helps mb-L-BFGS: with the
table's h it contracts U by at most 0.00205 per unit, a-SGD by 0.004 in its softest direction. T_mb never acts:
the quorum is 1. A message costs all methods the same, although as-L-BFGS sends twice a-SGD's numbers; Fig. 4
charges bytes. Table S2 prints N where N_Y is meant.
""",
    "fig3": """H₀ = c I is an oracle of the curvature. The last claim has a power of 1: with a step tuned for each σ_w²
the speedup is not larger at small σ_w².
""",
    "fig4": """From the prior the table's numbers diverge (grey).
""",
    "theory": """All runs are on a quadratic: the theorem assumes a Lipschitz gradient. [What the proof
covers](theory.md).
""",
}
"""What a reader has to know beside the claims of an experiment."""

FINDINGS = """## What we found

**Pairs bias the law at every β.** With H = I the variances tend to those of exp(−βU). With pairs they stay off
by {law_pairs} (root mean square) at β = 1, 10 and 100 alike; the missing Γ would fall as 1/β.

**Rates of the abstract.** With h ∝ 1/√N the ergodic error falls with slope {slope_plain} (H = I) and
{slope_pairs} (pairs). To equal error, iterations rise up to W = 4 with slope {needs_plain} and {needs_pairs};
linear speedup means 0.

**Stale friction.** u_{{n+1}} = u_n − γ' u_{{n−l}} is stable only for γ' < 2 sin(π/(4l + 2)): 0.165 at W = 10,
0.081 at W = 20, where the table has 0.1: Fig. 5's instability. With the best step of each W the speedup is
×{tuned10:.1f} at W = 10 and ×{tuned20:.1f} at 20.

**H acts twice.** The drift of θ is −(h'/γ') H²∇U, which a perfect H conditions no better than none.

**Figs. 2 and 3 need different links.** Fig. 2 needs one that is busy for 20 % of an exchange or more, Fig. 3
one that is busy for 10 % or less: at 20 % it serves 40 workers, and with more the time rises again.

**Speed, not a better minimum.** In Fig. 4 the RMSE of mb-L-BFGS is {half:.3f} at half time, {end:.3f} at the end;
the model reaches 0.816 ([factorization](factorization.md)).

**A withdrawn page.** Before f5858f5 nine commits published 28 verdicts, none of them "no", partly by rules set
after results were seen. The next page counted settings where the authors cannot have been, and tests that true
claims fail: hence its "no" to Figs. 2 and 3 and the law. Its successor changed a test of Fig. 2 and three least
effects after a look at the seeds; d9264579 set them again before the seeds shown here.
"""

METHODS = """## How it was judged

`rules.py` defines the words, `claims.toml` the margins; both were committed before the runs (Figs. 2, 3, 4 and
the rates: d9264579; the others are older). Settings where the table's parameters do not arrive are grey. Tables:
the number in the stated (else median) setting with its standard error; settings of the map that hold/fail/are
undecided at two errors. Fresh seeds: 600 in Fig. 2 and 20 or 40 in Fig. 3, each with its draw of the problem, 10
in Fig. 4, 16 in Figs. 5 and S1. Every test has a power of at least 0.8 (`python -m asyncqn_paper.power`).

**Who pays**: messages keep the master's link busy for a share of their time; *answers* are the workers', a *tree*
sends log₂ W broadcasts.

An independent program (`tests/independent.py`) gives the same iterates to nine digits. Settings are rows of
[reproduction.parquet](reproduction.parquet), runs of [tables](tables): {cells} cells, {hours} processor hours;
`python -m asyncqn_paper --publish --output docs/results` draws this page from them. A setting of your own:
`asyncqn reproduce fig2 --set lambda_max=20 --set pays=tree`.
"""
