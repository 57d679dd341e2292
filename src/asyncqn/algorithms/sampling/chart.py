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

import numpy as np

from asyncqn.algorithms.sampling.target import Target
from asyncqn.algorithms.sampling.trajectory import End, trajectory
from asyncqn.kernels import chart as kernels
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.types import Array

EDGES = 4
"""Room for so many edges per coordinate."""


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
        self.target, self.chart = target, chart
        self.origin = x
        self.x, self.g = x.copy(), np.empty(x.size)
        self.value = math.inf
        self._work = np.empty((3, x.size))

    def fold(self, g: Array, value: float) -> tuple[Array, Array, float]:
        """Return z, the gradient and the value at the first x, where U is `value` and its gradient g."""
        z, out = np.empty(g.size), g.copy()
        volume = kernels.fold(self.chart, self.origin, z, self._work)
        kernels.pull_back(self.chart, z, self._work, out)
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

    def value_and_grad(self, x: Array, out: Array) -> float:
        """Return the value at a point x of the chart, infinite where it is not finite, and write the gradient."""
        volume = kernels.unfold(self.chart, x, self.x, self._work)
        inside = math.isfinite(sum_of_squares(self.x))
        point = self.x if inside else self.origin
        self.value = self.target.value_and_grad(point, self.g)
        out[...] = self.g if inside else np.nan
        kernels.pull_back(self.chart, x, self._work, out)
        return self.value - volume if inside else math.inf

    def grad(self, x: Array, rows: object, out: Array) -> None:
        """Write the gradient at a point x of the chart."""
        kernels.unfold(self.chart, x, self.x, self._work)
        inside = math.isfinite(sum_of_squares(self.x))
        self.target.grad(self.x if inside else self.origin, None, out)
        if not inside:
            out[...] = np.nan
        kernels.pull_back(self.chart, x, self._work, out)


def folded(chart: Array, X: Array, G: Array) -> tuple[Array, Array]:
    """Return draws and gradients (rows) in the coordinates of the chart."""
    Z, out = np.empty(X.shape), G.copy()
    work = np.empty((3, X.shape[1]))
    for x, z, g in zip(X, Z, out):
        kernels.fold(chart, x, z, work)
        kernels.pull_back(chart, z, work, g)
    return Z, out
