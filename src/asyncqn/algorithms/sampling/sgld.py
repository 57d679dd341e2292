"""SGLD: stochastic gradient Langevin dynamics (Welling and Teh 2011), tempered.

    d_theta = -h g + sqrt(2 h / beta) Z

With beta = inf this is SGD.  On several workers it is a-SGD with noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.paper.async_sgd import Iterate, StochasticGradient, Update
from asyncqn.algorithms.parameters import BatchSize, Beta, Sampling, StepSize
from asyncqn.kernels.vectors import add_scaled
from asyncqn.types import Array, Problem, Rows, Task


class Worker(NamedTuple):
    """Buffers: a first-order worker remembers nothing."""

    Omega: Rows
    d_theta: Array
    Z: Array


@dataclass(frozen=True)
class SGLD(StochasticGradient):
    """Stochastic gradient Langevin dynamics: SGD with Gaussian noise of inverse temperature beta.

    Parameters
    ----------
    beta : float
        Inverse temperature of the noise; infinity means no noise.

    Notes
    -----
    At beta = 1 use `aq.sample` instead: with exact gradients and the best of three step sizes, standard deviations
    were 0.17 to 1.24 of the right ones on five posteriors of posteriordb (docs/results/posteriors.md).

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.SGLD(h=1e-4, beta=1e4, batch=20)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=300)
    >>> run.success and run.fun < problem.value(run.theta0)
    True
    """

    h: StepSize
    beta: Beta
    batch: BatchSize
    sampling: Sampling = "replacement"

    @classmethod
    def example(cls, problem: Problem) -> SGLD:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, beta=100.0, batch=10)

    def temperature(self, k: int) -> float:
        return 1.0 / self.beta

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        Omega, d_theta = super().init_worker(problem, theta0)
        return Worker(Omega, d_theta, np.zeros_like(theta0))

    def step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        update: Update = super().step(view, local, problem, task)
        # The worker adds the noise, so that the master's commit is that of SGD.
        if self.beta < math.inf:
            noise = math.sqrt(2.0 * self.h / self.beta)
            add_scaled(update.d_theta, noise, task.stream.normals(local.Z))
        return update
