"""mb-L-BFGS: synchronous multi-batch L-BFGS with one central memory (Berahas, Nocedal, Takac 2016).

Round k, with J_k the workers whose updates arrived in time:

    g = mean over J_k of g_j on a fresh Omega_j at theta_k
    s = theta_k - theta_{k-1};  y = mean over J_k n J_{k-1} of grad_O(theta_k) - grad_O(theta_{k-1}),
        O the part of the worker's previous Omega that it kept; cautious rule
    theta_{k+1} = theta_k - h H g        (H + rho I in place of H with rho > 0)

All workers use samples of the same size, so that means weighted by rows are plain means.  The schedule
decides when a round closes; `timeout` and `quorum` stand here because they are parameters of the method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np

from asyncqn.algorithms.pair_memory import PairedAlgorithm, PairMemory, pair_totals
from asyncqn.algorithms.parameters import (
    BatchSize,
    CosineFloor,
    Epsilon,
    MemorySize,
    Overlap,
    OverlappingBatches,
    Published,
    Rho,
    Sampling,
    Scale,
)
from asyncqn.core.stages import Round, Stages
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task


class Iterate(NamedTuple):
    """The master's theta, the central memory, and the workers whose updates the previous round had."""

    theta: Array
    theta_old: Array
    memory: PairMemory
    work: Array  # (3, d): mean gradient, mean difference, product
    senders: frozenset[int]


class Update(NamedTuple):
    """A worker's update; `y` counts only if `paired`: the worker also computed on the version before."""

    g: Array
    y: Array
    worker: int
    paired: bool


class Worker(NamedTuple):
    """Step k writes entry k mod 2 of `Omega` and `g_O`, and finds the previous step's in the other."""

    Omega: tuple[Rows, Rows]
    g_O: tuple[Array, Array]
    g: Array
    y: Array
    read: Counters  # (1,): version of the previous step, -2 before any


@dataclass(frozen=True)
class MBLBFGS(OverlappingBatches, PairedAlgorithm, Published):
    """Multi-batch L-BFGS: synchronous rounds whose consecutive samples overlap.

    Parameters
    ----------
    h : float
        Step size, a factor of H g.
    timeout : float, default inf
        Time after which a round may close without every worker, on the run's clock. It counts from when
        the broadcast reaches the workers to the arrival of updates.
    quorum : float, default 0.5
        Share of the workers that a round needs even after the timeout, in (0, 1].

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.MBLBFGS(h=0.2, memory=3, batch=40, overlap=20, initial_scale=0.01)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=60)
    >>> run.success and run.fun < problem.value(run.theta0)
    True
    """

    h: Annotated[float, parameter(gt=0.0)]
    memory: MemorySize
    batch: BatchSize
    overlap: Overlap
    timeout: Annotated[float, parameter(ge=0.0, infinite=True)] = math.inf
    quorum: Annotated[float, parameter(gt=0.0, le=1.0)] = 0.5
    epsilon: Epsilon = 1e-4
    initial_scale: Literal["pair"] | Scale = "pair"
    cosine_floor: CosineFloor = 0.0
    rho: Rho = 0.0
    sampling: Sampling = "replacement"

    sent = ("theta",)
    published = "mb-lbfgs"

    @classmethod
    def example(cls, problem: Problem) -> MBLBFGS:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=0.01, memory=3, batch=10, overlap=4)

    @property
    def stages(self) -> Stages:
        return (Round(timeout=self.timeout, quorum=self.quorum),)

    def init(self, theta0: Array) -> Iterate:
        return Iterate(
            theta=theta0.copy(),
            theta_old=theta0.copy(),
            memory=self.empty_memory(theta0),
            work=np.zeros((3, theta0.size), theta0.dtype),
            senders=frozenset(),
        )

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        def vector() -> Array:
            return np.zeros_like(theta0)

        return Worker(
            Omega=(np.zeros(self.batch, np.int64), np.zeros(self.batch, np.int64)),
            g_O=(vector(), vector()),
            g=vector(),
            y=vector(),
            # -2 is never the version before one that is read, so the first step has no pair.
            read=np.array([-2]),
        )

    def step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        now = task.stream.k & 1
        theta, g_O = view.theta, local.g_O[now]
        Omega = task.stream.rows(problem.n_data, local.Omega[now], self.sampling)
        # A pair needs the gradient of the same rows at the version just before; a worker that missed a round
        # has none.
        paired = bool(local.read[0] == task.read - 1)
        if paired:
            problem.grad(theta, local.Omega[1 - now][: self.overlap], local.y)
            np.subtract(local.y, local.g_O[1 - now], out=local.y)
        problem.grad(theta, Omega[: self.overlap], g_O)
        problem.grad(theta, Omega[self.overlap :], local.g)
        share = self.overlap / self.batch
        local.g[...] = share * g_O + (1.0 - share) * local.g
        return Update(local.g, local.y, task.worker, paired)

    def learn(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Worker:
        local.read[0] = task.read
        return local

    def forget(self, local: Worker) -> Worker:
        local.read[0] = -2
        return local

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        theta, theta_old, memory, work, senders = iterate
        g, y, Hg = work
        g[...] = 0.0
        y[...] = 0.0
        # Only workers that contributed to both rounds have a gradient difference over this step.
        both = [
            update for update in updates if update.paired and update.worker in senders
        ]
        for update in updates:
            g += update.g
        g /= len(updates)
        if both and self.memory > 0:
            for update in both:
                y += update.y
            y /= len(both)
            self.admit(memory, theta - theta_old, y)
        memory.product(g, Hg)
        if not sum_of_squares(Hg) < np.inf:
            # The updates were finite, so the pairs are to blame: continue without them, theta stays finite.
            self.clear(memory)
            memory.product(g, Hg)
        # theta_{k-1} of the next round's s.
        theta_old[...] = theta
        theta -= self.h * (Hg + self.rho * g if self.rho else Hg)
        return iterate._replace(senders=frozenset(update.worker for update in updates))

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return pair_totals([iterate.memory])
