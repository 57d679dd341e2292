"""The curvature that all item rows share once the users are eliminated, and its inverse as a product.

Item m has about the curvature lambda_m I + n_m C with C = sum_u n_u g_u g_u' / sum_u n_u: users who
rate much count more, as they do in the sum over the raters of an item.  C is made of sums over users,
so that any batch of them estimates it in passing, and shares of it add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asyncqn.errors import require
from asyncqn.kernels import profiled
from asyncqn.types import Array


class Metric(NamedTuple):
    """The inverse curvature of item row m, about Q diag[1 / (lambda_m + n_m Lambda)] Q'.

    Q is orthogonal where all columns have the same ridge.
    """

    Q: Array
    Lambda: Array
    counts: Array


def metric_of(sums: Array, counts: Array, columns: Array) -> Metric:
    """From sum_u n_u g_u g_u' (K x K, flat) and then sum_u n_u, in the dtype of `counts`.

    With D = diag(columns), lambda D + n C = D^1/2 (lambda I + n D^-1/2 C D^-1/2) D^1/2.
    """
    rank = len(columns)
    C = sums[:-1].reshape(rank, rank).astype(np.float64) / max(float(sums[-1]), 1.0)
    root = np.sqrt(columns.astype(np.float64))
    Lambda, Q = np.linalg.eigh(C / np.multiply.outer(root, root))
    Q /= root[:, None]
    return Metric(Q.astype(counts.dtype), Lambda.clip(0.0).astype(counts.dtype), counts)


@dataclass(frozen=True, eq=False)
class InverseMetric:
    """H0 = Q diag[1 / (lambda_m + delta + n_m Lambda)] Q' for every item row m."""

    metric: Metric
    base: Array
    """lambda_m + delta, for every item."""

    def apply(self, v: Array, out: Array) -> None:
        """out = H0 v; `out` must not be `v`."""
        rank = len(self.metric.Lambda)
        for array in (v, out):
            if array.shape != (rank * len(self.base),) or array.dtype != self.base.dtype:
                require(False, f"apply needs {self.base.dtype} vectors of length {rank * len(self.base)}.")
        require(not np.may_share_memory(v, out), "apply needs an array for the result that is not its input.")
        basis, transposed = (
            profiled.padded_rows(np.ascontiguousarray(Q).ravel(), rank)
            for Q in (self.metric.Q, self.metric.Q.T)
        )
        profiled.apply_metric(
            v, basis, transposed, self.metric.Lambda, self.metric.counts, self.base, out,
            profiled.workspace(rank, v.dtype),
        )  # fmt: skip
