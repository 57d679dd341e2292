"""MinibatchLangevin: unadjusted Langevin chains on minibatches, with a control variate at the mode.

Every worker runs its own chains under the metric H of the mode.  A step of the chain is BAOAB,

    v -= (h/2) H g,  x += (h/2) v,  v = c v + (1 - c^2)^1/2 N(0, H),  x += (h/2) v,  v -= (h/2) H g,

with c = exp(-gamma h), which is exact in x for a Gaussian with exact gradients.  The gradient is estimated
from a batch by its difference to the mode,

    g(x) = grad U(mode) + [grad_Omega(x) - grad_Omega(mode)],

whose noise vanishes as x approaches the mode.  There is no Metropolis test: noise with variance s^2 along a
whitened direction widens the variance of x by a factor

    1 + h^2 s^2 / (2 sinh(gamma h)),

and this factor is estimated: the two halves of each batch differ by twice the noise.  The batch is chosen by
a pilot so that the widening is at most 2 %; a problem for which that needs half of all rows or more gets
exact gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from asyncqn.algorithms.sampling.chains import ChainMethod, DrawCount, PerWorker
from asyncqn.algorithms.sampling.metric import Shape, apply, draw, marginal_scale, metric_shape, whitened
from asyncqn.algorithms.sampling.search import nearest_mode
from asyncqn.algorithms.sampling.target import Target
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task

WIDENING = 0.02
"""The relative widening of variances that the choice of the batch allows."""
_PILOT = 8
"""Points at which the noise is measured before the batch is chosen."""
_SAFETY = 1.5
_LEAST_ROWS, _ROWS_PER_DIM, _SHARE = 100, 10, 20
"""Rows of each measurement: at least 100, 10 per coordinate, and a twentieth of all."""
_SPIKE = 5.0
"""While a chain burns in, noise that exceeds what is allowed by this factor doubles its batch."""
_AWAY = 1e3
"""A chain that is so many standard deviations from its mode in the mean of squares has run away."""

NEW, PLACED, MOVING = range(3)
TOTALS = ("draws", "divergent", "rows", "n_data", "batch")
DRAWS, DIVERGENT, ROWS, N_DATA, BATCH = range(len(TOTALS))


class Iterate(NamedTuple):
    """The last draw that arrived, and sums of the squares of the noise."""

    theta: Array
    noise: Array  # (d,): sums of the squares of whitened noise over the draws that count
    totals: Counters  # (5,): `TOTALS`


class Facts(NamedTuple):
    """Fields of an update besides its vectors."""

    counts: bool
    divergent: bool
    rows: int
    """Rows whose gradient was computed."""
    n_data: int
    batch: int


class Update(NamedTuple):
    """A draw, and the mean squares of the whitened noise on the way to it."""

    x: Array
    noise: Array
    facts: Facts


class Worker(NamedTuple):
    """The chains of a worker, row by row."""

    origin: Array  # (d,): theta0
    x: Array  # (m, d)
    v: Array  # (m, d)
    g: Array  # (m, d): the last estimate of the gradient at x
    mode: Array  # (m, d)
    g_mode: Array  # (m, d): the gradient at the mode over all rows
    metric: Array  # (m, rows, d)
    batch: Counters  # (m,): 0 where gradients are exact
    state: Counters  # (m,)


@dataclass(frozen=True)
class MinibatchLangevin(ChainMethod):
    """Approximate draws from exp(-U) by minibatches, for sums over many rows near a well-determined mode.

    Parameters
    ----------
    draws : int
        Draws that count, of all chains together.
    per_worker : int, default 1
        Chains of each worker, which it moves in turn.
    batch : int or None, default None
        Rows of a gradient; None: as many as a pilot finds necessary.
    steps : int, default 8
        Steps between two draws.
    h : float, default 0.25
        The step, in units of the metric.
    gamma : float, default 1.0
        The friction, in units of the metric.

    Notes
    -----
    The draws are approximate: there is no Metropolis test.  `Run.results["widening"]` estimates by how much
    the noise of minibatches widens variances; it does not see the error of the step on posteriors that are
    not Gaussian.  A chain whose gradients are not finite, or which runs far away from its mode, starts again
    there; the widening is infinite then.  It begins at one mode and sees no other.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LogisticRegression.random(2000, 4, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=4))
    >>> run = aq.minimize(problem, aq.MinibatchLangevin(draws=200), engine=engine, commits=600)
    >>> run.status, bool(run.results["widening"].max() < 0.05)
    ('completed', True)
    """

    draws: DrawCount
    per_worker: PerWorker = 1
    batch: Annotated[int | None, parameter("Rows of a gradient; None: by a pilot", unit="rows", ge=2)] = None
    steps: Annotated[int, parameter("Steps between two draws", ge=1, le=10_000)] = 8
    h: Annotated[float, parameter("The step, in units of the metric", gt=0.0, lt=2.0)] = 0.25
    gamma: Annotated[float, parameter("The friction, in units of the metric", gt=0.0)] = 1.0

    approximate = True
    sent = ("totals",)

    @classmethod
    def example(cls, problem: Problem) -> MinibatchLangevin:
        """Small parameters that run on any problem, for tests."""
        return cls(draws=10_000, steps=2, batch=10)

    @property
    def widening_per_noise(self) -> float:
        """The widening of variances by noise of variance one."""
        return self.h**2 / (2.0 * math.sinh(self.gamma * self.h))

    def init(self, theta0: Array) -> Iterate:
        return Iterate(theta0.copy(), np.zeros(theta0.size), np.zeros(len(TOTALS), np.int64))

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        m, d = self.per_worker, theta0.size
        x, v, g, mode, g_mode = (np.zeros((m, d)) for _ in range(5))
        metric, batch, state = np.zeros((m, *metric_shape(d))), np.zeros(m, np.int64), np.zeros(m, np.int64)
        return Worker(theta0.copy(), x, v, g, mode, g_mode, metric, batch, state)

    def step(self, view: Iterate, local: Worker, problem: Problem, task: Task) -> Update:
        with np.errstate(all="ignore"):
            return self._step(local, problem, task)

    def _step(self, local: Worker, problem: Problem, task: Task) -> Update:
        i, d = task.stream.k % self.per_worker, local.origin.size
        noise: Array = np.zeros(d)
        divergent, rows = False, 0
        if local.state[i] == NEW:
            local.x[i] = local.origin
            local.state[i] = PLACED
        elif local.state[i] == PLACED:
            rows = self._prepare(local, i, problem, task)
        else:
            noise, divergent = self._move(local, i, problem, task)
            batch = int(local.batch[i])
            # A row of a batch costs two gradients: one here, one at the mode.
            rows = self.steps * (2 * batch if batch else int(problem.n_data))
        counts = self.counts(task.stream.k, task.read, d)
        if not counts and self.batch is None:
            self._enlarge_batch(local, i, noise, int(problem.n_data))
        facts = Facts(counts, divergent, rows, int(problem.n_data), int(local.batch[i]))
        return Update(local.x[i].astype(local.origin.dtype), noise, facts)

    def _prepare(self, local: Worker, i: int, problem: Problem, task: Task) -> int:
        """Find the mode and its metric, and choose the batch; returns the rows that it took."""
        rng, n = task.stream.generator(), int(problem.n_data)
        target, shape = Target(problem, local.origin.dtype), Shape(*local.metric.shape[1:])
        mode = nearest_mode(target, local.x[i], shape)
        local.mode[i], local.metric[i], local.x[i] = mode.x, mode.metric, mode.x
        target.grad(mode.x, None, local.g_mode[i])
        local.g[i] = local.g_mode[i]
        local.v[i] = draw(mode.metric, rng.standard_normal(shape.normals))
        local.state[i] = MOVING
        pilot = 0
        if self.batch is None:
            pilot = min(max(_LEAST_ROWS, _ROWS_PER_DIM * local.origin.size, n // _SHARE), n)
            local.batch[i] = self._chosen_batch(local, i, problem, rng, pilot)
        else:
            local.batch[i] = self.batch
        if 2 * local.batch[i] >= n:
            local.batch[i] = 0  # two gradients of half the rows cost as much as one of all
        return target.gradients * n + 2 * _PILOT * pilot

    def _chosen_batch(
        self, local: Worker, i: int, problem: Problem, rng: np.random.Generator, pilot: int
    ) -> int:
        """The rows at which the widest direction widens by `WIDENING`, from the noise near the mode."""
        normals, noise = Shape(*local.metric.shape[1:]).normals, np.zeros(local.origin.size)
        for _ in range(_PILOT):
            x = local.mode[i] + draw(local.metric[i], rng.standard_normal(normals))
            rows = rng.integers(0, int(problem.n_data), pilot)
            _, e = self._gradient(local, i, problem, x, rows)
            noise += whitened(local.metric[i], e) ** 2 / _PILOT
        # Noise has a variance of 1 / batch; the widest direction decides.
        wanted = _SAFETY * pilot * float(noise.max()) * self.widening_per_noise / WIDENING
        least = _ROWS_PER_DIM * local.origin.size
        return int(min(max(wanted, least, 2), problem.n_data)) if math.isfinite(wanted) else 0

    def _enlarge_batch(self, local: Worker, i: int, noise: Array, n_data: int) -> None:
        """Double the batch where the noise on the way to the last draw was far beyond what the pilot saw."""
        spike = self.widening_per_noise * float(noise.max()) > _SPIKE * WIDENING
        # Only while the chain burns in: a batch chosen by the draws that count would bias them.
        if local.batch[i] and spike:
            local.batch[i] *= 2
            if 2 * local.batch[i] >= n_data:
                local.batch[i] = 0

    def _gradient(self, local: Worker, i: int, problem: Problem, x: Array, rows: Rows) -> tuple[Array, Array]:
        """The estimate at x and its noise, from the two halves of a batch."""
        dtype, halves = local.origin.dtype, []
        here, there, out = x.astype(dtype), local.mode[i].astype(dtype), np.empty(x.size, dtype)
        for half in (rows[: rows.size // 2], rows[rows.size // 2 :]):
            problem.grad(here, half, out)
            g = out.astype(np.float64)
            problem.grad(there, half, out)
            halves.append(g - out)
        # Half the difference of two independent halves has the variance of the error of their mean.
        a, b = halves
        return local.g_mode[i] + 0.5 * (a + b), 0.5 * (a - b)

    def _exact(self, local: Worker, problem: Problem, x: Array) -> tuple[Array, Array]:
        out = np.empty(x.size)
        Target(problem, local.origin.dtype).grad(x, None, out)
        return out, np.zeros(x.size)

    def _move(self, local: Worker, i: int, problem: Problem, task: Task) -> tuple[Array, bool]:
        """`steps` steps of BAOAB; returns the mean squares of the noise and whether the chain ran away."""
        metric, batch, h = local.metric[i], int(local.batch[i]), self.h
        normals, c = Shape(*metric.shape).normals, math.exp(-self.gamma * h)
        z = task.stream.normals(np.empty((self.steps + 1) * normals)).reshape(-1, normals)
        rows = task.stream.rows(problem.n_data, np.empty(max(1, self.steps * batch), np.int64))

        def gradient(k: int) -> tuple[Array, Array]:
            if not batch:
                return self._exact(local, problem, x)
            return self._gradient(local, i, problem, x, rows[k * batch : (k + 1) * batch])

        x, v, g = local.x[i].copy(), local.v[i].copy(), local.g[i].copy()
        noise = np.zeros(x.size)
        for k in range(self.steps):
            v -= 0.5 * h * apply(metric, g)
            x += 0.5 * h * v
            v = c * v + math.sqrt(1.0 - c * c) * draw(metric, z[k])
            x += 0.5 * h * v
            g, e = gradient(k)
            noise += whitened(metric, e) ** 2 / self.steps
            v -= 0.5 * h * apply(metric, g)
        fine = math.isfinite(sum_of_squares(x)) and math.isfinite(sum_of_squares(noise))
        # A restart is reported (`divergent`): draws after it are not of the posterior.
        if not fine or not math.isfinite(sum_of_squares(g)) or self._far(local, i, x):
            x, v, g = local.mode[i].copy(), draw(metric, z[self.steps]), local.g_mode[i].copy()
            noise, fine = np.zeros(x.size), False
        local.x[i], local.v[i], local.g[i] = x, v, g
        return noise, not fine

    def _far(self, local: Worker, i: int, x: Array) -> bool:
        away = (x - local.mode[i]) / np.maximum(marginal_scale(local.metric[i]), 1e-300)
        return bool((away**2).mean() > _AWAY**2)

    def apply(self, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        totals = iterate.totals
        for x, noise, facts in updates:
            iterate.theta[...] = x
            totals[ROWS] += facts.rows
            totals[N_DATA] = facts.n_data
            if facts.counts:
                totals[DIVERGENT] += facts.divergent
                totals[DRAWS] += 1
                totals[BATCH] = facts.batch or facts.n_data
                iterate.noise[...] += noise
        return iterate

    def finished(self, iterate: Iterate) -> str | None:
        ended, lost = super().finished(iterate), int(iterate.totals[DIVERGENT])
        return f"{ended}, {lost} of them after a restart at the mode" if ended and lost else ended

    def results(self, iterate: Iterate) -> Mapping[str, Array]:
        """The estimated widening of variances, by whitened direction; infinite after a restart."""
        lost = iterate.totals[DIVERGENT] > 0
        noise = (
            np.full_like(iterate.noise, math.inf)
            if lost
            else iterate.noise / max(1, int(iterate.totals[DRAWS]))
        )
        return {"widening": self.widening_per_noise * noise}

    def counters(self, iterate: Iterate, locals_: Sequence[Any]) -> dict[str, int]:
        found = dict(zip(TOTALS, iterate.totals.tolist()))
        n_data = max(1, found.pop("n_data"))
        return {**found, "gradients": -(-found.pop("rows") // n_data)}
