"""`python -m benchmarks.studies.draws.staleness`: SGLD on a Gaussian whose variances are known.

Exact gradients, so that the step and the staleness are the only causes of bias; W = 1 is the control.  The
variance is that along the stiffest direction, where both do most.
"""

from __future__ import annotations

import numpy as np
from arviz_stats.base import array_stats

import asyncqn as aq

DIM, ROWS, COMMITS, KEEP, BURN_IN, SEEDS = 4, 40, 40_000, 20, 200, 4
STEPS, WORKERS = (0.01, 0.04), (1, 4, 16)


def main() -> None:
    """Print the table of docs/guide/laboratory.md."""
    problem = aq.LinearGaussian.random(dim=DIM, n_data=ROWS, noise_var=10.0, seed=0)
    hessian, origin, everything = np.empty((DIM, DIM)), np.empty(DIM), np.arange(ROWS)
    problem.grad(np.zeros(DIM), everything, origin)
    for i in range(DIM):  # the gradient is linear
        problem.grad(np.eye(DIM)[i], everything, hessian[i])
    # grad(e_i) - grad(0) is column i of the Hessian.
    curvatures, directions = np.linalg.eigh(hessian - origin)
    stiffest, along = float(curvatures[-1]), directions[:, -1]
    drawn = SEEDS * (COMMITS // KEEP - BURN_IN)
    print(f"| h times curvature | W | variance over exact | effective of {drawn:,} |")
    print("|---|---|---|---|")
    for step in STEPS:
        for workers in WORKERS:
            method = aq.SGLD(h=step / stiffest, beta=1.0, batch=ROWS, sampling="shuffled")
            engine = aq.Simulator(aq.Cluster(workers, worker_std=0.3))
            keeps = [
                aq.minimize(problem, method, engine=engine, commits=COMMITS, seed=seed, keep=KEEP,
                            evaluate=COMMITS, check=False).keep
                for seed in range(SEEDS)
            ]  # fmt: skip
            draws = keeps[0].to_arviz(*keeps[1:], burn_in=BURN_IN)["posterior"]["theta"].values @ along
            effective = float(array_stats.ess(draws))
            # The exact variance is 1 / curvature; a variance of n normal draws has the relative error sqrt(2
            # / n).
            ratio, error = float(draws.var()) * stiffest, np.sqrt(2.0 / effective)
            print(
                f"| {step:g} | {workers} | {ratio:.2f} ± {ratio * error:.2f} | {effective:,.0f} |", flush=True
            )


if __name__ == "__main__":
    main()
