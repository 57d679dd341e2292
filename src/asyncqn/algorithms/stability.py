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

from asyncqn.types import Algorithm, Array, Problem, Rows, extra

_PROBE_ROWS, _PROBE_ITERATIONS = 20_000, 12
"""Rows and power iterations of the estimate of a curvature: it decides only the words of an advice, for which
a few per cent are enough."""


def delay_limit(staleness: int) -> float:
    """Return the largest stable a of x_{n+1} = x_n - a x_{n-l}."""
    return 2.0 * math.sin(math.pi / (2.0 * (2.0 * staleness + 1.0)))


def loop_delay(workers: int) -> float:
    """Return the delay, in commits, of the slow loop of as-L-BFGS with W equal workers.

    u gathers -h H g / gamma and theta moves by H u; each of the two is W - 1 commits old.
    """
    # Two delays of W - 1 commits in series; with one worker the limit h |H U'' H| < gamma has d = 1.
    return max(1.0, 2.0 * (workers - 1))


def warnings_before(algorithm: Algorithm, workers: int) -> list[str]:
    """Return sentences about parameters that are likely to fail, before a single step is made."""
    say = extra(algorithm, "warnings")
    return [] if say is None else list(say(workers))


def _probe_rows(problem: Problem) -> Rows:
    """Return every stride-th row, about `_PROBE_ROWS` in all, or all rows where there are few."""
    return np.arange(0, problem.n_data, max(1, problem.n_data // _PROBE_ROWS))


def largest_curvature(
    problem: Problem,
    theta: Array,
    precondition: Callable[[Array, Array], Any] | None = None,
) -> float:
    """Return the largest eigenvalue of C' (Hessian of U) C, by power iteration on differences of gradients.

    `precondition(v, out)` writes C v, for a symmetric C; None stands for the identity.
    """
    rows = _probe_rows(problem)
    base, moved, v, w = (np.zeros_like(theta) for _ in range(4))
    problem.grad(theta, rows, base)
    # A fixed direction, so that the same run always gives the same advice.
    v[...] = np.random.Generator(np.random.Philox(key=1)).standard_normal(theta.size)
    # The step of a forward difference that balances truncation and rounding.
    root = math.sqrt(float(np.finfo(theta.dtype).eps))
    estimate = 0.0
    for _ in range(_PROBE_ITERATIONS):
        # Power iteration: normalise, apply the Hessian by a difference of gradients, repeat.
        v /= max(float(np.linalg.norm(v)), float(np.finfo(theta.dtype).tiny))
        if precondition is not None:
            w[...] = v
            precondition(w, v)
        length = float(np.linalg.norm(v))
        # Relative to |theta|, and for a v of any length.
        step = root * (1.0 + float(np.linalg.norm(theta))) / max(length, 1e-300)
        problem.grad(theta + step * v, rows, moved)
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


def gradient_at(problem: Problem, theta: Array) -> Array:
    """Return the gradient on all rows, or on a fixed stride of them where there are many."""
    g = np.zeros_like(theta)
    problem.grad(theta, _probe_rows(problem), g)
    return g


def advise(
    algorithm: Algorithm,
    problem: Problem,
    theta0: Array,
    workers: int,
    locals_: Sequence[Any],
) -> str:
    """Return one sentence on the likely cause of a divergence and what to change."""
    # From the surest cause to the least sure: bad data explain a divergence better than any step size.
    g = gradient_at(problem, theta0)
    if not np.isfinite(g).all():
        return "the gradient at theta0 is not finite; fix the problem or its data."
    if not np.isfinite(problem.value(theta0)):
        return "the objective at theta0 is not finite; start elsewhere, or fix the problem or its data."
    advice = extra(algorithm, "advice")
    if advice is None:
        return "use a smaller step, or larger batches."
    return str(advice(problem, theta0, workers, locals_))
