"""The prose of docs/results/reproduction.md."""

HEAD = """# The paper's claims, judged

U. Şimşekli et al., *Asynchronous Stochastic Quasi-Newton MCMC for Non-Convex Optimization*, ICML 2018, at
full size: 100 repetitions, five draws of every problem, MovieLens 1M. The 10M and 20M sets and the paper's
cluster cannot be had here. The rules were committed before the runs ("Rules of the verdicts").
"""

GAPS = ""
METHODS = ""
