"""H0 of a linear model from a summary of its curvature: the inverse of a dense matrix, or of a diagonal.

The summary is of m rows: the upper triangle of C = (n / |S|) sum_S w x x' over some of them, the diagonal a
over all of them, and m.  If m < n, each number of theta has its own pseudo-row e (`LinearModel`):

    R C R + diag(prior + (n / m) e)      on a sample; without e on all rows

R is diagonal and such that the diagonal of R C R is a: rare features may be missing in S, but a includes
them.

If theta has a vector for each of several classes, C is the mean over the classes and a has the diagonal of
each: C is factored once, with the mean diagonal, and then scaled to the diagonal of each class.

Beyond `DENSE` numbers C is restricted to a block, the most frequent features of sparse rows, whose size at
most doubles the summary; the others have only a, as all have with dense rows.  The matrix is scaled to a unit
diagonal before it is inverted, so that units do not matter, and gets the smallest ridge that makes it
positive definite in floating point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from asyncqn.kernels.gram import cholesky, solve, unpack_lower
from asyncqn.models.feature_rows import Vector
from asyncqn.types import Array, Rows

DENSE = 2000
"""Largest size of theta for which C is stored: its factorization takes size^3 / 3 operations."""
MAX_BLOCK_SIZE = 256
"""Largest size of such a block: its factorization should cost less than a pass over the data."""
_MAX_ROWS_OF_SAMPLE, _MAX_ROWS_OF_ALL = 40, 300
"""Largest number of rows in S per number of theta: the metric of a sample serves three versions, that of all
rows serves more, so it may cost more."""
_MIN_ROWS_OF_SAMPLE, _MIN_ROWS_OF_ALL = 10, 15
"""Smallest number of rows in S per number of theta, whatever they cost."""
_AFFORDABLE_PASSES = 10
"""Cost of x x' beyond these minima, in passes over the data: a row costs dim^2 operations there and dim
here."""
_MIN_CURVATURE_SHARE = 1e-12
"""Smallest curvature of a number, as a share of the curvature of its rows at a typical weight."""
_WHOLE = 1.0 - 1e-9
"""Share of the rows that counts as all of them, despite the rounding of a mean."""
# Tried in this order, until the factorization succeeds.
_RIDGES = (1e-13, 1e-10, 1e-7, 1e-4, 1e-1)


def rows_for_metric(n_data: int, dim: int, sample: int) -> int:
    """Return the number of a sample's rows that make up S."""
    least, most = _MIN_ROWS_OF_ALL, _MAX_ROWS_OF_ALL
    if sample < n_data:
        least, most = _MIN_ROWS_OF_SAMPLE, _MAX_ROWS_OF_SAMPLE
    # x x' costs dim^2 operations per row and a pass costs n dim, so the affordable rows fall with dim.
    affordable = max(least * dim, _AFFORDABLE_PASSES * n_data // dim)
    return min(sample, affordable, most * dim)


def frequent(counts: Vector, dim: int) -> Rows:
    """Return the columns of the most frequent features, sorted, for a theta of dim numbers."""
    # Its triangle then has at most about dim entries, so the summary at most doubles.
    # A triangle of k columns has k (k + 1) / 2 entries.
    size = min(MAX_BLOCK_SIZE, math.isqrt(2 * dim) - 2, len(counts))
    ranked = np.argsort(-counts, kind="stable")
    return np.sort(ranked[:size])


def rows_for_block(size: int, sample: int) -> int:
    """Return the number of a sample's rows that make up S for a block of columns of sparse rows."""
    return min(sample, _MAX_ROWS_OF_SAMPLE * size)


@dataclass(frozen=True, eq=False)
class InverseMetric:
    """H0 v = r * (L L')^-1 (r * v), for each class; without L, r * r * v."""

    roots: Vector
    """1 / sqrt of the diagonal of the matrix that is inverted."""
    factor: Vector | None
    block: Rows | None = None
    """The numbers of theta that L refers to; None: all."""

    def apply(self, v: Array, out: Array) -> None:
        """Write H0 v to `out`."""
        # In float64 even where v is float32, since `roots` is.
        scaled = self.roots * v
        if self.factor is not None and self.block is not None:
            picked = np.asarray(scaled[self.block], np.float64)
            solve(self.factor, picked)
            scaled[self.block] = picked
        elif self.factor is not None:
            # One factor for all classes; `block` is a view, so `solve` writes into `scaled`.
            for block in scaled.reshape(-1, len(self.factor)):
                solve(self.factor, block)
        scaled *= self.roots
        out[...] = scaled


def metric_of(
    summary: Vector,
    prior: Vector,
    unseen: Vector,
    n_data: int,
    classes: int = 1,
    block: Rows | None = None,
) -> InverseMetric:
    """Return H0 from a summary; see the top of this file.  `block`: the numbers that C refers to; None:
    all."""
    triangle, rest = np.split(summary, [-1 - prior.size])
    a, m = rest[:-1], rest[-1]
    least = _MIN_CURVATURE_SHARE * n_data * unseen
    # A feature that occurs in no row: any positive value will do.
    least[least == 0.0] = 1.0
    if not triangle.size:
        return InverseMetric(1.0 / np.sqrt(np.maximum(a + prior, least)), None)
    ridge = prior + n_data / m * unseen if m < n_data * _WHOLE else prior
    roots = 1.0 / np.sqrt(np.maximum(a + ridge, least))
    if block is not None:
        return InverseMetric(roots, _factor(triangle, a[block], roots[block]), block)
    if classes == 1:
        return InverseMetric(roots, _factor(triangle, a, roots))
    # One matrix serves all classes, which have the same columns.
    D = prior.size // classes
    mean = a.reshape(classes, D).mean(axis=0)
    mean_roots = 1.0 / np.sqrt(np.maximum(mean + ridge[:D], least[:D]))
    return InverseMetric(roots, _factor(triangle, mean, mean_roots))


def _factor(triangle: Vector, a: Vector, roots: Vector) -> Vector | None:
    """Return the factor of the matrix with the packed triangle C, stretched to the diagonal a and scaled by
    `roots`, whose own diagonal is 1; None where it is not positive definite."""
    C = np.zeros((a.size, a.size))
    unpack_lower(triangle, C)
    own = C.diagonal()
    # Features that the sample S does not contain have only their diagonal.
    present = (own > 0.0) & (a > 0.0)
    scale = roots * np.sqrt(np.divide(a, own, out=np.zeros(a.size), where=present))
    # In place: C may have 2000 x 2000 entries.
    C *= scale[:, None]
    C *= scale
    # Rounding may make a semidefinite matrix indefinite, so a ridge is added only as far as needed.
    for ridge in _RIDGES:
        L = C.copy()
        np.fill_diagonal(L, 1.0 + ridge)
        if cholesky(L):
            return L
    # Not positive definite even with a ridge of 0.1, or not finite: only the diagonal can be trusted.
    return None
