"""Starts of chains: the ends of searches from overdispersed points, with the curvature there.

A chain searches by L-BFGS from a point around theta0, then from two points several Laplace standard
deviations away from the first end, on opposite sides.  Then it follows rays from the first end, up to 1,500
standard deviations along coordinate axes, the diagonal and random directions, and searches from where U falls
again.  It begins at the last end that is another mode than the first, unless that has negligible mass by
Laplace's estimate of the evidence, -U + log det(H)/2.  So chains begin at different modes where there are
several that matter, and R-hat sees it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
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
    whitened,
)
from asyncqn.algorithms.sampling.target import Target
from asyncqn.core.streams import Stream
from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array, Commit, Task

RADIUS = 2.0
"""The first search begins uniformly within so much of theta0 in every coordinate, as Stan does."""
NEGLIGIBLE = 10.0
"""A mode whose log evidence is so much below another's holds less than 1/20,000 of its mass."""
_DISPERSION = (4.0, 8.0, 30.0, 300.0)
"""Laplace standard deviations between the first end and the further starts, by chain in turn."""
_RAYS = 12
"""Rays that each chain follows."""
_NEAREST, _RATIO, _POINTS = 2.0, 1.5, 17
"""Along a ray U and its slope are computed at so many distances, each 1.5 times the one before; the first is
about two Laplace standard deviations."""
_MOST_FALLS = 3
"""Searches from rays along which U falls again, for each chain."""
SAME_MODE = 0.5
"""Ends that differ by less than so many standard deviations in every coordinate are one mode."""
_SETTLED = 1e-4
"""A search ends when U can fall by no more than this."""
_FLAT = 0.1
"""The largest g'Hg at a mode, by the metric found there."""
_LENGTH, _LENGTH_PER_DIM, _LONGEST = 100, 10, 1000


Secants = deque[tuple[Array, Array]]


class Mode(NamedTuple):
    """The end of a search: the point, Laplace's log evidence (up to a constant), and the metric there."""

    x: Array
    evidence: float
    metric: Array


def overdispersed(target: Target, theta0: Array, rng: np.random.Generator) -> Array:
    """A point around theta0 where U and its gradient are finite; theta0 itself where none is found."""
    # Starts that are wider than the posterior can disagree, which R-hat needs to see separate modes.
    away = rng.uniform(-RADIUS, RADIUS, theta0.size)
    return _finite_towards(target, theta0.astype(np.float64), away)


def find_mode(
    target: Target,
    start: Array,
    rng: np.random.Generator,
    shape: Shape,
    chain: int,
    chains: int,
) -> Mode:
    """The mode at which one of several chains begins."""
    found = first = nearest_mode(target, start, shape)
    scale = marginal_scale(first.metric)
    # Every fourth chain stays, so that not all leave a mode for one that attracts more searches.
    least = NEGLIGIBLE if chain % 4 == 0 else -NEGLIGIBLE
    for place in _places(target, first, rng, shape, chain, chains):
        x, recent = _search(target, place)
        if (np.abs(x - first.x) > SAME_MODE * scale).any():
            # By Laplace's estimate, not by U alone: a narrow mode may be deep and hold little.
            other = _mode(target, x, recent, shape)
            found = other if other.evidence > first.evidence + least else found
    return found


def nearest_mode(target: Target, start: Array, shape: Shape) -> Mode:
    """The mode that one search from `start` finds."""
    return _mode(target, *_search(target, start), shape)


def _places(
    target: Target,
    mode: Mode,
    rng: np.random.Generator,
    shape: Shape,
    chain: int,
    chains: int,
) -> Iterator[Array]:
    """Points from which to search for other modes."""
    # Opposite starts: a mode on one side of the first is missed by half of all single ones.
    far = _DISPERSION[chain % len(_DISPERSION)] * draw(
        mode.metric, rng.standard_normal(shape.normals)
    )
    for away in (far, -far):
        yield _finite_towards(target, mode.x, away)
    falls = 0
    for k in range(_RAYS):
        # Chains that leave for what they find share the axes; the others have random directions.
        leaving = chains - (chains + 3) // 4
        number = (
            chain - chain // 4 - 1 + k * leaving if chain % 4 else 2 * shape.dim + 2
        )
        away = _direction(mode.metric, rng, shape, number) * _RATIO ** rng.uniform(
            -0.5, 0.5
        )
        place = _fall(target, mode, away)
        if place is not None and falls < _MOST_FALLS:
            falls += 1
            yield place


def _direction(
    metric: Array, rng: np.random.Generator, shape: Shape, number: int
) -> Array:
    """A direction one Laplace standard deviation long: of an axis, of the diagonal, or a random one."""
    dim, scale = shape.dim, marginal_scale(metric)
    axis, sign = number // 2, 1.0 if number % 2 == 0 else -1.0
    if axis < dim:
        ray: Array = np.zeros(dim)
        ray[axis] = sign * scale[axis]
        return ray
    if axis == dim:
        return sign * scale
    along = draw(metric, rng.standard_normal(shape.normals))
    return along * (
        math.sqrt(dim) / max(math.sqrt(sum_of_squares(along / scale)), 1e-300)
    )


def _fall(target: Target, mode: Mode, direction: Array) -> Array | None:
    """The first point of a ray at which U falls; None where it does not."""
    # Between two modes U rises and falls again; a slope towards the outside shows it earlier than the values.
    g, last = np.empty(mode.x.size), -math.inf
    for k in range(_POINTS):
        x = mode.x + _NEAREST * _RATIO**k * direction
        value = target.value_and_grad(x, g)
        if not math.isfinite(value):
            return None  # beyond the support: nothing further out is worth a search
        if value < last or dot(g, direction) < 0.0:
            return x
        last = value
    return None


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
    # The optimiser of this package by its protocol, step by step: no engine, no run.
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
        # Differences of d gradients would cost more than the search, whose last steps know the curvature.
        points, gradients = (np.array(part) for part in zip(*recent))
        found = from_secants(
            np.diff(points, axis=0), np.diff(gradients, axis=0), shape, scalar=True
        )
        metric, log_det = _unit(shape) if found is None else found, 0.0
    g = np.empty(x.size)
    value = target.value_and_grad(x, g)
    evidence = -value + 0.5 * log_det
    if shape.dense and not sum_of_squares(whitened(metric, g)) <= _FLAT:
        # Laplace's estimate is of a mode.
        evidence = -math.inf  # the search ended in a tail so flat that U hardly falls
    return Mode(x, float(np.clip(evidence, -1e11, 1e11)), metric)


def _unit(shape: Shape) -> Array:
    metric = np.zeros(shape)
    metric[0] = 1.0
    return metric


def _hessian(target: Target, x: Array) -> Array:
    """Central differences of the gradient: with short steps, then with a tenth of the sd that these show."""
    # A tenth of a standard deviation balances bending against rounding; the first try shows what it is.
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
