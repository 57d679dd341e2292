"""Delay-adaptive asynchronous SGD (Koloskova, Stich, Jaggi 2022; Mishchenko, Bach, Even, Woodworth 2022).

A worker computes d_theta = -h g on a fresh Omega at the theta that it received; the master shortens it by its
age l_n, the number of commits since:

    theta += d_theta                    l_n <= tau
    theta += (tau / l_n) d_theta        l_n >  tau

Both papers let the step fall as 1 / l_n where the delay exceeds the number of gradients under way, tau: with
h = 1 / (4 L tau), Koloskova's bound 1 / (4 L l_n) on the step of a late update is h tau / l_n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from asyncqn.algorithms.parameters import BatchSize, Sampling, StepSize
from asyncqn.algorithms.stochastic_gradient import ScatterGradient
from asyncqn.parameters import parameter
from asyncqn.types import Problem


@dataclass(frozen=True)
class DelayAdaptiveSGD(ScatterGradient):
    """Asynchronous SGD whose master shortens stale steps.

    Parameters
    ----------
    h : float
        Step size for the sum U, in units of 1 / curvature.
    batch : int
        N_Omega: rows of one stochastic gradient.
    tau : int
        Staleness, in commits, up to which a step keeps its length; about the number of workers.
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
