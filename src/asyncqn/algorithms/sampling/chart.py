"""Charts: coordinates z in which a posterior with necks and bends is nearly normal, learned from all chains.

Some coordinates, the pivots, keep their values.  Each of the others is shifted and scaled by functions of pivots,

    x_i = shift_i(pivots) + scale_i(pivots) z_i,

which undoes a funnel, the neck of a hierarchical model, and a parabola (`kernels.chart` has the functions).  Where
the draws show no such relation there is no chart, and chains move in x.

The law stays.  x(z) is one-to-one and smooth, with log |dx/dz| = sum_i log scale_i.  If z has the density
exp(-U(x(z))) |dx/dz|, then x(z) has the density exp(-U(x)).  A trajectory in z leaves the former invariant
(`trajectory`), whatever the chart is, as long as it was frozen before; so it leaves the latter invariant in x.
The number of gradients of a trajectory remains independent of the state.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.sampling.metric import products
from asyncqn.algorithms.sampling.target import Target
from asyncqn.algorithms.sampling.trajectory import End, trajectory
from asyncqn.kernels import chart as kernels
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.types import Array

EDGES = 4
"""Room for so many edges per coordinate."""
LEAST_GAIN = 0.02
"""Nats per draw by which an edge must raise the likelihood of its child."""
LEAST_TOTAL = 0.1
"""Nats per draw by which a pivot must raise the likelihood of all its children together."""
_FEW = 500
"""Both bounds are higher in proportion where draws are fewer than this."""
_LEAST_SCORE = 0.01
_BOUND = 4.0
_MOST_PARENTS = 4
_TRIED = 5
_SWEEPS = 15
_SIMPLER = 0.8
"""A second part of the shift must lower the divergence to this share."""
_FAR = 0.5


def no_chart(dim: int, dense: bool) -> Array:
    """Return the chart without edges; a metric of low rank has no room for any."""
    chart = np.zeros(((1 + EDGES) * dim if dense else 0, 6))
    chart[:dim, 4] = 1.0
    chart[dim:, 0] = -1.0
    return chart


def has_edges(chart: Array) -> bool:
    """Return whether the chart is another map than the identity."""
    dim = len(chart) // (1 + EDGES)
    return dim > 0 and bool(chart[dim, 0] >= 0.0)


class Charted:
    """A target in the coordinates z of a chart: U(x(z)) - log |dx/dz|.

    x, g, value: the point of the last call, the gradient and U there.
    """

    def __init__(self, target: Target, chart: Array, x: Array) -> None:
        self.target, self.chart, self.origin = target, chart, x
        self.x, self.g, self.value = x.copy(), np.empty(x.size), math.inf
        self._work = np.empty((3, x.size))

    def fold(self, g: Array, value: float) -> tuple[Array, Array, float]:
        """Return z, the gradient and the value at the first x, where U is `value` and its gradient g."""
        z, out = np.empty(g.size), g.copy()
        volume = kernels.fold(self.chart, self.origin, z, *self._work)
        kernels.pull_back(self.chart, z, *self._work[1:], out)
        return z, out, value - volume

    def trajectory(
        self, g: Array, value: float, metric: Array, h: float, n: int, normals: Array
    ) -> End:
        """Return the end of a trajectory in z from the first x, as a point x with its gradient and value."""
        z, at_z, value_at_z = self.fold(g, value)
        end = trajectory(self, z, at_z, value_at_z, metric, h, n, normals)
        if end.divergent:
            return end
        return end._replace(x=self.x, g=self.g, value=self.value)

    def value_and_grad(self, z: Array, out: Array) -> float:
        """Return the value at z, and write the gradient; the value is infinite where either is not finite."""
        volume = kernels.unfold(self.chart, z, self.x, *self._work)
        inside = math.isfinite(sum_of_squares(self.x))
        point = self.x if inside else self.origin
        self.value = self.target.value_and_grad(point, self.g)
        out[...] = self.g if inside else np.nan
        kernels.pull_back(self.chart, z, *self._work[1:], out)
        return self.value - volume if inside else math.inf

    def grad(self, z: Array, rows: object, out: Array) -> None:
        """Write the gradient at z."""
        kernels.unfold(self.chart, z, self.x, *self._work)
        inside = math.isfinite(sum_of_squares(self.x))
        self.target.grad(self.x if inside else self.origin, None, out)
        if not inside:
            out[...] = np.nan
        kernels.pull_back(self.chart, z, *self._work[1:], out)


def folded(chart: Array, X: Array, G: Array) -> tuple[Array, Array]:
    """Return draws and gradients (rows) in the coordinates of the chart."""
    Z, out = np.empty(X.shape), G.copy()
    work = np.empty((3, X.shape[1]))
    for x, z, g in zip(X, Z, out):
        kernels.fold(chart, x, z, *work)
        kernels.pull_back(chart, z, *work[1:], g)
    return Z, out


class Child(NamedTuple):
    """The fit of a coordinate given its pivots."""

    pivots: tuple[int, ...]
    kind: float
    shift: Array
    scale: Array
    loss: float
    divergence: float
    residual: Array
    away: Array
    weight: Array


def _fit(
    V: Array,
    G: Array,
    i: int,
    pivots: tuple[int, ...],
    kind: float = kernels.PLAIN,
    bent: bool = True,
) -> Child:
    """Return the fit of coordinate i to pivots; without `bent` the scale is constant."""
    m, n = len(pivots), len(V)
    size = {kernels.PLAIN: 1 + m, kernels.BEND: 1 + 2 * m, kernels.NECK: 2 + 2 * m}
    shift, scale = np.zeros(size[kind]), np.zeros(1 + 2 * m if bent else 1)
    work = np.empty((3 + 2 + 2 * m, 2 + 2 * m))
    residual, away, log_scale = np.empty((3, n))
    y, g = np.ascontiguousarray(V[:, i]), np.ascontiguousarray(G[:, i])
    v = np.ascontiguousarray(V[:, list(pivots)])
    loss, divergence = kernels.fit_child(
        y, g, v, kind, _SWEEPS, work, shift, scale, residual, away, log_scale
    )
    if not math.isfinite(loss + divergence):
        loss = divergence = math.inf
    weight = np.exp(-log_scale)
    return Child(pivots, kind, shift, scale, loss, divergence, residual, away, weight)


def _refined(V: Array, G: Array, i: int, child: Child) -> Child:
    """Return the fit of the simplest kind that is as good as the others."""
    best = _fit(V, G, i, child.pivots)
    for kind in (kernels.BEND, kernels.NECK):
        other = _fit(V, G, i, child.pivots, kind)
        if other.divergence < _SIMPLER * best.divergence and other.loss < best.loss:
            best = other
    return best


def _gain(before: Child, after: Child) -> float:
    """Return about the nats per draw that are gained, by the divergence where it falls by far, else by the loss."""
    if after.loss < before.loss and after.divergence < _FAR * before.divergence:
        return 0.25 * (before.divergence - after.divergence)
    return before.loss - after.loss


def _threshold(gain: float, n: int) -> float:
    return gain * max(1.0, _FEW / n)


def fit_chart(X: Array, gradients: Array) -> Array:
    """Return the chart of most likelihood of the draws X (rows), pivot by pivot; without edges where none gains."""
    n, dim = X.shape
    chart = no_chart(dim, dense=True)
    low, centre, high = np.percentile(X, [25.0, 50.0, 75.0], axis=0)
    spread = (high - low) / 1.349
    if not (np.isfinite(X).all() and spread.min() > 0.0):
        return chart
    V, G = (X - centre) / spread, gradients * spread
    children = {i: _fit(V, G, i, ()) for i in range(dim)}
    pivots: list[int] = []
    while len(pivots) < dim // 2 + 1:
        scores = _scores(V, children, pivots)
        totals = scores.sum(axis=0)
        order = [int(k) for k in np.argsort(-totals, kind="stable")[:_TRIED]]
        best, gain, changed = -1, _threshold(LEAST_TOTAL, n), {}
        for k in order:
            if totals[k] <= 0.0:
                continue
            tried, total = _children_of(V, G, k, scores[:, k], children, pivots)
            if total > gain:
                best, gain, changed = k, total, tried
        if best < 0:
            break
        pivots.append(best)
        children.update(changed)
    for i, child in children.items():
        if child.pivots:
            children[i] = _refined(V, G, i, child)
    return _written(chart, children, centre, spread)


def _scores(V: Array, children: dict[int, Child], pivots: list[int]) -> Array:
    """Return, for each child and pivot, about the nats per draw that the edge between them would gain."""
    dim = V.shape[1]
    R = np.stack([children[i].residual for i in range(dim)], axis=1)
    W = np.stack([children[i].weight for i in range(dim)], axis=1)
    # Logarithms and bounds keep a few draws of a heavy tail from deciding.
    size = np.abs(R)
    away = np.stack([children[i].away for i in range(dim)], axis=1)
    bounded = np.clip(away, -_BOUND, _BOUND) * W
    pivot = np.clip(V, -_BOUND, _BOUND)
    size = np.log(size + 0.01 * np.median(size, axis=0))
    scores = np.stack(
        [
            _correlation(size, pivot),
            _correlation(bounded, pivot**2),
            _correlation(bounded, pivot),
        ]
    )
    scores = 0.5 * scores**2
    # Where nearly nothing is left to explain, what it resembles does not matter.
    left = np.array([min(children[i].divergence, 1.0) for i in range(dim)])
    scores[1:] *= left[:, None]
    # The metric undoes a linear relation by itself where the scale of the child is constant.
    scores[2][np.ptp(W, axis=0) < 1e-9] = 0.0
    scores = scores.max(axis=0)
    scores[scores < _LEAST_SCORE] = 0.0
    for i in range(dim):
        scores[i, i] = 0.0
        if len(children[i].pivots) >= _MOST_PARENTS:
            scores[i] = 0.0
        for k in children[i].pivots:
            scores[i, k] = 0.0
    scores[pivots] = 0.0
    return scores


def _correlation(A: Array, B: Array) -> Array:
    """Return the correlations of the columns of A with those of B."""
    A, B = A - A.mean(axis=0), B - B.mean(axis=0)
    sizes = np.multiply.outer((A**2).mean(axis=0), (B**2).mean(axis=0))
    correlation: Array = (
        products(A.T, B.T) / len(A) / np.sqrt(np.maximum(sizes, 1e-300))
    )
    return correlation


def _children_of(
    V: Array,
    G: Array,
    k: int,
    scores: Array,
    children: dict[int, Child],
    pivots: list[int],
) -> tuple[dict[int, Child], float]:
    """Return the coordinates that gain from pivot k, refitted, and the gain of all of them."""
    changed, total = {}, 0.0
    if children[k].pivots:
        # A pivot is no child.
        changed[k] = _fit(V, G, k, ())
        total -= changed[k].loss - children[k].loss
    for i in np.flatnonzero(scores > 0.0):
        before = children[int(i)]
        after = _fit(V, G, int(i), (*before.pivots, k), kernels.BEND)
        if not before.pivots:
            # A linear relation is the metric's: only what exceeds it counts.
            before = _fit(V, G, int(i), (k,), bent=False)
        gain = _gain(before, after)
        if gain > _threshold(LEAST_GAIN, len(V)):
            changed[int(i)] = after
            total += gain
    return changed, total


def _written(
    chart: Array,
    children: dict[int, Child],
    centre: Array,
    spread: Array,
) -> Array:
    """Write the fits, which are of standardised coordinates, as a chart of the natural ones."""
    dim = centre.size
    chart[:dim, 3], chart[:dim, 4] = centre, spread
    row = dim
    for i, child in children.items():
        m = len(child.pivots)
        if not m:
            continue
        shift = spread[i] * np.append(child.shift, np.zeros(2 + 2 * m))
        second = shift[1 + m :] if child.kind != kernels.PLAIN else np.zeros(1 + m)
        constant = second[m] if child.kind == kernels.NECK else 0.0
        chart[i, :3] = centre[i] + shift[0], constant, child.kind
        for j, k in enumerate(child.pivots):
            slopes = child.scale[1 + j], child.scale[1 + m + j]
            chart[row] = i, k, shift[1 + j], second[j], *slopes
            row += 1
    return chart
