"""How far the noise of a stochastic run may lift U above its start.

A run that starts at a minimum cannot stay there: its noise lifts it to a level that the parameters set.  With
drift -s P grad U per commit (P the preconditioner, s the effective step), noise of temperature T = 1 / beta
and minibatch gradients of covariance C, a stable run settles in the mean at

    F = d T / 2  +  s tr(P C) / (4 (1 - s / s_max))

above the minimum of a quadratic, where s_max is the largest stable step; U then fluctuates as F chi^2_k / k,
with k = tr(PC)^2 / tr((PC)^2) effective dimensions.  Two rules follow.

* Temperature: a run may rise by (1.5 d + 5) / beta, "a few d / beta": all but 3 in 10,000 draws of one
  dimension, and more of several, lie within that.  Where beta changes, its lowest value counts.
* Minibatches: a run may end within the band [U_min, U_min + F (1 + 4 / sqrt(k) + 8 / k)] if it also started
  there, for then it had no way but up.  U_min is the lowest value that a few exact gradient steps from the
  start find.  An optimizer that starts above the band has to descend, and one whose step is not stable
  (s >= s_max) has no band.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncqn.algorithms.stability import gradient_at, largest_curvature
from asyncqn.types import Algorithm, Array, Problem, extra

_SAMPLE = 128
"""Data points whose gradients estimate C."""
_DESCENT = 15
"""Exact gradient steps from the start in search of U_min."""


def explained_rise(
    algorithm: Algorithm,
    problem: Problem,
    theta0: Array,
    start: float,
    *,
    workers: int,
    commits: int,
    iterate: Any,
    locals_: Sequence[Any],
) -> float:
    """Return how far above `start` = U(theta0) the noise of a run may lift U; see the top of this file.

    An algorithm tells of its noise by the extras `temperature` and `noise_floor`; one with neither is an
    optimizer that may not rise.  This costs up to 40 passes, so it is computed only for a run that has risen.
    """
    temperature, floor = extra(algorithm, "temperature"), extra(algorithm, "noise_floor")
    by_temperature = by_batches = 0.0
    if temperature is not None:
        hottest = max(float(temperature(k)) for k in (0, commits // max(workers, 1)))  # of an annealed run
        by_temperature = (1.5 * theta0.size + 5.0) * hottest
    if floor is not None:
        with np.errstate(all="ignore"):
            band = float(floor(problem, theta0, workers, iterate, locals_))
            if band > 0.0:
                by_batches = band - (start - _lowest_nearby(problem, theta0, start))
    return by_temperature + (max(by_batches, 0.0) if math.isfinite(by_batches) else 0.0)


def _lowest_nearby(problem: Problem, theta0: Array, start: float) -> float:
    """Return the lowest U that a few exact gradient steps from theta0 find; `start` is U(theta0)."""
    theta, lowest = theta0, start
    g = gradient_at(problem, theta)
    step = 1.0 / max(largest_curvature(problem, theta), 1e-300)
    for _ in range(_DESCENT):
        trial = (theta - step * g).astype(theta0.dtype)
        value = float(problem.value(trial))
        if value < lowest:
            theta, lowest, step = trial, value, 2.0 * step
            g = gradient_at(problem, theta)
        else:
            step *= 0.25
    return lowest


def minibatch_band(
    problem: Problem,
    theta: Array,
    batch: float,
    step: float,
    limit: float,
    precondition: Callable[[Array, Array], Any] | None = None,
) -> float:
    """Return the height of the band above a minimum at `theta` in which minibatches keep U.

    Parameters
    ----------
    problem, theta :
        The problem and the point at which gradients of single rows are compared.
    batch : float
        Rows that the gradient of one commit averages over.
    step, limit : float
        The effective step s and the largest stable one; the band is 0 where s is not stable.
    precondition : callable, optional
        Writes P v into its second argument; the identity by default.
    """
    if not 0.0 < step < limit:
        return 0.0
    n = int(problem.n_data)
    rows = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))
    if rows.size < 2:
        return 0.0
    off = np.zeros((rows.size, theta.size), theta.dtype)
    for row, out in zip(rows, off):
        problem.grad(theta, row[None], out)
    off -= off.mean(axis=0)
    weighted = off
    if precondition is not None:
        weighted = np.zeros_like(off)
        for vector, out in zip(off, weighted):
            precondition(vector, out)
    products = off.astype(np.float64) @ weighted.T.astype(np.float64)
    trace, squares = float(np.trace(products)), float((products * products.T).sum())
    if not 0.0 < trace < math.inf or not squares > 0.0:
        return 0.0
    k = max(trace * trace / squares, 1.0)
    floor = step * trace / (rows.size - 1) / batch / (4.0 * (1.0 - step / limit))
    return floor * (1.0 + 4.0 / math.sqrt(k) + 8.0 / k)
