"""The cells of the laboratory: a family of problems on a simulated cluster, and the time to a level in one.

Time is in passes: what W workers need for the gradients of all rows, n c / W with c = 1 the time of a row.  A
row is taken to last 100 microseconds, so that a message of 10 (half each way) lasts 1 ms.  The gradient of m
rows takes m on average, and a commit what it costs this method on a real core (`commits`).  The clusters have
the same mean rate:

    lognormal   standard deviation 0.3 of the mean
    speeds      the same, and workers whose speeds lie between 1 and 100
    die         the same as lognormal, and every second worker is gone after 0.3 passes
    pareto      shape 1.5: no variance
    dear        the same as lognormal, with messages of 1000

The gap is (U - U*) / (U(theta0) - U*).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.core.stages import Closes
from asyncqn.types import Progress
from benchmarks.studies.laboratory.commits import commit_time, first_stage
from benchmarks.studies.laboratory.problems import (
    CONVEX,
    FAMILIES,
    GAPS,
    Problem,
    problem,
)

LAWS = ("lognormal", "speeds", "die", "pareto")
MESSAGE, DEAR, MASTER, SPREAD = 10.0, 1000.0, 0.1, 0.3
LENGTH = {"network": 60.0, "convolution": 60.0, "movielens": 60.0}
"""Passes that every method is given, where it is not 12 (convex) or 100."""
LOOKS, BETWEEN = 60, 16
"""Evaluations of U in a run, and iterates that are kept between two of them: those between the last
evaluation above a level and the first below it are evaluated afterwards, so times are known to one in 960 of
the run (one in 240 where theta is long)."""
LONG = 10_000
FEW_ROWS = ("profiled", "convolution")
"""Families with too few rows for 400 workers."""


class Cell(NamedTuple):
    """A family of problems, a number of workers, and the kind of the cluster."""

    family: str
    workers: int
    kind: str

    @property
    def message(self) -> float:
        return DEAR if self.kind == "dear" else MESSAGE


def cells() -> Iterator[Cell]:
    """Yield all cells, the most important first; families whose runs take long come last."""
    quick = [
        family for family in FAMILIES if family not in ("convolution", "movielens")
    ]
    clusters = (
        *(
            (40, "lognormal"),
            (16, "lognormal"),
            (4, "lognormal"),
            (400, "lognormal"),
            (40, "speeds"),
        ),
        *(
            (40, "dear"),
            (400, "speeds"),
            (16, "speeds"),
            (40, "die"),
            (40, "pareto"),
            (4, "speeds"),
        ),
    )
    for families in (quick, ["convolution"]):
        for workers, kind in clusters:
            enough = [
                family
                for family in families
                if workers <= 100 or family not in FEW_ROWS
            ]
            yield from (Cell(family, workers, kind) for family in enough)
    yield from (Cell("movielens", workers, "lognormal") for workers in (40, 10))


def length(family: str) -> float:
    """Return how many passes every method is given."""
    return LENGTH.get(family, 12.0 if family in CONVEX else 100.0)


def cluster(
    kind: str, workers: int, n_data: int, row: float = 1.0, master: float = MASTER
) -> aq.Cluster:
    """Return a cluster on which the gradient of a row takes `row` on average."""
    message = DEAR if kind == "dear" else MESSAGE
    if kind == "pareto":
        pareto = aq.Pareto(mean=row, shape=1.5)
        return aq.Cluster(workers, times=pareto, message=message, master=master, rows=1)
    slowness = (
        np.geomspace(0.1, 10.0, workers) if kind == "speeds" else np.ones(workers)
    )
    mean = row * slowness * np.mean(1.0 / slowness)
    deaths = (
        dict.fromkeys(range(1, workers, 2), 0.3 * n_data * row / workers)
        if kind == "die"
        else {}
    )
    return aq.Cluster(
        workers,
        mean.tolist(),
        (SPREAD * mean).tolist(),
        message,
        master,
        deaths,
        rows=1,
    )


def _commits_of_a_pass(
    cell: Cell, algorithm: Any, told: Problem, master: float
) -> float:
    """Return how many commits the master makes in the time of a pass, where updates are commits."""
    stage, n = first_stage(algorithm), told.model.n_data
    rows = float(algorithm.batch) if stage.blocks is None else n / stage.blocks
    updates = cell.workers / (rows * told.row + cell.message)
    return (
        min(updates / (stage.updates or 1), 1.0 / master) * n * told.row / cell.workers
    )


class Trace(NamedTuple):
    """What a run says: passes to each level (infinite: not reached), and its commits."""

    passes: list[float]
    commits: int


def trace(
    cell: Cell,
    draw: int,
    algorithm: Any,
    seed: int,
    gap: float = GAPS[-1],
    hopeless: Callable[[float, float], bool] = lambda passes, least: False,
) -> Trace:
    """Run a method in a cell until `gap` is reached, and say when it reached each level.

    hopeless: called with the passes so far and the least gap so far at every evaluation; True ends the run.
    """
    told, most = problem(cell.family, draw), length(cell.family)
    n, unit = told.model.n_data, told.model.n_data * told.row / cell.workers
    stage = first_stage(algorithm)
    master = commit_time(algorithm, told.model.dim)
    if stage.closes is Closes.ALL_PARTS:
        commits, evaluate, keep = 2000, 1, None
    else:
        a_pass = _commits_of_a_pass(cell, algorithm, told, master)
        commits = math.ceil(1.5 * most * a_pass) + 50
        between = BETWEEN if told.model.dim < LONG else BETWEEN // 4
        keep = max(1, int(most * a_pass / LOOKS / between))
        evaluate = between * keep if keep > 1 else max(1, int(most * a_pass / LOOKS))
    least = math.inf

    def look(progress: Progress) -> None:
        nonlocal least
        passes = progress.time / unit
        least = min(least, told.gap(progress.metrics["fun"]))
        if (passes > most / 4 and least >= 1.0) or hopeless(passes, least):
            raise StopIteration

    run = aq.minimize(
        told.model, algorithm,
        engine=aq.Simulator(cluster(cell.kind, cell.workers, n, told.row, master)), theta0=told.theta0,
        seed=seed, commits=commits, evaluate=evaluate, max_time=most * unit, target=told.level(gap),
        tol=None, check=False, callback=look, keep=keep,
    )  # fmt: skip
    return Trace([_reached(run, told, level) / unit for level in GAPS], run.nit)


def _reached(run: aq.Run, told: Problem, gap: float) -> float:
    """Return the time of the first point known to be below a level; infinite: there is none."""
    level = told.level(gap)
    below = np.flatnonzero(run.metrics["fun"] <= level)
    if below.size == 0:
        return math.inf
    found = float(run.metrics["time"][below[0]])
    if run.keep is None or below[0] == 0:
        return found
    before, after = run.metrics["commit"][below[0] - 1 : below[0] + 1]
    for commit, theta in zip(run.keep.commit, run.keep.theta, strict=True):
        if before < commit < after and told.model.value(theta) <= level:
            return float(run.schedule.commit_times()[commit - 1])
    return found
