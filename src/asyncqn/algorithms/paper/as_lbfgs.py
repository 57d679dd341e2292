"""as-L-BFGS: asynchronous stochastic L-BFGS as tempered underdamped Langevin dynamics.

Simsekli, Yildiz, Nguyen, Richard and Cemgil (ICML 2018).  The equations of the paper, by their numbers, and
the lines of its Algorithm 2 that `step` and `learn` follow:

Coordinator (Algorithm 1), for the update of any worker::

    u <- u + d_u,    theta <- theta + d_theta                                                (5)

Worker (Algorithm 2), from (theta, u) as it received them, l_n commits before its update is committed::

    line 4        draw Omega = S u O.
    line 5        g = (N_O / N_Omega) grad_O(theta) + (N_S / N_Omega) grad_S(theta).
    line 6        d_u     = -h H g - gamma u + sqrt(2 h gamma / beta) Z,    Z ~ N(0, I)      (6)
                  d_theta = H u                                                              (7)
    line 7        send (d_theta, d_u).
    line 8        keep theta, O and g_O = grad_O(theta).
    lines 9-11    from its second step on, with theta~, O~ and g~ kept by the step before:
                  s = theta - theta~,    y = grad_O~(theta) - g~
    line 12       add (s, y) to the memory if y's >= epsilon |s|^2

H is the worker's own L-BFGS matrix of its last M pairs (H + rho I with rho > 0).  h and gamma are the paper's
h' and gamma'.  Our own choices: H0 (the paper does not say), the default of epsilon, and the option
`cosine_floor`.

Equation (7) is an explicit Euler step: theta moves by the momentum of before.  The supplement derives "SGD
with momentum" from the modified Euler step, which moves theta by the new momentum::

    d_theta = H (u + d_u)                                        integrator="modified"
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Literal, NamedTuple

import numpy as np

from asyncqn.algorithms.pair_memory import PairedAlgorithm, PairMemory
from asyncqn.algorithms.parameters import (
    BatchSize,
    Beta,
    CosineFloor,
    Epsilon,
    InitialScale,
    MemorySize,
    Overlap,
    OverlappingBatches,
    Published,
    Rho,
    Sampling,
)
from asyncqn.algorithms.stability import delay_limit, largest_curvature, loop_delay
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.kernels.vectors import add_two
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task


class Iterate(NamedTuple):
    """The coordinator's (theta, u)."""

    theta: Array
    u: Array
    """The momentum, h times the velocity of the dynamics."""


class Update(NamedTuple):
    """A worker's message."""

    d_theta: Array
    d_u: Array


class Worker(NamedTuple):
    """A worker's memory and what it keeps of its previous step.

    Step k writes entry k mod 2 of `Omega` and `g_O`, and finds the previous step's in the other.
    The first N_O rows of Omega are O, the others S.
    """

    memory: PairMemory
    update: Update
    theta_old: Array
    """theta~: the theta of the previous step."""
    Omega: tuple[Rows, Rows]
    g_O: tuple[Array, Array]
    g_S: Array
    steps: Counters
    """Shape (1,): i, the steps since the state was last emptied."""


@dataclass(frozen=True)
class ASLBFGS(OverlappingBatches, PairedAlgorithm, Published):
    """The paper's as-L-BFGS.

    Parameters
    ----------
    h : float
        Step size h', in units of 1 / (curvature H^2).
    gamma : float
        Friction gamma', in [0, 2); the momentum coefficient is 1 - gamma.
    beta : float
        Inverse temperature of the noise; infinity means no noise.
    integrator : "explicit" or "modified", default "explicit"
        "explicit", equation (7), moves theta by H u, with the momentum u that the worker received.
        "modified", of the supplement, moves it by H (u + d_u), which costs one more product with H.

    Notes
    -----
    On one worker, with curvature lambda and constant H, "explicit" is stable for h H^2 lambda < gamma.
    "modified" is then SGD with momentum 1 - gamma, stable for h H^2 lambda < 4 - 2 gamma. On W workers both
    limits are about gamma / (2 (W - 1)).

    At beta = 1 this is not a sampler, as the paper says; use `aq.sample`. On six posteriors of posteriordb
    with four workers and three seeds, means were off by 0.40 to 2.5 standard deviations and standard
    deviations were 0.11 to 1.45 of the right ones; on two every step diverged (docs/results/posteriors.md).

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.ASLBFGS(h=4e-4, gamma=0.03, beta=500.0, memory=3, batch=60, overlap=40,
    ...                        initial_scale=0.02, cosine_floor=0.4)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=300)
    >>> run.success and run.fun < problem.value(run.theta0)
    True
    """

    h: Annotated[float, parameter(gt=0.0)]
    gamma: Annotated[float, parameter(ge=0.0, lt=2.0)]
    beta: Beta
    memory: MemorySize
    batch: BatchSize
    overlap: Overlap
    rho: Rho = 0.0
    epsilon: Epsilon = 1e-4
    initial_scale: InitialScale = "pair"
    cosine_floor: CosineFloor = 0.0
    sampling: Sampling = "replacement"
    integrator: Literal["explicit", "modified"] = "explicit"

    stages = ASYNCHRONOUS
    published = "as-lbfgs"

    @classmethod
    def example(cls, problem: Problem) -> ASLBFGS:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(
            h=1e-4,
            gamma=0.05,
            beta=100.0,
            memory=3,
            batch=10,
            overlap=4,
            initial_scale=0.01,
        )

    @cached_property
    def noise(self) -> float:
        """Standard deviation of the noise in d_u."""
        return math.sqrt(2.0 * self.h * self.gamma / self.beta)

    def init(self, theta0: Array) -> Iterate:
        return Iterate(theta0.copy(), np.zeros_like(theta0))

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        def vector() -> Array:
            return np.zeros_like(theta0)

        return Worker(
            memory=self.empty_memory(theta0, problem),
            update=Update(vector(), vector()),
            theta_old=vector(),
            Omega=(np.zeros(self.batch, np.int64), np.zeros(self.batch, np.int64)),
            g_O=(vector(), vector()),
            g_S=vector(),
            steps=np.zeros(1, np.int64),
        )

    def step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        """Compute the update: lines 4 to 6 of Algorithm 2."""
        theta, u = view.theta, view.u
        stream = task.stream
        now = stream.k & 1
        # Line 4: draw Omega; its first N_O rows are O.
        Omega = stream.rows(problem.n_data, local.Omega[now], self.sampling)
        # Line 5: the gradients of both parts, weighted by their shares of Omega.
        g_O, g_S = local.g_O[now], local.g_S
        problem.grad(theta, Omega[: self.overlap], g_O)
        problem.grad(theta, Omega[self.overlap :], g_S)
        share = self.overlap / self.batch
        g = share * g_O + (1.0 - share) * g_S
        # Line 6: d_u by (6) and d_theta by (7), written into the worker's message.
        d_theta, d_u = local.update
        self._times_H(local, g, d_u)
        d_u *= -self.h
        d_u -= self.gamma * u
        if self.noise > 0.0:
            d_u += self.noise * stream.normals(np.empty_like(u))
        # The modified Euler step moves theta by the new momentum.
        momentum = u if self.integrator == "explicit" else u + d_u
        self._times_H(local, momentum, d_theta)
        return local.update

    def learn(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Worker:
        """Update the memory: lines 8 to 13 of Algorithm 2, while the update travels."""
        before = 1 - (task.stream.k & 1)
        if local.steps[0] >= 1 and self.memory > 0:  # line 9
            g_prime = local.g_S  # free again once the update is sent
            problem.grad(
                view.theta, local.Omega[before][: self.overlap], g_prime
            )  # line 10
            # Lines 11 and 12: s, y and the cautious rule.
            s = view.theta - local.theta_old
            self.admit(local.memory, s, g_prime - local.g_O[before])
        local.theta_old[...] = view.theta  # line 8; O and g_O stay where they are
        local.steps[0] += 1  # line 13
        return local

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        """Add the update by equation (5); both additions are one commit."""
        for update in updates:
            add_two(iterate.theta, update.d_theta, iterate.u, update.d_u)
        return iterate

    def temperature(self, k: int) -> float:
        return 1.0 / self.beta

    def warnings(self, workers: int) -> list[str]:
        # u_{n+1} = u_n - gamma u_{n-l} must be stable by itself, with l = W - 1.
        limit = delay_limit(workers - 1)
        if self.gamma < limit:
            return []
        return [
            f"gamma = {self.gamma:g} exceeds {limit:.3g}, the limit of stale friction for {workers} "
            f"workers: the run is likely to diverge; use gamma below {limit:.2g} or fewer workers."
        ]

    def advice(
        self, problem: Problem, theta0: Array, workers: int, locals_: Sequence[Worker]
    ) -> str:
        limit = delay_limit(max(workers - 1, 0))
        if self.gamma >= limit:
            return (
                f"the friction gamma = {self.gamma:g} is above the limit {limit:.3g} that staleness sets "
                f"for {workers} workers; use gamma below {limit:.2g}."
            )
        # The largest stable |H U'' H|; first with H = H0, then with the pairs.
        stable = self.gamma / (self.h * self._delay(workers))
        scales = [float(np.median(w.memory.scale)) for w in locals_] or [1.0]
        scale = float(np.median(scales)) + self.rho
        bare = scale**2 * largest_curvature(problem, theta0)
        if bare >= stable:
            return (
                f"the step h = {self.h:g} is too large for a staleness of about {workers - 1} even "
                f"without pairs: h |H U'' H| = {self.h * bare:.2g} must stay below {self.h * stable:.2g} "
                f"with the {self.integrator} integrator; try h below {self.h * stable / (2 * bare):.1e} or "
                "a smaller initial_scale."
            )
        wild = bare
        # Eight workers at most: each estimate costs a dozen gradients.
        for local in locals_[:8]:
            product = partial(self._times_H, local)
            wild = max(wild, largest_curvature(problem, theta0, product))
        return (
            f"the curvature pairs are wild: |H U'' H| reaches {wild:.1e} where {stable:.1e} would be stable; "
            f"use a larger overlap than {self.overlap}, a larger epsilon than {self.epsilon:g}, "
            "cosine_floor=0.3, or a fixed initial_scale."
        )

    def _delay(self, workers: int) -> float:
        """Return the d of the limit h |H U'' H| < gamma / d; on one worker it is exact."""
        if self.integrator == "modified" and workers <= 1:
            return self.gamma / (4.0 - 2.0 * self.gamma)
        return loop_delay(workers)

    def _times_H(self, local: Worker, v: Array, out: Array) -> None:
        """Write (H + rho I) v into `out`, by the worker's own H."""
        local.memory.product(v, out)
        # Of an infinite gradient, 0 v would be a NaN, and a warning from NumPy before the update is rejected.
        if self.rho > 0.0:
            out += self.rho * v
