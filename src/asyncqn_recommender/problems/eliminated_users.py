"""A factorization with the users eliminated: what remains is a sum over users in the item rows alone.

    V(F) = min_G U(F, G) = sum_m lambda_m |f_m|^2 / 2 + sum_u min_g U_u(F, g)

Each user's row solves a K x K problem exactly.  By the envelope theorem, the gradient of U_u with the solved
g as a constant is that of its minimum.  A data point is a user, and theta has K n_items numbers instead of K
(n_items + n_users).  Minimisers of V and of U correspond to each other.

The curvature of item m is about lambda_m I + n_m C with C = sum_u n_u g_u g_u' / sum_u n_u: users with many
ratings count more, as they do in the sum over the raters of an item.  C consists of sums over users, so any
batch of them gives an estimate at no extra cost, and the parts of several batches add up.

Our own choice: data points are users in an order shuffled by `seed`, so that consecutive ones are a random
subset. The ratings themselves stay in place; in large sets runs of a few neighbours are shuffled, so that
ratings are read at the speed of memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require
from asyncqn.parameters import Precision, RealArray, check_seed
from asyncqn.types import Array, Rows
from asyncqn_recommender.kernels import als as sides
from asyncqn_recommender.kernels import profiled
from asyncqn_recommender.problems import matrix_factorization as joint
from asyncqn_recommender.staged import StagedLBFGS, asynchronous_algorithm


class Metric(NamedTuple):
    """The inverse curvature of item row m, about Q diag[1 / (lambda_m + n_m Lambda)] Q'.

    Q is orthogonal if all columns have the same ridge.
    """

    Q: Array
    Lambda: Array
    counts: Array


def metric_of(sums: Array, counts: Array, columns: Array) -> Metric:
    """Return the metric from sum_u n_u g_u g_u' (K x K, flat) followed by sum_u n_u, in the dtype of
    `counts`.

    With D = diag(columns), lambda D + n C = D^1/2 (lambda I + n D^-1/2 C D^-1/2) D^1/2.
    """
    rank = len(columns)
    C = sums[:-1].reshape(rank, rank).astype(np.float64) / max(float(sums[-1]), 1.0)
    root = np.sqrt(columns.astype(np.float64))
    # K x K, so the cost is negligible beside a pass.
    Lambda, Q = np.linalg.eigh(C / np.multiply.outer(root, root))
    # Q absorbs D^-1/2, so that `apply_metric` needs no further factor.
    Q /= root[:, None]
    # C is positive semidefinite; eigenvalues below 0 are rounding.
    return Metric(Q.astype(counts.dtype), Lambda.clip(0.0).astype(counts.dtype), counts)


@dataclass(frozen=True, eq=False)
class InverseMetric:
    """H0 = Q diag[1 / (lambda_m + delta + n_m Lambda)] Q' for every item row m."""

    metric: Metric
    base: Array
    """lambda_m + delta, for every item."""

    def apply(self, v: Array, out: Array) -> None:
        """Write H0 v to `out`, which must not be `v`."""
        rank = len(self.metric.Lambda)
        for array in (v, out):
            if (
                array.shape != (rank * len(self.base),)
                or array.dtype != self.base.dtype
            ):
                require(
                    False,
                    f"apply needs {self.base.dtype} vectors of length {rank * len(self.base)}.",
                )
        require(
            not np.may_share_memory(v, out),
            "apply needs a separate array for its result.",
        )
        basis, transposed = (
            profiled.padded_rows(np.ascontiguousarray(Q).ravel(), rank)
            for Q in (self.metric.Q, self.metric.Q.T)
        )
        profiled.apply_metric(
            v,
            basis,
            transposed,
            self.metric.Lambda,
            self.metric.counts,
            self.base,
            out,
            profiled.workspace(rank, v.dtype),
        )


class EliminatedUsers(ABC):
    """The base of factorizations without users: a problem with a structured metric."""

    user_ridges: Array
    metric_counts: Array
    """n_m of the metric: the curvature of item row m is about lambda_m I + n_m C."""
    user_weights: npt.NDArray[np.int64]
    """Weights of g_u g_u' in C."""
    noise = 1.0
    """A typical weight of one rating, against which a batch's step is damped."""

    def __init__(
        self,
        triples: joint.Triples,
        n_users: int,
        n_items: int,
        rank: int,
        prior: float,
        alpha: float,
        dtype: Precision,
        seed: int | None,
        source: Any,
        columns: RealArray | None,
    ) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.columns = _check_columns(columns, int(rank)).astype(self.dtype)
        self.n_users = int(n_users)
        self.n_items = int(n_items)
        self.rank = int(rank)
        self.prior = float(prior)
        self.alpha = float(alpha)
        self.seed = seed
        self.source = source
        self.mean = float(np.add.reduce(triples.values, dtype=np.float64)) / len(
            triples.values
        )
        self.order = _order(self.n_users, seed)
        # Grouped once: every pass reads the ratings user by user.
        self.by_user = sides.grouped(
            triples.users, triples.items, triples.values, self.n_users
        )
        self.user_counts = np.diff(self.by_user.start)
        self.item_counts = np.bincount(triples.items, minlength=self.n_items).astype(
            self.dtype
        )
        self.item_ridges = (self.prior + self.alpha * self.item_counts).astype(
            self.dtype
        )
        # The ridge of every number of theta, for the prior and its gradient.
        self._weights = np.multiply.outer(self.item_ridges, self.columns).ravel()

    @property
    def dim(self) -> int:
        return self.rank * self.n_items

    @property
    def n_data(self) -> int:
        return self.n_users

    @abstractmethod
    def _gradient(
        self,
        theta: Array,
        rows: Rows,
        scale: float,
        out: Array,
        second: Array | None = None,
    ) -> tuple[float, float, int]:
        """Write the gradient to `out`, with the part of the rows times `scale`.

        Returns two sums over the rows, half of which is their value, and the weight of their curvature in a
        mean. The weighted sum of g_u g_u' over the rows is added to `second`.
        """

    @abstractmethod
    def _factors(self, theta: Array, threads: int) -> Array:
        """Return the solved user rows by user index, flat."""

    def value(self, theta: Array) -> float:
        return self.value_rows(theta, np.arange(self.n_users))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of V(theta) from the users `rows`; the items' prior counts once."""
        require(len(rows) > 0, "a value needs at least one row.")
        # The kernel of the gradient computes the value as well; the gradient itself is discarded.
        squares, penalty, _ = self._gradient(theta, rows, 0.0, np.empty_like(theta))
        return 0.5 * (
            self.n_data / len(rows) * (squares + penalty) + self._prior(theta)
        )

    def _prior(self, theta: Array) -> float:
        """Return twice the prior of the items."""
        return float(np.add.reduce(np.square(theta, dtype=np.float64) * self._weights))

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        require(len(rows) > 0, "a gradient needs at least one row.")
        self._gradient(theta, rows, self.n_data / len(rows), out)

    def user_factors(self, theta: Array, threads: int = 1) -> Array:
        """Return G = argmin U(F, .), n_users x K, by user index."""
        return self._factors(theta, threads).reshape(self.n_users, self.rank)

    def _check_rows(self, valid: bool) -> None:
        require(valid, f"rows must lie in 0..{self.n_data - 1}, and some do not.")

    # -- the structured metric

    def metric(self, theta: Array, threads: int = 1) -> Metric:
        """Return the curvature shared by all items, from the solved rows of all users."""
        G = self.user_factors(theta, threads).astype(np.float64)
        weights = self.user_weights
        # einsum without optimisation does not call BLAS, whose bits change with its threads.
        sums = np.einsum("uk,ul->kl", G * weights[:, None], G)
        return metric_of(
            np.append(sums, weights.sum()), self.metric_counts, self.columns
        )

    def inverse_metric(
        self, theta: Array, step: float, batch: int | None = None
    ) -> InverseMetric:
        """Return H0 for steps of size `step` on gradients of `batch` users; None: all of them.

        delta = step * (n_data / batch) * noise * tr C damps rows with few ratings, where a subsample's
        gradient is mostly noise; 0 for exact gradients.
        """
        return self._damped(self.metric(theta), step, batch)

    def _damped(self, metric: Metric, step: float, batch: int | None) -> InverseMetric:
        spread = self.noise * float(metric.Lambda.sum())
        delta = 0.0 if batch is None else step * self.n_data / batch * spread
        return InverseMetric(metric, self.item_ridges + self.dtype.type(delta))

    @property
    def curvature_size(self) -> int:
        """The length of a summary of the curvature: K x K sums and their weight."""
        return self.rank * self.rank + 1

    def grad_with_curvature(
        self, theta: Array, rows: Rows, out: Array, curvature: Array
    ) -> float:
        """Write `grad` to `out`, return the estimate of V, and write that of the curvature, in one pass over
        the rows.

        `curvature` becomes (n_data / len(rows)) times the weighted sum over the rows of g_u g_u', and of 1.
        """
        require(len(rows) > 0, "a gradient needs at least one row.")
        scale = self.n_data / len(rows)
        curvature[...] = 0.0
        squares, penalty, curvature[-1] = self._gradient(
            theta, rows, scale, out, curvature[:-1]
        )
        curvature *= curvature.dtype.type(scale)
        return 0.5 * (scale * (squares + penalty) + self._prior(theta))

    def inverse_metric_from(
        self, curvature: Array, step: float = 0.0, batch: int | None = None
    ) -> InverseMetric:
        """Return `inverse_metric` from a summary of `grad_with_curvature`, or from a mean of such
        summaries."""
        return self._damped(
            metric_of(curvature, self.metric_counts, self.columns), step, batch
        )

    def default_algorithm(self, workers: int) -> StagedLBFGS:
        """Return the algorithm that `minimize` uses when it is given none."""
        return asynchronous_algorithm(self, workers)

    def curvature_diagonal(self, theta: Array) -> Array:
        """Return lambda_m + n_m C_kk: the diagonal in the shared metric, not that of the Hessian itself."""
        metric = self.metric(theta)
        # Q was divided by sqrt(columns), so that Q Lambda Q' is D^-1 C D^-1, and the factor D^2 restores
        # C_kk.
        shared = (np.square(metric.Q) * metric.Lambda).sum(axis=1) * np.square(
            self.columns
        )
        diagonal: Array = (
            self._weights + np.multiply.outer(self.metric_counts, shared).ravel()
        )
        return diagonal


def _check_columns(columns: RealArray | None, rank: int) -> npt.NDArray[np.float64]:
    found = np.ones(rank) if columns is None else np.asarray(columns, np.float64)
    require(
        found.shape == (rank,)
        and bool((found > 0.0).all() and np.isfinite(found).all()),
        f"columns must be {rank} positive numbers.",
    )
    return found


def _order(n_users: int, seed: int | None) -> npt.NDArray[np.int64]:
    """Return all users, in runs of up to eight neighbours and at least 512 runs, shuffled by `seed`."""
    if seed is None:
        return np.arange(n_users)
    # Neighbours are read together from memory, and there are still at least 512 runs to shuffle.
    run = min(max(n_users // 512, 1), 8)
    runs = np.random.default_rng(check_seed(seed)).permutation(-(-n_users // run))
    order = (runs[:, None] * run + np.arange(run)).ravel()
    return order[order < n_users]
