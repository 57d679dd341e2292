"""Factorizations of stored ratings: built from a job file, and rebuilt for a saved run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from asyncqn.errors import BadInput


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
    source: Any
    dtype: np.dtype[Any]
    n_users: int
    n_items: int
    rank: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_users:,} users, {self.n_items:,} items, rank {self.rank})"

    def reference(self) -> dict[str, Any] | None:
        if self.source is None:
            return None
        said = {
            "kind": self.kind,
            **{name: getattr(self, name) for name in self.stored},
        }
        # Stored only if they differ from 1, so that older versions can read the reference.
        columns = getattr(self, "columns", None)
        if columns is not None and (columns != 1).any():
            said["columns"] = columns.tolist()
        return {**said, "dtype": self.dtype.name}

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
        from asyncqn_recommender.data import (
            load,  # here, because a run that only computes needs no readers
        )

        origin = {"ratings": source} if isinstance(source, str) else source
        if not isinstance(origin, Mapping) or not isinstance(
            origin.get("ratings"), str
        ):
            raise BadInput(
                f"the run does not name its ratings ({source!r}): pass the problem itself."
            )
        # The split is a function of fraction and seed, so that a saved run finds the same test ratings.
        ratings = load(origin["ratings"])
        test = None
        if origin.get("test_fraction"):
            ratings, test = ratings.split(
                float(origin["test_fraction"]), int(origin["seed"])
            )
        return cls.from_ratings(ratings, **arguments, test=test, source=source)


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
