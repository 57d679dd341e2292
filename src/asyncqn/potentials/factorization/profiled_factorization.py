"""Matrix factorization with the users eliminated: what remains is a sum over users in the item rows alone.

    V(F) = min_G U(F, G) = sum_m lambda_m |f_m|^2 / 2
           + sum_u min_g [ sum_{m in u} (y - f_m.g)^2 / 2 + lambda_u |g|^2 / 2 ]

Each user's row solves a K x K ridge problem exactly; by the envelope theorem the gradient is
lambda_m f_m + sum_u (f_m.g_u - y) g_u with the solved g_u.  A data point is a user, and theta has
K n_items numbers instead of K (n_items + n_users).  Minimisers of V and of U correspond.

Our own choice: data points are users in an order shuffled by `seed`, so that consecutive ones are a
random subset.  The ratings themselves stay where they are; to read them at the speed of memory, large
sets are shuffled in runs of a few neighbours.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from asyncqn.core.streams import check_seed
from asyncqn.errors import require
from asyncqn.kernels import als as sides
from asyncqn.kernels import grouping, profiled
from asyncqn.kernels.vectors import total
from asyncqn.potentials.factorization import matrix_factorization as joint
from asyncqn.potentials.factorization.item_metric import InverseMetric, Metric, metric_of
from asyncqn.types import Array, Rows

P = TypeVar("P", bound="ProfiledFactorization")


class ProfiledFactorization:
    """The potential V of the item rows; arguments as for `MatrixFactorization`.

    columns: factors on the ridge of the items, one for each of the K columns.  As f.g does not change where
    a column of F is divided by what that of G is multiplied with, this is also a ridge of the users: column
    k has the ridge sqrt(columns[k]) times that of the others on both sides.  None: all 1.

    Row i of `grad` is user `order[i]`.  A user without ratings is a data point whose term is zero.
    Columns that are sorted by user, int32 and float32 are not copied: leave them as they are.

    >>> import asyncqn as aq
    >>> users, items, ratings = [0, 0, 1], [0, 1, 1], [5.0, 3.0, 4.0]
    >>> problem = aq.ProfiledFactorization(users, items, ratings, n_users=2, n_items=2, rank=1)
    >>> problem.dim, problem.n_data
    (2, 2)
    """

    def __init__(
        self,
        users: npt.ArrayLike,
        items: npt.ArrayLike,
        values: npt.ArrayLike,
        *,
        n_users: int,
        n_items: int,
        rank: int,
        prior: float = 1.0,
        alpha: float = 0.0,
        dtype: npt.DTypeLike = np.float64,
        test: Any = None,
        seed: int | None = 0,
        source: Any = None,
        columns: npt.ArrayLike | None = None,
    ) -> None:
        self.dtype = joint.check_model(rank, prior, alpha, dtype)
        self.columns = _check_columns(columns, int(rank)).astype(self.dtype)
        triples = joint.check_ratings(users, items, values, n_users, n_items, "ratings")
        self.n_users, self.n_items, self.rank = int(n_users), int(n_items), int(rank)
        self.prior, self.alpha, self.seed, self.source = float(prior), float(alpha), seed, source
        self.mean = total(triples.values) / len(triples.values)
        self.order = _order(self.n_users, seed)
        self.by_user = sides.grouped(triples.users, triples.items, triples.values, self.n_users)
        item_starts = np.zeros(self.n_items + 1, np.int64)
        grouping.count(triples.items, item_starts)
        self.user_counts = np.diff(self.by_user.start)
        self.item_counts = np.diff(item_starts).astype(self.dtype)
        self.user_ridges = (self.prior + self.alpha * self.user_counts).astype(self.dtype)
        self.item_ridges = (self.prior + self.alpha * self.item_counts).astype(self.dtype)
        self.test = None if test is None else joint.pack(joint.check_test(test, self.n_users, self.n_items))
        self._weights = np.multiply.outer(self.item_ridges, self.columns).ravel()

    @classmethod
    def from_ratings(cls: type[P], ratings: Any, rank: int = 5, **options: Any) -> P:
        """From an object with users, items, values, n_users and n_items, such as `asyncqn.data.Ratings`."""
        options = {"n_users": ratings.n_users, "n_items": ratings.n_items, **options}
        return cls(ratings.users, ratings.items, ratings.values, rank=rank, **options)

    @classmethod
    def example(cls, dtype: str = "float64") -> ProfiledFactorization:
        """A small one, for tests."""
        return cls(*joint.example_ratings(), n_users=40, n_items=9, rank=2, dtype=dtype)

    @property
    def dim(self) -> int:
        return self.rank * self.n_items

    @property
    def n_data(self) -> int:
        return self.n_users

    def _gradient(
        self, theta: Array, rows: Rows, scale: float, out: Array, second: Array | None = None
    ) -> tuple[float, float, int]:
        """Write the gradient into `out`; sums over the rows: squared errors, lambda_u |g_u|^2, ratings.

        `second` gets sum_u n_u g_u g_u' of the rows added to it.
        """
        joint.check_vectors(self.dim, self.dtype, theta, out)
        rank = self.rank
        fixed = profiled.padded_rows(theta, rank)
        sums = np.zeros_like(fixed)
        if second is None:
            second = np.zeros(rank * rank, self.dtype)
        valid, squares, penalty, ratings = profiled.solve_rows(
            *self.by_user, self.order, rows, fixed, self.user_ridges, self.dtype.type(scale), sums,
            second.reshape(rank, rank), profiled.workspace(rank, self.dtype), np.empty((0, 0), self.dtype),
        )  # fmt: skip
        require(valid, f"rows must lie in 0..{self.n_data - 1}: some do not.")
        profiled.finish(theta, self.item_ridges, self.columns, sums, out)
        return squares, penalty, ratings

    def value(self, theta: Array) -> float:
        return self.value_rows(theta, np.arange(self.n_users))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """The estimate of V(theta) from the users `rows`, the items' prior counted once."""
        require(len(rows) > 0, "a value needs at least one row.")
        squares, penalty, _ = self._gradient(theta, rows, 0.0, np.empty_like(theta))
        prior = profiled.weighted_squares(theta, self._weights)
        return 0.5 * (self.n_data / len(rows) * (squares + penalty) + prior)

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        require(len(rows) > 0, "a gradient needs at least one row.")
        self._gradient(theta, rows, self.n_data / len(rows), out)

    def initial(self, rng: np.random.Generator) -> Array:
        """Item rows near sqrt(|mean| / K), every number with noise 0.1 Z; less in columns with more ridge."""
        rows = joint.starting_rows(rng, self.mean, self.rank, self.n_items).reshape(-1, self.rank)
        shares = 1.0 / np.sqrt(self.columns.astype(np.float64))
        # f.g of a constant row stays what it was: the sum of its squares does.
        rows = rows * shares * np.sqrt(self.rank / np.square(shares).sum())
        start: Array = rows.ravel().astype(self.dtype)
        return start

    def _factors(self, theta: Array, threads: int) -> Array:
        """The solved user rows by user index, flat."""
        joint.check_vectors(self.dim, self.dtype, theta)
        rows = np.empty(self.n_users * self.rank, self.dtype)
        sides.solve_side(self.by_user, theta, self.user_ridges, self.rank, rows, threads)
        return rows

    def user_factors(self, theta: Array, threads: int = 1) -> Array:
        """G = argmin U(F, .), n_users x K, by user index."""
        return self._factors(theta, threads).reshape(self.n_users, self.rank)

    def joint(self, theta: Array, threads: int = 1) -> Array:
        """The theta of `MatrixFactorization` with the same value: F, then the solved G."""
        return np.concatenate([theta, self.user_factors(theta, threads).ravel()])

    def metrics(self, theta: Array) -> dict[str, float]:
        """`rmse` on the ratings, `grad_norm` of the gradient of V, `test_rmse` where a test set is given."""
        out = np.empty_like(theta)
        squares, _, _ = self._gradient(theta, np.arange(self.n_users), 1.0, out)
        n = len(self.by_user.values)
        norm = np.sqrt(np.square(out, dtype=np.float64).sum())
        found = {"rmse": float(np.sqrt(squares / n)), "grad_norm": float(norm)}
        if self.test is not None:
            found["test_rmse"] = self.test_rmse(theta)
        return found

    def test_rmse(self, theta: Array, threads: int = 1) -> float:
        """On the test set, with the users solved."""
        assert self.test is not None
        F = theta.reshape(self.n_items, self.rank)
        squares = profiled.squared_error(self.test, F, self.user_factors(theta, threads))
        return float(np.sqrt(squares / len(self.test)))

    def metric(self, theta: Array, threads: int = 1) -> Metric:
        """The curvature shared by all items, from the solved rows of all users."""
        G = self._factors(theta, threads).reshape(self.n_users, self.rank).astype(np.float64)
        # einsum without optimisation stays clear of BLAS, whose bits change with its threads.
        sums = np.einsum("uk,ul->kl", G * self.user_counts[:, None], G)
        return metric_of(np.append(sums, self.user_counts.sum()), self.item_counts, self.columns)

    def inverse_metric(self, theta: Array, step: float, batch: int | None = None) -> InverseMetric:
        """H0 for steps of size `step` on gradients of `batch` users; None: all of them.

        delta = step * (n_data / batch) * tr C damps rows with few ratings, where a subsample's
        gradient is mostly noise; 0 for exact gradients.
        """
        return self._damped(self.metric(theta), step, batch)

    def _damped(self, metric: Metric, step: float, batch: int | None) -> InverseMetric:
        delta = 0.0 if batch is None else step * self.n_data / batch * float(metric.Lambda.sum())
        return InverseMetric(metric, self.item_ridges + self.dtype.type(delta))

    @property
    def curvature_size(self) -> int:
        """The length of a summary of the curvature: K x K sums and the number of ratings."""
        return self.rank * self.rank + 1

    def grad_with_curvature(self, theta: Array, rows: Rows, out: Array, curvature: Array) -> float:
        """`grad` and, for nothing more, estimates from the same rows: of V (returned), and of the curvature.

        `curvature` becomes (n_data / len(rows)) times the sum over the rows of n_u g_u g_u' and n_u.
        """
        require(len(rows) > 0, "a gradient needs at least one row.")
        scale = self.n_data / len(rows)
        curvature[...] = 0.0
        squares, penalty, curvature[-1] = self._gradient(theta, rows, scale, out, curvature[:-1])
        curvature *= curvature.dtype.type(scale)
        prior = profiled.weighted_squares(theta, self._weights)
        return 0.5 * (scale * (squares + penalty) + prior)

    def inverse_metric_from(
        self, curvature: Array, step: float = 0.0, batch: int | None = None
    ) -> InverseMetric:
        """`inverse_metric` from a summary that `grad_with_curvature` made, or a mean of such."""
        return self._damped(metric_of(curvature, self.item_counts, self.columns), step, batch)

    def curvature_diagonal(self, theta: Array) -> Array:
        """lambda_m + n_m C_kk: the diagonal in the shared metric, not that of the Hessian itself."""
        metric = self.metric(theta)
        shared = (np.square(metric.Q) * metric.Lambda).sum(axis=1) * np.square(self.columns)
        diagonal: Array = self._weights + np.multiply.outer(self.item_counts, shared).ravel()
        return diagonal

    def reference(self) -> dict[str, Any] | None:
        if self.source is None:
            return None
        return {
            "kind": "profiled-factorization", "source": self.source, "rank": self.rank, "prior": self.prior,
            "alpha": self.alpha, "dtype": self.dtype.name, "seed": self.seed,
            **({} if (self.columns == 1).all() else {"columns": self.columns.tolist()}),
        }  # fmt: skip


def _check_columns(columns: npt.ArrayLike | None, rank: int) -> npt.NDArray[np.float64]:
    found = np.ones(rank) if columns is None else np.asarray(columns, np.float64)
    require(
        found.shape == (rank,) and bool((found > 0.0).all() and np.isfinite(found).all()),
        f"columns must be {rank} positive numbers.",
    )
    return found


def _order(n_users: int, seed: int | None) -> npt.NDArray[np.int64]:
    """All users, in runs of up to eight neighbours and at least 512 runs, shuffled by `seed`."""
    if seed is None:
        return np.arange(n_users)
    run = min(max(n_users // 512, 1), 8)
    runs = np.random.default_rng(check_seed(seed)).permutation(-(-n_users // run))
    order = (runs[:, None] * run + np.arange(run)).ravel()
    return order[order < n_users]


class AlsResult(NamedTuple):
    """`theta` after the last sweep; `values`: U before the first half-sweep and after every half-sweep."""

    theta: Array
    values: list[float]


def als(
    potential: joint.MatrixFactorization,
    theta: Array,
    *,
    sweeps: int = 10,
    threads: int = 1,
    track: bool = False,
) -> AlsResult:
    """Alternating least squares on U from `theta`: users given items, then items given users, `sweeps` times.

    A reference for the objective and for speed.  `track` records U, at the cost of one pass each.
    """
    require(sweeps >= 0, f"sweeps must be at least 0, not {sweeps!r}.")
    require(threads >= 1, f"threads must be at least 1, not {threads!r}.")
    joint.check_vectors(potential.dim, potential.dtype, theta)
    users, items, values = (potential.ratings[name].copy() for name in ("user", "item", "value"))
    by_user = sides.grouped(users, items, values, potential.n_users)
    by_item = sides.grouped(items, users, values, potential.n_items)
    theta = theta.copy()
    cut, rank = potential.n_items * potential.rank, potential.rank
    F, G = theta[:cut], theta[cut:]
    item_ridges, user_ridges = potential.ridges[: potential.n_items], potential.ridges[potential.n_items :]
    history = [potential.value(theta)] if track else []
    for _ in range(sweeps):
        for side, fixed, ridges, out in ((by_user, F, user_ridges, G), (by_item, G, item_ridges, F)):
            sides.solve_side(side, fixed, ridges, rank, out, threads)
            if track:
                history.append(potential.value(theta))
    return AlsResult(theta, history)
