"""Where chains begin: at the ends of searches from overdispersed points, with the curvature there.

A chain searches three times by L-BFGS: from a point around theta0, and from two points several Laplace
standard deviations away from the first end, on opposite sides.  It begins at the last end that is another
mode than the first, unless that has negligible mass by Laplace's estimate of the evidence,
-U + log det(H)/2.  So chains begin at different modes where there are several that matter, and R-hat sees it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.rivals.lbfgs import LBFGS
from asyncqn.algorithms.sampling.metric import (
    RANK,
    Shape,
    draw,
    from_hessian,
    from_secants,
    marginal_scale,
)
from asyncqn.algorithms.sampling.target import Target
from asyncqn.core.streams import Stream
from asyncqn.types import Array, Commit, Task

RADIUS = 2.0
"""The first search begins uniformly within so much of theta0 in every coordinate, as Stan does."""
NEGLIGIBLE = 10.0
"""A mode whose log evidence is so much below another's holds less than 1/20,000 of its mass."""
_DISPERSION = (4.0, 8.0, 16.0, 32.0)
"""Laplace standard deviations between the first end and the further starts, by chain in turn."""
SAME_MODE = 0.5
"""Ends that differ by less than so many standard deviations in every coordinate are one mode."""
_SETTLED = 1e-4
"""A search ends when U can fall by no more than this."""
_LENGTH, _LENGTH_PER_DIM, _LONGEST = 100, 10, 1000


Secants = deque[tuple[Array, Array]]


class Mode(NamedTuple):
    """The end of a search: the point, Laplace's log evidence (up to a constant), and the metric there."""

    x: Array
    evidence: float
    metric: Array


def overdispersed(target: Target, theta0: Array, rng: np.random.Generator) -> Array:
    """A point around theta0 where U and its gradient are finite; theta0 itself where none is found."""
    away = rng.uniform(-RADIUS, RADIUS, theta0.size)
    return _finite_towards(target, theta0.astype(np.float64), away)


def find_mode(
    target: Target, start: Array, rng: np.random.Generator, shape: Shape, chain: int, only: bool = False
) -> Mode:
    """The mode at which a chain begins; `only`: by one search from `start`."""
    x, secants = _search(target, start)
    found = first = _mode(target, x, secants, shape)
    if only:
        return first
    far = _DISPERSION[chain % len(_DISPERSION)] * draw(first.metric, rng.standard_normal(shape.normals))
    for away in (far, -far):
        x, secants = _search(target, _finite_towards(target, first.x, away))
        if (np.abs(x - first.x) > SAME_MODE * marginal_scale(first.metric)).any():
            other = _mode(target, x, secants, shape)
            # Every fourth chain stays, so that not all leave a mode for one with a wider basin.
            least = NEGLIGIBLE if chain % len(_DISPERSION) == 0 else -NEGLIGIBLE
            found = other if other.evidence > first.evidence + least else found
    return found


def _finite_towards(target: Target, origin: Array, away: Array) -> Array:
    """origin + away, or a half, a quarter, ... of the way, where U and its gradient are finite."""
    g = np.empty(origin.size)
    for halvings in range(30):
        x = origin + away * 0.5**halvings
        if math.isfinite(target.value_and_grad(x, g)):
            return x
    return origin.copy()


def _search(target: Target, start: Array) -> tuple[Array, Secants]:
    """L-BFGS until U can fall by `_SETTLED` at most: the end, and the last points with their gradients."""
    method = LBFGS(memory=20)
    target.recent = deque(maxlen=RANK + 1)
    iterate, local = method.init(start), method.init_worker(target, start)
    for k in range(min(_LENGTH + _LENGTH_PER_DIM * start.size, _LONGEST)):
        task = Task(0, k, Stream(0, 0, k))
        update = method.step(iterate, local, target, task)
        local = method.learn(iterate, local, target, task)
        iterate = method.apply(iterate, [update], Commit(k + 1, (0,), target.value))
        standing = method.standing(iterate)
        if standing is not None and (standing.stalled or standing.decrease <= _SETTLED):
            break
    recent, target.recent = target.recent, None
    return np.array(iterate.theta, np.float64), recent


def _mode(target: Target, x: Array, recent: Secants, shape: Shape) -> Mode:
    """The end of a search as a mode: with the curvature there, by differences or by the last secants."""
    if shape.dense:
        metric, log_det = from_hessian(_hessian(target, x))
    else:
        points, gradients = (np.array(part) for part in zip(*recent))
        found = from_secants(np.diff(points, axis=0), np.diff(gradients, axis=0), shape, scalar=True)
        metric, log_det = _unit(shape) if found is None else found, 0.0
    value = target.value_and_grad(x, np.empty(x.size))
    evidence = -value + 0.5 * log_det
    return Mode(x, float(np.clip(evidence, -1e11, 1e11)), metric)


def _unit(shape: Shape) -> Array:
    metric = np.zeros(shape)
    metric[0] = 1.0
    return metric


def _hessian(target: Target, x: Array) -> Array:
    """Central differences of the gradient: with short steps, then with a tenth of the sd that these show."""
    eps = float(np.finfo(target.dtype).eps)
    steps = eps ** (1.0 / 3.0) * (1.0 + np.abs(x))
    rough = _differences(target, x, steps)
    curvature = np.abs(np.diag(rough))
    known = np.isfinite(curvature) & (curvature > 0.0)
    wider = np.where(known, 0.1 / np.sqrt(np.where(known, curvature, 1.0)), steps)
    smooth = _differences(target, x, np.clip(wider, steps / 100.0, 1e6 * steps))
    for found in (smooth, rough):
        if np.isfinite(found).all():
            return found
    return np.eye(x.size)


def _differences(target: Target, x: Array, steps: Array) -> Array:
    """The symmetric part of the matrix with rows (grad(x + h_i e_i) - grad(x - h_i e_i)) / 2 h_i."""
    d = x.size
    out, ahead, behind = np.empty((d, d)), np.empty(d), np.empty(d)
    for i in range(d):
        point = x.copy()
        point[i] = x[i] + steps[i]
        target.grad(point, None, ahead)
        point[i] = x[i] - steps[i]
        target.grad(point, None, behind)
        out[i] = (ahead - behind) / (2.0 * steps[i])
    return 0.5 * (out + out.T)
