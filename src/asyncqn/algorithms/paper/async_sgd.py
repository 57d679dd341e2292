"""a-SGD: asynchronous SGD with consistent reads (Lian, Huang, Li, Liu 2015).

A worker computes d_theta = -h g on a fresh Omega at the theta it received; the master adds it.
`StochasticGradient` is that much, and the base of all first-order algorithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.parameters import BatchSize, Published, Sampling, StepSize
from asyncqn.algorithms.stability import delay_limit, largest_curvature
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.kernels.vectors import add_one
from asyncqn.parameters import Checked
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task


class Worker(NamedTuple):
    """Buffers of a worker, which has no memory of its earlier steps."""

    Omega: Rows
    d_theta: Array


class Update(NamedTuple):
    """A worker's message: -h g on its Omega."""

    d_theta: Array


class Iterate(NamedTuple):
    """The master's theta."""

    theta: Array


class StochasticGradient(Checked):
    """Base of the first-order algorithms: a worker's update is -h g, which the master adds to theta.

    A subclass usually overrides `apply`, what the master does with an update, or `stages`, when it commits.

    Parameters
    ----------
    h : float
        Step size for the sum U, in units of 1 / curvature; docs/guide/step-size.md searches for one.
    batch : int
        N_Omega: rows of one stochastic gradient.
    sampling : str, default "replacement"
        How a worker draws its rows. "replacement" draws independent rows, as in the paper. "shuffled" makes
        passes over the data, each in a random order of the worker's own. "blocks" makes passes over blocks of
        consecutive rows, in random order. "shards-K" draws independent rows of the worker's own shard, one of
        K.
    """

    h: float
    batch: int
    sampling: str
    stages = ASYNCHRONOUS

    def init(self, theta0: Array) -> Any:
        return Iterate(theta0.copy())

    def init_worker(self, problem: Problem, theta0: Array) -> Any:
        return Worker(np.zeros(self.batch, np.int64), np.zeros_like(theta0))

    def step(self, view: Any, local: Any, problem: Problem, task: Task) -> Any:
        Omega = task.stream.rows(problem.n_data, local.Omega, self.sampling)
        problem.grad(view.theta, Omega, local.d_theta)
        # Scaled by the worker, so that the master only adds.
        np.multiply(local.d_theta, -self.h, out=local.d_theta)
        return Update(local.d_theta)

    def apply(self, iterate: Any, updates: Sequence[Any], commit: Commit) -> Any:
        for update in updates:
            add_one(iterate.theta, update.d_theta)
        return iterate

    def step_limit(self, curvature: float, workers: int) -> float:
        """Return the largest stable h for this curvature, where each gradient is W - 1 commits old."""
        # Each eigendirection of U is x_{n+1} = x_n - h lambda x_{n-l}: the stiffest one limits h.
        return delay_limit(max(workers - 1, 0)) / max(curvature, 1e-300)

    def advice(
        self, problem: Problem, theta0: Array, workers: int, locals_: Sequence[Any]
    ) -> str:
        # Only after a divergence: the estimate costs a dozen gradients.
        curvature = largest_curvature(problem, theta0)
        limit = self.step_limit(curvature, workers)
        if self.h >= limit:
            return (
                f"the step h = {self.h:g} is above the limit {limit:.2g} for curvature {curvature:.3g} and a "
                f"staleness of about {workers - 1}; use a smaller h or fewer workers."
            )
        return (
            f"the step h = {self.h:g} is too large for gradients on {self.batch} points; "
            "use a smaller h or a larger batch."
        )

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        return np.full(read.size, self.batch, np.int64)


@dataclass(frozen=True)
class AsyncSGD(StochasticGradient, Published):
    """Asynchronous SGD: the master adds each worker's gradient step as it arrives.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.AsyncSGD(h=1e-4, batch=20)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=300)
    >>> run.success and run.fun < problem.value(run.theta0)
    True
    """

    h: StepSize
    batch: BatchSize
    sampling: Sampling = "replacement"

    published = "async-sgd"

    @classmethod
    def example(cls, problem: Problem) -> AsyncSGD:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, batch=10)
