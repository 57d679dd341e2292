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

from asyncqn.algorithms.paper.async_sgd import (
    Iterate,
    StochasticGradient,
    Update,
    Worker,
)
from asyncqn.algorithms.parameters import BatchSize, Sampling, StepSize
from asyncqn.core.stages import EachUpdate, FreshRound, Stages
from asyncqn.kernels.vectors import add_scaled
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


@dataclass(frozen=True)
class DelayAdaptiveSGD(StochasticGradient):
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
    tau: Annotated[int, parameter(ge=1)]
    sampling: Sampling = "replacement"

    @classmethod
    def example(cls, problem: Problem) -> DelayAdaptiveSGD:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, batch=10, tau=2)

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        for update, staleness in zip(updates, commit.staleness, strict=True):
            # The worker has scaled by h already; this is the rest of the factor.
            weight = min(1.0, self.tau / max(staleness, 1))
            add_scaled(iterate.theta, weight, update.d_theta)
        return iterate


@dataclass(frozen=True)
class Ringmaster(StochasticGradient):
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
    max_delay: Annotated[int, parameter(ge=0)]
    sampling: Sampling = "replacement"

    @classmethod
    def example(cls, problem: Problem) -> Ringmaster:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, batch=10, max_delay=2)

    @property
    def stages(self) -> Stages:  # type: ignore[override]
        return (EachUpdate(max_delay=self.max_delay),)

    def step_limit(self, curvature: float, workers: int) -> float:
        # No update that is added is older than max_delay, whatever the number of workers.
        return super().step_limit(curvature, min(workers, self.max_delay + 1))


@dataclass(frozen=True)
class Rennala(StochasticGradient):
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
    sampling: Sampling = "replacement"

    @classmethod
    def example(cls, problem: Problem) -> Rennala:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, batch=10, collect=3)

    @property
    def stages(self) -> Stages:  # type: ignore[override]
        return (FreshRound(updates=self.collect),)

    def step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        update = super().step(view, local, problem, task)
        # In an array of its own: the worker computes again before the commit.
        return Update(update.d_theta.copy())

    def step_limit(self, curvature: float, workers: int) -> float:
        # No gradient is stale, so the limit is that of one worker.
        return super().step_limit(curvature, 1)

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        for update in updates:
            add_scaled(iterate.theta, 1.0 / len(updates), update.d_theta)
        return iterate
