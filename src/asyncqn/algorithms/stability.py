"""Limits of stability under delay, and advice when a run has passed one.

x_{n+1} = x_n - a x_{n-l} is stable exactly for 0 < a < 2 sin(pi / (2 (2l + 1))) (Levin and May
1976).  It governs friction (a = gamma) and a delayed gradient step (a = h times curvature).  With
W equal workers l = W - 1; jitter in the delays softens the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncqn.algorithms.first_order.sgd import SGD
from asyncqn.algorithms.first_order.stochastic_gradient import StochasticGradient
from asyncqn.algorithms.memory import product
from asyncqn.algorithms.quasi_newton.as_lbfgs import ASLBFGS
from asyncqn.types import Algorithm, Array, Potential, Rows

_PROBE_ROWS, _PROBE_ITERATIONS = 20_000, 12


def delay_limit(staleness: int) -> float:
    """The largest stable a of x_{n+1} = x_n - a x_{n-l}."""
    return 2.0 * math.sin(math.pi / (2.0 * (2.0 * staleness + 1.0)))


def warnings_before(algorithm: Algorithm, workers: int) -> list[str]:
    """What can be said against the parameters before a single step is made."""
    limit = delay_limit(workers - 1)
    if isinstance(algorithm, ASLBFGS) and algorithm.gamma >= limit:
        return [
            f"gamma = {algorithm.gamma:g} exceeds {limit:.3g}, the limit of stale friction for {workers} "
            f"workers: the run is likely to diverge; use gamma below {limit:.2g} or fewer workers."
        ]
    return []


def _probe_rows(potential: Potential) -> Rows:
    """A fixed stride of the data, all of it where there is little."""
    return np.arange(0, potential.n_data, max(1, potential.n_data // _PROBE_ROWS))


def largest_curvature(
    potential: Potential, theta: Array, precondition: Callable[[Array, Array], Any] | None = None
) -> float:
    """The largest eigenvalue of C^T (Hessian of U) C by power iteration on differences of gradients.

    C is `precondition`, a symmetric product (the identity if None); rows are a fixed stride of the
    data when there are many.
    """
    rows = _probe_rows(potential)
    base, moved, v, w = (np.zeros_like(theta) for _ in range(4))
    potential.grad(theta, rows, base)
    v[...] = np.random.Generator(np.random.Philox(key=1)).standard_normal(theta.size)
    root = math.sqrt(float(np.finfo(theta.dtype).eps))
    estimate = 0.0
    for _ in range(_PROBE_ITERATIONS):
        v /= max(float(np.linalg.norm(v)), float(np.finfo(theta.dtype).tiny))
        if precondition is not None:
            w[...] = v
            precondition(w, v)
        length = float(np.linalg.norm(v))
        step = root * (1.0 + float(np.linalg.norm(theta))) / max(length, 1e-300)
        potential.grad(theta + step * v, rows, moved)
        np.subtract(moved, base, out=moved)
        moved /= step
        if precondition is not None:
            precondition(moved, v)
        else:
            v[...] = moved
        estimate = float(np.linalg.norm(v))
        if not math.isfinite(estimate) or estimate == 0.0:
            break
    return estimate


def advise(
    algorithm: Algorithm, potential: Potential, theta0: Array, workers: int, locals_: Sequence[Any]
) -> str:
    """One sentence on the likely cause of a divergence and what to change."""
    g = np.zeros_like(theta0)
    potential.grad(theta0, _probe_rows(potential), g)
    if not np.isfinite(g).all():
        return "the gradient at theta0 is not finite; mend the potential or its data."
    if not np.isfinite(potential.value(theta0)):
        return "the objective at theta0 is not finite; start elsewhere, or mend the potential or its data."
    if isinstance(algorithm, ASLBFGS):
        return _advise_as_lbfgs(algorithm, potential, theta0, workers, locals_)
    if isinstance(algorithm, StochasticGradient):
        return _advise_first_order(algorithm, potential, theta0, workers)
    return "use a smaller step, or larger batches."


def _advise_as_lbfgs(
    algorithm: ASLBFGS, potential: Potential, theta0: Array, workers: int, locals_: Sequence[Any]
) -> str:
    limit = delay_limit(max(workers - 1, 0))
    if algorithm.gamma >= limit:
        return (
            f"the friction gamma = {algorithm.gamma:g} is above the limit {limit:.3g} that staleness sets "
            f"for {workers} workers; use gamma below {limit:.2g}."
        )
    # The slow loop: u gathers -h H g / gamma and theta moves by H u, both seen late.
    delay = max(1.0, 2.0 * (workers - 1))
    stable = algorithm.gamma / (algorithm.h * delay)
    scales = [float(w.memory.scale[0]) for w in locals_] or [1.0]
    bare = (float(np.median(scales)) + algorithm.rho) ** 2 * largest_curvature(potential, theta0)
    if bare >= stable:
        return (
            f"the step h = {algorithm.h:g} is too large for a staleness of about {workers - 1} even "
            f"without pairs; try h below {algorithm.h * stable / (2 * bare):.1e} or a smaller initial_scale."
        )
    wild = max((_wildness(algorithm, potential, theta0, w) for w in locals_[:8]), default=bare)
    return (
        f"the curvature pairs are wild: |H U'' H| reaches {wild:.1e} where {stable:.1e} would be stable; "
        f"use a larger overlap than {algorithm.overlap}, cosine_floor=0.3, or a fixed initial_scale."
    )


def _advise_first_order(
    algorithm: StochasticGradient, potential: Potential, theta0: Array, workers: int
) -> str:
    h = algorithm.h
    curvature = largest_curvature(potential, theta0)
    bound = delay_limit(max(workers - 1, 0)) / max(curvature, 1e-300)
    if isinstance(algorithm, SGD):
        bound *= 1.0 - algorithm.momentum
    if h >= bound:
        return (
            f"the step h = {h:g} is above the limit {bound:.2g} for curvature {curvature:.3g} and a "
            f"staleness of about {workers - 1}; use a smaller h or fewer workers."
        )
    return (
        f"the step h = {h:g} is too large for gradients on {algorithm.batch} points; "
        "use a smaller h or a larger batch."
    )


def _wildness(algorithm: ASLBFGS, potential: Potential, theta: Array, local: Any) -> float:
    """|H U'' H| with the worker's own H."""

    def times_H(v: Array, out: Array) -> None:
        product(local.memory, v, out)
        out += algorithm.rho * v

    return largest_curvature(potential, theta, times_H)
