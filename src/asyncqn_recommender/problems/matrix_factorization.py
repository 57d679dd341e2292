"""Matrix factorization of ratings: Y_rs ~ N(f_r . g_s, 1) on the observed entries, Gaussian rows.

    U(theta) = sum (y - f_item . g_user)^2 / 2 + sum_rows lambda_row |row|^2 / 2,
    lambda_row = prior + alpha * (number of ratings of the row)

theta is F (n_items x K) and then G (n_users x K), row by row.  The paper has prior = 1, alpha = 0.

Our own choices: The ridge counts once and exactly even if alpha > 0, which adds no noise to a subsample
gradient. Ratings are stored in an order shuffled by `seed`, so that any consecutive rows are a random subset,
which is read several times faster than scattered rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn.errors import require
from asyncqn.kernels import is_range
from asyncqn.parameters import Precision, checked
from asyncqn.types import Array, Rows
from asyncqn_recommender.kernels import factorization as kernels
from asyncqn_recommender.problems import parameters as given
from asyncqn_recommender.problems.stored import (
    OfRatings,
    check_ratings,
    check_vectors,
    pack,
    packed_test,
)

SPREAD = 0.1
"""Standard deviation of the numbers of a starting point around their common value."""


def starting_rows(
    rng: np.random.Generator, mean: float, rank: int, n_rows: int, sign: float = 1.0
) -> Array:
    """Return rows around the constant sqrt(|mean| / K), for which f.g is near `mean` for any pair."""
    rows = rng.standard_normal((n_rows, rank))
    rows *= SPREAD
    rows += sign * np.sqrt(abs(mean) / rank)
    return rows.ravel()


class MatrixFactorization(OfRatings):
    """Matrix factorization of ratings, users and items jointly; data points are single ratings.

    Parameters
    ----------
    seed : int or None, default 0
        Seed of the order in which ratings are stored, which numbers the rows of `grad`; None keeps the
        given order.

    Examples
    --------
    >>> import asyncqn as aq
    >>> from asyncqn_recommender import MatrixFactorization
    >>> users, items, ratings = [0, 0, 1], [0, 1, 1], [5.0, 3.0, 4.0]
    >>> problem = MatrixFactorization(users, items, ratings, n_users=2, n_items=2, rank=1)
    >>> problem.dim, problem.n_data
    (4, 3)
    """

    kind = "matrix-factorization"

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
        alpha: given.Alpha = 0.0,
        dtype: Precision = np.float64,
        test: given.TestRatings = None,
        seed: given.Shuffling = 0,
        source: given.Source = None,
    ) -> None:
        self._describe(n_users, n_items, rank, prior, dtype, seed, source)
        self.alpha = float(alpha)
        triples = check_ratings(users, items, values, n_users, n_items, "ratings")
        self.mean = float(triples.values.mean(dtype=np.float64))
        self.ratings = pack(triples)
        if seed is not None:
            # Consecutive rows are then a random subset.
            order = np.random.default_rng(seed).permutation(len(self.ratings))
            self.ratings = self.ratings[order]
        sides = ((triples.items, n_items), (triples.users, n_users))
        counts = np.concatenate([np.bincount(ids, minlength=n) for ids, n in sides])
        self.ridges = (self.prior + self.alpha * counts).astype(self.dtype)
        self.test = packed_test(test, self.n_users, self.n_items)
        # The factor of theta in the prior's gradient.
        self._weights = np.repeat(self.ridges, self.rank)
        self._width = kernels.width(self.rank)
        self._first_user = self.n_items * self.rank

    @property
    def dim(self) -> int:
        return self.rank * (self.n_items + self.n_users)

    @property
    def n_data(self) -> int:
        return len(self.ratings)

    def value(self, theta: Array) -> float:
        return self._value(theta, self.ratings, 1.0)

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of U(theta) from the ratings `rows`; the prior counts once."""
        # N_Y / N_Omega as in the paper's stochastic gradient, for the value as well.
        return self._value(theta, self._some(rows), self.n_data / len(rows))

    def _value(self, theta: Array, ratings: Any, scale: float) -> float:
        squares = scale * self._squares(theta, ratings)
        # In float64, whatever the type of theta; `np.add.reduce` calls no BLAS, whose bits differ by machine.
        penalty = np.add.reduce(np.square(theta, dtype=np.float64) * self._weights)
        return 0.5 * float(squares + penalty)

    def _squares(self, theta: Array, ratings: Any) -> float:
        check_vectors(self.dim, self.dtype, theta)
        first = self._first_user
        return float(kernels.squared_error(ratings, theta, first, self._width))

    def _some(self, rows: Rows) -> Any:
        """Return the ratings of these rows: a view of consecutive ones, else a copy."""
        require(len(rows) > 0, "a gradient or a value needs at least one row.")
        inside = int(np.min(rows)) >= 0 and int(np.max(rows)) < self.n_data
        require(inside, f"rows must lie in 0..{self.n_data - 1}, and some do not.")
        if is_range(rows):
            return self.ratings[int(rows[0]) : int(rows[0]) + len(rows)]
        return np.take(self.ratings, rows)

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        ratings = self._some(rows)
        self._gradient(theta, ratings, self.n_data / len(rows), out)

    def _gradient(self, theta: Array, ratings: Any, scale: float, out: Array) -> float:
        """Write the gradient, with the part of these ratings times `scale`; return their squared errors."""
        check_vectors(self.dim, self.dtype, theta, out)
        np.multiply(theta, self._weights, out=out)
        # In theta's precision, or the kernel would be compiled for a mix of types.
        real = self.dtype.type(scale)
        first = self._first_user
        squares = kernels.gradient(ratings, theta, first, real, out, self._width)
        return float(squares)

    def initial(self, rng: np.random.Generator) -> Array:
        """Return a start near the mean rating: every number is sqrt(|mean| / K) + 0.1 Z, with G's sign that
        of the mean.

        Rows drawn from the prior N(0, 1) would predict N(0, K), far from every rating.
        """
        sign = -1.0 if self.mean < 0 else 1.0
        F = starting_rows(rng, self.mean, self.rank, self.n_items)
        G = starting_rows(rng, self.mean, self.rank, self.n_users, sign)
        return np.concatenate([F, G]).astype(self.dtype)

    def metrics(self, theta: Array) -> dict[str, float]:
        """Return `rmse`, `grad_norm` of the exact gradient, and `test_rmse` if there is a test set."""
        out = np.empty_like(theta)
        squares = self._gradient(theta, self.ratings, 1.0, out)
        norm = np.sqrt(np.square(out, dtype=np.float64).sum())
        rmse = float(np.sqrt(squares / self.n_data))
        numbers = {"rmse": rmse, "grad_norm": float(norm)}
        if self.test is not None:
            squares = self._squares(theta, self.test)
            numbers["test_rmse"] = float(np.sqrt(squares / len(self.test)))
        return numbers
