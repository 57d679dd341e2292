"""Rennala SGD (Tyurin, Richtarik 2023): asynchronous workers, minibatch steps without stale gradients.

    theta += (1/B) sum of B updates d_theta = -h g, all computed at the current theta

Workers compute without a pause, each on a fresh Omega; a fast worker may contribute several updates to one
step.  An update that was computed at an earlier theta is dropped, and its worker receives the current one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from asyncqn.algorithms.parameters import BatchSize, Sampling, StepSize
from asyncqn.algorithms.scatter import add_step, note_update
from asyncqn.algorithms.stochastic_gradient import (
    ScatterGradient,
    ScatterIterate,
    Update,
    Worker,
)
from asyncqn.core.stages import Stages, fresh_rounds
from asyncqn.parameters import parameter
from asyncqn.types import Commit, Problem, Task


@dataclass(frozen=True)
class Rennala(ScatterGradient):
    """Steps along the mean of `collect` gradients, all computed at the current theta.

    Parameters
    ----------
    h : float
        Step size for the sum U, in units of 1 / curvature.
    batch : int
        N_Omega: rows of one stochastic gradient.
    collect : int
        B: number of updates that make a step. Updates from older versions are dropped.
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
        return (fresh_rounds(self.collect),)

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
