"""Asynchronous SAGA (Defazio, Bach, Lacoste-Julien 2014; Leblond, Pedregosa, Lacoste-Julien 2017) over parts.

The rows are cut into P parts; g_i is part i's share of the gradient times P, so that the mean of all g_i is
the gradient of U.  A worker computes g_i of the part that it receives; the master stores the last of every
part:

    theta -= h (g_i - table_i + mean of the table),    table_i = g_i

The master assigns parts at random.  Leblond's workers share
the memory; here the master holds the table, and table_i and the mean are those of the moment of the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.paper.async_sgd import StochasticGradient
from asyncqn.algorithms.parameters import Parts, StepSize
from asyncqn.algorithms.parts import rows_of_parts
from asyncqn.core.stages import EachUpdate, Stages
from asyncqn.errors import require
from asyncqn.kernels.vectors import add_scaled
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task

LARGEST_TABLE = 2**30
"""Largest size of the master's table, in bytes; more parts than fit are refused.  Our own choice."""


class Iterate(NamedTuple):
    """The master's theta, the newest g of every part (zeros before the first) and their mean."""

    theta: Array
    table: Array
    mean: Array


class Update(NamedTuple):
    """g_i of a part."""

    g: Array
    part: int


class Worker(NamedTuple):
    """A buffer: a worker remembers nothing."""

    g: Array


@dataclass(frozen=True)
class AsyncSAGA(StochasticGradient):
    """Asynchronous SAGA over parts of the data.

    Parameters
    ----------
    parts : int
        P: number of parts into which the rows are cut; parts of about ten rows were best. The master stores
        P * dim numbers.

    Notes
    -----
    With g_i the gradient of part i times P, and a table of the newest g_i of every part,

        theta -= h (g_i - table_i + mean of the table),    table_i = g_i

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.AsyncSAGA(h=1e-4, parts=20)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=300)
    >>> run.success and run.fun < problem.value(run.theta0)
    True
    """

    h: StepSize
    parts: Parts

    sent = ("theta",)

    @classmethod
    def example(cls, problem: Problem) -> AsyncSAGA:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, parts=6)

    def check(self, problem: Problem) -> None:
        n, d = int(problem.n_data), int(problem.dim)
        require(
            self.parts <= n,
            f"{n} rows cannot be cut into {self.parts} parts: use fewer.",
        )
        require(
            8 * self.parts * d <= LARGEST_TABLE,
            f"a table of {self.parts} gradients of {d} numbers is too large for the master: use fewer parts.",
        )

    @property
    def stages(self) -> Stages:  # type: ignore[override]
        return (EachUpdate(blocks=self.parts, order="random"),)

    def init(self, theta0: Array) -> Iterate:
        table = np.zeros((self.parts, theta0.size), theta0.dtype)
        return Iterate(theta0.copy(), table, np.zeros_like(theta0))

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        return Worker(np.zeros_like(theta0))

    def step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        n, P = problem.n_data, self.parts
        i = task.part
        assert i is not None
        # Parts are as equal as integers allow.
        rows = np.arange(i * n // P, (i + 1) * n // P)
        problem.grad(view.theta, rows, local.g)
        # `grad` estimates the whole gradient from the rows of the part; scaled by the part's true share, the
        # mean over all parts is exact, even where parts differ by a row.
        local.g[:] *= rows.size * P / n
        return Update(local.g, i)

    def advice(
        self, problem: Problem, theta0: Array, workers: int, locals_: Sequence[Worker]
    ) -> str:
        return f"the step h = {self.h:g} is too large; use a smaller h, or fewer parts with more rows each."

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        return rows_of_parts(n_data, self.parts, part)

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        theta, table, mean = iterate
        for update in updates:
            entry = table[update.part]
            # The table entry and the mean are those of this commit, not those that the worker saw.
            change = update.g - entry
            entry[:] = update.g
            # The step uses the mean before it is updated, as SAGA is defined.
            add_scaled(theta, -self.h, change + mean)
            add_scaled(mean, 1.0 / self.parts, change)
        return iterate
