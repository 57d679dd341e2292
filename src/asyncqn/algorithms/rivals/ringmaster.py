"""Ringmaster ASGD (Maranjyan, Tyurin, Richtarik 2025): asynchronous SGD that drops updates that are too old.

A worker computes d_theta = -h g on a fresh Omega at the theta that it received.

    theta += d_theta        where l_n < R, with l_n the age of the update in commits; else it is dropped

A dropped update takes no commit number, and its worker receives the current theta.  This is the paper's
method without the interruption of computations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from asyncqn.algorithms.parameters import BatchSize, Sampling, StepSize
from asyncqn.algorithms.stochastic_gradient import ScatterGradient
from asyncqn.core.stages import Stages, not_older_than
from asyncqn.parameters import parameter
from asyncqn.types import Problem


@dataclass(frozen=True)
class Ringmaster(ScatterGradient):
    """Asynchronous SGD that drops updates older than `max_delay` commits.

    Parameters
    ----------
    h : float
        Step size for the sum U, in units of 1 / curvature.
    batch : int
        N_Omega: rows of one stochastic gradient.
    max_delay : int
        Largest staleness, in commits, of an update that is added; R - 1 in the paper of Ringmaster.
    scatter : bool, default False
        Whether steps are scaled by a diagonal metric, which is estimated from the scatter of the updates.
    sampling : str, default "replacement"
        How a worker draws its rows. "replacement" draws independent rows, as in the paper. "shuffled" makes
        passes over the data, each in a random order of the worker's own. "blocks" makes passes over blocks of
        consecutive rows, in random order. "shards-K" draws independent rows of the worker's own shard, one of
        K.

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
        return (not_older_than(self.max_delay),)

    def step_limit(self, curvature: float, workers: int) -> float:
        # No update that is added is older than max_delay, whatever the number of workers.
        return super().step_limit(curvature, min(workers, self.max_delay + 1))
