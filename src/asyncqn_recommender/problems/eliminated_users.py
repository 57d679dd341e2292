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
from asyncqn.kernels import sum_of_squares
from asyncqn.types import Array, Rows
from asyncqn_recommender.kernels import als as sides
from asyncqn_recommender.kernels import profiled
from asyncqn_recommender.problems.stored import Stored, Triples, check_vectors
from asyncqn_recommender.staged import StagedLBFGS, staged_algorithm


@dataclass(frozen=True, eq=False)
class EliminatedMetric:
    """H0 = Q diag[1 / (lambda_m + delta + n_m Lambda)] Q' for every item row m.

    Q is orthogonal if all columns have the same ridge.
    """

    Q: Array
    Lambda: Array
    counts: Array
    """n_m."""
    base: Array
    """lambda_m + delta, for every item."""

    def apply(self, v: Array, out: Array) -> None:
        """Write H0 v to `out`, which must not be `v`."""
        rank = len(self.Lambda)
        check_vectors(rank * len(self.base), self.base.dtype, v, out)
        require(
            not np.may_share_memory(v, out),
            "apply needs a separate array for its result.",
        )
        # Padding K x K matrices costs nothing beside the product with all items.
        profiled.apply_metric(
            v,
            profiled.padded_matrix(self.Q, v.dtype),
            profiled.padded_matrix(self.Q.T, v.dtype),
            self.Lambda,
            self.counts,
            self.base,
            out,
            profiled.workspace(rank, v.dtype),
        )


class Prepared(NamedTuple):
    """Quantities of a theta that do not depend on the rows; the blocks of a pass share them."""

    theta: Array
    prior: float
    """Twice the prior of the items."""
    items: Any
    """The item rows in the form that the gradient needs."""


class Solution(NamedTuple):
    """Sums over users of a gradient's rows."""

    errors: float
    """Squared errors of ratings, or for clicks what takes their place."""
    penalty: float
    weight: float
    """The weight of their curvature in a mean."""


class EliminatedUsers(Stored, ABC):
    """The base of factorizations without users: a problem with a structured metric."""

    metric_counts: Array
    """n_m of the metric: the curvature of item row m is about lambda_m I + n_m C."""
    noise = 1.0
    """A typical weight of one rating, against which a batch's step is damped."""
    columns: Array
    alpha = 0.0
    computed_on_demand = ("_last",)
    _last: Prepared | None = None

    def _group(self, triples: Triples, columns: Any) -> None:
        """Set what all such problems have."""
        self.columns = _check_columns(columns, self.rank).astype(self.dtype)
        self.mean = float(triples.values.mean(dtype=np.float64))
        self.order = _order(self.n_users, self.seed)
        # Grouped once: every pass reads the ratings user by user.
        self.by_user = sides.grouped(*triples, self.n_users)
        self.user_counts = np.diff(self.by_user.start)
        counts = np.bincount(triples.items, minlength=self.n_items)
        self.item_counts = counts.astype(self.dtype)
        ridges = self.prior + self.alpha * self.item_counts
        self.item_ridges = ridges.astype(self.dtype)
        # The ridge of every number of theta, for the prior and its gradient.
        self._weights = np.multiply.outer(self.item_ridges, self.columns).ravel()

    @property
    def dim(self) -> int:
        return self.rank * self.n_items

    @property
    def n_data(self) -> int:
        return self.n_users

    def _prepared(self, theta: Array) -> Prepared:
        # Threads may race here: they compute the same, and one assignment replaces the other.
        last = self._last
        if last is not None and np.array_equal(last.theta, theta):
            return last
        check_vectors(self.dim, self.dtype, theta)
        squares = np.square(theta, dtype=np.float64)
        prior = float(np.add.reduce(squares * self._weights))
        prepared = Prepared(theta.copy(), prior, self._items(theta))
        self._last = prepared
        return prepared

    @abstractmethod
    def _items(self, theta: Array) -> Any:
        """Return the item rows in the form that the gradient needs."""

    @abstractmethod
    def _gradient(
        self, theta: Array, rows: Rows, scale: float, out: Array, second: Array
    ) -> Solution:
        """Write the gradient to `out`, with the part of the rows times `scale`.

        The weighted sum of g_u g_u' over the rows is added to `second`.
        """

    @abstractmethod
    def _factors(self, theta: Array, threads: int) -> Array:
        """Return the solved user rows by user index, flat."""

    def value(self, theta: Array) -> float:
        return self.value_rows(theta, np.arange(self.n_users))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of V(theta) from the users `rows`; the items' prior counts once."""
        # The kernel of the gradient computes the value as well; the gradient itself is discarded.
        unused = np.empty(self.curvature_size, self.dtype)
        return self.grad_with_curvature(theta, rows, np.empty_like(theta), unused)

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        # The curvature costs K^2 additions per user beside the K^2 per rating of the solve.
        unused = np.empty(self.curvature_size, self.dtype)
        self.grad_with_curvature(theta, rows, out, unused)

    def user_factors(self, theta: Array, threads: int = 1) -> Array:
        """Return G = argmin U(F, .), n_users x K, by user index."""
        return self._factors(theta, threads).reshape(self.n_users, self.rank)

    def _check_rows(self, valid: bool) -> None:
        require(valid, f"rows must lie in 0..{self.n_data - 1}, and some do not.")

    def metrics(self, theta: Array) -> dict[str, float]:
        """Return `grad_norm` of the gradient of V."""
        out = np.empty_like(theta)
        self.grad(theta, np.arange(self.n_users), out)
        return {"grad_norm": float(np.sqrt(sum_of_squares(out)))}

    # -- the structured metric

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
        check_vectors(self.dim, self.dtype, theta, out)
        scale = self.n_data / len(rows)
        curvature[...] = 0.0
        sums = self._gradient(theta, rows, scale, out, curvature[:-1])
        curvature[-1] = sums.weight
        curvature *= curvature.dtype.type(scale)
        prior = self._prepared(theta).prior
        return 0.5 * (scale * (sums.errors + sums.penalty) + prior)

    def inverse_metric_from(
        self, curvature: Array, damping: float = 0.0
    ) -> EliminatedMetric:
        """Return H0 from a summary of `grad_with_curvature`, or from a mean of such summaries.

        delta = damping * noise * tr C; for a step h on the gradient of a share b of the data damping is h / b,
        because in rows with few ratings such a gradient is mostly noise.

        With D = diag(columns), lambda D + n C = D^1/2 (lambda I + n D^-1/2 C D^-1/2) D^1/2.
        """
        sums = curvature[:-1].reshape(self.rank, self.rank).astype(np.float64)
        C = sums / max(float(curvature[-1]), 1.0)
        root = np.sqrt(self.columns.astype(np.float64))
        # K x K, so the cost is negligible beside a pass.
        Lambda, Q = np.linalg.eigh(C / np.multiply.outer(root, root))
        # C is positive semidefinite; eigenvalues below 0 are rounding.
        Lambda = Lambda.clip(0.0).astype(self.dtype)
        delta = damping * self.noise * float(Lambda.sum())
        # Q absorbs D^-1/2, so that `apply_metric` needs no further factor.
        Q = (Q / root[:, None]).astype(self.dtype)
        base = self.item_ridges + self.dtype.type(delta)
        return EliminatedMetric(Q, Lambda, self.metric_counts, base)

    def default_algorithm(self, workers: int) -> StagedLBFGS:
        """Return the algorithm that `minimize` uses when it is given none."""
        return staged_algorithm(self, workers)


def _check_columns(columns: Any, rank: int) -> npt.NDArray[np.float64]:
    ridges = np.ones(rank) if columns is None else np.asarray(columns, np.float64)
    positive = ridges.shape == (rank,) and bool((ridges > 0.0).all())
    require(
        positive and bool(np.isfinite(ridges).all()),
        f"columns must be {rank} positive numbers.",
    )
    return ridges


def _order(n_users: int, seed: int | None) -> npt.NDArray[np.int64]:
    """Return all users, in runs of up to eight neighbours and at least 512 runs, shuffled by `seed`."""
    if seed is None:
        return np.arange(n_users)
    # Neighbours are read together from memory, and there are still at least 512 runs to shuffle.
    run = min(max(n_users // 512, 1), 8)
    runs = np.random.default_rng(seed).permutation(-(-n_users // run))
    order = (runs[:, None] * run + np.arange(run)).ravel()
    return order[order < n_users]
