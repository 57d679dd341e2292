"""Exact passes: L-BFGS at the master on gradients of whole passes over the data, with H0 at the workers.

    g = sum_b (n_b / n) grad_b(theta),  s = theta - base,  y = g - g_base
    base <- theta,  theta <- base - H g       H of the last M pairs on top of H0

A new theta is a trial: it is kept only if U falls enough, else the next one is aimed from the same base
with the new pair in memory, and from the third failure on the step shrinks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.memory import Memory, clear
from asyncqn.algorithms.quasi_newton.metric_memory import consider_pair, product
from asyncqn.kernels.vectors import add_one, add_scaled, dot, sum_of_squares
from asyncqn.types import Array

_SUFFICIENT = 1e-4
_NEW_DIRECTIONS, _GIVE_UP = 2, 12
"""Failures in a row after which the step only shrinks, and after which the memory is emptied."""
_MOVED = 0.5
"""A summary that differs by this share from the one in use calls for a new H0."""

COMMITS, TURNED, GAIN, STARTS, LOSS, KEPT, FAILURES, VALUE, SLOPE, BLIND = range(10)


class Iterate(NamedTuple):
    """`base` is the last point kept (theta0 while it warms up), with its gradient and the image of that.

    judge = [commits of the warm-up, the commit at which it last turned back, gain on h, answers that
    read theta0, their mean loss per weight, points kept, failures in a row, U(base), slope of the
    trial under way, whether the image of base's gradient belongs to another H0].
    """

    theta: Array
    curvature: Array
    base: Array
    at_base: Array  # (2, d): gradient and image
    memory: Memory
    work: Array  # (4, d): gradient, image, step, y and others
    judge: Array


class Update(NamedTuple):
    """Of a batch: estimates for all data; of a block: its share.  `value` is inf where g is not finite."""

    g: Array
    image: Array
    curvature: Array
    value: float
    part: int
    read: int


def take_pass(iterate: Iterate, updates: list[Update], blocks: int) -> None:
    """Judge the trial by the exact U and gradient of all blocks, and set the next one."""
    theta, judge, memory = iterate.theta, iterate.judge, iterate.memory
    g, image, step, y = iterate.work
    g[...] = image[...] = 0.0
    summary = np.zeros_like(iterate.curvature)
    value = 0.0
    for update in updates:
        add_one(g, update.g)
        add_one(image, update.image)
        summary += update.curvature
        value += update.value
    whole = len({update.part for update in updates}) == blocks and math.isfinite(value)
    blind = iterate.curvature[-1] == 0
    if whole and blind:
        iterate.curvature[...] = summary
    if judge[KEPT] == 0:
        start = judge[LOSS] * float(summary[-1]) if judge[STARTS] else math.inf
        if whole and value <= start:
            _keep(iterate, value, summary, blind)
        elif judge[STARTS]:  # the warm-up did harm: begin again where it began
            theta[...] = iterate.base
            iterate.curvature[...] = 0.0
            judge[STARTS] = 0
        elif not whole:  # not even at the start: the master's guard ends the run
            theta[...] = math.nan
        return
    np.subtract(theta, iterate.base, out=step)
    paired = False
    slope = dot(g, step)
    if whole and not (blind or judge[BLIND]):
        np.subtract(g, iterate.at_base[0], out=y)
        paired = consider_pair(memory, step, y, image - iterate.at_base[1])
    if whole and value <= judge[VALUE] + max(_SUFFICIENT * judge[SLOPE], -_rounding(value, theta)):
        _keep(iterate, value, summary, blind)
        return
    judge[FAILURES] += 1
    if paired and judge[FAILURES] <= _NEW_DIRECTIONS:
        _aim(iterate)
        return
    if judge[FAILURES] % _GIVE_UP == 0:
        clear(memory, 1.0)
    bend = slope - judge[SLOPE]
    shrink = min(max(-judge[SLOPE] / bend, 0.1), 0.5) if whole and bend > 0.0 else 0.1
    judge[SLOPE] *= shrink
    np.copyto(theta, iterate.base)
    add_scaled(theta, shrink, step)


def _keep(iterate: Iterate, value: float, summary: Array, blind: bool) -> None:
    """Make the trial the base and set the next one; where the curvature has become another, begin anew."""
    judge, curvature = iterate.judge, iterate.curvature
    moved = summary - curvature
    if sum_of_squares(moved) > _MOVED**2 * sum_of_squares(curvature):
        curvature[...] = summary
        clear(iterate.memory, 1.0)
        blind = True
    iterate.base[...] = iterate.theta
    iterate.at_base[...] = iterate.work[:2]
    judge[VALUE], judge[BLIND] = value, blind
    judge[KEPT] += 1
    judge[FAILURES] = 0
    _aim(iterate)


def _aim(iterate: Iterate) -> None:
    """Set the next trial: theta = base - H g_base."""
    g, image = iterate.at_base
    step = iterate.work[2]
    product(iterate.memory, g, image, step)
    slope = dot(g, step)
    if not 0.0 < slope < math.inf:
        clear(iterate.memory, 1.0)
        step[...] = image
        slope = dot(g, step)
        if not 0.0 < slope < math.inf:  # the blocks' own metrics disagreed
            norm = math.sqrt(sum_of_squares(g))
            step[...] = g * (math.sqrt(sum_of_squares(image)) / norm if norm > 0.0 else 0.0)
            slope = dot(g, step)
    iterate.judge[SLOPE] = -slope
    np.subtract(iterate.base, step, out=iterate.theta)


def _rounding(value: float, theta: Array) -> float:
    """Differences of values below this say nothing."""
    return 10.0 * float(np.finfo(theta.dtype).eps) * abs(value)
