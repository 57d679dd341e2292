"""The metric H of a sampler, held as a factor F with H = F F', so that no product or draw needs an inverse.

A short theta has a dense factor; a longer one has a diagonal, which is one row.  From draws (rows of S, centred) with
their gradients (rows of Y) comes the H that solves

    H (Y'Y) H = S'S,

the geometric mean of the covariance of the draws and the inverse of that of the gradients.  It is positive for any
draws, and exact on a quadratic.  A diagonal takes the same mean coordinate by coordinate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asyncqn.kernels import metric as kernels
from asyncqn.types import Array, Counters

DENSE = 200
"""The longest theta whose metric is dense."""
LONGEST_WIDTH = 3.0
"""Trajectories are at most so many times longer where the posterior is wider than its metric."""
LONGEST_DIAGONAL_WIDTH = 10.0
"""The same bound for a diagonal, which leaves most of the posterior's shape to the trajectories."""
_FLOOR = 1e-12
_SWEEPS = 60


def metric_shape(dim: int) -> tuple[int, int]:
    """Return the shape of the factor's array."""
    return (dim if dim <= DENSE else 1, dim)


def is_dense(metric: Array) -> bool:
    """Return whether the factor is a square matrix, and not the row of a diagonal."""
    rows, columns = metric.shape
    return bool(rows == columns)


def draw(metric: Array, z: Array) -> Array:
    """Return F z, a draw from N(0, H) where z is standard normal."""
    if not is_dense(metric):
        product: Array = metric[0] * z
        return product
    out = np.empty(z.size)
    kernels.multiply(metric, z, out)
    return out


def squared_norm(metric: Array, g: Array) -> float:
    """Return g'Hg."""
    Hg = np.empty(g.size)
    kernels.apply(metric, g, np.empty(g.size), Hg)
    return float((g * Hg).sum())


def marginal_scale(metric: Array) -> Array:
    """Return the square roots of the diagonal of H."""
    axis = 1 if is_dense(metric) else 0
    scale: Array = np.sqrt((metric**2).sum(axis=axis))
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
    """A metric, and the length of trajectories over that of a Gaussian of this covariance."""

    metric: Array
    width: float


def from_points(S: Array, Y: Array, chains: Counters) -> Fitted | None:
    """Return the metric of centred draws and gradients (rows) of `chains`; None where they are too few.

    The width of a dense metric is that of the interquartile range in the whitened direction of largest variance: one
    for a Gaussian, larger where the posterior has heavy tails or bends.
    """
    if S.shape[1] <= DENSE:
        return _dense(S, Y)
    scale = diagonal(S, Y)
    if scale is None:
        return None
    width = min(max(_spread(S / scale, chains), 1.0), LONGEST_DIAGONAL_WIDTH)
    return Fitted(scale[None], width)


def _dense(S: Array, Y: Array) -> Fitted | None:
    n, dim = S.shape
    # A rejection repeats a draw, and duplicates say nothing new.
    if len(np.unique(S[:, 0])) < 1.5 * dim + 10:
        return None
    # Units may differ by many orders of magnitude: the decompositions see coordinates of unit size.
    scale = diagonal(S, Y)
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
    width = min(max(float(high - low) / 1.349, 1.0), LONGEST_WIDTH)
    return Fitted(np.ascontiguousarray(scale[:, None] * factor), width)


def _spread(S: Array, chains: Counters) -> float:
    """Return the width that a diagonal metric leaves to draws S in its units, by products of different chains.

    With C the covariance of the draws this is (tr C^2 / tr C)^1/2, the root mean square of the periods of all
    directions over that of a unit Gaussian, weighted by variance.  Fewer draws than coordinates show no covariance,
    but products of independent ones do: E (s't)^2 = tr C^2.  Draws of different chains are independent but for the
    mean that was subtracted, which shifts their products; hence the variance of the products and not their mean square.
    """
    other = chains[:, None] != chains[None, :]
    gram = products(S, S)
    size = float(np.diag(gram).mean())
    if not (other.any() and size > 0.0):
        return 1.0
    return math.sqrt(float(gram[other].var()) / size)


def diagonal(S: Array, Y: Array) -> Array | None:
    """Return the diagonal factor, (rms s_i / rms y_i)^1/2; None where a column is constant."""
    s, y = (np.sqrt((part**2).mean(axis=0)) for part in (S, Y))
    with np.errstate(all="ignore"):
        scale: Array = np.sqrt(s / y)
    usable = np.isfinite(scale) & (scale > 0.0)
    return scale if usable.all() else None
