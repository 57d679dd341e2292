"""The paper's three algorithms on MovieLens 1M, K = 5, with its parameters, ten simulated workers.

    python -m benchmarks.studies.factorization.paper_parameters [COMMITS]

A unit of time is a millisecond; a computation takes 100 +- 20, a message 10, which the paper leaves open.
A synchronous round commits the updates of ten workers, so mb-L-BFGS gets a tenth of the commits.
"""

from __future__ import annotations

import sys
import time

from asyncqn import ASLBFGS, MBLBFGS, AsyncSGD, Cluster, Simulator, minimize
from asyncqn_recommender.data import load
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization

WORKERS = 10


def main(commits: int = 2000) -> None:
    problem = MatrixFactorization.from_ratings(load("ml-1m"), 5)
    batch = problem.n_data // 100
    pairs = {"memory": 3, "batch": batch, "overlap": batch // 3}
    entries = {
        "a-SGD": (AsyncSGD(h=1e-6, batch=batch), commits),
        "mb-L-BFGS": (MBLBFGS(h=5e-7, timeout=400.0, **pairs), commits // WORKERS),
        "as-L-BFGS": (ASLBFGS(h=2e-8, gamma=0.1, beta=1e3, rho=3.0, **pairs), commits),
    }
    cluster = Cluster(workers=WORKERS, worker_mean=100.0, worker_std=20.0, message=10.0)
    print("| | commits | status | train RMSE | gradient norm | simulated s | our s |\n|" + "---|" * 7)
    for name, (algorithm, count) in entries.items():
        begun = time.perf_counter()
        run = minimize(
            problem, algorithm, engine=Simulator(cluster), commits=count, seed=0, evaluate=count // 4
        )
        rmse, norm = (
            " → ".join(form.format(x) for x in run.metrics[column])
            for column, form in (("rmse", "{:.3f}"), ("grad_norm", "{:.2e}"))
        )
        print(
            f"| {name} | {count} | {run.status} | {rmse} | {norm} | {run.time / 1000:.0f} | "
            f"{time.perf_counter() - begun:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
