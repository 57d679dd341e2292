"""Full-batch L-BFGS with Armijo backtracking, the serial deterministic reference.

theta+ = theta - alpha H grad U(theta), alpha halved from 1 until
U(theta+) <= U(theta) - 1e-4 alpha grad U' H grad U; the first step is scaled to length 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.pair_memory import CompactMemories, CompactMemory
from asyncqn.algorithms.parameters import Epsilon, InitialScale, MemorySize
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.kernels.vectors import add_one, dot
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Standing, Task

_ARMIJO, _MAX_HALVINGS = 1e-4, 40
"""Armijo constant, the usual one; and the largest number of halvings of a step, after which it has 1e-12 of
its length."""


class Seen(NamedTuple):
    """Measurements at the point of the last step; NaN before the first."""

    value: float
    norm: float
    first_norm: float
    softness: float
    """The largest s's / s'y of the pairs in use."""
    moved: bool
    """Whether the line search found a lower point."""


class Iterate(NamedTuple):
    """The master's theta, and `point`, where the last step was computed."""

    theta: Array
    point: Array
    seen: Seen


class Update(NamedTuple):
    """A step, with U, |g| and the softness at the point where it begins."""

    d_theta: Array
    value: float
    norm: float
    softness: float
    moved: bool


class Worker(NamedTuple):
    """The memory, and the point and gradient of the previous step."""

    memory: CompactMemory
    theta_old: Array
    g: Array
    g_old: Array
    d_theta: Array
    rows: Rows
    steps: Counters  # (1,)


def _softness(memory: CompactMemory) -> float:
    """Return the largest s's / s'y of the pairs in use."""
    curvatures = memory.curvatures()
    return 1.0 / float(curvatures.min()) if curvatures.size else math.inf


@dataclass(frozen=True)
class LBFGS(CompactMemories):
    """Serial L-BFGS with a line search: the reference for one worker.

    It needs a single worker, because its line search must not be stale.

    Parameters
    ----------
    memory : int, default 10
        M: largest number of curvature pairs in the memory.
    epsilon : float, default 1e-10
        Cautious rule: a pair is accepted where s'y >= epsilon |s|^2, in units of curvature.
    initial_scale : "pair", "diagonal" or float, default "pair"
        The initial inverse H0. "pair" is (s'y / y'y) I of the newest pair, and I before there is one; a
        number c is c I; "diagonal" is 1 / curvature_diagonal(theta0) of the problem.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=1))
    >>> run = aq.minimize(problem, aq.LBFGS(), engine=engine, commits=60)
    >>> abs(run.fun - problem.optimum) < 1e-6 * problem.optimum
    True
    """

    memory: MemorySize = 10
    epsilon: Epsilon = 1e-10
    initial_scale: InitialScale = "pair"

    stages = ASYNCHRONOUS
    max_workers = 1
    sent = ("theta",)

    @classmethod
    def example(cls, problem: Problem) -> LBFGS:
        """Small parameters that run on any problem, for tests."""
        return cls(memory=5)

    def check(self, problem: Problem) -> None:
        pass

    def init(self, theta0: Array) -> Iterate:
        nothing = Seen(math.nan, math.nan, math.nan, math.inf, moved=True)
        return Iterate(theta0.copy(), theta0.copy(), nothing)

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        def vector() -> Array:
            return np.zeros_like(theta0)

        return Worker(
            memory=self.empty_memory(theta0, problem),
            theta_old=vector(),
            g=vector(),
            g_old=vector(),
            d_theta=vector(),
            rows=np.arange(problem.n_data),
            steps=np.zeros(1, np.int64),
        )

    def step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        theta, g, d_theta = view.theta, local.g, local.d_theta
        problem.grad(theta, local.rows, g)
        # The first step has no previous gradient to form a pair with.
        if local.steps[0] > 0:
            self.consider(local.memory, theta, local.theta_old, g, local.g_old)
        local.memory.product(g, d_theta)
        slope = dot(g, d_theta)
        start, norm, soft = (
            float(problem.value(theta)),
            math.sqrt(dot(g, g)),
            _softness(local.memory),
        )
        # H is positive definite except for rounding, so the gradient is zero as far as the arithmetic can
        # tell.
        if slope <= 0.0:
            d_theta[...] = 0.0
            return Update(d_theta, start, norm, soft, moved=False)
        alpha = 1.0
        if local.memory.stored == 0 and self.initial_scale == "pair":
            # Without pairs H = I and has no scale: the first step has length 1.
            alpha = 1.0 / math.sqrt(dot(d_theta, d_theta))
        for _ in range(_MAX_HALVINGS):
            if (
                problem.value(theta - alpha * d_theta)
                <= start - _ARMIJO * alpha * slope
            ):
                break
            alpha *= 0.5
        else:
            # No descent within rounding: theta is as good as the arithmetic allows.
            alpha = 0.0
        d_theta *= -alpha
        return Update(d_theta, start, norm, soft, moved=alpha > 0.0)

    def learn(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Worker:
        local.theta_old[...] = view.theta
        local.g_old[...] = local.g
        local.steps[0] += 1
        return local

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        (update,) = updates
        iterate.point[...] = iterate.theta
        add_one(iterate.theta, update.d_theta)
        first = (
            update.norm
            if math.isnan(iterate.seen.first_norm)
            else iterate.seen.first_norm
        )
        return iterate._replace(
            seen=Seen(update.value, update.norm, first, update.softness, update.moved)
        )

    def standing(self, iterate: Iterate) -> Standing | None:
        value, norm, first, soft, moved = iterate.seen
        if math.isnan(first):
            return None
        # |g|^2 / (2 lambda) estimates U - U*, with lambda = 1 / softness the least curvature of the pairs.
        decrease = 0.5 * norm * norm * soft if norm > 0.0 else 0.0
        return Standing(iterate.point, value, norm, first, decrease, stalled=not moved)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        return np.full(read.size, n_data, np.int64)
