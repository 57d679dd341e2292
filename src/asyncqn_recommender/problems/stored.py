"""Factorizations of ratings in a file: what a job file says of one, and how a saved run makes it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from asyncqn.errors import BadInput


class Stored:
    """What all factorizations share; a subclass says what a section [problem] takes: `from_stored`."""

    kind: ClassVar[str]
    """Its name in `models.PROBLEMS`."""
    stored: ClassVar[tuple[str, ...]]
    """The arguments from which it can be made again, besides columns that differ."""
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
        said = {"kind": self.kind, **{name: getattr(self, name) for name in self.stored}}
        columns = getattr(self, "columns", None)
        if columns is not None and (columns != 1).any():
            said["columns"] = columns.tolist()
        return {**said, "dtype": self.dtype.name}

    @classmethod
    def example(cls, dtype: str = "float64") -> Self:
        """A small one, for tests: half of the ratings that 40 users could give to 9 items, from 1 to 5."""
        rng = np.random.Generator(np.random.Philox(key=[3, 0xE7A]))
        users, items = np.nonzero(rng.random((40, 9)) < 0.5)
        values = (1.0 + (users * items) % 4 + rng.random(users.size)).astype(np.float32)
        return cls(users, items, values, n_users=40, n_items=9, rank=2, dtype=dtype)  # type: ignore[call-arg]

    @classmethod
    def from_ratings(cls, ratings: Any, rank: int = 5, **options: Any) -> Self:
        """From an object with users, items, values, n_users and n_items, such as `Ratings`."""
        options = {"n_users": ratings.n_users, "n_items": ratings.n_items, **options}
        return cls(ratings.users, ratings.items, ratings.values, rank=rank, **options)  # type: ignore[call-arg]

    @classmethod
    def from_source(cls, source: Any, arguments: Mapping[str, Any]) -> Self:
        """By the name of a stored set of ratings or a path, or by a mapping.

        `ratings`: that name; `test_fraction` and `seed`: of `Ratings.split`, where a part is held out.
        """
        from asyncqn_recommender.data import load  # readers are not needed by those who only compute

        origin = {"ratings": source} if isinstance(source, str) else source
        if not isinstance(origin, Mapping) or not isinstance(origin.get("ratings"), str):
            raise BadInput(f"the run does not name its ratings ({source!r}): pass the problem.")
        ratings, test = load(origin["ratings"]), None
        if origin.get("test_fraction"):
            ratings, test = ratings.split(float(origin["test_fraction"]), int(origin["seed"]))
        return cls.from_ratings(ratings, **arguments, test=test, source=source)


class OfRatings(Stored):
    """A factorization of ratings, of which a part may be held out."""

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
        """Of stored ratings, by name or path: every process maps them from disk itself."""
        source = {"ratings": ratings, "test_fraction": test_fraction, "seed": split_seed}
        given = {"rank": rank, "prior": prior, "alpha": alpha, "dtype": dtype, "seed": seed}
        return cls.from_source(source if test_fraction else ratings, given)


class OfClicks(Stored):
    """A factorization of clicks: what is stored as ratings are their strengths."""

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
        """Of stored clicks, by name or path."""
        given = {"rank": rank, "prior": prior, "confidence": confidence, "dtype": dtype, "seed": seed}
        return cls.from_source(ratings, given)
