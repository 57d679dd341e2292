"""Ringmaster ASGD (Maranjyan, Tyurin, Richtarik 2025): asynchronous SGD without answers of too great an age.

A worker computes d_theta = -h g on a fresh Omega at the theta it received.

    theta += d_theta        l_n < R, the age of the answer in commits; else it is dropped

A dropped answer takes no commit number, and its worker is sent the present theta.  This is the paper's method
without interrupted computations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from asyncqn.algorithms.parameters import BatchSize, ByScatter, Sampling, StepSize
from asyncqn.algorithms.stochastic_gradient import ScatterGradient
from asyncqn.core.stages import Stages, not_older_than
from asyncqn.parameters import parameter
from asyncqn.types import Problem


@dataclass(frozen=True)
class Ringmaster(ScatterGradient):
    """Asynchronous SGD that drops answers older than `max_delay` commits.

    h: step size for the sum U; batch: N_Omega; max_delay: the largest staleness that is added, the paper's
    R - 1; scatter: take steps in the metric of `algorithms.scatter`.

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
    max_delay: Annotated[
        int, parameter("The largest staleness of an answer that is added: R - 1", unit="commits", ge=0)
    ]
    scatter: ByScatter = False
    sampling: Sampling = "replacement"

    @classmethod
    def example(cls, problem: Problem) -> Ringmaster:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, batch=10, max_delay=2, scatter=True)

    @property
    def stages(self) -> Stages:  # type: ignore[override]
        return (not_older_than(self.max_delay),)

    def step_limit(self, curvature: float, workers: int) -> float:
        return super().step_limit(curvature, min(workers, self.max_delay + 1))
