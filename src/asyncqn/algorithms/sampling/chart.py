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

from asyncqn.algorithms.sampling.metric import DENSE
from asyncqn.algorithms.sampling.target import Target
from asyncqn.algorithms.sampling.trajectory import End, State, trajectory
from asyncqn.kernels import chart as kernels
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.types import Array

EDGES = 4
"""Room for so many edges per coordinate."""


def no_chart(dim: int) -> Array:
    """Return the chart without edges; that of a long theta, whose metric is diagonal, has no room for any."""
    chart = np.zeros(((1 + EDGES) * dim if dim <= DENSE else 0, 6))
    chart[:dim, 4] = 1.0
    chart[dim:, 0] = -1.0
    return chart


def has_edges(chart: Array) -> bool:
    """Return whether the chart is another map than the identity."""
    dim = len(chart) // (1 + EDGES)
    return dim > 0 and bool(chart[dim, 0] >= 0.0)


class Charted:
    """A target in the coordinates z of a chart, U(x(z)) - log |dx/dz|, near a first place.

    last: the place of the last value, in x.
    """

    def __init__(self, target: Target, chart: Array, first: State) -> None:
        self.target = target
        self.chart = chart
        self.first = first
        self.last = first
        self._x = first.x.copy()
        self._work = np.empty((3, first.x.size))

    def folded(self) -> State:
        """Return the first place in z."""
        z, g = np.empty(self._x.size), self.first.g.copy()
        volume = kernels.fold(self.chart, self.first.x, z, self._work)
        kernels.pull_back(self.chart, z, self._work, g)
        return State(z, g, self.first.value - volume)

    def value_and_grad(self, z: Array, out: Array) -> float:
        """Return the value at z, infinite where it is not finite, and write the gradient."""
        volume, inside = self._unfold(z)
        g = np.empty(z.size)
        value = self.target.value_and_grad(self._x if inside else self.first.x, g)
        self.last = State(self._x.copy(), g, value)
        out[...] = g if inside else np.nan
        kernels.pull_back(self.chart, z, self._work, out)
        return value - volume if inside else math.inf

    def grad(self, z: Array, rows: object, out: Array) -> None:
        """Write the gradient at z."""
        _, inside = self._unfold(z)
        self.target.grad(self._x if inside else self.first.x, None, out)
        if not inside:
            out[...] = np.nan
        kernels.pull_back(self.chart, z, self._work, out)

    def _unfold(self, z: Array) -> tuple[float, bool]:
        """Compute x(z); return log |dx/dz| and whether x is finite."""
        volume = kernels.unfold(self.chart, z, self._x, self._work)
        return volume, math.isfinite(sum_of_squares(self._x))


def trajectory_in(
    chart: Array,
    target: Target,
    start: State,
    metric: Array,
    h: float,
    n: int,
    z: Array,
) -> End:
    """Return the end of a trajectory in the coordinates of a chart, as a place in x."""
    if not has_edges(chart):
        return trajectory(target, start, metric, h, n, z)
    charted = Charted(target, chart, start)
    end = trajectory(charted, charted.folded(), metric, h, n, z)
    return end._replace(state=start if end.divergent else charted.last)


def folded(chart: Array, X: Array, G: Array) -> tuple[Array, Array]:
    """Return draws and gradients (rows) in the coordinates of the chart."""
    if not has_edges(chart):
        return X, G
    Z, out = np.empty(X.shape), G.copy()
    work = np.empty((3, X.shape[1]))
    for x, z, g in zip(X, Z, out):
        kernels.fold(chart, x, z, work)
        kernels.pull_back(chart, z, work, g)
    return Z, out
