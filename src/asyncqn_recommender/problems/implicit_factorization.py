"""Factorization of clicks with the users eliminated: the objective of Hu, Koren and Volinsky (2008).

    U(F, G) = sum over all users and items of c (p - f_m.g_u)^2 / 2
              + prior (sum_u |g_u|^2 + sum_m |f_m|^2) / 2

p = 1 and c = 1 + confidence * r if user u has clicked item m with strength r, else p = 0, c = 1.  The sum
over all pairs costs no more than one over the clicks: `kernels.whitened` explains how, and has the gradient.

All users have the same ridge, so that one K x K factor serves them all.  In the metric the unclicked pairs
count, too: n_m is the number of users plus the sum of w over the clicks of m, and C is the plain mean of g_u
g_u'.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn.kernels import add_gram, cholesky, invert_lower
from asyncqn.parameters import Precision, checked
from asyncqn.types import Array, Rows
from asyncqn_recommender.kernels import als as sides
from asyncqn_recommender.kernels import profiled, whitened
from asyncqn_recommender.problems import matrix_factorization as joint
from asyncqn_recommender.problems.eliminated_users import EliminatedUsers
from asyncqn_recommender.problems.parameters import (
    Columns,
    Confidence,
    Count,
    Items,
    Rank,
    Ridge,
    Shuffling,
    Source,
    TestRatings,
    Users,
    Values,
)
from asyncqn_recommender.problems.stored import OfClicks


class White(NamedTuple):
    """Rows L^-1 f of a matrix F, with L L' = F'F + D, D a diagonal matrix."""

    source: Array
    rows: Array
    """Flat, padded."""
    inverse: npt.NDArray[np.float64]
    """L^-1, K x K."""


def whiten(flat: Array, diagonal: npt.NDArray[np.float64]) -> White:
    """Whiten the rows of a flat n x K matrix; K x K matrices are float64 and never use BLAS
    (`kernels.gram`)."""
    rank = len(diagonal)
    # `add_gram` multiplies rows, so the factors must be contiguous.
    across = np.ascontiguousarray(flat.reshape(-1, rank).T, np.float64)
    square = np.zeros((rank, rank))
    add_gram(across, across, square)
    square = np.ascontiguousarray(square.T) + np.diag(diagonal)
    inverse = np.full(
        (rank, rank), np.nan
    )  # stays NaN where F is not finite, so that the run notices it
    if cholesky(square):
        invert_lower(square, inverse)
    work = profiled.workspace(rank, flat.dtype)
    rows = np.empty(len(flat) // rank * len(work.goal), flat.dtype)
    whitened.turned_rows(flat, rank, padded_matrix(inverse.T, flat.dtype), rows, work)
    return White(flat.copy(), rows, inverse)


def padded_matrix(matrix: npt.NDArray[Any], dtype: Any) -> Array:
    """Return a square matrix with its rows padded, flat."""
    padded: Array = profiled.padded_rows(
        np.ascontiguousarray(matrix, dtype).ravel(), len(matrix)
    )
    return padded


def solve_white(
    side: sides.Grouped, white: White, weights: Array, rank: int, threads: int = 1
) -> Array:
    """Solve for the rows of one side, given the other side and the clicks; return them as one flat vector."""
    n_rows = len(side.start) - 1
    dtype = white.rows.dtype
    solved = np.empty(n_rows * rank, dtype)
    size = len(profiled.workspace(rank, dtype).goal)
    # `solve_side` pads its rows itself.
    fixed = np.ascontiguousarray(white.rows.reshape(-1, size)[:, size - rank :]).ravel()
    sides.solve_side(
        side, fixed, np.ones(n_rows, dtype), rank, solved, threads, weights
    )
    turned = np.empty(n_rows * size, dtype)
    work = profiled.workspace(rank, dtype)
    whitened.turned_rows(
        solved, rank, padded_matrix(white.inverse, dtype), turned, work
    )
    return np.ascontiguousarray(turned.reshape(-1, size)[:, size - rank :]).ravel()


class ImplicitFactorization(EliminatedUsers, OfClicks):
    """Matrix factorization of clicks with users eliminated; data points are users.

    Row i of `grad` is user `order[i]`.

    Parameters
    ----------
    users : array-like of int
        User of each click, from 0 to n_users - 1; a pair of user and item occurs once.
    items : array-like of int
        Item of each click, from 0 to n_items - 1.
    values : array-like of float
        Strengths r > 0, such as how often a user clicked.
    prior : float, default 1.0
        Ridge of every row.
    confidence : float, default 1.0
        A click of strength r counts c = 1 + confidence * r; a missing pair counts 1.
    seed : int or None, default 0
        Seed of the order in which users are stored; None keeps the given order.
    columns : array-like of shape (rank,), optional
        A factor on the items' ridge for each of the K columns; without it, 1.
    test : three arrays, or an object with users, items and values, optional
        Held-out clicks, for metrics.

    Examples
    --------
    >>> import asyncqn as aq
    >>> from asyncqn_recommender import ImplicitFactorization
    >>> users, items, clicks = [0, 0, 1], [0, 1, 1], [1.0, 3.0, 1.0]
    >>> problem = ImplicitFactorization(users, items, clicks, n_users=2, n_items=2, rank=1)
    >>> problem.dim, problem.n_data
    (2, 2)
    """

    kind = "implicit-factorization"
    computed_on_demand = ("_white",)

    @checked
    def __init__(
        self,
        users: Users,
        items: Items,
        values: Values,
        *,
        n_users: Count,
        n_items: Count,
        rank: Rank,
        prior: Ridge = 1.0,
        confidence: Confidence = 1.0,
        dtype: Precision = np.float64,
        seed: Shuffling = 0,
        source: Source = None,
        columns: Columns = None,
        test: TestRatings = None,
    ) -> None:
        require(
            test is None,
            "clicks have no test error: compare lists instead, as Recommender does.",
        )
        triples = joint.check_ratings(users, items, values, n_users, n_items, "clicks")
        super().__init__(
            triples, n_users, n_items, rank, prior, 0.0, dtype, seed, source, columns
        )
        strengths = self.by_user.values
        if not (strengths > 0.0).all():
            raise BadInput(
                "clicks must have positive strengths: remove those of 0 and below."
            )
        require(
            not sides.repeats(
                self.by_user.start, self.by_user.others, np.full(self.n_items, -1)
            ),
            "each pair of user and item may occur once in the clicks: add up those of one pair.",
        )
        self.confidence = float(confidence)
        c = (1.0 + self.confidence * strengths.astype(np.float64)).astype(np.float32)
        self.by_user = self.by_user._replace(values=c)
        self.weights = c.astype(self.dtype) - 1
        self.user_ridges = np.full(self.n_users, self.prior, self.dtype)
        # Every user contributes 1 to every item, and a click w more.
        heavier = np.bincount(self.by_user.others, self.weights, self.n_items)
        self.metric_counts = (self.n_users + heavier).astype(self.dtype)
        self.user_weights = np.ones(self.n_users, np.int64)
        # The weights w = c - 1 of the clicks differ; their mean stands for a typical one.
        self.noise = float(self.weights.mean(dtype=np.float64))
        self._white: White | None = None

    def _whitened(self, theta: Array) -> White:
        """Return the whitened rows of theta, cached because the blocks of a pass share one theta."""
        joint.check_vectors(self.dim, self.dtype, theta)
        known = self._white
        # Threads may race here: they compute the same rows, and one assignment replaces the other.
        if known is None or not np.array_equal(known.source, theta):
            known = whiten(theta, np.full(self.rank, self.prior))
            self._white = known
        return known

    def _gradient(
        self,
        theta: Array,
        rows: Rows,
        scale: float,
        out: Array,
        second: Array | None = None,
    ) -> tuple[float, float, int]:
        """Return sums over the rows: c (1 - f.g)^2 - (f.g)^2 of the clicks, |g~|^2, and the number of
        users."""
        joint.check_vectors(self.dim, self.dtype, theta, out)
        white = self._whitened(theta)
        rank = self.rank
        sums = np.zeros_like(white.rows)
        work = profiled.workspace(rank, self.dtype)
        products = np.zeros((rank, rank), self.dtype)
        valid, squares, norms, users = profiled.solve_rows(
            *self.by_user,
            self.weights,
            self.order,
            rows,
            white.rows,
            np.ones(self.n_users, self.dtype),
            self.dtype.type(scale),
            sums,
            products,
            work,
            np.empty((0, 0), self.dtype),
        )
        self._check_rows(valid)
        whitened.finish(
            theta,
            self.item_ridges,
            self.columns,
            white.rows,
            padded_matrix(products * scale, self.dtype),
            padded_matrix(white.inverse, self.dtype),
            sums,
            out,
            work,
        )
        if second is not None:
            second += self._turned(products, white).ravel().astype(self.dtype)
        return squares, norms, users

    def _turned(self, products: Array, white: White) -> npt.NDArray[np.float64]:
        """Return sum g g' from sum g~ g~'."""
        half = np.einsum(
            "ki,kl->il", white.inverse, products.astype(np.float64)
        )  # without BLAS
        found: npt.NDArray[np.float64] = np.einsum("il,lj->ij", half, white.inverse)
        return found

    def initial(self, rng: np.random.Generator) -> Array:
        """Return numbers of variance 1 / K, less in columns with more ridge."""
        rows = rng.standard_normal((self.n_items, self.rank)) / np.sqrt(
            self.rank * self.columns
        )
        start: Array = rows.ravel().astype(self.dtype)
        return start

    def _factors(self, theta: Array, threads: int) -> Array:
        return solve_white(
            self.by_user, self._whitened(theta), self.weights, self.rank, threads
        )

    def metrics(self, theta: Array) -> dict[str, float]:
        """Return `loss`, V per click, and `grad_norm` of the gradient of V."""
        out = np.empty_like(theta)
        unused = np.empty(self.curvature_size, self.dtype)
        value = self.grad_with_curvature(theta, np.arange(self.n_users), out, unused)
        norm = np.sqrt(np.square(out, dtype=np.float64).sum())
        return {"loss": value / len(self.by_user.values), "grad_norm": float(norm)}
