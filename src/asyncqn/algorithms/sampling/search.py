"""Starts of chains: the ends of searches from overdispersed points, with the curvature there.

A chain searches by L-BFGS from a point around theta0, then from two points several Laplace standard
deviations away from the first end, on opposite sides.  Then it follows rays from the first end, up to 1,500
standard deviations along coordinate axes, the diagonal and random directions, and searches from where U falls
again.  It begins at the last end that is another mode than the first, unless that has negligible mass by
Laplace's estimate of the evidence, -U + log det(H)/2.  So chains begin at different modes where there are
several that matter, and R-hat sees it.

Where the end of the first search is not to be believed (`evidence`), the chain begins at the best place of the
path of that search, and searches no further.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.exact.exact_lbfgs import ExactLBFGS
from asyncqn.algorithms.sampling.evidence import (
    best_place,
    hessian,
    is_mode,
    place_at,
)
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
WORSE = 3.0
"""The same bound for a chain that begins without a mode.  It need not stay where its search happened to pass."""
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
_LARGEST_EVIDENCE = 1e11
_LENGTH, _LENGTH_PER_DIM, _LONGEST = 100, 10, 1000
_FIRST_CHECK = 100
"""Steps of a search after which it is first asked whether it runs down a neck."""


Secants = deque[tuple[Array, Array]]


class Start(NamedTuple):
    """Start of a chain: the point, its log evidence (up to a constant), and the metric there."""

    x: Array
    evidence: float
    metric: Array
    believed: bool = True
    """False where the path of the search passed a place of far more mass than its end."""

    @property
    def at_mode(self) -> bool:
        """Return whether the point is a mode: a believed end at which the gradient is small."""
        return self.believed and self.evidence > -_LARGEST_EVIDENCE


class Search(NamedTuple):
    """The end of a search, the last points with their gradients, and the points that it passed."""

    x: Array
    recent: Secants
    path: list[Array]


def overdispersed(target: Target, theta0: Array, rng: np.random.Generator) -> Array:
    """A point around theta0 where U and its gradient are finite; theta0 itself where none is found."""
    # Starts that are wider than the posterior can disagree, which R-hat needs to see separate modes.
    away = rng.uniform(-RADIUS, RADIUS, theta0.size)
    return _finite_towards(target, theta0.astype(np.float64), away)


def find_start(
    target: Target,
    start: Array,
    rng: np.random.Generator,
    shape: Shape,
    chain: int,
    chains: int,
) -> Start:
    """The place at which one of several chains begins: a mode, or the best place on the way to none."""
    best = first = nearest_start(target, start, shape)
    if not first.believed:
        return first
    scale = marginal_scale(first.metric)
    # Every fourth chain stays, so that not all leave a mode for one that attracts more searches.
    least = NEGLIGIBLE if chain % 4 == 0 else -NEGLIGIBLE
    for place in _places(target, first, rng, shape, chain, chains):
        x, recent, _ = _search(target, place, None)
        if (np.abs(x - first.x) > SAME_MODE * scale).any():
            # By Laplace's estimate, not by U alone: a narrow mode may be deep and hold little.
            other = _mode(target, x, recent, shape)
            if other.evidence > first.evidence + least:
                best = other
    return best


def nearest_start(target: Target, start: Array, shape: Shape) -> Start:
    """The mode that one search from `start` finds, or the best place on its path."""
    if not shape.dense:
        # The evidence of a place takes d gradients.  A long theta has not been tried.
        x, recent, _ = _search(target, start, None)
        return _mode(target, x, recent, shape)
    search = _search(target, start, _FIRST_CHECK)
    end = place_at(target, search.x)
    if is_mode(target, search.path, end):
        # Where a neck is taken for a mode, values around it say more than the curvature.
        mode = _mode(target, search.x, search.recent, shape)
        return mode._replace(evidence=min(mode.evidence, _bounded(end.evidence)))
    place = best_place(target, search.path)
    return Start(place.x, _bounded(place.evidence), place.metric, believed=False)


def _places(
    target: Target,
    mode: Start,
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


def _fall(target: Target, mode: Start, direction: Array) -> Array | None:
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


def _search(target: Target, start: Array, first_check: int | None) -> Search:
    """L-BFGS until U can fall by `_SETTLED` at most.

    After `first_check` steps, and whenever their number has doubled, the search ends where the point reached is
    already dismissed; None: it is not asked.
    """
    # The optimiser of this package by its protocol, step by step: no engine, no run.
    method = ExactLBFGS(blocks=1)
    recent: Secants = deque(maxlen=RANK + 1)
    target.recent = recent
    iterate = method.init(start)
    worker = method.init_worker(target, start)
    path: list[Array] = [np.array(start, np.float64)]
    check = first_check
    for k in range(min(_LENGTH + _LENGTH_PER_DIM * start.size, _LONGEST)):
        if k == check:
            check = 2 * k
            target.recent = None
            if not is_mode(target, path, place_at(target, path[-1])):
                break
            target.recent = recent
        task = Task(0, k, Stream(0, 0, k), 0)
        update = method.step(iterate, worker, target, task)
        iterate = method.apply(iterate, [update], Commit(k + 1, (0,), target.value))
        if first_check is not None:
            path.append(np.array(iterate.base, np.float64))
        standing = method.standing(iterate)
        if standing is not None and (standing.stalled or standing.decrease <= _SETTLED):
            break
    target.recent = None
    return Search(np.array(iterate.base, np.float64), recent, path)


def _mode(target: Target, x: Array, recent: Secants, shape: Shape) -> Start:
    """The end of a search as a mode: with the curvature there, by differences or by the last secants."""
    if shape.dense:
        metric, log_det = from_hessian(hessian(target, x))
    else:
        # Differences of d gradients would cost more than the search, whose last steps know the curvature.
        points, gradients = (np.array(part) for part in zip(*recent))
        fitted = from_secants(
            np.diff(points, axis=0), np.diff(gradients, axis=0), shape, scalar=True
        )
        metric = _unit(shape) if fitted is None else fitted
        log_det = 0.0
    g = np.empty(x.size)
    value = target.value_and_grad(x, g)
    evidence = -value + 0.5 * log_det
    if shape.dense and not sum_of_squares(whitened(metric, g)) <= _FLAT:
        # Laplace's estimate is of a mode.
        evidence = -math.inf  # the search ended in a tail so flat that U hardly falls
    return Start(x, _bounded(evidence), metric)


def _bounded(evidence: float) -> float:
    """Return a finite number: updates that are not finite are rejected."""
    return float(np.clip(evidence, -_LARGEST_EVIDENCE, _LARGEST_EVIDENCE))


def _unit(shape: Shape) -> Array:
    metric = np.zeros(shape)
    metric[0] = 1.0
    return metric
