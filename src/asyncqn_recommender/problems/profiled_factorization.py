"""Matrix factorization with the users eliminated: a sum over users in the item rows alone.

    V(F) = min_G U(F, G) = sum_m lambda_m |f_m|^2 / 2
           + sum_u min_g [ sum_{m in u} (y - f_m.g)^2 / 2 + lambda_u |g|^2 / 2 ]

Each user's row solves a K x K ridge problem exactly; the gradient is lambda_m f_m + sum_u (f_m.g_u - y) g_u
with the solved g_u: see `eliminated_users`.
"""

from __future__ import annotations

import numpy as np

from asyncqn.errors import require
from asyncqn.parameters import Precision, checked
from asyncqn.types import Array, Rows
from asyncqn_recommender.kernels import als as sides
from asyncqn_recommender.kernels import factorization, profiled
from asyncqn_recommender.problems import parameters as given
from asyncqn_recommender.problems.eliminated_users import EliminatedUsers, Solution
from asyncqn_recommender.problems.matrix_factorization import (
    MatrixFactorization,
    starting_rows,
)
from asyncqn_recommender.problems.stored import (
    OfRatings,
    check_ratings,
    check_vectors,
    packed_test,
)


class ProfiledFactorization(EliminatedUsers, OfRatings):
    """Matrix factorization of ratings with users eliminated; data points are users.

    Row i of `grad` is user `order[i]`. A user without ratings is a data point whose term is zero. Columns
    that are sorted by user and have the types int32 and float32 are not copied: do not change them.

    Parameters
    ----------
    seed : int or None, default 0
        Seed of the order in which users are stored; None keeps the given order.
    columns : array-like of shape (rank,), optional
        A factor on the items' ridge for each of the K columns; without it, 1. The product f.g does not change
        if a column of F is divided and that of G multiplied by the same number, so the factor acts on both
        sides: column k has sqrt(columns[k]) times the ridge of the others.

    Examples
    --------
    >>> import asyncqn as aq
    >>> from asyncqn_recommender import ProfiledFactorization
    >>> users, items, ratings = [0, 0, 1], [0, 1, 1], [5.0, 3.0, 4.0]
    >>> problem = ProfiledFactorization(users, items, ratings, n_users=2, n_items=2, rank=1)
    >>> problem.dim, problem.n_data
    (2, 2)
    """

    kind = "profiled-factorization"

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
        columns: given.Columns = None,
    ) -> None:
        self._describe(n_users, n_items, rank, prior, dtype, seed, source)
        self.alpha = float(alpha)
        triples = check_ratings(users, items, values, n_users, n_items, "ratings")
        self._group(triples, columns)
        ridges = self.prior + self.alpha * self.user_counts
        self.user_ridges = ridges.astype(self.dtype)
        self.metric_counts = self.item_counts
        self.test = packed_test(test, self.n_users, self.n_items)

    def _items(self, theta: Array) -> Array:
        padded: Array = profiled.padded_rows(theta, self.rank)
        return padded

    def _gradient(
        self, theta: Array, rows: Rows, scale: float, out: Array, second: Array
    ) -> Solution:
        rank = self.rank
        fixed = self._prepared(theta).items
        sums = np.zeros_like(fixed)
        valid, *totals = profiled.solve_rows(
            self.by_user,
            None,
            profiled.Visit(self.order, rows, self.user_ridges),
            fixed,
            self.dtype.type(scale),
            profiled.Results(sums, second.reshape(rank, rank), profiled.nothing(sums)),
            profiled.workspace(rank, self.dtype),
        )
        self._check_rows(valid)
        np.multiply(self._weights, theta, out=out)
        # Padding is in front of each row.
        out += sums.reshape(self.n_items, -1)[:, -rank:].ravel()
        return Solution(*totals)

    def initial(self, rng: np.random.Generator) -> Array:
        """Return item rows near sqrt(|mean| / K) with noise 0.1 Z, scaled down in columns with more ridge."""
        rows = starting_rows(rng, self.mean, self.rank, self.n_items)
        shares = 1.0 / np.sqrt(self.columns.astype(np.float64))
        # Rescaled, so that f.g of a constant row keeps its value.
        shares *= np.sqrt(self.rank / np.square(shares).sum())
        start: Array = (rows.reshape(-1, self.rank) * shares).ravel().astype(self.dtype)
        return start

    def _factors(self, theta: Array, threads: int) -> Array:
        check_vectors(self.dim, self.dtype, theta)
        rows = np.empty(self.n_users * self.rank, self.dtype)
        sides.solve_side(
            self.by_user, theta, self.user_ridges, self.rank, rows, threads
        )
        return rows

    def joint(self, theta: Array, threads: int = 1) -> Array:
        """Return the theta of `MatrixFactorization` with the same value: F, then the solved G."""
        return np.concatenate([theta, self.user_factors(theta, threads).ravel()])

    def metrics(self, theta: Array) -> dict[str, float]:
        """Return `rmse`, `grad_norm` of the gradient of V, and `test_rmse` if there is a test set."""
        rows = np.arange(self.n_users)
        out = np.empty_like(theta)
        second = np.zeros(self.rank**2, self.dtype)
        squares = self._gradient(theta, rows, 1.0, out, second).errors
        norm = np.sqrt(np.square(out, dtype=np.float64).sum())
        rmse = float(np.sqrt(squares / len(self.by_user.values)))
        numbers = {"rmse": rmse, "grad_norm": float(norm)}
        if self.test is not None:
            numbers["test_rmse"] = self.test_rmse(theta)
        return numbers

    def test_rmse(self, theta: Array, threads: int = 1) -> float:
        """Return the RMSE on the test set, with the users solved."""
        assert self.test is not None
        both = self.joint(theta, threads)
        width = factorization.width(self.rank)
        squares = factorization.squared_error(self.test, both, self.dim, width)
        return float(np.sqrt(squares / len(self.test)))


def als(
    problem: MatrixFactorization, theta: Array, *, sweeps: int = 10, threads: int = 1
) -> Array:
    """Run alternating least squares on U from `theta`: users given items, then items given users, `sweeps`
    times.

    It is a reference for the objective and for speed.
    """
    require(sweeps >= 0, f"sweeps must be at least 0, not {sweeps!r}.")
    require(threads >= 1, f"threads must be at least 1, not {threads!r}.")
    check_vectors(problem.dim, problem.dtype, theta)
    names = ("user", "item", "value")
    users, items, values = (problem.ratings[name].copy() for name in names)
    by_user = sides.grouped(users, items, values, problem.n_users)
    by_item = sides.grouped(items, users, values, problem.n_items)
    theta = theta.copy()
    rank = problem.rank
    # F and G are views of theta, which the sweeps fill in turn.
    F, G = np.split(theta, [problem.n_items * rank])
    of_items, of_users = np.split(problem.ridges, [problem.n_items])
    for _ in range(sweeps):
        sides.solve_side(by_user, F, of_users, rank, G, threads)
        sides.solve_side(by_item, G, of_items, rank, F, threads)
    return theta
