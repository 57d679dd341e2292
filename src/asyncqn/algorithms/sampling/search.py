"""Starts of chains: the ends of searches from overdispersed points, with the curvature there.

A chain searches by L-BFGS from a point around theta0, then from two points several Laplace standard
deviations away from the first end, on opposite sides.  Then it follows rays from the first end, up to 1,500
standard deviations along coordinate axes, the diagonal and random directions, and searches from where U falls
again.  It begins at the last end that is another mode than the first, unless that has negligible mass by its
evidence.  So chains begin at different modes where there are several that matter, and R-hat sees it.

Where the end of the first search is not to be believed (`evidence`), the chain begins at the best place of the
path of that search, and searches no further.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from asyncqn.algorithms.exact.exact_lbfgs import ExactLBFGS
from asyncqn.algorithms.sampling.evidence import (
    Place,
    best_on_path,
    best_place,
    is_stationary,
    place_at,
)
from asyncqn.algorithms.sampling.metric import draw, marginal_scale
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
_LENGTH, _LENGTH_PER_DIM, _LONGEST = 100, 10, 1000


def find_start(
    target: Target, origin: Array, rng: np.random.Generator, chain: int, chains: int
) -> Place:
    """Return where one of several chains begins: a mode, or the best place on the way to none."""
    # Starts that are wider than the posterior can disagree, which R-hat needs to see separate modes.
    away = rng.uniform(-RADIUS, RADIUS, origin.size)
    start = finite_towards(target, origin.astype(np.float64), away)
    path = _search(target, start)
    first = place_at(target, path[-1], at_mode=True)
    if not (is_stationary(target, first) and best_on_path(target, path, first)):
        return best_place(target, path)
    best = first
    scale = marginal_scale(first.metric)
    # Every fourth chain stays, so that not all leave a mode for one that attracts more searches.
    least = NEGLIGIBLE if chain % 4 == 0 else -NEGLIGIBLE
    for place in _places(target, first, rng, chain, chains):
        x = _search(target, place)[-1]
        if (np.abs(x - first.x) > SAME_MODE * scale).any():
            # By evidence, not by U alone: a narrow mode may be deep and hold little.
            other = place_at(target, x, at_mode=True)
            better = other.evidence > first.evidence + least
            if better and is_stationary(target, other):
                best = other
    return best


def finite_towards(target: Target, origin: Array, away: Array) -> Array:
    """Return origin + away, or a half, a quarter, ... of the way, where U is finite; else the origin."""
    g = np.empty(origin.size)
    for halvings in range(30):
        x = origin + away * 0.5**halvings
        if math.isfinite(target.value_and_grad(x, g)):
            return x
    return origin.copy()


def _places(
    target: Target, mode: Place, rng: np.random.Generator, chain: int, chains: int
) -> Iterator[Array]:
    """Yield points from which to search for other modes."""
    # Opposite starts: a mode on one side of the first is missed by half of all single ones.
    dim = mode.x.size
    distance = _DISPERSION[chain % len(_DISPERSION)]
    far = distance * draw(mode.metric, rng.standard_normal(dim))
    for away in (far, -far):
        yield finite_towards(target, mode.x, away)
    falls = 0
    for k in range(_RAYS):
        # Chains that leave for what they find share the axes; the others have random directions.
        leaving = chains - (chains + 3) // 4
        number = chain - chain // 4 - 1 + k * leaving if chain % 4 else 2 * dim + 2
        direction = _direction(mode.metric, rng, number)
        place = _fall(target, mode, direction * _RATIO ** rng.uniform(-0.5, 0.5))
        if place is not None and falls < _MOST_FALLS:
            falls += 1
            yield place


def _direction(metric: Array, rng: np.random.Generator, number: int) -> Array:
    """Return a direction one standard deviation long: of an axis, of the diagonal, or a random one."""
    scale = marginal_scale(metric)
    axis = number // 2
    sign = 1.0 if number % 2 == 0 else -1.0
    if axis == scale.size:
        return sign * scale
    if axis < scale.size:
        ray: Array = np.zeros(scale.size)
        ray[axis] = sign * scale[axis]
        return ray
    along = draw(metric, rng.standard_normal(scale.size))
    size = math.sqrt(sum_of_squares(along / scale) / scale.size)
    return along / max(size, 1e-300)


def _fall(target: Target, mode: Place, direction: Array) -> Array | None:
    """Return the first point of a ray at which U falls; None where it does not."""
    # Between two modes U rises and falls again; a slope towards the outside shows it earlier than the values.
    g = np.empty(mode.x.size)
    last = -math.inf
    for k in range(_POINTS):
        x = mode.x + _NEAREST * _RATIO**k * direction
        value = target.value_and_grad(x, g)
        if not math.isfinite(value):
            return None  # beyond the support: nothing further out is worth a search
        if value < last or dot(g, direction) < 0.0:
            return x
        last = value
    return None


def _search(target: Target, start: Array) -> list[Array]:
    """Return the path of L-BFGS until U can fall by `_SETTLED` at most."""
    # The optimiser of this package by its protocol, step by step: no engine, no run.
    method = ExactLBFGS(blocks=1)
    iterate = method.init(start)
    worker = method.init_worker(target, start)
    path: list[Array] = [np.array(start, np.float64)]
    for k in range(min(_LENGTH + _LENGTH_PER_DIM * start.size, _LONGEST)):
        task = Task(0, k, Stream(0, 0, k), 0)
        update = method.step(iterate, worker, target, task)
        iterate = method.apply(iterate, [update], Commit(k + 1, (0,), target.value))
        path.append(np.array(iterate.base, np.float64))
        standing = method.standing(iterate)
        if standing is not None and (standing.stalled or standing.decrease <= _SETTLED):
            break
    return path
