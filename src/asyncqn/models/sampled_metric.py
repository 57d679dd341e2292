"""H0 of a linear model from a summary of its curvature: the inverse of a dense matrix, or of a diagonal.

The summary is of m rows: the upper triangle of C = (n / |S|) sum_S w x x' of some of them, the diagonal a of
all of them, and m.  Where m < n, each number of theta has a further row e of its own (`LinearModel`):

    R C R + diag(prior + (n / m) e)      on a sample; on all rows without e

R is diagonal, so that the diagonal of R C R is a: rare features are missing in S, and a knows them.

Where theta has a vector for each of several classes, C is the mean of theirs and a has the diagonal of each:
C is factored once, with their mean diagonal, and then scaled to the diagonal of each.

Beyond `DENSE` numbers C is of a block of them alone, the most frequent features of sparse rows, as many as
double the summary at most; the others have a alone, as all have where rows are dense.  What is inverted has
its diagonal scaled to 1, so that units do not matter, and the least ridge that makes it positive definite in
floating point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from asyncqn.kernels.gram import cholesky, solve, unpack_lower
from asyncqn.models.feature_rows import Vector
from asyncqn.types import Array, Rows

DENSE = 2000
"""The most numbers of theta for which C is kept: its factor takes as many cubed / 3 operations."""
FREQUENT = 256
"""The most numbers of such a block: its factor is to cost less than a pass over the data."""
_OF_A_SAMPLE, _OF_ALL = 40, 300
"""Rows of S per number of theta: the metric of a sample serves three versions, that of all rows more."""
_LEAST_OF_A_SAMPLE, _LEAST_OF_ALL, _COST = 10, 15, 10
"""Rows of S: at most as many as cost a few passes over the data, but not fewer than so many per number."""
_LEAST = 1e-12
"""The least curvature of a number, as a share of what its rows have at a typical weight."""
_ALL = 1.0 - 1e-9
"""The share of the rows that counts as all of them, whatever rounding does to a mean."""
_RIDGES = (1e-13, 1e-10, 1e-7, 1e-4, 1e-1)


def rows_for_metric(n_data: int, dim: int, sample: int) -> int:
    """Return how many of a sample's rows S is made of."""
    least, most = (_LEAST_OF_ALL, _OF_ALL) if sample >= n_data else (_LEAST_OF_A_SAMPLE, _OF_A_SAMPLE)
    affordable = max(least * dim, _COST * n_data // dim)
    return min(sample, affordable, most * dim)


def frequent(counts: Vector, dim: int) -> Rows:
    """The columns of a block of the most frequent features, in their order; theta has dim numbers."""
    size = min(FREQUENT, math.isqrt(2 * dim) - 2, len(counts))
    ranked = np.argsort(-counts, kind="stable")
    return np.sort(ranked[:size])


def rows_for_block(size: int, sample: int) -> int:
    """Return how many of a sample's rows S is made of, where it is of a block of columns of sparse rows."""
    return min(sample, _OF_A_SAMPLE * size)


@dataclass(frozen=True, eq=False)
class InverseMetric:
    """H0 v = r * (L L')^-1 (r * v), class by class where there are several; without L, r * r * v."""

    roots: Vector
    """1 / sqrt of the diagonal of what is inverted."""
    factor: Vector | None
    block: Rows | None = None
    """The numbers of theta that L is of; None: all."""

    def apply(self, v: Array, out: Array) -> None:
        """out = H0 v."""
        scaled = self.roots * v
        if self.factor is not None and self.block is not None:
            picked = np.asarray(scaled[self.block], np.float64)
            solve(self.factor, picked)
            scaled[self.block] = picked
        elif self.factor is not None:
            for block in scaled.reshape(-1, len(self.factor)):
                solve(self.factor, block)
        scaled *= self.roots
        out[...] = scaled


def metric_of(
    summary: Vector, prior: Vector, unseen: Vector, n_data: int, classes: int = 1, block: Rows | None = None
) -> InverseMetric:
    """H0 from the sums; see the top of this file.  block: the numbers that C is of, None: all."""
    a, m = summary[-1 - prior.size : -1], float(summary[-1])
    least = _LEAST * n_data * unseen
    least[least == 0.0] = 1.0  # a feature that no row has: nothing is known, and nothing pulls at it
    if summary.size == prior.size + 1:
        return InverseMetric(1.0 / np.sqrt(np.maximum(a + prior, least)), None)
    held = n_data / m * unseen if m < n_data * _ALL else 0.0
    roots = 1.0 / np.sqrt(np.maximum(a + prior + held, least))
    if block is not None:
        own = np.concatenate([summary[: -1 - prior.size], a[block], summary[-1:]])
        dense = _dense_metric(own, prior[block], unseen[block], least[block], n_data)
        roots[block] = dense.roots
        return InverseMetric(roots, dense.factor, block)
    if classes == 1:
        return _dense_metric(summary, prior, unseen, least, n_data)
    D = prior.size // classes
    alike = np.concatenate([summary[: -1 - prior.size], a.reshape(classes, D).mean(axis=0), summary[-1:]])
    shared = _dense_metric(alike, prior[:D], unseen[:D], least[:D], n_data)
    return InverseMetric(roots, shared.factor)


def _dense_metric(
    summary: Vector, prior: Vector, unseen: Vector, least: Vector, n_data: int
) -> InverseMetric:
    """Of one class, with C."""
    D = prior.size
    a, m = summary[-1 - D : -1], float(summary[-1])
    C = np.zeros((D, D))
    unpack_lower(summary[: -1 - D], C)
    own = C.diagonal().copy()
    known = (own > 0.0) & (a > 0.0)
    stretch = np.sqrt(np.divide(a, own, out=np.zeros(D), where=known))
    C *= stretch[:, None]
    C *= stretch
    own = np.where(known, a, 0.0)
    extra = prior + np.where(known, 0.0, a)
    if m < n_data * _ALL:
        extra += n_data / m * unseen
    diagonal = np.maximum(own + extra, least)
    roots = 1.0 / np.sqrt(diagonal)
    C *= roots[:, None]
    C *= roots
    for ridge in _RIDGES:
        L = C.copy()
        np.fill_diagonal(L, 1.0 + ridge)
        if cholesky(L):
            return InverseMetric(roots, L)
    return InverseMetric(roots, None)
