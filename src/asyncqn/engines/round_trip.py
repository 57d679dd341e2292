"""The time of a message on a real engine, measured by exchanges in which nothing is computed.

The engine itself carries out a short run whose workers send an empty update as soon as they receive a task.
What such an exchange takes is what the way to the master and back takes: locks or sockets, the copies of the
numbers, and the master's bookkeeping.  No engine needs a second implementation of its messages for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncqn.core.request import Engine, Request
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.types import Array, Commit, Problem, Rows, Task

EXCHANGES = 20
"""Exchanges of every worker: enough for a shortest one without a disturbance, in milliseconds in all."""


class Nothing:
    """A problem of `dim` numbers whose gradient is zero."""

    n_data = 1

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def value(self, theta: Array) -> float:
        return 0.0

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        out[:] = 0.0


class Iterate(NamedTuple):
    """The numbers that workers read."""

    theta: Array


class Update(NamedTuple):
    """As large as that of `TableLBFGS`: a gradient, and the point where it was taken."""

    gradient: Array
    point: Array


@dataclass(frozen=True)
class Echo:
    """An algorithm whose workers send zeros, and whose master leaves theta as it is."""

    stages = ASYNCHRONOUS

    def init(self, theta0: Array) -> Iterate:
        return Iterate(theta0.copy())

    def init_worker(self, problem: Problem, theta0: Array) -> Update:
        return Update(np.zeros_like(theta0), np.zeros_like(theta0))

    def step(
        self, view: Iterate, local: Update, problem: Problem, task: Task
    ) -> Update:
        return local

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        return iterate


def round_trip_seconds(engine: Engine, theta0: Array) -> float | None:
    """Return the shortest time of an exchange on an engine whose unit of time is a second.

    Parameters
    ----------
    engine : Engine
        The engine; it carries out a run of `EXCHANGES` exchanges per worker on average.
    theta0 : array
        A message to a worker has as many numbers, and one to the master twice as many.

    Returns
    -------
    float or None
        Seconds; None on a rank of MPI that does not have the run.
    """
    # Without evaluations: the master's time between two exchanges is what is measured.
    commits = EXCHANGES * engine.workers
    request = Request(Nothing(theta0.size), Echo(), theta0, commits, evaluate=None)
    run: Any = engine.minimize(request)
    if run is None:
        return None
    # Each commit is one update here, so the rows of the schedule are the commits in their order.
    when, who = run.schedule.commit_times(), run.schedule.worker[: run.schedule.commits]
    # From one commit of a worker to its next: a message there and one back.
    gaps = np.concatenate(
        [np.diff(when[who == worker]) for worker in range(engine.workers)]
    )
    # The shortest, because whatever else runs on the machine can only make an exchange longer.
    return float(gaps.min())
