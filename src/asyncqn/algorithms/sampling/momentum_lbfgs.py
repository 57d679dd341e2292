"""Momentum L-BFGS: asynchronous stochastic L-BFGS with H applied once and momentum kept at the master.

    worker:  d = -h H g + sqrt(2 h gamma / beta) xi,   xi ~ N(0, H),   g on Omega at a stale theta
    master:  u <- (1 - gamma) u + d,   theta <- theta + u

Underdamped Langevin dynamics with mass H^-1: for a constant H and small h its stationary law is
proportional to exp(-beta U).  Against as-L-BFGS the friction is never stale, H acts once, so that
the drift is -(h / gamma) H grad U, and theta alone travels one way and d alone the other.  The
gradient is as stale as the schedule makes it, about W - 1 commits.  The worker's pairs are those of
as-L-BFGS.  That the noise has covariance H exactly, in O(M d), is our own construction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from asyncqn.algorithms.annealing import ConstantBeta
from asyncqn.algorithms.pair_memory import CompactMemories, PairMemory
from asyncqn.algorithms.paper.as_lbfgs import Iterate
from asyncqn.algorithms.parameters import (
    BatchSize,
    CosineFloor,
    Epsilon,
    InitialScale,
    MemorySize,
    Overlap,
    OverlappingBatches,
)
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.errors import require
from asyncqn.kernels.memory import correlate
from asyncqn.kernels.vectors import add_one, add_scaled
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task


class Update(NamedTuple):
    """A worker's message."""

    d: Array


class Worker(NamedTuple):
    """A worker's memory and what it keeps of its previous step, as in `as_lbfgs`."""

    memory: PairMemory
    d: Array
    theta_old: Array
    Omega: tuple[Rows, Rows]
    g_O: tuple[Array, Array]
    g: Array
    normals: Array  # (d + M,)
    steps: Counters  # (1,)


@dataclass(frozen=True)
class MomentumLBFGS(OverlappingBatches, CompactMemories):
    """Asynchronous L-BFGS that applies H once and keeps the momentum at the master.

    Parameters
    ----------
    h : float
        Step size, a factor of H g.
    gamma : float
        Friction, in (0, 1]; the momentum coefficient is 1 - gamma.
    memory : int
        M: largest number of curvature pairs in the memory.
    batch : int
        N_Omega: rows of one stochastic gradient.
    overlap : int
        N_O: rows of a batch that are used again for the next curvature pair; less than `batch`.
    beta : float, default inf
        Inverse temperature of the noise, in units of 1 / U; infinity means no noise.
    epsilon : float, default 0.0001
        Cautious rule: a pair is accepted where s'y >= epsilon |s|^2, in units of curvature.
    initial_scale : "pair", "diagonal" or float, default "pair"
        The initial inverse H0. "pair" is (s'y / y'y) I of the newest pair, and I before there is one; a
        number c is c I; "diagonal" is 1 / curvature_diagonal(theta0) of the problem.
    cosine_floor : float, default 0.0
        A pair is accepted where the cosine of the angle between s and y is at least this.

    Notes
    -----
    At beta = 1 use `aq.sample` instead, because here H comes from the chain's own past. With exact
    gradients and the best of three step sizes, standard deviations on a Gaussian were 0.91 to 0.94 of the
    exact ones on one worker and 1.05 to 1.17 on 16; on a hierarchical model every step size diverged
    (`python -m benchmarks.studies.posteriors.at_beta_one`). On five of six posteriors of posteriordb with
    four workers and three seeds, means were off by 0.13 to 0.89 standard deviations, and standard deviations
    were 0.64 to 1.17 of the right ones; on eight schools every step diverged (docs/results/posteriors.md).

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.MomentumLBFGS(h=0.02, gamma=0.3, memory=3, batch=60, overlap=40, initial_scale=0.01)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=300)
    >>> run.success and run.fun < problem.value(run.theta0)
    True
    """

    h: Annotated[float, parameter(gt=0.0)]
    gamma: Annotated[float, parameter(gt=0.0, le=1.0)]
    memory: MemorySize
    batch: BatchSize
    overlap: Overlap
    beta: ConstantBeta = math.inf
    epsilon: Epsilon = 1e-4
    initial_scale: InitialScale = "pair"
    cosine_floor: CosineFloor = 0.0

    stages = ASYNCHRONOUS
    sent = ("theta",)

    @classmethod
    def example(cls, problem: Problem) -> MomentumLBFGS:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(
            h=1e-3,
            gamma=0.2,
            memory=3,
            batch=10,
            overlap=4,
            beta=100.0,
            initial_scale=0.01,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.initial_scale != "diagonal" or self.beta == math.inf,
            "noise with covariance H needs a scalar H0: use initial_scale='pair' or a number, or beta=inf.",
        )

    def temperature(self, k: int) -> float:
        return 1.0 / self.beta

    def init(self, theta0: Array) -> Iterate:
        return Iterate(theta0.copy(), np.zeros_like(theta0))

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        def vector() -> Array:
            return np.zeros_like(theta0)

        return Worker(
            memory=self.empty_memory(theta0, problem),
            d=vector(),
            theta_old=vector(),
            Omega=(np.zeros(self.batch, np.int64), np.zeros(self.batch, np.int64)),
            g_O=(vector(), vector()),
            g=vector(),
            normals=np.zeros(theta0.size + self.memory, theta0.dtype),
            steps=np.zeros(1, np.int64),
        )

    def step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        now = task.stream.k & 1
        Omega, g_O = task.stream.rows(problem.n_data, local.Omega[now]), local.g_O[now]
        g, d, memory = local.g, local.d, local.memory
        problem.grad(view.theta, Omega[: self.overlap], g_O)
        problem.grad(view.theta, Omega[self.overlap :], g)
        share = self.overlap / self.batch
        g *= 1.0 - share
        add_scaled(g, share, g_O)
        memory.product(g, d)
        d *= -self.h
        if self.beta < math.inf:
            # d + M normals give noise of covariance H exactly: d for H0 and one for each pair.
            normals, size = task.stream.normals(local.normals), d.size
            noise, scale = normals[:size], memory.scale[0]
            correlate(
                memory.pairs,
                memory.gram,
                memory.stored,
                memory.newest,
                scale,
                normals[size:],
                noise,
            )
            add_scaled(d, math.sqrt(2.0 * self.h * self.gamma / self.beta), noise)
        return Update(d)

    def learn(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Worker:
        before = 1 - (task.stream.k & 1)
        # Pairs compare gradients on the same rows: those that this batch and the one before share.
        if local.steps[0] >= 1 and self.memory > 0:
            g_prime = local.g  # free again once the update is sent
            problem.grad(view.theta, local.Omega[before][: self.overlap], g_prime)
            self.consider(
                local.memory, view.theta, local.theta_old, g_prime, local.g_O[before]
            )
        local.theta_old[...] = view.theta
        local.steps[0] += 1
        return local

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        for update in updates:
            np.multiply(iterate.u, 1.0 - self.gamma, out=iterate.u)
            add_one(iterate.u, update.d)
            add_one(iterate.theta, iterate.u)
        return iterate
