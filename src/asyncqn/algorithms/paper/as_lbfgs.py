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
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

import numpy as np

from asyncqn.algorithms.annealing import Beta, beta_at
from asyncqn.algorithms.pair_memory import CompactMemories, CompactMemory
from asyncqn.algorithms.parameters import (
    BatchSize,
    CosineFloor,
    Epsilon,
    InitialScale,
    MemorySize,
    Overlap,
    OverlappingBatches,
    Rho,
    Sampling,
)
from asyncqn.algorithms.stability import delay_limit, largest_curvature, loop_delay
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.kernels.compact_memory import langevin_update
from asyncqn.kernels.vectors import add_two
from asyncqn.parameters import checked, parameter
from asyncqn.published import SETTINGS, PaperName, PaperRows
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

    memory: CompactMemory
    update: Update
    theta_old: Array
    """theta~: the theta of the previous step."""
    Omega: tuple[Rows, Rows]
    g_O: tuple[Array, Array]
    g_S: Array
    steps: Counters
    """Shape (1,): i, the steps since the state was last emptied."""


@dataclass(frozen=True)
class ASLBFGS(OverlappingBatches, CompactMemories):
    """The paper's as-L-BFGS.

    Parameters
    ----------
    h : float
        Step size h', in units of 1 / (curvature H^2).
    gamma : float
        Friction gamma', in [0, 2); the momentum coefficient is 1 - gamma.
    beta : float or Annealing
        Inverse temperature of the noise; infinity means no noise. An `Annealing` changes it from step to
        step, which the paper does not do.
    memory : int
        M: largest number of curvature pairs in the memory.
    batch : int
        N_Omega: rows of one stochastic gradient.
    overlap : int
        N_O: rows of a batch that are used again for the next curvature pair; less than `batch`.
    rho : float, default 0.0
        Multiple of the identity that is added to H, in units of 1 / curvature.
    epsilon : float, default 0.0001
        Cautious rule: a pair is accepted where s'y >= epsilon |s|^2, in units of curvature. The default is
        our own choice: where gradients contain a prior, an epsilon below its curvature rejects nothing.
    initial_scale : "pair", "diagonal" or float, default "pair"
        The initial inverse H0. "pair" is (s'y / y'y) I of the newest pair, and I before there is one; a
        number c is c I; "diagonal" is 1 / curvature_diagonal(theta0) of the problem.
    cosine_floor : float, default 0.0
        A pair is accepted where the cosine of the angle between s and y is at least this; our own addition.
    sampling : str, default "replacement"
        How a worker draws its rows. "replacement" draws independent rows, as in the paper. "shuffled" makes
        passes over the data, each in a random order of the worker's own. "blocks" makes passes over blocks of
        consecutive rows, in random order. "shards-K" draws independent rows of the worker's own shard, one of
        K.
    integrator : "explicit" or "modified", default "explicit"
        "explicit", equation (7), moves theta by H u, with the momentum u that the worker received.
        "modified", of the supplement, moves it by H (u + d_u), which costs one more product with H.

    Notes
    -----
    On one worker, with curvature lambda and constant H, "explicit" is stable for h H^2 lambda < gamma.
    "modified" is then SGD with momentum 1 - gamma, stable for h H^2 lambda < 4 - 2 gamma. On W workers both
    limits are about gamma / (2 (W - 1)).

    At beta = 1 this is not a sampler, as the paper says; use `aq.sample`. With exact gradients and the best
    of three step sizes, means on a Gaussian were off by 0.43 standard deviations on one worker and 0.23 on
    16, and standard deviations were 0.78 to 1.13 of the exact ones; on a hierarchical model every step size
    diverged (`python -m benchmarks.studies.posteriors.at_beta_one`). On four of six posteriors of
    posteriordb with four workers and three seeds, means were off by 0.40 to 2.5 standard deviations, and
    standard deviations were 0.11 to 1.45 of the right ones; on two every step diverged
    (docs/results/posteriors.md).

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

    h: Annotated[float, parameter(unit="1 / (curvature H^2)", gt=0.0)]
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

    @classmethod
    @checked
    def from_paper(cls, name: PaperName, n_data: PaperRows = None) -> ASLBFGS:
        """Return as-L-BFGS with the numbers of the paper's table.

        Parameters
        ----------
        name : "linear-gaussian", "ml-1m", "ml-10m" or "ml-20m"
            The experiment.
        n_data : int, optional
            Observations N_Y, of which a batch has a hundredth; None: those of the paper.

        Returns
        -------
        ASLBFGS
            Where the paper is silent, with our defaults (H0, the cautious constant).

        Notes
        -----
        With these defaults the numbers of "linear-gaussian" diverge on the draw of `LinearGaussian.random()`:
        the paper publishes neither its draw nor its H0.  `cosine_floor` and `initial_scale` tame the pairs.

        Examples
        --------
        >>> import asyncqn as aq
        >>> algorithm = aq.ASLBFGS.from_paper("linear-gaussian")
        >>> algorithm.h, algorithm.gamma, algorithm.beta, algorithm.memory, algorithm.batch, algorithm.overlap
        (0.0004, 0.03, 500.0, 3, 6, 2)
        """
        return cls(**SETTINGS[name].parameters("as-lbfgs", n_data))

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

    def noise(self, k: int = 0) -> float:
        """Return the standard deviation of the noise in d_u at a worker's k-th step."""
        # The square root of a constant beta is computed once, not in every step.
        return self._constant_noise or math.sqrt(
            2.0 * self.h * self.gamma / beta_at(self.beta, k)
        )

    @cached_property
    def _constant_noise(self) -> float:
        """The noise where beta is a number; 0 where it changes, or is infinite."""
        return (
            math.sqrt(2.0 * self.h * self.gamma / self.beta)
            if isinstance(self.beta, float)
            else 0.0
        )

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
        # Line 5: both parts of the gradient; the kernel blends them by their shares of Omega.
        g_O, g_S = local.g_O[now], local.g_S
        problem.grad(theta, Omega[: self.overlap], g_O)
        problem.grad(theta, Omega[self.overlap :], g_S)
        # Line 6: d_u by (6) and d_theta by (7), written into the worker's message.
        share = self.overlap / self.batch
        # A plain tuple, as numba likes it, of `kernels.compact_memory.Langevin`.
        numbers = (self.rho, self.h, self.gamma, self.noise(stream.k), share)
        H, out = local.memory.matrix, tuple(local.update)
        work = np.empty(8 * self.memory)
        langevin_update(H, numbers, u, g_O, g_S, tuple(stream), out, work)
        if self.integrator == "modified":
            # The modified Euler step overwrites d_theta of (7) with H (u + d_u).
            self._times_H(local, u + local.update.d_u, local.update.d_theta)
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
            self.consider(
                local.memory, view.theta, local.theta_old, g_prime, local.g_O[before]
            )
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
        return 1.0 / beta_at(self.beta, k)

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
        scales = [float(w.memory.scale[0]) for w in locals_] or [1.0]
        bare = (float(np.median(scales)) + self.rho) ** 2 * largest_curvature(
            problem, theta0
        )
        if bare >= stable:
            other = (
                workers == 1
                and self.integrator == "explicit"
                and self.h * bare < 4.0 - 2.0 * self.gamma
            )
            return (
                f"the step h = {self.h:g} is too large for a staleness of about {workers - 1} even "
                f"without pairs: h |H U'' H| = {self.h * bare:.2g} must stay below {self.h * stable:.2g} "
                f"with the {self.integrator} integrator; try h below {self.h * stable / (2 * bare):.1e} or "
                f"a smaller initial_scale{', or integrator=' + repr('modified') if other else ''}."
            )
        # Eight workers at most: each estimate costs a dozen gradients.
        wild = max(
            (self._wildness(problem, theta0, w) for w in locals_[:8]), default=bare
        )
        return (
            f"the curvature pairs are wild: |H U'' H| reaches {wild:.1e} where {stable:.1e} would be stable; "
            f"use a larger overlap than {self.overlap}, {self._larger_epsilon(locals_)}cosine_floor=0.3, or "
            "a fixed initial_scale."
        )

    def _larger_epsilon(self, locals_: Sequence[Worker]) -> str:
        """Return words for a larger epsilon where the present one rejects none of the pairs in memory."""
        found = np.concatenate([np.zeros(0), *(w.memory.curvatures() for w in locals_)])
        found = found[np.isfinite(found)]
        if not found.size or found.min() < 2.0 * self.epsilon:
            return ""
        return (
            f"epsilon={np.median(found):.1g} (epsilon = {self.epsilon:g} rejects nothing: the pairs in "
            f"memory have s'y/|s|^2 of {found.min():.2g} and more), "
        )

    def _delay(self, workers: int) -> float:
        """Return the d of the limit h |H U'' H| < gamma / d; on one worker it is exact."""
        if self.integrator == "modified" and workers <= 1:
            return self.gamma / (4.0 - 2.0 * self.gamma)
        return loop_delay(workers)

    def _wildness(self, problem: Problem, theta: Array, local: Worker) -> float:
        """Return |H U'' H| with the worker's own H."""
        return largest_curvature(
            problem, theta, lambda v, out: self._times_H(local, v, out)
        )

    def _times_H(self, local: Worker, v: Array, out: Array) -> None:
        """Write (H + rho I) v into `out`, by the worker's own H."""
        local.memory.product(v, out)
        out += self.rho * v
