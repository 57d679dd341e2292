"""Published relatives of a-SGD: a worker is that of a-SGD, and the master has a rule of a few lines.

A worker computes d_theta = -h g on a fresh Omega at the theta that it received; l_n is the age of its update,
the number of commits since.

    SGD                 u = momentum u + d_theta,  theta += u        heavy ball, u kept at the master
    DelayAdaptiveSGD    theta += min(1, tau / l_n) d_theta           late steps are shorter
    Ringmaster          theta += d_theta  where l_n < R              older updates are dropped
    Rennala             theta += (1/B) sum of B updates d_theta      all computed at the current theta

DelayAdaptiveSGD: Koloskova, Stich, Jaggi (2022); Mishchenko, Bach, Even, Woodworth (2022).  Both papers let the
step fall as 1 / l_n where the delay exceeds the number of gradients under way, tau: with h = 1 / (4 L tau),
Koloskova's bound 1 / (4 L l_n) on the step of a late update is h tau / l_n.

Ringmaster: Maranjyan, Tyurin, Richtarik (2025), without the interruption of computations.  A dropped update
takes no commit number, and its worker receives the current theta.

Rennala: Tyurin, Richtarik (2023).  Workers compute without a pause; a fast worker may contribute several
updates to one step.  An update that was computed at an earlier theta is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from asyncqn.algorithms.paper.async_sgd import StochasticGradient, Update, Worker
from asyncqn.algorithms.parameters import BatchSize, Sampling, StepSize
from asyncqn.algorithms.scatter import Scatter, add_step, new_scatter, note_update
from asyncqn.core.stages import EachUpdate, FreshRound, Stages
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Problem, Task


class MomentumIterate(NamedTuple):
    """The master's theta and momentum."""

    theta: Array
    u: Array


@dataclass(frozen=True)
class SGD(StochasticGradient):
    """SGD with heavy-ball momentum at the master.

    Parameters
    ----------
    momentum : float, default 0.0
        Momentum coefficient, in [0, 1).

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.SGD(h=1e-4, batch=20, momentum=0.5)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=300)
    >>> run.success and run.fun < problem.value(run.theta0)
    True
    """

    h: StepSize
    batch: BatchSize
    momentum: Annotated[float, parameter(ge=0.0, lt=1.0)] = 0.0
    sampling: Sampling = "replacement"

    sent = ("theta",)

    @classmethod
    def example(cls, problem: Problem) -> SGD:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, batch=10, momentum=0.5)

    def init(self, theta0: Array) -> MomentumIterate:
        return MomentumIterate(theta0.copy(), np.zeros_like(theta0))

    def step_limit(self, curvature: float, workers: int) -> float:
        # Momentum lengthens a step by 1 / (1 - momentum) in the long run.
        return (1.0 - self.momentum) * super().step_limit(curvature, workers)

    def apply(
        self, iterate: MomentumIterate, updates: Sequence[Update], commit: Commit
    ) -> MomentumIterate:
        theta, u = iterate
        for update in updates:
            # At the master, so that the momentum is one and never stale; workers know nothing of it.
            u *= self.momentum
            u += update.d_theta
            theta += u
        return iterate


class ScatterIterate(NamedTuple):
    """The master's theta, and the scatter of the updates where a metric is wanted."""

    theta: Array
    scatter: Scatter


class ScatterGradient(StochasticGradient):
    """Base of those that may take steps in the metric of `algorithms.scatter`.

    Parameters
    ----------
    scatter : bool, default False
        Whether steps are scaled by a diagonal metric, which is estimated from the scatter of the updates.
    """

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


@dataclass(frozen=True)
class DelayAdaptiveSGD(ScatterGradient):
    """Asynchronous SGD whose master shortens stale steps.

    Parameters
    ----------
    tau : int
        Staleness, in commits, up to which a step keeps its length; about the number of workers.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.DelayAdaptiveSGD(h=1e-4, batch=20, tau=4)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=300)
    >>> run.success and run.fun < problem.value(run.theta0)
    True
    """

    h: StepSize
    batch: BatchSize
    tau: Annotated[int, parameter(unit="commits", ge=1)]
    scatter: bool = False
    sampling: Sampling = "replacement"

    @classmethod
    def example(cls, problem: Problem) -> DelayAdaptiveSGD:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, batch=10, tau=2, scatter=True)

    def weight(self, staleness: int) -> float:
        # The worker has scaled by h already; this is the rest of the factor.
        return min(1.0, self.tau / max(staleness, 1))


@dataclass(frozen=True)
class Ringmaster(ScatterGradient):
    """Asynchronous SGD that drops updates older than `max_delay` commits.

    Parameters
    ----------
    max_delay : int
        Largest staleness, in commits, of an update that is added; R - 1 in the paper of Ringmaster.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.Ringmaster(h=1e-4, batch=20, max_delay=4)
    >>> cluster = aq.Cluster(workers=4, worker_mean=[1.0, 1.0, 1.0, 9.0])
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(cluster), commits=300)
    >>> run.success and run.fun < problem.value(run.theta0), int(run.schedule.staleness.max()) <= 4
    (True, True)
    """

    h: StepSize
    batch: BatchSize
    max_delay: Annotated[int, parameter(unit="commits", ge=0)]
    scatter: bool = False
    sampling: Sampling = "replacement"

    @classmethod
    def example(cls, problem: Problem) -> Ringmaster:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, batch=10, max_delay=2, scatter=True)

    @property
    def stages(self) -> Stages:  # type: ignore[override]
        return (EachUpdate(max_delay=self.max_delay),)

    def step_limit(self, curvature: float, workers: int) -> float:
        # No update that is added is older than max_delay, whatever the number of workers.
        return super().step_limit(curvature, min(workers, self.max_delay + 1))


@dataclass(frozen=True)
class Rennala(ScatterGradient):
    """Steps along the mean of `collect` gradients, all computed at the current theta.

    Parameters
    ----------
    collect : int
        B: number of updates that make a step. Updates from older versions are dropped.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.Rennala(h=1e-3, batch=20, collect=6)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=100)
    >>> run.success and run.fun < problem.value(run.theta0), int(run.schedule.staleness.max())
    (True, 0)
    """

    h: StepSize
    batch: BatchSize
    collect: Annotated[int, parameter(ge=1)]
    scatter: bool = False
    sampling: Sampling = "replacement"

    @classmethod
    def example(cls, problem: Problem) -> Rennala:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, batch=10, collect=3, scatter=True)

    @property
    def stages(self) -> Stages:  # type: ignore[override]
        return (FreshRound(updates=self.collect),)

    def step(
        self, view: ScatterIterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        g = self.gradient(view, local, problem, task)
        # In an array of its own: the worker computes again before the commit.
        return Update(np.multiply(g, -self.h))

    def step_limit(self, curvature: float, workers: int) -> float:
        # No gradient is stale, so the limit is that of one worker.
        return super().step_limit(curvature, 1)

    def apply(
        self, iterate: ScatterIterate, updates: Sequence[Update], commit: Commit
    ) -> ScatterIterate:
        theta, scatter = iterate
        for update in updates:
            scatter = note_update(scatter, update.d_theta)
        # All B updates enter the scatter before any step, so that the B steps have one metric.
        for update in updates:
            add_step(theta, 1.0 / len(updates), update.d_theta, scatter)
        return ScatterIterate(theta, scatter)
