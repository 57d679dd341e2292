"""Fit a chart to the draws and gradients of all chains, pivot by pivot.

A coordinate's shift and scale are fitted to one set of pivots after the other.  What an edge gains is measured in nats
per draw beyond a linear relation, which the metric undoes by itself.  The pivot is added whose children gain most
together, until none gains enough.  Draws alone would say little about places where there are none; gradients say how
fast the scale changes, so that a chart reaches further into a neck than the draws that it was fitted to.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.sampling.chart import no_chart
from asyncqn.algorithms.sampling.metric import DENSE, products
from asyncqn.kernels import chart as kernels
from asyncqn.types import Array, Counters

LEAST_GAIN = 0.02
"""Nats per draw that an edge must gain."""
LEAST_TOTAL = 0.1
"""Nats per draw that all children of a pivot must gain together."""
FEW = 500
"""Both bounds are higher in proportion where draws are fewer than this."""
MOST_PIVOTS = 4
"""Pivots of one child; a chart has room for so many edges per coordinate."""
_LEAST_SCORE = 0.01
_TRIED = 5
"""Pivots of the highest scores whose children are fitted."""
_BOUND = 4.0
FREEDOM = 5.0
"""Degrees of freedom of the Student-t residuals of a fit, so that a few draws do not decide it."""
_SWEEPS = 15
"""Turns of least squares and scoring in a fit."""
_SIMPLER = 0.8
"""A second part of the shift must lower the divergence to this share."""
_FAR = 0.5
"""Below this share of the divergence before, the divergence measures a gain; otherwise the likelihood does."""


class Child(NamedTuple):
    """The fit of a coordinate given its pivots: coefficients, two losses, and residuals draw by draw."""

    pivots: tuple[int, ...]
    kind: float
    shift: Array
    scale: Array
    loss: float
    divergence: float
    rows: Array  # (3, n): residual, residual minus gradient, log scale


def fit_chart(X: Array, gradients: Array) -> Array:
    """Return the chart of the draws X (rows) with their gradients; it has no edges where none gains."""
    if len(X) == 0 or X.shape[1] > DENSE or not np.isfinite(X).all():
        return no_chart(X.shape[1])
    quartiles = np.percentile(X, [25.0, 50.0, 75.0], axis=0)
    spread = (quartiles[2] - quartiles[0]) / 1.349
    if not spread.min() > 0.0:
        return no_chart(X.shape[1])
    fits = _Fits((X - quartiles[1]) / spread, gradients * spread)
    while fits.add_pivot():
        pass
    return _written(fits, quartiles[1], spread)


class _Fits:
    """The children of a chart that is being built, from standardised draws and gradients."""

    def __init__(self, V: Array, G: Array) -> None:
        self.V, self.G = V, G
        self.dim = V.shape[1]
        self.factor = max(1.0, FEW / len(V))
        self.pivots: list[int] = []
        self.children = {i: self.fit(i, ()) for i in range(self.dim)}

    def fit(
        self, i: int, pivots: tuple[int, ...], kind: float = 0.0, bent: bool = True
    ) -> Child:
        """Return the fit of coordinate i; without `bent` its scale is constant."""
        V = self.V[:, list(pivots)]
        child = _fit(self.V[:, i], self.G[:, i], V, kind, bent)
        if not math.isfinite(child.loss + child.divergence):
            child = child._replace(loss=math.inf, divergence=math.inf)
        return child._replace(pivots=pivots)

    def refined(self, i: int) -> Child:
        """Return a child's fit of the simplest kind that is as good as the others."""
        pivots = self.children[i].pivots
        best = self.fit(i, pivots)
        for kind in (kernels.BEND, kernels.NECK):
            other = self.fit(i, pivots, kind)
            if other.divergence < _SIMPLER * best.divergence and other.loss < best.loss:
                best = other
        return best

    def add_pivot(self) -> bool:
        """Add the pivot that gains most; return whether one gains enough."""
        if len(self.pivots) > self.dim // 2:
            return False
        scores = self.scores()
        totals = scores.sum(axis=0)
        best = None
        least = LEAST_TOTAL * self.factor
        for k in np.argsort(-totals, kind="stable")[:_TRIED].tolist():
            gain, children = self.with_pivot(k, np.flatnonzero(scores[:, k] > 0.0))
            if gain > least:
                best = (k, children)
                least = gain
        if best is None:
            return False
        self.pivots.append(best[0])
        self.children.update(best[1])
        return True

    def scores(self) -> Array:
        """Return, for each child and pivot, about the nats per draw that the edge between them would gain."""
        children = [self.children[i] for i in range(self.dim)]
        rows = np.stack([child.rows for child in children], axis=2)
        weight = np.exp(-rows[2])
        # Logarithms and bounds keep a few draws of a heavy tail from deciding.
        size = np.abs(rows[0])
        size = np.log(size + 0.01 * np.median(size, axis=0))
        away = np.clip(rows[1], -_BOUND, _BOUND) * weight
        pivot = np.clip(self.V, -_BOUND, _BOUND)
        kinds = [(size, pivot), (away, pivot**2), (away, pivot)]
        scores = 0.5 * np.stack([_correlation(A, B) for A, B in kinds]) ** 2
        # Where nearly nothing is left to explain, what it resembles does not matter.
        left = np.array([min(child.divergence, 1.0) for child in children])
        scores[1:] *= left[:, None]
        # The metric undoes a linear relation by itself where the scale of the child is constant.
        scores[2][np.ptp(weight, axis=0) < 1e-9] = 0.0
        largest: Array = scores.max(axis=0)
        largest[largest < _LEAST_SCORE] = 0.0
        for i, child in enumerate(children):
            largest[i, [i, *child.pivots]] = 0.0
            if len(child.pivots) >= MOST_PIVOTS:
                largest[i] = 0.0
        largest[self.pivots] = 0.0
        return largest

    def with_pivot(
        self, k: int, candidates: Counters
    ) -> tuple[float, dict[int, Child]]:
        """Return the nats per draw that pivot k gains, and the fits of the candidates that gain from it."""
        changed: dict[int, Child] = {}
        total = 0.0
        if self.children[k].pivots:
            # A pivot is no child.
            changed[k] = self.fit(k, ())
            total -= changed[k].loss - self.children[k].loss
        for i in candidates.tolist():
            before = self.children[i]
            after = self.fit(i, (*before.pivots, k), kernels.BEND)
            if not before.pivots:
                # A linear relation is the metric's: only what exceeds it counts.
                before = self.fit(i, (k,), bent=False)
            gain = _gain(before, after)
            if gain > LEAST_GAIN * self.factor:
                changed[i] = after
                total += gain
        return total, changed


def _fit(y: Array, g: Array, V: Array, kind: float, bent: bool) -> Child:
    """Fit the law of y = shift'f + exp(scale'h) t given pivots V (rows), where g is the derivative of U by y.

    f and h are the features of the child's kind (`kernels.chart`).  Whatever the law is, given the pivots E g = 0, and
    where t is normal y - exp(2 scale'h) g is the shift itself: regression on that has no noise.  The scale makes
    (y - shift) / scale as large as scale g.  The loss is that of Student's law for t; the divergence is the mean
    square of t - scale g.
    """
    one = np.ones((len(y), 1))
    h = np.hstack([one, V, np.sqrt(1.0 + V**2) - 1.0]) if bent else one
    scale = np.zeros(h.shape[1])
    log_scale = np.zeros(len(y))
    t = y
    for _ in range(_SWEEPS):
        # A chart measures scales by their ratio to the constant one.
        relative = np.exp(2.0 * (log_scale - scale[0]))[:, None]
        second = {kernels.BEND: V**2, kernels.NECK: relative * np.hstack([V, one])}
        f = np.hstack([one, V, second.get(kind, V[:, :0])])
        square = np.exp(2.0 * log_scale)
        shift = _regression(f, 1.0 / (FREEDOM + t**2) / square, y - square * g)
        t = (y - (f * shift).sum(axis=1)) * np.exp(-log_scale)
        other = g * np.exp(log_scale)
        both = t**2 + other**2 + 1e-300
        excess = 0.5 * (t**2 - other**2) / both
        change = _regression(h, both / (2.0 * FREEDOM + both), excess)
        scale = scale + np.clip(change, -0.5, 0.5)
        before = log_scale
        limit = kernels.MOST_LOG_SCALE
        log_scale = np.clip((h * scale).sum(axis=1), -limit, limit)
        t = t * np.exp(before - log_scale)
    tail = 1.0 + t**2 / FREEDOM
    loss = (0.5 * (FREEDOM + 1.0) * np.log(tail) + log_scale).mean()
    away = t - g * np.exp(log_scale)
    divergence = (away**2 / tail).mean()
    rows = np.stack([t, away, log_scale])
    return Child((), kind, shift, scale, float(loss), float(divergence), rows)


def _regression(features: Array, weight: Array, y: Array) -> Array:
    """Return the coefficients of weighted least squares."""
    weighted = (features * weight[:, None]).T
    A = products(weighted, features.T)
    # A little ridge, for features that depend on each other.
    A += np.diag(1e-8 * np.diag(A) + 1e-12)
    solution: Array = np.linalg.solve(A, (weighted * y).sum(axis=1))
    return solution


def _gain(before: Child, after: Child) -> float:
    """Return about the nats per draw that are gained, by the divergence where it falls by far, else by the loss."""
    if after.loss < before.loss and after.divergence < _FAR * before.divergence:
        return 0.25 * (before.divergence - after.divergence)
    return before.loss - after.loss


def _correlation(A: Array, B: Array) -> Array:
    """Return the correlations of the columns of A with those of B."""
    A, B = A - A.mean(axis=0), B - B.mean(axis=0)
    sizes = np.multiply.outer((A**2).mean(axis=0), (B**2).mean(axis=0))
    covariance = products(A.T, B.T) / len(A)
    correlation: Array = covariance / np.sqrt(np.maximum(sizes, 1e-300))
    return correlation


def _written(fits: _Fits, centre: Array, spread: Array) -> Array:
    """Write the fits, which are of standardised coordinates, as a chart of the natural ones."""
    chart = no_chart(centre.size)
    chart[: centre.size, 3] = centre
    chart[: centre.size, 4] = spread
    row = centre.size
    for i, child in fits.children.items():
        m = len(child.pivots)
        if not m:
            continue
        child = fits.refined(i)
        shift = spread[i] * np.append(child.shift, np.zeros(2 + 2 * m))
        second = shift[1 + m :] if child.kind != kernels.PLAIN else np.zeros(1 + m)
        constant = second[m] if child.kind == kernels.NECK else 0.0
        chart[i, :3] = centre[i] + shift[0], constant, child.kind
        for j, k in enumerate(child.pivots):
            slopes = child.scale[[1 + j, 1 + m + j]]
            chart[row] = i, k, shift[1 + j], second[j], *slopes
            row += 1
    return chart
