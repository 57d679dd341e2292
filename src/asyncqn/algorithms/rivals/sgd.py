"""SGD with heavy-ball momentum, the serial reference.

u+ = momentum u - h g, theta+ = theta + u+, with u kept at the master.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from asyncqn.algorithms.parameters import BatchSize, Sampling, StepSize
from asyncqn.algorithms.stochastic_gradient import StochasticGradient, Update
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Problem


class Iterate(NamedTuple):
    """The master's theta and momentum."""

    theta: Array
    u: Array


@dataclass(frozen=True)
class SGD(StochasticGradient):
    """SGD with heavy-ball momentum at the master.

    Parameters
    ----------
    h : float
        Step size for the sum U, in units of 1 / curvature.
    batch : int
        N_Omega: rows of one stochastic gradient.
    momentum : float, default 0.0
        Momentum coefficient, in [0, 1).
    sampling : str, default "replacement"
        How a worker draws its rows. "replacement" draws independent rows, as in the paper. "shuffled" makes
        passes over the data, each in a random order of the worker's own. "blocks" makes passes over blocks of
        consecutive rows, in random order. "shards-K" draws independent rows of the worker's own shard, one of
        K.

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

    def init(self, theta0: Array) -> Iterate:
        return Iterate(theta0.copy(), np.zeros_like(theta0))

    def step_limit(self, curvature: float, workers: int) -> float:
        # Momentum lengthens a step by 1 / (1 - momentum) in the long run.
        return (1.0 - self.momentum) * super().step_limit(curvature, workers)

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        theta, u = iterate
        for update in updates:
            # At the master, so that the momentum is one and never stale; workers know nothing of it.
            u *= self.momentum
            u += update.d_theta
            theta += u
        return iterate
