"""What the benchmarks of messages exchange: theta and u to a worker, as much back, and no computation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.paper.as_lbfgs import Iterate, Update
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.kernels.vectors import add_two
from asyncqn.types import Array, Commit, Problem, Task


class Echo:
    """as-L-BFGS's messages without its arithmetic: every update is zero."""

    stages = ASYNCHRONOUS

    def init(self, theta0: Array) -> Iterate:
        return Iterate(theta0.copy(), np.zeros_like(theta0))

    def init_worker(self, problem: Problem, theta0: Array) -> Update:
        return Update(np.zeros_like(theta0), np.zeros_like(theta0))

    def step(
        self, view: Iterate, local: Update, problem: Problem, task: Task
    ) -> Update:
        return local

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        for update in updates:
            add_two(iterate.theta, update.d_theta, iterate.u, update.d_u)
        return iterate


def commit_rate(run: aq.Run) -> float:
    """Commits per second, from the first to the last."""
    times = run.schedule.commit_times()
    # Without the start, when every worker has to be reached once.
    return float((run.nit - 1) / (times[-1] - times[0]))
