"""Factorization with nothing given but the problem and the number of workers: how many runs diverge?

    python -m benchmarks.studies.factorization.safety [--ml-1m PATH] [--only ml-1m|synthetic-10m] [--spread 2]

`minimize(problem, engine=Simulator(Cluster(workers=W, ...)))` for W = 1 to 80 on MovieLens 1M and on
synthetic-10m, K = 5, prior = 1, float32; a seed fixes the start, the simulated delays and the rest.
Workers need log-normal times of mean 1 and standard deviation `spread`: 0, 0.35 (the suite's
sqrt(200) / 40) and 2, of which the last has a heavy tail; a message takes 0.1.
Ended after eight passes over the data, a run counts as diverged if it says so, if theta or U is not
finite, if U is above its value at the start, or if the train RMSE is above 0.85.  That is looked at twice:
for the point that the run reports, and for the trial under way, which it does not.  The table goes to
docs/results/beyond/safety_factorization.csv and grows with every row.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.defaults import default_algorithm
from asyncqn.engines.simulator import Simulator
from asyncqn_paper.records import Record
from asyncqn_recommender.data import load
from asyncqn_recommender.problems.profiled_factorization import ProfiledFactorization
from benchmarks.studies.tables import read, write

TABLE = "beyond/safety_factorization"
WORKERS = (1, 2, 5, 10, 20, 40, 80)
SPREADS = (0.0, 0.35, 2.0)
MESSAGE = 0.1
SEEDS = range(10)
PASSES, WORST = 8, 0.85


def diverged(run: aq.Run, start: float, fun: float, rmse: float) -> bool:
    fine = run.status == "completed" and np.isfinite(run.theta).all() and np.isfinite(fun)
    return not (fine and fun <= start and rmse <= WORST)


def cell(name: str, problem: ProfiledFactorization, workers: int, spread: float) -> Record:
    """Run all seeds of one problem on one cluster."""
    begin = time.perf_counter()
    commits = default_algorithm(problem, workers).commits_for(PASSES)
    cluster = aq.Cluster(workers=workers, worker_std=spread, message=MESSAGE)
    rmses, falls, failures, trials = [], [], 0, 0
    for seed in SEEDS:
        run = aq.minimize(problem, engine=Simulator(cluster), commits=commits, seed=seed, evaluate=commits)
        start, last = (float(run.metrics["fun"][row]) for row in (0, -1))
        rmse = problem.metrics(run.theta)["rmse"]
        rmses.append(rmse)
        falls.append(run.fun / start)
        failures += diverged(run, start, run.fun, rmse)
        trials += diverged(run, start, last, float(run.metrics["rmse"][-1]))
    return {
        "problem": name,
        "spread": f"{spread:g}",
        "workers": workers,
        "runs": len(SEEDS),
        "diverged": failures,
        "bad_last_trials": trials,
        "best_rmse": min(rmses),
        "median_rmse": float(np.median(rmses)),
        "worst_rmse": max(rmses),
        "worst_fun_over_start": max(falls),
        "seconds": time.perf_counter() - begin,
    }


def kept_rows(cells: list[tuple[str, str]]) -> list[Any]:
    """Rows of an earlier table that are not measured now."""
    return [row for row in read(TABLE) if (row["problem"], row["spread"]) not in cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ml-1m", default="ml-1m", metavar="PATH", help="the archive, if it is at hand")
    parser.add_argument("--only", choices=["ml-1m", "synthetic-10m"])
    parser.add_argument("--spread", type=float, choices=SPREADS)
    given = parser.parse_args()
    sources = {"ml-1m": given.ml_1m, "synthetic-10m": "synthetic-10m"}
    problems = [given.only] if given.only else list(sources)
    spreads = SPREADS if given.spread is None else (given.spread,)
    records = kept_rows([(name, f"{spread:g}") for name in problems for spread in spreads])
    for name in problems:
        problem = ProfiledFactorization.from_ratings(load(sources[name]), 5, prior=1.0, dtype=np.float32)
        for spread, workers in product(spreads, WORKERS):
            records.append(cell(name, problem, workers, spread))
            print(records[-1], flush=True)
            write(TABLE, records)


if __name__ == "__main__":
    main()
