"""mb-L-BFGS: synchronous multi-batch L-BFGS with one central memory (Berahas, Nocedal, Takac 2016).

Round k, with J_k the workers whose updates arrived in time:

    g = mean over J_k of g_j on a fresh Omega_j at theta_k
    s = theta_k - theta_{k-1};  y = mean over J_k n J_{k-1} of grad_O(theta_k) - grad_O(theta_{k-1}),
        O the part of the worker's previous Omega that it kept; cautious rule
    theta_{k+1} = theta_k - h H g        (H + rho I in place of H with rho > 0)

All workers use samples of the same size, so that means weighted by rows are plain means; with `reuse_overlap`
they are weighted.  The schedule decides when a round closes; `timeout` and `quorum` stand here because they
are parameters of the method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np

from asyncqn.algorithms.pair_memory import CompactMemories, CompactMemory, pair_totals
from asyncqn.algorithms.parameters import (
    BatchSize,
    CosineFloor,
    Epsilon,
    MemorySize,
    Overlap,
    OverlappingBatches,
    Rho,
    Sampling,
    Scale,
)
from asyncqn.core.stages import Round, Stages
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import checked, parameter
from asyncqn.published import SETTINGS, PaperName, PaperRows
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task


class Iterate(NamedTuple):
    """The master's theta, the central memory, and the workers whose updates the previous round had."""

    theta: Array
    theta_old: Array
    memory: CompactMemory
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
class MBLBFGS(OverlappingBatches, CompactMemories):
    """Multi-batch L-BFGS: synchronous rounds whose consecutive samples overlap.

    Parameters
    ----------
    h : float
        Step size, a factor of H g.
    memory : int
        M: largest number of curvature pairs in the memory.
    batch : int
        N_Omega: rows of one worker's gradient.
    overlap : int
        N_O: rows that consecutive samples share; less than `batch`.
    timeout : float, default inf
        Time after which a round may close without every worker, on the run's clock. It counts from when
        the broadcast reaches the workers to the arrival of updates.
    quorum : float, default 0.5
        Share of the workers that a round needs even after the timeout, in (0, 1].
    epsilon : float, default 0.0001
        Cautious rule: a pair is accepted where s'y >= epsilon |s|^2, in units of curvature.
    initial_scale : "pair" or float, default "pair"
        The initial inverse H0. "pair" is (s'y / y'y) I of the newest pair; a number c is c I. The memory
        belongs to the master, which has no data, so there is no "diagonal".
    cosine_floor : float, default 0.0
        A pair is accepted where the cosine of the angle between s and y is at least this.
    rho : float, default 0.0
        Multiple of the identity that is added to H, in units of 1 / curvature.
    sampling : str, default "replacement"
        How a worker draws its rows. "replacement" draws independent rows, as in the paper. "shuffled" makes
        passes over the data, each in a random order of the worker's own. "blocks" makes passes over blocks of
        consecutive rows, in random order. "shards-K" draws independent rows of the worker's own shard, one of
        K.
    reuse_overlap : bool, default False
        Whether the gradient at theta_k on the rows kept from the round before, which y needs anyway, also
        enters g. Berahas et al. do so: their sample of round k contains both overlaps. Each update then
        counts by its rows.

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
    timeout: Annotated[
        float, parameter(unit="of the run's clock", ge=0.0, infinite=True)
    ] = math.inf
    quorum: Annotated[float, parameter(gt=0.0, le=1.0)] = 0.5
    epsilon: Epsilon = 1e-4
    initial_scale: Literal["pair"] | Scale = "pair"
    cosine_floor: CosineFloor = 0.0
    rho: Rho = 0.0
    sampling: Sampling = "replacement"
    reuse_overlap: bool = False

    sent = ("theta",)

    @classmethod
    @checked
    def from_paper(cls, name: PaperName, n_data: PaperRows = None) -> MBLBFGS:
        """Return mb-L-BFGS with the numbers of the paper's table.

        Parameters
        ----------
        name : "linear-gaussian", "ml-1m", "ml-10m" or "ml-20m"
            The experiment.  The timeout of MovieLens is in seconds, as the clocks of real engines are.
        n_data : int, optional
            Observations N_Y, of which a batch has a hundredth; None: those of the paper.

        Returns
        -------
        MBLBFGS
            Where the paper is silent, with our defaults (H0, the quorum).

        Examples
        --------
        >>> import asyncqn as aq
        >>> algorithm = aq.MBLBFGS.from_paper("linear-gaussian")
        >>> algorithm.h, algorithm.timeout, algorithm.memory, algorithm.batch, algorithm.overlap
        (0.05, 10.0, 3, 6, 2)
        """
        return cls(**SETTINGS[name].parameters("mb-lbfgs", n_data))

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
        if paired and self.reuse_overlap:
            # y holds the difference by now; adding back what was subtracted gives the gradient at theta_k.
            kept = self.overlap / (self.batch + self.overlap)
            local.g[...] = (1.0 - kept) * local.g + kept * (
                local.y + local.g_O[1 - now]
            )
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
        rows = [
            self.batch + (self.overlap if update.paired and self.reuse_overlap else 0)
            for update in updates
        ]
        for update, count in zip(updates, rows, strict=True):
            # Weighted by rows; with equal samples the factor is 1, and the bits are those of a plain mean.
            g += update.g if count == self.batch else (count / self.batch) * update.g
        g /= sum(rows) / self.batch
        if both and self.memory > 0:
            for update in both:
                y += update.y
            y /= len(both)
            Hg[...] = (
                0.0  # stands for the subtracted gradient: y is a difference already
            )
            self.consider(memory, theta, theta_old, y, Hg)
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
        return pair_totals([iterate.memory.ring])
