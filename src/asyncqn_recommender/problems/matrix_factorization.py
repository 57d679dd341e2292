"""Matrix factorization of ratings: Y_rs ~ N(f_r . g_s, 1) on the observed entries, Gaussian rows.

    U(theta) = sum (y - f_item . g_user)^2 / 2 + sum_rows lambda_row |row|^2 / 2,
    lambda_row = prior + alpha * (number of ratings of the row)

theta is F (n_items x K) and then G (n_users x K), row by row.  The paper has prior = 1, alpha = 0.

Our own choices: The ridge counts once and exactly even if alpha > 0, which adds no noise to a subsample
gradient. Ratings are stored in an order shuffled by `seed`, so that any consecutive rows are a random subset,
which is read several times faster than scattered rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn.kernels import is_range
from asyncqn.parameters import Precision, checked
from asyncqn.types import Array, Rows
from asyncqn_recommender.kernels import factorization as kernels
from asyncqn_recommender.problems.parameters import (
    Alpha,
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
from asyncqn_recommender.problems.stored import OfRatings

SPREAD = 0.1
"""Standard deviation of the numbers of a starting point around their common value."""
PILE = 8192
"""Ratings shuffled together: 96 kB, which fit the second-level cache."""
GATHERED_AT_ONCE = 512
"""Ratings copied together if rows are scattered: 6 kB, which fit the first-level cache."""


class Triples(NamedTuple):
    """Checked ratings: user users[i] gave item items[i] the rating values[i]."""

    users: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


def check_ratings(
    users: Any, items: Any, values: Any, n_users: int, n_items: int, what: str
) -> Triples:
    """Return the columns as int32, int32 and float32; raise `BadInput` for anything wrong with `what`."""
    columns = []
    for name, column, count in (("users", users, n_users), ("items", items, n_items)):
        ids = np.asarray(column)
        require(ids.size > 0, f"{what}: there are none; give at least one.")
        require(
            ids.ndim == 1 and ids.dtype.kind in "iu",
            f"{what}: {name} must be a vector of integers, not {ids.dtype} of shape {ids.shape}.",
        )
        low = int(ids.min())
        high = int(ids.max())
        require(
            low >= 0 and high < count,
            f"{what}: {name} must lie in 0..{count - 1}, but they span {low}..{high}.",
        )
        columns.append(ids.astype(np.int32, copy=False))
    ratings = np.asarray(values)
    require(
        ratings.ndim == 1 and ratings.dtype.kind in "fiu",
        f"{what}: values must be a vector of numbers, not {ratings.dtype} of shape {ratings.shape}.",
    )
    sizes = [str(len(column)) for column in (*columns, ratings)]
    require(
        len(set(sizes)) == 1,
        f"{what}: users, items and values must be equally long, but their lengths are {', '.join(sizes)}.",
    )
    ratings = ratings.astype(np.float32, copy=False)
    # One pass without a mask: the sum is finite exactly if every rating is.
    if not np.isfinite(np.add.reduce(ratings, dtype=np.float64)):
        bad = np.flatnonzero(~np.isfinite(ratings))
        raise BadInput(
            f"{what}: values are NaN or infinite in {bad.size} rows, first in row {bad[0]}: remove them."
        )
    return Triples(columns[0], columns[1], ratings)


def check_test(test: Any, n_users: int, n_items: int) -> Triples:
    """Return the test ratings, given as three arrays or as an object with these attributes."""
    users, items, values = (
        (test.users, test.items, test.values) if hasattr(test, "users") else test
    )
    return check_ratings(users, items, values, n_users, n_items, "test ratings")


def check_vectors(dim: int, dtype: np.dtype[Any], *vectors: Array) -> None:
    """Raise `BadInput` unless theta and out have the right shape, on which compiled loops rely."""
    for v in vectors:
        # The sentence is formatted only when needed: formatting costs as much as a thousand ratings.
        # The kernels have no bounds checks and are compiled for contiguous arrays.
        if v.shape != (dim,) or v.dtype != dtype or not v.flags.c_contiguous:
            raise BadInput(
                f"theta and out must be contiguous {dtype} vectors of length {dim}, not {v.dtype} {v.shape}."
            )


def pack(triples: Triples) -> npt.NDArray[np.void]:
    """Return the ratings as records, so that one rating is one memory access."""
    packed = np.empty(len(triples.values), kernels.RATING)
    packed["user"], packed["item"], packed["value"] = triples
    return packed


def shuffled(
    packed: npt.NDArray[np.void], rng: np.random.Generator
) -> npt.NDArray[np.void]:
    """Return the ratings in a uniformly random order, without a cache miss for every rating.

    Dealing onto piles at random and then shuffling every pile is a uniform shuffle: it sorts by independent
    random keys and breaks ties at random.
    """
    # The pile numbers are uint16.
    n_piles = min(-(-len(packed) // PILE), 4096)
    piles = rng.integers(0, n_piles, len(packed), dtype=np.uint16)
    end = np.zeros(n_piles, np.int64)
    np.cumsum(np.bincount(piles, minlength=n_piles)[:-1], out=end[1:])
    out = np.empty_like(packed)
    kernels.deal(packed, piles, end, out)
    for pile in np.split(out, end[:-1]):
        rng.shuffle(pile)
    return out


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
        users: Users,
        items: Items,
        values: Values,
        *,
        n_users: Count,
        n_items: Count,
        rank: Rank,
        prior: Ridge = 1.0,
        alpha: Alpha = 0.0,
        dtype: Precision = np.float64,
        test: TestRatings = None,
        seed: Shuffling = 0,
        source: Source = None,
    ) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        triples = check_ratings(users, items, values, n_users, n_items, "ratings")
        self.n_users = int(n_users)
        self.n_items = int(n_items)
        self.rank = int(rank)
        self.prior = float(prior)
        self.alpha = float(alpha)
        self.seed = seed
        self.source = source
        self.ratings = pack(triples)
        if seed is not None:
            self.ratings = shuffled(self.ratings, np.random.default_rng(seed))
        self.mean = float(np.add.reduce(triples.values, dtype=np.float64)) / len(
            triples.values
        )
        sides = ((triples.items, n_items), (triples.users, n_users))
        counts = np.concatenate([np.bincount(ids, minlength=n) for ids, n in sides])
        self.ridges = (self.prior + self.alpha * counts).astype(self.dtype)
        self.test = (
            None if test is None else pack(check_test(test, self.n_users, self.n_items))
        )
        # The factor of theta in the prior's gradient: a scalar if all rows have the same ridge.
        self._weights: Any = (
            self.ridges[0] if alpha == 0.0 else np.repeat(self.ridges, self.rank)
        )
        self._width = kernels.width(self.rank)
        self._first_user = self.n_items * self.rank

    @property
    def dim(self) -> int:
        return self.rank * (self.n_items + self.n_users)

    @property
    def n_data(self) -> int:
        return len(self.ratings)

    def value(self, theta: Array) -> float:
        check_vectors(self.dim, self.dtype, theta)
        squares = kernels.squared_error(
            self.ratings, theta, self._first_user, self._width
        )
        return 0.5 * float(
            squares + kernels.square_norms(theta, self.rank, self.ridges)
        )

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of U(theta) from the ratings `rows`; the prior counts once."""
        check_vectors(self.dim, self.dtype, theta)
        require(len(rows) > 0, "a value needs at least one row.")
        inside = int(np.min(rows)) >= 0 and int(np.max(rows)) < self.n_data
        require(inside, f"rows must lie in 0..{self.n_data - 1}, and some do not.")
        # A slice is a view; an array of indices copies the ratings.
        some = self.ratings[
            slice(int(rows[0]), int(rows[0]) + len(rows)) if is_range(rows) else rows
        ]
        squares = kernels.squared_error(some, theta, self._first_user, self._width)
        # N_Y / N_Omega as in the paper's stochastic gradient, for the value as well.
        squares *= self.n_data / len(rows)
        return 0.5 * float(
            squares + kernels.square_norms(theta, self.rank, self.ridges)
        )

    def _start_from_prior(self, theta: Array, out: Array) -> None:
        check_vectors(self.dim, self.dtype, theta, out)
        np.multiply(theta, self._weights, out=out)

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        require(len(rows) > 0, "a gradient needs at least one row.")
        self._start_from_prior(theta, out)
        # In theta's precision, or the kernel would be compiled for a mix of types.
        scale = self.dtype.type(self.n_data / len(rows))
        # Consecutive rows need no gathering.
        first = int(rows[0])
        if is_range(rows):
            valid = first >= 0 and first + len(rows) <= self.n_data
            if valid:
                kernels.gradient_range(
                    self.ratings,
                    first,
                    first + len(rows),
                    theta,
                    self._first_user,
                    scale,
                    out,
                    self._width,
                )
        else:
            buffer = np.empty(GATHERED_AT_ONCE, kernels.RATING)
            valid = kernels.gradient_rows(
                self.ratings,
                rows,
                theta,
                self._first_user,
                scale,
                out,
                buffer,
                self._width,
            )
        require(valid, f"rows must lie in 0..{self.n_data - 1}, and some do not.")

    def initial(self, rng: np.random.Generator) -> Array:
        """Return a start near the mean rating: every number is sqrt(|mean| / K) + 0.1 Z, with G's sign that
        of the mean.

        Rows drawn from the prior N(0, 1) would predict N(0, K), far from every rating.
        """
        F = starting_rows(rng, self.mean, self.rank, self.n_items)
        G = starting_rows(
            rng, self.mean, self.rank, self.n_users, -1.0 if self.mean < 0 else 1.0
        )
        return np.concatenate([F, G]).astype(self.dtype)

    def metrics(self, theta: Array) -> dict[str, float]:
        """Return `rmse`, `grad_norm` of the exact gradient, and `test_rmse` if there is a test set."""
        out = np.empty_like(theta)
        self._start_from_prior(theta, out)
        one = self.dtype.type(1.0)
        squares = kernels.gradient_range(
            self.ratings, 0, self.n_data, theta, self._first_user, one, out, self._width
        )
        norm = np.sqrt(np.square(out, dtype=np.float64).sum())
        found = {
            "rmse": float(np.sqrt(squares / self.n_data)),
            "grad_norm": float(norm),
        }
        if self.test is not None:
            squares = kernels.squared_error(
                self.test, theta, self._first_user, self._width
            )
            found["test_rmse"] = float(np.sqrt(squares / len(self.test)))
        return found

    def curvature_diagonal(self, theta: Array) -> Array:
        """Return the diagonal of the Hessian: lambda_row + sum of squares of the partners' numbers."""
        check_vectors(self.dim, self.dtype, theta)
        out = np.repeat(self.ridges, self.rank)
        kernels.add_curvature(self.ratings, theta, self._first_user, self.rank, out)
        return out
