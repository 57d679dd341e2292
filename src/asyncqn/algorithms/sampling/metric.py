"""The metric H of a sampler, held as a factor: H g and exact draws from N(0, H) without H or its inverse.

A short theta has a dense factor F (d x d), H = F F'.  A long one has H of rank r plus a diagonal,

    H = A'A + (I - A'Q) D (I - Q'A),        A and Q with r rows, D diagonal,

so that a product and a draw cost O(r d).  Both are one array, which travels in messages and checkpoints: F
itself, or the rows D, A, Q.

H comes from secants, which are differences s of points and y of gradients there (rows of S and Y).  The
polar multi-secant formula takes C = ((SY')(SY')')^1/2 and

    H = S'C^+ S + (I - S'C^+ Y) D (I - Y'C^+ S).

H is positive for any secants and exact on a quadratic.  With d independent secants the second term is zero,
and H solves H (Y'Y) H = S'S: it is the geometric mean of the covariance of the points and the inverse of
that of the gradients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asyncqn.kernels import metric as kernels
from asyncqn.types import Array, Counters

DENSE = 200
"""The longest theta whose metric is dense."""
RANK = 24
"""Secants in the metric of a longer one."""
_FLOOR = 1e-12
_SWEEPS = 60


class Shape(NamedTuple):
    """The rows and columns of a metric's array."""

    rows: int
    dim: int

    @property
    def dense(self) -> bool:
        return self.rows == self.dim

    @property
    def normals(self) -> int:
        """Standard normals that a draw from N(0, H) takes."""
        return self.dim if self.dense else self.dim + (self.rows - 1) // 2


def metric_shape(dim: int) -> Shape:
    """Dense for a short theta, low rank plus diagonal for a long one."""
    return Shape(dim, dim) if dim <= DENSE else Shape(2 * RANK + 1, dim)


def apply(metric: Array, g: Array) -> Array:
    """H g."""
    out = np.empty(g.size)
    kernels.apply(metric, g, np.empty(metric.shape[0]), out)
    return out


def draw(metric: Array, z: Array) -> Array:
    """A draw from N(0, H), from the standard normals z (`Shape.normals` of them)."""
    rows, dim = metric.shape
    out = np.empty(dim)
    if rows == dim:
        kernels.multiply(metric, z, out)
    else:
        r = (rows - 1) // 2
        kernels.draw_low_rank(
            metric[0], metric[1 : r + 1], metric[r + 1 :], z, np.empty(r), out
        )
    return out


def whitened(metric: Array, g: Array) -> Array:
    """Return F'g; where H is of low rank, a vector of equal entries with the same norm.

    Noise e in a gradient widens the variance along a direction of F by the square of its entry of F'e.
    """
    work, out = np.empty(metric.shape[0]), np.empty(g.size)
    if metric.shape[0] == g.size:
        kernels.apply(metric, g, work, out)
        return work
    return np.full(
        g.size, math.sqrt(max(float((g * apply(metric, g)).sum()), 0.0) / g.size)
    )


def marginal_scale(metric: Array) -> Array:
    """The square roots of the diagonal of H (of its diagonal part, where H is of low rank)."""
    rows, dim = metric.shape
    scale: Array = (
        np.sqrt((metric**2).sum(axis=1)) if rows == dim else np.sqrt(metric[0])
    )
    return scale


def products(A: Array, B: Array) -> Array:
    """A B', without BLAS."""
    out = np.empty((A.shape[0], B.shape[0]))
    kernels.row_products(np.ascontiguousarray(A), np.ascontiguousarray(B), out)
    return out


def singular_values(B: Array) -> tuple[Array, Array]:
    """The singular values of a square matrix and its left singular vectors, as rows."""
    # One-sided Jacobi by our own kernel: LAPACK's bits depend on its number of threads.
    B, V = np.array(B, np.float64, order="C"), np.eye(B.shape[0])
    for _ in range(_SWEEPS):
        if not kernels.orthogonal_rows(B, V, 1e-14):
            break
    return np.sqrt((B**2).sum(axis=1)), V


def from_hessian(hessian: Array) -> tuple[Array, float]:
    """The dense factor of |hessian|^-1 (absolute eigenvalues), and the logarithm of its determinant.

    Eigenvalues are floored at 1e-8 of the largest after the diagonal is scaled to one, so that a flat
    direction gets a long step, not an infinite one.
    """
    # Absolute eigenvalues make a metric at a saddle too, where a search may end.
    diagonal = np.abs(np.diag(hessian))
    if not diagonal.max(initial=0.0) > 0.0:
        return np.eye(diagonal.size), 0.0  # U is flat: nothing is known of its scale
    scale = 1.0 / np.sqrt(np.maximum(diagonal, _FLOOR * float(diagonal.max())))
    values, vectors = singular_values(hessian * np.multiply.outer(scale, scale))
    values = np.maximum(values, 1e-8 * max(float(values.max()), 1e-300))
    factor = scale[:, None] * (vectors / np.sqrt(values)[:, None]).T
    return np.ascontiguousarray(factor), float(
        2.0 * np.log(scale).sum() - np.log(values).sum()
    )


class Fitted(NamedTuple):
    """A dense metric, and how much wider than H the points are in the direction where they are widest."""

    metric: Array
    width: float


def from_points(S: Array, Y: Array) -> Fitted | None:
    """The dense metric of centred points and gradients (rows); None where they are too few to span R^d.

    The width is that of the interquartile range, in the whitened direction of largest variance: one for a
    Gaussian, larger where the posterior has heavy tails or bends.
    """
    n, dim = S.shape
    if n < dim + 2:
        return None
    # Units may differ by many orders of magnitude: the decompositions see coordinates of unit size.
    scale = _diagonal(S, Y)
    if scale is None:
        return None
    S, Y = S / scale, Y * scale
    X, G = (products(part.T, part.T) / n for part in (S, Y))
    # With E'E = G, H = E^-1 (E X E')^1/2 E'^-1 solves H G H = X; its factor is E^-1 V' times moments^1/4.
    values, vectors = singular_values(G)
    if not values.min() > _FLOOR * values.max():
        return None
    root = np.sqrt(values)[:, None]
    E = root * vectors
    moments, V = singular_values(products(products(E, X), E))
    moments = np.maximum(moments, _FLOOR * moments.max())
    if not moments.max() > 0.0:
        return None
    factor = products((vectors / root).T, V) * moments**0.25
    # Quartiles instead of the variance: a few draws of a heavy tail do not lengthen all trajectories.
    slowest = int(np.argmax(moments))
    direction = products(V[slowest : slowest + 1], E.T)[0] * moments[slowest] ** -0.25
    low, high = np.percentile((S * direction).sum(axis=1), [25.0, 75.0])
    return Fitted(
        np.ascontiguousarray(scale[:, None] * factor), float(high - low) / 1.349
    )


def from_secants(
    S: Array, Y: Array, shape: Shape, *, scalar: bool = False
) -> Array | None:
    """The low-rank metric of the last `RANK` secants (rows); None where they say nothing.

    D is the ratio of the sizes of points and gradients, coordinate by coordinate; scalar: one ratio for all,
    for secants that are steps of a search.
    """
    r = (shape.rows - 1) // 2
    if S.shape[0] == 0:
        return None
    if scalar:
        # The geometric mean of the curvatures seen.
        seen = (S**2).sum(axis=1) / np.maximum((Y**2).sum(axis=1), 1e-300)
        scale = np.full(
            shape.dim, math.exp(0.25 * float(np.log(np.maximum(seen, 1e-300)).mean()))
        )
    else:
        found = _diagonal(S, Y)
        if found is None:
            return None
        scale = found
    # Neighbours in the file resemble each other: secants are spread over all of them, with the newest.
    chosen = np.linspace(S.shape[0] - 1, 0, min(r, S.shape[0])).astype(int)
    S, Y = S[chosen] / scale, Y[chosen] * scale
    values, P = singular_values(products(S, Y))
    # Secants that depend on others are dropped: they would add noise, not curvature.
    good = values > 1e-10 * max(float(values.max()), 1e-300)
    metric = np.zeros(shape)
    metric[0] = scale**2
    weights = P[good] / np.sqrt(values[good])[:, None]
    count = int(good.sum())
    metric[1 : count + 1] = products(weights, S.T) * scale
    metric[r + 1 : r + count + 1] = products(weights, Y.T) / scale
    return metric


def solve(metric: Array, X: Array) -> Array:
    """H^-1 x for every row x of X, where H is of low rank plus a diagonal.

    H = D + U M U' with U = (A', DQ'), and Woodbury's formula leaves a system of 2r equations.
    """
    r = (metric.shape[0] - 1) // 2
    D, A, Q = metric[0], metric[1 : r + 1], metric[r + 1 :]
    unit = np.eye(r)
    U = np.concatenate([A, Q * D])
    inner = np.block(
        [[np.zeros((r, r)), -unit], [-unit, -unit - products(Q, Q * D)]]
    ) + products(U, U / D)
    # inner^-1 = inner (inner inner')^-1, so that singular vectors from one side are enough.
    values, V = singular_values(inner)
    V = V / np.maximum(values, _FLOOR * values.max())[:, None]
    weights = products(products(products(X / D, U), V), V.T)
    solved: Array = (X - products(products(weights, inner), U.T)) / D
    return solved


def unresolved_width(metric: Array, S: Array, chains: Counters) -> float:
    """Return the width of the draws S (rows, centred) under a metric of low rank, one where H fits them.

    With C the covariance of the draws this is (tr (CH^-1)^2 / tr CH^-1)^1/2, the root mean square of the
    periods of all directions over that of a Gaussian under H, weighted by variance.  Fewer draws than
    coordinates show no covariance, but products of independent ones do: E (s'H^-1 t)^2 = tr (CH^-1)^2.
    Draws of different chains are independent but for the mean that was subtracted from all n of them, which
    shifts their products by -tr CH^-1 / n; hence the variance of the products and not their mean square.
    """
    other = chains[:, None] != chains[None, :]
    if not other.any():
        return 1.0
    gram = products(S, solve(metric, S))
    size = float(np.diag(gram).mean())
    return math.sqrt(float(gram[other].var()) / size) if size > 0.0 else 1.0


def _diagonal(S: Array, Y: Array) -> Array | None:
    """The root of the diagonal metric, (rms s_i / rms y_i)^1/2; None where a column is constant."""
    s, y = (np.sqrt((part**2).mean(axis=0)) for part in (S, Y))
    if not (
        np.isfinite(s).all()
        and np.isfinite(y).all()
        and s.min() > 0.0
        and y.min() > 0.0
    ):
        return None
    scale: Array = np.sqrt(s / y)
    return scale
