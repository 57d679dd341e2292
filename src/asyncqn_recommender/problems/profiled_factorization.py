"""Matrix factorization with the users eliminated: a sum over users in the item rows alone.

    V(F) = min_G U(F, G) = sum_m lambda_m |f_m|^2 / 2
           + sum_u min_g [ sum_{m in u} (y - f_m.g)^2 / 2 + lambda_u |g|^2 / 2 ]

Each user's row solves a K x K ridge problem exactly; the gradient is lambda_m f_m + sum_u (f_m.g_u - y) g_u
with the solved g_u: see `eliminated_users`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.errors import require
from asyncqn.parameters import Precision, checked
from asyncqn.types import Array, Rows
from asyncqn_recommender.kernels import als as sides
from asyncqn_recommender.kernels import profiled
from asyncqn_recommender.problems import matrix_factorization as joint
from asyncqn_recommender.problems.eliminated_users import EliminatedUsers
from asyncqn_recommender.problems.parameters import (
    Alpha,
    Columns,
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


class Prepared(NamedTuple):
    """Quantities of a theta that do not depend on the rows; the blocks of a pass share them."""

    source: Array
    rows: Array
    """The item rows, padded."""
    prior: float


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
    computed_on_demand = ("_prepared",)

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
        columns: Columns = None,
    ) -> None:
        triples = joint.check_ratings(users, items, values, n_users, n_items, "ratings")
        super().__init__(
            triples, n_users, n_items, rank, prior, alpha, dtype, seed, source, columns
        )
        self.user_ridges = (self.prior + self.alpha * self.user_counts).astype(
            self.dtype
        )
        self.metric_counts = self.item_counts
        self.user_weights = self.user_counts
        self._prepared: Prepared | None = None
        self.test = (
            None
            if test is None
            else joint.pack(joint.check_test(test, self.n_users, self.n_items))
        )

    def _prepare(self, theta: Array) -> Prepared:
        known = self._prepared
        # Comparing is far cheaper than padding all rows again.
        if known is None or not np.array_equal(known.source, theta):
            known = Prepared(
                theta.copy(),
                profiled.padded_rows(theta, self.rank),
                super()._prior(theta),
            )
            self._prepared = known
        return known

    def _prior(self, theta: Array) -> float:
        return self._prepare(theta).prior

    def _gradient(
        self,
        theta: Array,
        rows: Rows,
        scale: float,
        out: Array,
        second: Array | None = None,
    ) -> tuple[float, float, int]:
        """Return sums over the rows: squared errors, lambda_u |g_u|^2, and ratings, the weights n_u of g_u
        g_u'."""
        joint.check_vectors(self.dim, self.dtype, theta, out)
        rank = self.rank
        fixed = self._prepare(theta).rows
        sums = np.zeros_like(fixed)
        if second is None:
            second = np.zeros(rank * rank, self.dtype)
        valid, squares, penalty, ratings = profiled.solve_rows(
            *self.by_user,
            None,
            self.order,
            rows,
            fixed,
            self.user_ridges,
            self.dtype.type(scale),
            sums,
            second.reshape(rank, rank),
            profiled.workspace(rank, self.dtype),
            np.empty((0, 0), self.dtype),
        )
        self._check_rows(valid)
        np.multiply(self._weights, theta, out=out)
        # Padding is in front of each row.
        out += sums.reshape(self.n_items, -1)[:, -rank:].ravel()
        return squares, penalty, ratings

    def initial(self, rng: np.random.Generator) -> Array:
        """Return item rows near sqrt(|mean| / K) with noise 0.1 Z, scaled down in columns with more ridge."""
        rows = joint.starting_rows(rng, self.mean, self.rank, self.n_items).reshape(
            -1, self.rank
        )
        shares = 1.0 / np.sqrt(self.columns.astype(np.float64))
        # Rescaled, so that f.g of a constant row keeps its value.
        rows = rows * shares * np.sqrt(self.rank / np.square(shares).sum())
        start: Array = rows.ravel().astype(self.dtype)
        return start

    def _factors(self, theta: Array, threads: int) -> Array:
        joint.check_vectors(self.dim, self.dtype, theta)
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
        out = np.empty_like(theta)
        squares, _, _ = self._gradient(theta, np.arange(self.n_users), 1.0, out)
        n = len(self.by_user.values)
        norm = np.sqrt(np.square(out, dtype=np.float64).sum())
        found = {"rmse": float(np.sqrt(squares / n)), "grad_norm": float(norm)}
        if self.test is not None:
            found["test_rmse"] = self.test_rmse(theta)
        return found

    def test_rmse(self, theta: Array, threads: int = 1) -> float:
        """Return the RMSE on the test set, with the users solved."""
        assert self.test is not None
        F = theta.reshape(self.n_items, self.rank)
        squares = profiled.squared_error(
            self.test, F, self.user_factors(theta, threads)
        )
        return float(np.sqrt(squares / len(self.test)))


class AlsResult(NamedTuple):
    """`theta` after the last sweep; `values` has U before the first half-sweep and after each one."""

    theta: Array
    values: list[float]


def als(
    problem: joint.MatrixFactorization,
    theta: Array,
    *,
    sweeps: int = 10,
    threads: int = 1,
    track: bool = False,
) -> AlsResult:
    """Run alternating least squares on U from `theta`: users given items, then items given users, `sweeps`
    times.

    It is a reference for the objective and for speed.  `track` records U, at the cost of one pass each.
    """
    require(sweeps >= 0, f"sweeps must be at least 0, not {sweeps!r}.")
    require(threads >= 1, f"threads must be at least 1, not {threads!r}.")
    joint.check_vectors(problem.dim, problem.dtype, theta)
    users, items, values = (
        problem.ratings[name].copy() for name in ("user", "item", "value")
    )
    by_user = sides.grouped(users, items, values, problem.n_users)
    by_item = sides.grouped(items, users, values, problem.n_items)
    # F and G are views of it, which the sweeps fill in turn.
    theta = theta.copy()
    cut = problem.n_items * problem.rank
    rank = problem.rank
    F = theta[:cut]
    G = theta[cut:]
    item_ridges = problem.ridges[: problem.n_items]
    user_ridges = problem.ridges[problem.n_items :]
    history = [problem.value(theta)] if track else []
    for _ in range(sweeps):
        for side, fixed, ridges, out in (
            (by_user, F, user_ridges, G),
            (by_item, G, item_ridges, F),
        ):
            sides.solve_side(side, fixed, ridges, rank, out, threads)
            if track:
                history.append(problem.value(theta))
    return AlsResult(theta, history)
