"""Safety of growing samples: simulated clusters of 1 to 80 workers, data at scales 0.01 to 100, five seeds.

    python -m benchmarks.studies.large_data.safety [problem ...]

A run of `GrowingLBFGS` ends 60 versions after its sample has become all rows.  It counts as diverged if it
says so or if U is not below its value at the start.  The shortfall is the share by which U fell less than in
60 versions of Block L-BFGS from the same start; on a problem that is not convex they may end in different
minima.  The table goes to docs/results/large_data/safety.csv.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.engines.simulator import Simulator
from benchmarks.studies.large_data.comparison import exact_blocks
from benchmarks.studies.large_data.models import Robust, TanhNetwork
from benchmarks.studies.tables import read, write
from benchmarks.timing import one_blas_thread

KINDS: dict[str, Callable[[float, int], Any]] = {
    "logistic": lambda scale, seed: aq.LogisticRegression.random(
        20_000, 10, 10.0, 0.5, scale=scale, seed=seed
    ),
    "logistic ill float32": lambda scale, seed: aq.LogisticRegression.random(
        20_000, 10, 100.0, 0.9, scale=scale, seed=seed, dtype=np.float32
    ),
    "tanh network": lambda scale, seed: TanhNetwork.random(20_000, 6, 3, scale=scale, seed=seed),
    "robust": lambda scale, seed: Robust.random(20_000, 10, scale=scale, seed=seed),
}
WORKERS = (1, 2, 5, 10, 20, 40, 80)
SEEDS = range(5)


def falls(problem: Any, workers: int, seed: int) -> tuple[bool, float]:
    """Return whether a run diverged, and the share of Block L-BFGS's fall of U that it missed."""
    algorithm = aq.GrowingLBFGS(workers, 3 if workers <= 20 else 2, memory=100)
    engine = Simulator(aq.Cluster(workers, worker_std=0.5, message=0.1))
    n = algorithm.growing_versions + 60
    run = aq.minimize(problem, algorithm, engine=engine, commits=n, evaluate=n, seed=seed)
    exact = aq.minimize(
        problem,
        exact_blocks(problem, 1),
        engine=Simulator(aq.Cluster(1)),
        theta0=run.theta0,
        commits=60,
        evaluate=60,
    )
    start = float(run.metrics["fun"][0])
    share = (start - run.fun) / max(start - exact.fun, 1e-12 * abs(start))
    return run.status != "completed" or not run.fun <= start, 1.0 - share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("problems", nargs="*", help=f"of {', '.join(KINDS)}; all if none is named")
    kinds = parser.parse_args().problems or list(KINDS)
    records = [row for row in read("large_data/safety") if row["problem"] not in kinds]
    with one_blas_thread():
        for kind in kinds:
            for scale in (0.01, 1.0, 100.0):
                problems = [KINDS[kind](scale, seed) for seed in SEEDS]
                for workers in WORKERS:
                    ends = [falls(p, workers, seed) for seed, p in zip(SEEDS, problems)]
                    records.append(
                        {
                            "problem": kind,
                            "scale": f"{scale:g}",
                            "workers": workers,
                            "runs": len(ends),
                            "diverged": sum(diverged for diverged, _ in ends),
                            "worst_shortfall": max(missed for _, missed in ends),
                        }
                    )
                    print(records[-1], flush=True)
                    write("large_data/safety", records, 4)


if __name__ == "__main__":
    main()
