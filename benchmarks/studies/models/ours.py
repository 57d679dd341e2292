"""Our methods on one thread: passes and processor time to each level of U.

A run gives the same numbers each time, so the commit that reaches a level is looked for once, with U after
every commit, and then timed without looking: from the call of `minimize` until the first computation on the
version that this commit makes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.defaults import default_algorithm
from asyncqn.types import Progress, Task
from benchmarks.studies.models.rivals import NEVER, Method, Reached

LOOK = 40.0
"""Processor seconds after which nobody is waited for, U after every commit included."""


def previous_default(problem: Any) -> Any:
    """Return what `minimize` chose before models provided their curvature: ten rows per parameter."""
    # Kept here as it was, so that later changes of the defaults do not change the comparison.
    wave, levels = max(1000, 10 * problem.dim), 0
    while problem.n_data > wave * 4 ** (levels + 1):
        levels += 1
    memory = 100 if problem.dim <= 1000 else 20
    return aq.GrowingLBFGS(1, levels, memory=memory) if levels else aq.BlockLBFGS(1, memory)


def default(problem: Any) -> Any:
    return default_algorithm(problem, 1)


def ours(choose: Any) -> Method:
    """Return the algorithm that `choose(problem)` names."""

    def measure(problem: Any, levels: Sequence[float], limit: float) -> list[Reached]:
        algorithm = choose(problem)
        found: list[int | None] = [None] * len(levels)
        begin = time.process_time()

        def look(progress: Progress) -> None:
            for i, level in enumerate(levels):
                if found[i] is None and progress.metrics["fun"] <= level:
                    found[i] = progress.commit
            if found[-1] is not None or time.process_time() - begin > LOOK:
                raise StopIteration

        aq.minimize(
            problem, algorithm, engine=aq.Threads(1), commits=3000, evaluate=1, callback=look, tol=None
        )
        return [NEVER if n is None else timed(problem, algorithm, n) for n in found]

    return measure


def timed(problem: Any, algorithm: Any, commits: int) -> Reached:
    """Time a run until its first computation on version `commits`."""
    plain, reached = type(algorithm).step, 0.0

    def step(self: Any, view: Any, local: Any, problem: Any, task: Task) -> Any:
        nonlocal reached
        if task.read == commits and reached == 0.0:
            reached = time.process_time()
        return plain(self, view, local, problem, task)

    for name in ("_unseen", "_column_squares", "_block"):  # what the first run remembers
        vars(problem).pop(name, None)
    begin = time.process_time()
    # The clock is read in the worker's step, so that no evaluation of U is part of the time.
    with patch.object(type(algorithm), "step", step):
        run = aq.minimize(
            problem, algorithm, engine=aq.Threads(1), commits=commits + 1, evaluate=commits + 1, tol=None
        )
    return Reached(run.passes - share_of_version(algorithm, problem.n_data, commits), reached - begin)


def share_of_version(algorithm: Any, n_data: int, version: int) -> float:
    """Return the share of the rows that the computations on a version look at."""
    parts = np.arange(algorithm.blocks * algorithm.pieces)
    return float(algorithm.rows_of(n_data, np.full(len(parts), version), parts).sum()) / n_data
