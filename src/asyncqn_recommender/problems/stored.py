"""Factorizations of stored ratings: built from a job file, and rebuilt for a saved run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn.types import Array
from asyncqn_recommender.kernels.factorization import RATING


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
            f"{what}: {name} must be a vector of integers, not {ids.dtype} of shape "
            f"{ids.shape}.",
        )
        low, high = int(ids.min()), int(ids.max())
        require(
            low >= 0 and high < count,
            f"{what}: {name} must lie in 0..{count - 1}, but they span {low}..{high}.",
        )
        columns.append(ids.astype(np.int32, copy=False))
    ratings = np.asarray(values)
    require(
        ratings.dtype.kind in "fiu" and ratings.ndim == 1,
        f"{what}: values must be a vector of numbers, not {ratings.dtype} of shape "
        f"{ratings.shape}.",
    )
    sizes = [len(column) for column in (*columns, ratings)]
    require(
        len(set(sizes)) == 1,
        f"{what}: users, items and values must be equally long, but their lengths are "
        f"{', '.join(map(str, sizes))}.",
    )
    ratings = ratings.astype(np.float32, copy=False)
    # One pass without a mask: the sum is finite exactly if every rating is.
    if not np.isfinite(np.add.reduce(ratings, dtype=np.float64)):
        bad = np.flatnonzero(~np.isfinite(ratings))
        raise BadInput(
            f"{what}: values are NaN or infinite in {bad.size} rows, first in row "
            f"{bad[0]}: remove them."
        )
    return Triples(columns[0], columns[1], ratings)


def pack(triples: Triples) -> npt.NDArray[np.void]:
    """Return the ratings as records, so that one rating is one memory access."""
    packed = np.empty(len(triples.values), RATING)
    packed["user"], packed["item"], packed["value"] = triples
    return packed


def packed_test(test: Any, n_users: int, n_items: int) -> npt.NDArray[np.void] | None:
    """Return the test ratings, given as three arrays or as an object with these attributes."""
    # Records again, because a test is read rating by rating as well.
    if test is None:
        return None
    whole = hasattr(test, "users")
    users, items, values = (test.users, test.items, test.values) if whole else test
    return pack(check_ratings(users, items, values, n_users, n_items, "test ratings"))


def check_vectors(dim: int, dtype: np.dtype[Any], *vectors: Array) -> None:
    """Raise `BadInput` unless theta and out have the right shape, on which compiled loops rely."""
    for v in vectors:
        # The sentence is formatted only when needed: formatting costs as much as a thousand ratings.
        # The kernels have no bounds checks and are compiled for contiguous arrays.
        if v.shape != (dim,) or v.dtype != dtype or not v.flags.c_contiguous:
            raise BadInput(
                f"theta and out must be contiguous {dtype} vectors of length {dim}, not "
                f"{v.dtype} {v.shape}."
            )


class Stored:
    """The base of all factorizations; `from_stored` of a subclass takes the keys of a section [problem].

    Parameters
    ----------
    users : array-like of int
        User of each rating, from 0 to n_users - 1.
    items : array-like of int
        Item of each rating, from 0 to n_items - 1.
    values : array-like of float
        The ratings.
    n_users : int
        Number of users.
    n_items : int
        Number of items.
    rank : int
        K: number of factors of a user or an item.
    prior : float, default 1.0
        Constant part of the ridge: the ridge of a row is prior + alpha * (number of its ratings).
    alpha : float, default 0.0
        Part of the ridge that is proportional to the number of ratings of a row.
    dtype : dtype, default float64
        Type of theta, float64 or float32.
    test : three arrays, or an object with users, items and values, optional
        Held-out ratings for the metric `test_rmse`.
    source : JSON data, optional
        Where the ratings come from, for `reference`.
    """

    kind: ClassVar[str]
    """The name in `models.PROBLEMS`."""
    stored: ClassVar[tuple[str, ...]]
    """The arguments from which it can be rebuilt, besides `columns`."""

    def _describe(
        self,
        n_users: int,
        n_items: int,
        rank: int,
        prior: float,
        dtype: Any,
        seed: int | None,
        source: Any,
    ) -> None:
        """Set the parameters that all factorizations have."""
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.n_users = int(n_users)
        self.n_items = int(n_items)
        self.rank = int(rank)
        self.prior = float(prior)
        self.seed = seed
        self.source = source

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_users:,} users, {self.n_items:,} items, rank "
            f"{self.rank})"
        )

    def reference(self) -> dict[str, Any] | None:
        if self.source is None:
            return None
        known = {name: getattr(self, name) for name in self.stored}
        columns = getattr(self, "columns", None)
        if columns is not None and (columns != 1).any():
            known["columns"] = columns.tolist()
        return {"kind": self.kind, **known, "dtype": self.dtype.name}

    @classmethod
    def example(cls, dtype: str = "float64") -> Self:
        """Return a small problem for tests: half of the ratings that 40 users could give to 9 items, from 1
        to 5."""
        rng = np.random.Generator(np.random.Philox(key=[3, 0xE7A]))
        users, items = np.nonzero(rng.random((40, 9)) < 0.5)
        values = (1.0 + (users * items) % 4 + rng.random(users.size)).astype(np.float32)
        return cls(users, items, values, n_users=40, n_items=9, rank=2, dtype=dtype)  # type: ignore[call-arg]

    @classmethod
    def from_ratings(cls, ratings: Any, rank: int = 5, **options: Any) -> Self:
        """Make a problem from an object with users, items, values, n_users and n_items, such as `Ratings`."""
        options = {"n_users": ratings.n_users, "n_items": ratings.n_items, **options}
        return cls(ratings.users, ratings.items, ratings.values, rank=rank, **options)  # type: ignore[call-arg]

    @classmethod
    def from_source(cls, source: Any, arguments: Mapping[str, Any]) -> Self:
        """Make a problem from the name or path of a stored set of ratings, or from a mapping.

        The mapping has `ratings`, that name, and for a held-out part `test_fraction` and `seed` of
        `Ratings.split`.
        """
        # Imported here, because a run that only computes needs no readers.
        from asyncqn_recommender.data import load

        origin = {"ratings": source} if isinstance(source, str) else source
        name = origin.get("ratings") if isinstance(origin, Mapping) else None
        if not isinstance(name, str):
            raise BadInput(
                f"the run does not name its ratings ({source!r}): pass the problem itself."
            )
        ratings = load(name)
        if origin.get("test_fraction"):
            # The split is a function of fraction and seed, so that a saved run finds the same test ratings.
            split = float(origin["test_fraction"]), int(origin["seed"])
            ratings, test = ratings.split(*split)
            arguments = {**arguments, "test": test}
        return cls.from_ratings(ratings, **arguments, source=source)


class OfRatings(Stored):
    """A factorization of ratings, part of which may be held out."""

    stored = ("source", "rank", "prior", "alpha", "dtype", "seed")

    @classmethod
    def from_stored(
        cls,
        ratings: str = "",
        rank: int = 5,
        prior: float = 1.0,
        alpha: float = 0.0,
        dtype: str = "float64",
        seed: int = 0,
        test_fraction: float = 0.0,
        split_seed: int = 0,
    ) -> Self:
        """Make a problem from stored ratings, by name or path; every process maps them from disk itself."""
        source = {
            "ratings": ratings,
            "test_fraction": test_fraction,
            "seed": split_seed,
        }
        given = {
            "rank": rank,
            "prior": prior,
            "alpha": alpha,
            "dtype": dtype,
            "seed": seed,
        }
        return cls.from_source(source if test_fraction else ratings, given)


class OfClicks(Stored):
    """A factorization of clicks, whose strengths are stored as ratings."""

    stored = ("source", "rank", "prior", "confidence", "dtype", "seed")

    @classmethod
    def from_stored(
        cls,
        ratings: str = "",
        rank: int = 5,
        prior: float = 1.0,
        confidence: float = 1.0,
        dtype: str = "float64",
        seed: int = 0,
    ) -> Self:
        """Make a problem from stored clicks, by name or path."""
        given = {
            "rank": rank,
            "prior": prior,
            "confidence": confidence,
            "dtype": dtype,
            "seed": seed,
        }
        return cls.from_source(ratings, given)
