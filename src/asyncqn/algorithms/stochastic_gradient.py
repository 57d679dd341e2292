"""The base of the first-order algorithms: a worker draws Omega and returns one vector.

A subclass usually overrides `apply`, what the master does with an update, or `stages`, when it commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.scatter import Scatter, add_step, new_scatter, note_update
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
    """Base of the first-order algorithms: a worker's update is -h g, which the master adds to theta."""

    h: float
    batch: int
    sampling: str
    stages = ASYNCHRONOUS

    def check(self, problem: Problem) -> None:
        pass

    def init(self, theta0: Array) -> Any:
        return Iterate(theta0.copy())

    def init_worker(self, problem: Problem, theta0: Array) -> Any:
        return Worker(np.zeros(self.batch, np.int64), np.zeros_like(theta0))

    def gradient(self, view: Any, local: Any, problem: Problem, task: Task) -> Array:
        """Return g on a fresh Omega at the worker's view of theta."""
        Omega = task.stream.rows(problem.n_data, local.Omega, self.sampling)
        # The message's own buffer: `step` then scales it in place.
        g: Array = local.d_theta
        problem.grad(view.theta, Omega, g)
        return g

    def step(self, view: Any, local: Any, problem: Problem, task: Task) -> Any:
        g = self.gradient(view, local, problem, task)
        # Scaled by the worker, so that the master only adds.
        return Update(np.multiply(g, -self.h, out=local.d_theta))

    # A first-order worker has nothing to learn or to forget.
    def learn(self, view: Any, local: Any, problem: Problem, task: Task) -> Any:
        return local

    def forget(self, local: Any) -> Any:
        return local

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

    def counters(self, iterate: Any, locals_: Sequence[Any]) -> dict[str, int]:
        return {}


class ScatterIterate(NamedTuple):
    """The master's theta, and the scatter of the updates where a metric is wanted."""

    theta: Array
    scatter: Scatter


class ScatterGradient(StochasticGradient):
    """Base of those that take steps in the metric of `algorithms.scatter` where `scatter` says so."""

    scatter: bool
    # The scatter stays at the master: workers need only theta.
    sent = ("theta",)

    def init(self, theta0: Array) -> ScatterIterate:
        return ScatterIterate(theta0.copy(), new_scatter(theta0, self.scatter))

    def weight(self, staleness: int) -> float:
        """Return the factor on an update of this staleness."""
        return 1.0

    def apply(
        self, iterate: ScatterIterate, updates: Sequence[Update], commit: Commit
    ) -> ScatterIterate:
        theta, scatter = iterate
        for update, staleness in zip(updates, commit.staleness):
            scatter = note_update(scatter, update.d_theta)
            add_step(theta, self.weight(staleness), update.d_theta, scatter)
        return ScatterIterate(theta, scatter)
