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

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require
from asyncqn.kernels import add_gram, cholesky, invert_lower
from asyncqn.parameters import Precision, checked
from asyncqn.types import Array, Rows
from asyncqn_recommender.kernels import als as sides
from asyncqn_recommender.kernels import profiled, whitened
from asyncqn_recommender.kernels.profiled import padded_matrix
from asyncqn_recommender.kernels.tiles import padded
from asyncqn_recommender.problems import parameters as given
from asyncqn_recommender.problems.eliminated_users import EliminatedUsers, Solution
from asyncqn_recommender.problems.stored import OfClicks, check_ratings


class White(NamedTuple):
    """Rows L^-1 f of a matrix F, with L L' = F'F + D, D a diagonal matrix."""

    rows: Array
    """Flat, padded."""
    inverse: npt.NDArray[np.float64]
    """L^-1, K x K."""


def whiten(flat: Array, rank: int, ridge: float) -> White:
    """Whiten the rows of a flat n x K matrix; K x K matrices are float64 and never use BLAS
    (`kernels.gram`)."""
    # `add_gram` multiplies rows, so the factors must be contiguous.
    across = np.ascontiguousarray(flat.reshape(-1, rank).T, np.float64)
    square = np.zeros((rank, rank))
    add_gram(across, across, square)
    square = np.ascontiguousarray(square.T) + ridge * np.eye(rank)
    # It stays NaN where F is not finite, so that the run notices it.
    inverse = np.full((rank, rank), np.nan)
    if cholesky(square):
        invert_lower(square, inverse)
    return White(_turned(flat, rank, inverse.T), inverse)


def _turned(flat: Array, rank: int, matrix: npt.NDArray[np.float64]) -> Array:
    """Return M' f for every row f, padded."""
    work = profiled.workspace(rank, flat.dtype)
    rows: Array = np.empty(len(flat) // rank * len(work.goal), flat.dtype)
    whitened.turned_rows(flat, rank, padded_matrix(matrix, flat.dtype), rows, work)
    return rows


def solve_white(
    side: sides.Grouped, white: White, weights: Array, rank: int, threads: int = 1
) -> Array:
    """Solve for the rows of one side, given the other side and the clicks; return them as one flat vector."""
    n_rows = len(side.start) - 1
    dtype = white.rows.dtype
    solved = np.empty(n_rows * rank, dtype)
    ones = np.ones(n_rows, dtype)
    # `solve_side` pads its rows itself.
    fixed = _without_padding(white.rows, rank)
    sides.solve_side(side, fixed, ones, rank, solved, threads, weights)
    return _without_padding(_turned(solved, rank, white.inverse), rank)


def _without_padding(rows: Array, rank: int) -> Array:
    plain: Array = rows.reshape(-1, padded(rank))[:, -rank:].ravel()
    return plain


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

    @checked
    def __init__(
        self,
        users: given.Users,
        items: given.Items,
        values: given.Values,
        *,
        n_users: given.Count,
        n_items: given.Count,
        rank: given.Rank,
        prior: given.Ridge = 1.0,
        confidence: given.Confidence = 1.0,
        dtype: Precision = np.float64,
        seed: given.Shuffling = 0,
        source: given.Source = None,
        columns: given.Columns = None,
    ) -> None:
        self._describe(n_users, n_items, rank, prior, dtype, seed, source)
        triples = check_ratings(users, items, values, n_users, n_items, "clicks")
        self._group(triples, columns)
        strengths = self.by_user.values
        require(
            bool((strengths > 0.0).all()),
            "clicks must have positive strengths: remove those of 0 and below.",
        )
        pairs = np.sort(triples.users.astype(np.int64) * self.n_items + triples.items)
        require(
            not (pairs[1:] == pairs[:-1]).any(),
            "each pair of user and item may occur once in the clicks: add up those of one "
            "pair.",
        )
        self.confidence = float(confidence)
        c = (1.0 + self.confidence * strengths.astype(np.float64)).astype(np.float32)
        self.by_user = self.by_user._replace(values=c)
        self.weights = c.astype(self.dtype) - 1
        # Every user contributes 1 to every item, and a click w more.
        heavier = np.bincount(self.by_user.others, self.weights, self.n_items)
        self.metric_counts = (self.n_users + heavier).astype(self.dtype)
        # The weights w = c - 1 of the clicks differ; their mean stands for a typical one.
        self.noise = float(self.weights.mean(dtype=np.float64))

    def _items(self, theta: Array) -> White:
        return whiten(theta, self.rank, self.prior)

    def _gradient(
        self, theta: Array, rows: Rows, scale: float, out: Array, second: Array
    ) -> Solution:
        """Return sums over the rows: c (1 - f.g)^2 - (f.g)^2 of the clicks, |g~|^2, and the number of
        users."""
        white = self._prepared(theta).items
        rank = self.rank
        sums = np.zeros_like(white.rows)
        work = profiled.workspace(rank, self.dtype)
        products = np.zeros((rank, rank), self.dtype)
        ones = np.ones(self.n_users, self.dtype)
        valid, *totals = profiled.solve_rows(
            self.by_user,
            self.weights,
            profiled.Visit(self.order, rows, ones),
            white.rows,
            self.dtype.type(scale),
            profiled.Results(sums, products, profiled.nothing(sums)),
            work,
        )
        self._check_rows(valid)
        np.multiply(self._weights, theta, out=out)
        whitened.add_gradient(
            white.rows,
            padded_matrix(products * scale, self.dtype),
            padded_matrix(white.inverse, self.dtype),
            sums,
            out,
            work,
        )
        # sum g g' from sum g~ g~', without BLAS.
        half = np.einsum("ki,kl->il", white.inverse, products.astype(np.float64))
        turned = np.einsum("il,lj->ij", half, white.inverse)
        second += turned.ravel().astype(self.dtype)
        return Solution(*totals)

    def initial(self, rng: np.random.Generator) -> Array:
        """Return numbers of variance 1 / K, less in columns with more ridge."""
        rows = rng.standard_normal((self.n_items, self.rank))
        rows /= np.sqrt(self.rank * self.columns)
        start: Array = rows.ravel().astype(self.dtype)
        return start

    def _factors(self, theta: Array, threads: int) -> Array:
        white = self._prepared(theta).items
        return solve_white(self.by_user, white, self.weights, self.rank, threads)
