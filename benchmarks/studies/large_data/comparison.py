"""Many rows, few workers: growing samples beside exact blocks and peers, to U within 1 % and 0.01 % of U*.

    python -m benchmarks.studies.large_data.comparison [problem ...] [--methods ours peers] [--repeats 3]

The gap is (U - U*) / (U(theta0) - U*).  Passes are rows whose gradient was computed, over n.  Seconds are
wall clock without evaluations, compilation and the making of the data, the least of `repeats` runs; all
libraries use one BLAS thread, asyncqn as many threads as it has workers.  Our methods give the same numbers
in every run, so the commit that reaches a target is looked for once and then timed.  scikit-learn's solvers
are run with 1, 2, 3, 5, 8, 12, 20 ... iterations (sag and saga 1, 3, 8, 20), and the shortest that arrives
counts.  SGD is scikit-learn's, averaged, with the best of eight settings for each target, up to eight passes.
Tables go to docs/results/large_data/.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.defaults import growths, pieces_of_a_block
from asyncqn.core.stages import stage_at
from asyncqn.types import Progress
from asyncqn_paper.records import Record
from benchmarks.studies.large_data.models import Robust, TanhNetwork
from benchmarks.studies.large_data.peers import MOST, TARGETS, scipy_lbfgsb, sklearn_sgd, sklearn_solvers
from benchmarks.studies.tables import read, write
from benchmarks.timing import one_blas_thread

PROBLEMS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: aq.LogisticRegression.random(1_000_000, 100, 10.0, 0.5),
    "logistic float32": lambda: aq.LogisticRegression.random(1_000_000, 100, 10.0, 0.5, dtype=np.float32),
    "logistic ill": lambda: aq.LogisticRegression.random(1_000_000, 100, 100.0, 0.9),
    "tanh network": lambda: TanhNetwork.random(200_000),
    "robust": lambda: Robust.random(500_000),
}


def growing(model: Any, workers: int) -> aq.GrowingLBFGS:
    """Growing samples by the rule of the default, also where a problem offers more than gradients."""
    dim, n = model.dim, model.n_data
    levels = max(1, growths(dim, n, workers))
    pieces = pieces_of_a_block(dim, n // 4**levels, workers)
    return aq.GrowingLBFGS(workers, levels, memory=100 if dim <= 1000 else 50, pieces=pieces)


def exact_blocks(model: Any, workers: int, memory: int = 5) -> aq.BlockLBFGS:
    pieces = pieces_of_a_block(model.dim, model.n_data, workers)
    return aq.BlockLBFGS(workers, memory, pieces=pieces)


def passes(algorithm: Any, commits: int) -> float:
    if isinstance(algorithm, aq.GrowingLBFGS):
        return sum(stage_at(algorithm.stages, version).share for version in range(commits))
    return float(commits)


def commits_to(model: Any, algorithm: Any, workers: int, levels: list[float]) -> list[int | None]:
    """Return the first commit at which U is at most each of `levels`, of which the last is the lowest."""
    found: list[int | None] = [None] * len(levels)

    def look(progress: Progress) -> None:
        for i, level in enumerate(levels):
            if found[i] is None and progress.metrics["fun"] <= level:
                found[i] = progress.commit
        if found[-1] is not None or passes(algorithm, progress.commit) > MOST:
            raise StopIteration

    aq.minimize(model, algorithm, engine=aq.Threads(workers), commits=1500, evaluate=1, callback=look)
    return found


def seconds_of(model: Any, algorithm: Any, workers: int, commits: int) -> float:
    run = aq.minimize(model, algorithm, engine=aq.Threads(workers), commits=commits, evaluate=commits)
    return float(run.metrics["time"][-1])


def ours(model: Any, levels: list[float], repeats: int) -> Iterator[Record]:
    methods = []
    for workers in (1, 2):
        methods.append((f"growing L-BFGS, W = {workers}", growing(model, workers), workers))
        methods.append((f"Block L-BFGS, W = {workers}", exact_blocks(model, workers), workers))
    methods.append(("Block L-BFGS with M = 100, W = 2", exact_blocks(model, 2, 100), 2))
    commits = [commits_to(model, algorithm, workers, levels) for _, algorithm, workers in methods]
    for i, target in enumerate(TARGETS):
        best = [math.inf] * len(methods)
        for _ in range(repeats):  # one after the other, so that a busy minute falls on all
            for k, (_, algorithm, workers) in enumerate(methods):
                if (n := commits[k][i]) is not None:
                    best[k] = min(best[k], seconds_of(model, algorithm, workers, n))
        for k, (name, algorithm, _) in enumerate(methods):
            n = commits[k][i]
            yield {
                "method": name,
                "target": target,
                "setting": "",
                "passes": math.inf if n is None else passes(algorithm, n),
                "seconds": best[k],
            }


def optimum(model: Any, theta0: np.ndarray) -> float:
    """U at the end of a long run with a long memory, then of Newton's steps where the Hessian is simple."""
    grown = aq.GrowingLBFGS(2, 4, memory=100)
    commits = grown.growing_versions + 150
    run = aq.minimize(model, grown, theta0=theta0, engine=aq.Threads(2), commits=commits, evaluate=commits)
    if not isinstance(model, aq.LogisticRegression):
        return run.fun
    theta, g, everything = run.theta.astype(np.float64), np.empty(model.dim), np.arange(model.n_data)
    exact = aq.LogisticRegression(model.X.astype(np.float64), model.y, model.prior)
    for _ in range(4):
        exact.grad(theta, everything, g)
        H = model.prior * np.eye(model.dim)
        for first in range(0, model.n_data, 50_000):
            X = exact.X[first : first + 50_000]
            chance = 1.0 / (1.0 + np.exp(-X @ theta))
            H += (X * (chance * (1.0 - chance))[:, None]).T @ X
        theta = theta - np.linalg.solve(H, g)
    return min(run.fun, exact.value(theta))


def _kind(method: str) -> str:
    return "ours" if "W = " in method else "peers"


def measure(problem: str, methods: list[str], repeats: int) -> None:
    model = PROBLEMS[problem]()
    theta0 = aq.minimize(model, engine=aq.Threads(1), commits=1, evaluate=1).theta0
    start, lowest = model.value(theta0), optimum(model, theta0)
    levels = [lowest + target * (start - lowest) for target in TARGETS]
    print(problem, "U0", start, "U*", lowest, flush=True)
    records: list[Any] = [
        row
        for row in read("large_data/speed")
        if row["problem"] != problem or _kind(row["method"]) not in methods
    ]

    def take(found: Iterator[Record]) -> None:
        for record in found:
            records.append({"problem": problem, **record})
            print(records[-1], flush=True)
        write("large_data/speed", records, 4)

    if "ours" in methods:
        take(ours(model, levels, repeats))
    if "peers" in methods:
        take(scipy_lbfgsb(model, theta0, levels, repeats))
        if isinstance(model, aq.LogisticRegression):
            take(sklearn_solvers(model, levels))
            take(sklearn_sgd(model, levels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("problems", nargs="*", help=f"of {', '.join(PROBLEMS)}; all if none is named")
    parser.add_argument("--methods", nargs="+", choices=["ours", "peers"], default=["ours", "peers"])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with one_blas_thread():
        for problem in given.problems or PROBLEMS:
            measure(problem, given.methods, given.repeats)


if __name__ == "__main__":
    main()
