"""What a commit costs the master: processor seconds of `apply` on a real core, by method and d.

    python -m benchmarks.studies.laboratory.commits       writes docs/results/laboratory/commits.csv; goes on
                                                          where it stopped, so delete it to measure anew

Every method makes commits on the problems of the laboratory, on a simulated cluster, while the processor time
of its `apply` is taken.  The first third is left out; the rest is cut into eight stretches, and the median of
their means counts, so that the rare long commits (a window of the table that closes) have their share.  Of
five such runs the quickest counts.

A method's commit of k updates is charged a + b d + k (c + e d), with coefficients that are not negative and
fit the measured times by least relative squares; c = e = 0 where k = 1.  With a row of 100 microseconds, the
charge is that divided by 100 microseconds.  A method of several stages is charged by its first.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import nnls

import asyncqn as aq
from asyncqn.algorithms import ALGORITHMS
from asyncqn.core.stages import Closes, Stage
from asyncqn.types import Algorithm
from benchmarks.studies.tables import read, write

TABLE = "laboratory/commits"
ROW_SECONDS = 1e-4
STRETCHES = 8
REPEATS = 5
"""Runs of a method, of which the quickest counts: on a busy machine others take up to twice as long."""
FAMILIES = (
    "linear",
    "logistic",
    "network",
    "convolution",
    "profiled",
    "factorization",
    "movielens",
)


def method_of(algorithm: Algorithm) -> str:
    """Return the name under which commits are charged: the kind, whether a scatter is kept, and how often a
    table steps."""
    kind = ALGORITHMS.name_of(type(algorithm)) or type(algorithm).__name__
    by_scatter = (
        getattr(algorithm, "scatter", False)
        or getattr(algorithm, "initial_scale", "") == "scatter"
    )
    every = getattr(algorithm, "every", 1)
    kind = f"{kind} every {every}" if every > 1 else kind
    return f"{kind} by scatter" if by_scatter is True else kind


def first_stage(algorithm: Algorithm) -> Stage:
    """Return the first stage that has commits: a warm-up may have none."""
    return next(stage for stage in algorithm.stages if stage.commits != 0)


def updates_of(stage: Stage) -> int:
    """Return how many updates a commit of a stage has."""
    return stage.parts or 1 if stage.closes is Closes.ALL_PARTS else stage.updates or 1


def seconds_of_a_commit(
    model: Any, algorithm: Any, theta0: Any, workers: int, commits: int
) -> float:
    """Return the median over stretches of a run of the mean processor time of `apply`."""
    taken: list[float] = []

    def apply(self: Any, *given: Any) -> Any:
        begin = time.thread_time()
        iterate = kind.apply(self, *given)
        taken.append(time.thread_time() - begin)
        return iterate

    kind = type(algorithm)
    timed = type(kind.__name__, (kind,), {"apply": apply})(
        **{field.name: getattr(algorithm, field.name) for field in fields(algorithm)}
    )
    engine = aq.Simulator(
        aq.Cluster(workers, 1.0, 0.3, message=10.0, master=0.1, rows=1)
    )
    aq.minimize(
        model,
        timed,
        engine=engine,
        theta0=theta0,
        commits=commits,
        evaluate=0,
        tol=None,
        check=False,
    )
    steady = np.array_split(np.array(taken[len(taken) // 3 :]), STRETCHES)
    return statistics.median(float(part.mean()) for part in steady if part.size)


def _cases(family: str, model: Any) -> Iterator[tuple[int, Any, int]]:
    """Yield workers, algorithm and commits of every measurement on a problem."""
    from benchmarks.studies.laboratory.ours import our_methods

    n, few = model.n_data, {"movielens": 120, "convolution": 400}.get(family, 1000)
    batch, h = max(1, n // 2000), 1e-12
    for scatter in (False, True):
        yield 40, aq.DelayAdaptiveSGD(h=h, batch=batch, tau=40, scatter=scatter), few
        yield 40, aq.Ringmaster(h=h, batch=batch, max_delay=80, scatter=scatter), few
        yield 40, aq.AsyncSAGA(h=h, parts=min(n // 2, 300), scatter=scatter), few
        for collect in (4, 40):
            yield (
                40,
                aq.Rennala(h=h, batch=batch, collect=collect, scatter=scatter),
                max(30, few // collect),
            )
    for workers in (4, 16, 40, 400) if n >= 20_000 else (4, 16, 40):
        for method, algorithm in our_methods(model, workers, 10.0).items():
            single = method == "table"
            if workers >= 40 or not single:
                # Long enough for a memory that is full, so that the steps cost what they do in a run.
                most = (
                    40
                    if not single
                    else 120
                    if family == "movielens"
                    else 4 * algorithm.parts
                )
                yield workers, algorithm, most


def measure() -> list[dict[str, Any]]:
    """Measure what the table lacks, and write it row by row."""
    from benchmarks.studies.laboratory.problems import problem

    rows: list[dict[str, Any]] = list(read(TABLE))
    seen = {(row["method"], row["problem"], int(row["updates"])) for row in rows}
    for family in FAMILIES:
        told = problem(family)
        for workers, algorithm, commits in _cases(family, told.model):
            method, updates = method_of(algorithm), updates_of(first_stage(algorithm))
            if (method, family, updates) in seen:
                continue
            seen.add((method, family, updates))
            runs = [
                seconds_of_a_commit(
                    told.model, algorithm, told.theta0, workers, commits
                )
                for _ in range(REPEATS)
            ]
            seconds = min(runs)
            rows.append({
                "method": method, "problem": family, "d": told.model.dim, "updates": updates,
                "microseconds": 1e6 * seconds,
            })  # fmt: skip
            write(TABLE, rows, digits=4)
            print(*rows[-1].values(), flush=True)
    return rows


@lru_cache(maxsize=1)
def fits() -> dict[str, tuple[float, float, float, float]]:
    """Return a, b, c, e in microseconds, by method."""
    found = {}
    rows = read(TABLE)
    for method in dict.fromkeys(row["method"] for row in rows):
        d, k, taken = (
            np.array([float(row[name]) for row in rows if row["method"] == method])
            for name in ("d", "updates", "microseconds")
        )
        several = float((k > 1).any())
        columns = np.stack([np.ones_like(d), d, several * k, several * k * d], axis=1)
        scale = np.array([1.0, 1e-3, 1.0, 1e-3])
        solution, _ = nnls(columns * scale / taken[:, None], np.ones_like(d))
        found[method] = tuple(float(x) for x in solution * scale)
    return found


def commit_time(algorithm: Algorithm, dim: int) -> float:
    """Return what a commit of the first stage costs, in units of a row's gradient."""
    a, b, c, e = fits()[method_of(algorithm)]
    return (
        (a + b * dim + updates_of(first_stage(algorithm)) * (c + e * dim))
        * 1e-6
        / ROW_SECONDS
    )


if __name__ == "__main__":
    measure()
    for name, numbers in fits().items():
        print(name, *(f"{number:.4g}" for number in numbers))
    sys.exit(0)
