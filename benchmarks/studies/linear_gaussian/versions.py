"""Times of a version of Block L-BFGS on simulated clusters, and the choice of when to help.

    python -m benchmarks.studies.linear_gaussian.versions [PART ...]

PART is one of: lengths (pieces, help and spread at every number of workers), uneven (one worker four
times slower than the others), help_after (the two constants of the rule for helpers), threads
(milliseconds per version of two real threads); without a PART all of them.  Tables go to
docs/results/beyond/.  A simulated worker's mean is 1000 / W, as in the linear Gaussian suite, with
messages of 10 and a master of 30.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit

from asyncqn import (
    BlockLBFGS,
    Cluster,
    LinearGaussian,
    Threads,
    minimize,
    simulate,
)
from asyncqn.algorithms.defaults import MAX_PIECES, pieces_of_a_block
from asyncqn.cluster.simulate import _timing
from asyncqn.core.stages import blocks
from asyncqn.kernels import blocks as module
from asyncqn.types import Problem
from asyncqn_paper.records import Record
from asyncqn_paper.settings import MESSAGE
from asyncqn_recommender import MatrixFactorization
from benchmarks.studies.tables import write

WORKERS = (2, 5, 10, 20, 40, 80)
SPREADS = (0.0, 1.0, 3.0, 5.0, 8.0, math.sqrt(200.0), 30.0, 100.0)
NEVER, MASTER, SEED = 1e9, 30.0, 3
RULES = {
    "no help": (NEVER, 1),
    "in one piece": (3.0, 1),
    "in 2 pieces": (2.0, 2),
    "in 4 pieces": (2.0, 4),
    "in 8 pieces": (2.0, 8),
}


def length(cluster: Cluster, backup_after: float, pieces: int, versions: int = 600) -> float:
    """Return the mean length of a version, with as many blocks as workers."""
    pattern = blocks(cluster.workers, backup_after, pieces)
    return float(simulate(cluster, pattern, versions, SEED).commit_times()[-1]) / versions


def show(records: list[Record]) -> None:
    for record in records:
        print(*(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items()), sep=", ")


def lengths() -> None:
    records: list[Record] = []
    for workers, spread in itertools.product(WORKERS, SPREADS):
        cluster = Cluster(workers, 1000.0 / workers, spread, MESSAGE, MASTER)
        records.append(
            {
                "workers": workers,
                "sigma_w": spread,
                **{name: length(cluster, *rule) for name, rule in RULES.items()},
            }
        )
    write("beyond/versions", records)
    show([record for record in records if record["workers"] == 40])


def uneven() -> None:
    """Worker 0 is four times slower, in its mean and in its spread."""
    records: list[Record] = []
    for workers, spread in itertools.product(WORKERS, (0.0, 1.0, math.sqrt(200.0))):
        mean = 1000.0 / workers
        means, stds = (4 * mean, *[mean] * (workers - 1)), (4 * spread, *[spread] * (workers - 1))
        cluster = Cluster(workers, means, stds, MESSAGE, MASTER)
        records.append(
            {
                "workers": workers,
                "sigma_w": spread,
                **{name: length(cluster, *rule) for name, rule in RULES.items()},
            }
        )
    write("beyond/versions_uneven", records)
    show(records)


def _queue(deviations: float) -> Any:
    """Return the event queue with another constant in the place of `DEVIATIONS`."""
    plain = module.blocks.py_func  # type: ignore[attr-defined]
    changed = FunctionType(plain.__code__, {**plain.__globals__, "DEVIATIONS": deviations}, plain.__name__)
    return njit(error_model="numpy")(changed)


def help_after() -> None:
    """Mean and worst length over the grid, relative to the best rule of each cell, for blocks in pieces."""
    rules = [*itertools.product((1.0, 1.2, 1.5, 2.0, 3.0), (3.0, 4.0, 6.0)), (0.0, 0.0), (NEVER, 0.0)]
    queues = {deviations: _queue(deviations) for deviations in {d for _, d in rules}}
    versions, records = 200, []
    for master, message in ((30.0, 10.0), (0.0, 10.0), (0.0, 0.0)):
        table = np.empty((len(rules), len(WORKERS) * len(SPREADS)))
        for cell, (workers, spread) in enumerate(itertools.product(WORKERS, SPREADS)):
            timing = _timing(Cluster(workers, 1000.0 / workers, spread, message, master))
            size = 8 * versions * workers * MAX_PIECES
            columns = [np.zeros(size, np.int32) for _ in range(3)]
            columns += [np.zeros(size), np.zeros(size, np.int32)]
            for i, (backup_after, deviations) in enumerate(rules):
                n, rows, short = queues[deviations](
                    *timing, workers, backup_after, 1.0, MAX_PIECES, SEED, versions, *columns
                )
                assert (n, short) == (versions, -1), "the columns are too short"
                table[i, cell] = columns[3][:rows].max() / versions
        table /= table.min(axis=0)
        for (backup_after, deviations), relative in zip(rules, table):
            records.append(
                {
                    "master": master,
                    "message": message,
                    "backup_after": backup_after,
                    "deviations": deviations,
                    "mean": float(np.exp(np.log(relative).mean())),
                    "worst": float(relative.max()),
                }
            )
    write("beyond/help_after", records)
    show(records)


def _ratings(users: int, items: int, n: int) -> MatrixFactorization:
    rng = np.random.default_rng(0)
    who, what, rated = rng.integers(0, users, n), rng.integers(0, items, n), rng.integers(1, 6, n)
    return MatrixFactorization(who, what, rated, n_users=users, n_items=items, rank=5)


PROBLEMS: dict[str, tuple[Callable[[], Problem], int]] = {
    "dense rows, d = 100, n = 600": (lambda: LinearGaussian.random(dim=100, n_data=600), 300),
    "dense rows, d = 100, n = 100,000": (lambda: LinearGaussian.random(dim=100, n_data=100_000), 30),
    "ratings, d = 50,000, n = 20,000": (lambda: _ratings(6000, 4000, 20_000), 100),
    "ratings, d = 50,000, n = 200,000": (lambda: _ratings(6000, 4000, 200_000), 40),
    "ratings, d = 50,000, n = 1,000,000": (lambda: _ratings(6000, 4000, 1_000_000), 15),
}
"""A problem, and how many versions a run of it has."""


def threads(repeats: int = 7) -> None:
    """Two threads: the best of several runs, taken in turn, with 1, 2 and 4 pieces."""
    records: list[Record] = []
    for name, (make, versions) in PROBLEMS.items():
        problem = make()
        theta0 = 0.3 * np.random.default_rng(1).standard_normal(problem.dim)
        times: dict[int, list[float]] = {1: [], 2: [], 4: []}
        for _, pieces in itertools.product(range(repeats), times):
            run = minimize(
                problem,
                BlockLBFGS(2, pieces=pieces),
                engine=Threads(2),
                theta0=theta0,
                commits=versions,
                evaluate=versions,
            )
            times[pieces].append(1e3 * float(run.metrics["time"][-1]) / versions)
        rule = pieces_of_a_block(problem.dim, problem.n_data, 2)
        best = {f"ms in {pieces}": min(measured) for pieces, measured in times.items()}
        records.append({"problem": name, "pieces by the rule": rule, **best})
        show(records[-1:])
        write("beyond/pieces_on_threads", records)


PARTS = {part.__name__: part for part in (lengths, uneven, help_after, threads)}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
