"""Evidence that the end of a search is a mode with mass, by the evidence along the path of the search.

Hierarchical posteriors have necks: U falls without end towards a place of no mass, and a search for a mode runs
there.  Laplace's estimate at such an end does not reveal it, for it agrees with the density nearby.  The path
does: on the way to the neck it passed places whose surroundings hold far more mass.  So the end of a search is
believed only if the path offers nothing better; otherwise the chain begins at the best place of the path, as
Pathfinder does (Zhang, Carpenter, Gelman, Vehtari, JMLR 2022).

The evidence of a place x, with H = |U''(x)|^-1 = F F' and fixed points z, in opposite pairs, with |z|^2 = d, is

    -median U(x +- F z) + d/2 + log det(H)/2,

which is Laplace's estimate where U is quadratic, since U(x + F z) = U(x) + d/2 at its minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.sampling.metric import (
    DENSE,
    diagonal,
    draw,
    from_hessian,
    squared_norm,
)
from asyncqn.algorithms.sampling.target import Target
from asyncqn.core.streams import Stream
from asyncqn.types import Array

MARGIN = 3.0
"""Nats by which the evidence of a place on the path must exceed that of the end for the end to be dismissed."""
LEAST_EVIDENCE = -1e11
"""That of a place where nothing is finite; updates that are not finite would be rejected."""
_LOOKS = 4
"""Places on the path that are compared with the end."""
_PAIRS = 4
"""Opposite pairs of points at which U is computed around a place."""
_PROBES = 8
"""Random directions along which the curvature of a long theta is measured."""
_FLAT = 0.1
"""The largest g'Hg at a mode, by the metric found there."""


class Place(NamedTuple):
    """A point with the metric there, and the log evidence of its surroundings up to a constant."""

    x: Array
    metric: Array
    evidence: float
    at_mode: bool = False


def place_at(target: Target, x: Array, *, at_mode: bool = False) -> Place:
    """Return the place at x: its metric by differences of gradients, and its evidence by values around it."""
    metric, log_determinant = _curvature(target, x)
    dim = x.size
    values = []
    for pair in range(_PAIRS):
        # The points are the same for all places, so that noise does not decide between two of them.
        z = Stream(0, 0, pair).normals(np.empty(dim))
        away = draw(metric, z * math.sqrt(dim / float((z**2).sum())))
        values += [target.value(x + away), target.value(x - away)]
    evidence = 0.5 * (dim + log_determinant) - float(np.median(values))
    if math.isnan(evidence):
        evidence = LEAST_EVIDENCE
    evidence = min(max(evidence, LEAST_EVIDENCE), -LEAST_EVIDENCE)
    return Place(x, metric, evidence, at_mode)


def is_stationary(target: Target, place: Place) -> bool:
    """Return whether the gradient is small: a search may also end in a tail so flat that U hardly falls."""
    g = np.empty(place.x.size)
    target.grad(place.x, None, g)
    return squared_norm(place.metric, g) <= _FLAT


def best_on_path(target: Target, path: Sequence[Array], end: Place) -> bool:
    """Return whether no place on the path of a search holds far more mass than its end.

    The surroundings of a mode lie d/2 above it, so that points by d above the end are outside of them.  The last
    `_LOOKS` of these are looked at, or where U is not finite at the end, of all at which it is finite.
    """
    lowest = target.value(end.x)
    level = lowest + end.x.size if math.isfinite(lowest) else -math.inf
    looks = 0
    for k in reversed(_fibonacci(len(path))):
        value = target.value(path[k])
        if math.isfinite(value) and value >= level:
            looks += 1
            if place_at(target, path[k]).evidence > end.evidence + MARGIN:
                return False
        if looks == _LOOKS:
            break
    return True


def best_place(target: Target, path: Sequence[Array]) -> Place:
    """Return the place of most evidence among the points 0, 1, 2, 3, 5, 8, ... of the path and its end."""
    places = [place_at(target, path[k]) for k in _fibonacci(len(path))]
    return max(places, key=lambda place: place.evidence)


def _fibonacci(n: int) -> list[int]:
    """Return the numbers 0, 1, 2, 3, 5, 8, ... below n, and n - 1."""
    numbers = [0, 1]
    while numbers[-1] < n:
        numbers.append(numbers[-1] + max(1, numbers[-2]))
    return sorted({k for k in numbers if k < n} | {n - 1})


def _curvature(target: Target, x: Array) -> tuple[Array, float]:
    """Return the factor of |U''(x)|^-1, or of a diagonal for a long theta, and the logarithm of its determinant."""
    eps = float(np.finfo(target.dtype).eps)
    steps = eps ** (1.0 / 3.0) * (1.0 + np.abs(x))
    dim = x.size
    if dim > DENSE:
        # The norm of a row of U'' bounds its largest eigenvalues: a start needs no more.
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (_PROBES, dim))
        scale = diagonal(signs * steps, _differences(target, x, signs * steps))
        scale = np.ones(dim) if scale is None else scale
        return scale[None], 2.0 * float(np.log(scale).sum())
    rough = _differences(target, x, np.diag(steps)) / steps[:, None]
    # A tenth of a standard deviation balances bending against rounding; the first try shows what it is.
    curvature = np.abs(np.diag(rough))
    usable = np.isfinite(curvature) & (curvature > 0.0)
    wider = np.where(usable, 0.1 / np.sqrt(np.where(usable, curvature, 1.0)), steps)
    wider = np.clip(wider, steps / 100.0, 1e6 * steps)
    smooth = _differences(target, x, np.diag(wider)) / wider[:, None]
    for hessian in (smooth, rough):
        if np.isfinite(hessian).all():
            return from_hessian(0.5 * (hessian + hessian.T))
    return np.eye(dim), 0.0


def _differences(target: Target, x: Array, steps: Array) -> Array:
    """Return (grad(x + s) - grad(x - s)) / 2 for every row s of `steps`."""
    out = np.empty(steps.shape)
    ahead, behind = np.empty((2, x.size))
    for i, s in enumerate(steps):
        target.grad(x + s, None, ahead)
        target.grad(x - s, None, behind)
        out[i] = 0.5 * (ahead - behind)
    return out
