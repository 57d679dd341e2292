"""`Ratings`: a table of ratings, with dense indices and the ids that they stand for; `as_ratings` makes it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require, require_count
from asyncqn.models.sparse_layout import checked_csr
from asyncqn.parameters import Refused, array_like
from asyncqn_recommender.data.arrow import (
    Times,
    arrow,
    encode_column,
    plain_times,
    rating_column,
    time_column,
    usable_rows,
)
from asyncqn_recommender.data.columns import Names, RatingColumns, choose
from asyncqn_recommender.data.duplicates import check_policy, repeated_rows, resolve
from asyncqn_recommender.data.ids import Ids, Index, encode, lookup

MAX_TITLE_LENGTH = 1000
"""Longest title, in characters: the table has a fixed width, so one endless title could fill the memory."""


@dataclass(frozen=True, eq=False)
class Ratings:
    """A table of ratings: user `users[k]` gave item `items[k]` the rating `values[k]`.

    The arrays may be memory maps; do not write to them.

    Parameters
    ----------
    users : ndarray of int32
        Index into `user_ids`, one per rating.
    items : ndarray of int32
        Index into `item_ids`, one per rating.
    values : ndarray of float32
        The ratings.
    user_ids : ndarray
        Sorted ids of the users. Ids without any rating may be among them, because a split keeps the whole
        table.
    item_ids : ndarray
        Sorted ids of the items, likewise.
    titles : ndarray of str, optional
        Title of each item.
    times : ndarray of float64, optional
        Time of each rating: numbers unchanged, dates as seconds since 1970.

    Examples
    --------
    >>> from asyncqn_recommender import as_ratings
    >>> ratings = as_ratings(([1, 1, 2], [10, 20, 20], [5.0, 3.0, 4.0]))
    >>> ratings.user_ids.tolist(), ratings.values.tolist()
    ([1, 2], [5.0, 3.0, 4.0])
    """

    users: Index
    items: Index
    values: npt.NDArray[np.float32]
    user_ids: Ids
    item_ids: Ids
    titles: npt.NDArray[np.str_] | None = None
    times: Times | None = None

    def __post_init__(self) -> None:
        # Exact types, because compiled loops are specialised for them; a conversion here would copy memory
        # maps.
        types: dict[str, Any] = {
            "users": np.int32,
            "items": np.int32,
            "values": np.float32,
        }
        if self.times is not None:
            types["times"] = np.float64
        for name, dtype in types.items():
            array = getattr(self, name)
            require(
                isinstance(array, np.ndarray)
                and array.dtype == dtype
                and array.shape == (len(self.users),),
                f"Ratings needs '{name}' as a flat array of {np.dtype(dtype)}, one number "
                "per rating: Ratings.from_arrays converts other types.",
            )
        require(
            self.titles is None or len(self.titles) == len(self.item_ids),
            "Ratings needs one title per item.",
        )

    @classmethod
    def from_arrays(
        cls,
        users: Any,
        items: Any,
        values: Any,
        times: Any = None,
        *,
        titles: Mapping[Any, str] | None = None,
        duplicates: str = "error",
    ) -> Ratings:
        """Make ratings from arrays or lists of one length; ids are integers or texts.

        `times` are numbers or dates; `titles` maps item ids to titles.  `duplicates` resolves a repeated
        (user, item) pair: "error" raises `BadInput` with its row, and "last", "first", "mean" and "sum" keep
        one (see `data.duplicates`).  A rating that is not finite always raises `BadInput`.
        """
        user_index, user_ids = encode(users, "user")
        item_index, item_ids = encode(items, "item")
        try:
            # Complex numbers and masks, of which a part would be lost, are refused.
            array = array_like(np.asanyarray(values))
            # float32 holds half stars exactly, and halves the memory of large sets.
            numbers = np.asarray(array, dtype=np.float32)
        except (Refused, TypeError, ValueError) as error:
            raise BadInput("the ratings must be numbers.") from error
        require(
            numbers.shape == user_index.shape == item_index.shape,
            f"users, items and ratings differ in length: {len(user_index)}, "
            f"{len(item_index)} and shape {numbers.shape}.",
        )
        words = None
        if titles is not None:
            words = np.array([titles.get(i, "") for i in item_ids.tolist()], str)
        stamps = None if times is None else plain_times(times, len(numbers))
        whole = cls(user_index, item_index, numbers, user_ids, item_ids, words, stamps)
        return checked(whole, duplicates)

    @classmethod
    def from_table(
        cls,
        table: Any,
        user: str | None = None,
        item: str | None = None,
        rating: str | None = None,
        time: str | None = None,
        *,
        duplicates: str = "error",
        clicks: bool = False,
    ) -> Ratings:
        """Make ratings from a table of pandas, polars or pyarrow; columns with common names such as userId
        are recognised."""
        lib = arrow()
        # pyarrow calls its names `column_names`; the labels of pandas need not be texts.
        labels = getattr(table, "column_names", table.columns)
        by_name = {str(label): label for label in labels}
        names = choose(
            [*by_name], "The table", RatingColumns(user, item, rating, time), clicks
        )
        wanted = [by_name[name] for name in names.present]
        part = table.select(wanted) if hasattr(table, "select") else table[wanted]
        try:
            columns = lib.table(part)
        except (lib.ArrowException, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0][:200]
            raise BadInput(
                "a column mixes types, or has a type that Arrow does not know "
                f"({reason})."
            ) from error
        usable = usable_rows(columns, names, time is not None)
        require(
            bool(usable.all()),
            f"row {np.argmin(usable) if len(usable) else 0} lacks a user, an item, a "
            "finite rating or a time that was asked for: fill it in or drop the row.",
        )
        return checked(from_usable(columns, names), duplicates)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return (
            f"Ratings({len(self):,} ratings of {self.n_users:,} users on "
            f"{self.n_items:,} items)"
        )

    @property
    def n_users(self) -> int:
        """Number of users in the table, with or without ratings."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items in the table, with or without ratings."""
        return len(self.item_ids)

    def user_index(self, ids: Any) -> npt.NDArray[np.int64]:
        """Return dense indices of user ids, -1 for unknown ones."""
        return lookup(self.user_ids, ids)

    def item_index(self, ids: Any) -> npt.NDArray[np.int64]:
        """Return dense indices of item ids, -1 for unknown ones."""
        return lookup(self.item_ids, ids)

    def take(self, rows: Any) -> Ratings:
        """Return the ratings at `rows` (indices or a mask), with the same tables of ids."""
        return replace(
            self,
            users=self.users[rows],
            items=self.items[rows],
            values=self.values[rows],
            times=None if self.times is None else self.times[rows],
        )

    def split(self, test_fraction: float, seed: int) -> tuple[Ratings, Ratings]:
        """Draw round(test_fraction * len) ratings without replacement; return (train, test).

        Both keep the tables and the order of rows.  Equal seeds give equal splits.
        """
        require(seed >= 0, f"the seed must not be negative, but is {seed}.")
        count = round(_share(test_fraction) * len(self))
        # `shuffle=False`: a mask has no order, and shuffling would cost a pass.
        rng = np.random.default_rng(seed)
        rows = rng.choice(len(self), size=count, replace=False, shuffle=False)
        return self._divided(rows)

    def split_by_time(
        self, test_fraction: float, *, per_user: bool = False
    ) -> tuple[Ratings, Ratings]:
        """Return (train, test); the test is the latest share of all ratings, or of each user's.

        Equal times are ordered by row.  Both keep the tables and the order of rows.
        """
        share = _share(test_fraction)
        if per_user:
            # Users with few ratings may have none in the test.
            return self._divided(self._last_of_each(np.rint(share * self._counts)))
        order = np.argsort(self._known_times, kind="stable")
        return self._divided(order[len(self) - round(share * len(self)) :])

    def split_last(self, n: int = 1) -> tuple[Ratings, Ratings]:
        """Return (train, test); the test has the last n ratings of every user with more than n."""
        require_count("n", n)
        return self._divided(self._last_of_each(np.where(self._counts > n, n, 0)))

    @property
    def _counts(self) -> npt.NDArray[np.int64]:
        """The number of ratings of each user."""
        return np.bincount(self.users, minlength=self.n_users)

    @property
    def _known_times(self) -> Times:
        if self.times is None:
            raise BadInput(
                "these ratings have no times: name their column with as_ratings(..., "
                "time=...) or --time; a set stored without times must be imported again "
                "(asyncqn recommender data NAME --from FILE)."
            )
        return self.times

    def _last_of_each(self, shares: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the rows of the last shares[u] ratings of every user u."""
        # A stable sort keeps the order of equal times.
        order = np.lexsort((self._known_times, self.users))
        # In sorted order user u occupies the places up to ends[u].
        ends = np.cumsum(self._counts)
        users = self.users[order]
        rows: npt.NDArray[np.int64] = order[
            np.arange(len(order)) >= (ends - shares)[users]
        ]
        return rows

    def _divided(self, test_rows: npt.NDArray[np.int64]) -> tuple[Ratings, Ratings]:
        # A mask keeps the order of rows in both parts.
        test = np.zeros(len(self), dtype=bool)
        test[test_rows] = True
        require(
            bool(test.any() and not test.all()),
            f"this leaves one side of {len(test)} ratings empty: choose another share.",
        )
        return self.take(~test), self.take(test)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of ratings, tables and titles, which identifies the data in a run's manifest.

        Times are excluded: no fit depends on them, and sets stored without times keep their digest.
        """
        total = hashlib.sha256()
        names = ("users", "items", "values", "user_ids", "item_ids", "titles")
        for array in (getattr(self, name) for name in names):
            if array is not None:
                # Type and shape separate the columns: bytes moved from one to the next change the digest.
                total.update(f"{array.dtype.str}{array.shape}".encode())
                total.update(np.ascontiguousarray(array).view(np.uint8).data)
        return total.hexdigest()


def _share(test_fraction: float) -> float:
    require(
        0.0 < test_fraction < 1.0,
        f"test_fraction must lie between 0 and 1, not {test_fraction}.",
    )
    return test_fraction


def from_usable(table: Any, names: Names, spelled: bool = False) -> Ratings:
    """Make ratings from an Arrow table in which every row has a user, an item and a finite rating.

    With `spelled`, ids that are texts become integers if all of them are integers.
    """
    user_index, user_ids = encode_column(table[names.user], "user", spelled)
    item_index, item_ids = encode_column(table[names.item], "item", spelled)
    values = rating_column(table, names.rating).to_numpy()
    times = None if names.time is None else time_column(table[names.time])
    # A column that was recognised by its name may hold something else.
    if times is not None and np.isnan(times).any():
        times = None
    return Ratings(user_index, item_index, values, user_ids, item_ids, None, times)


def with_titles(ratings: Ratings, titles: dict[Any, str]) -> Ratings:
    """Return the ratings with titles by id; an item with a title and no rating is added to the table of items.

    The shapes are then the published ones: 3,883 movies in 1M, of which 3,706 are rated.
    """
    # `union1d` sorts, so that the table of ids stays sorted.
    new_ids = np.array(list(titles), ratings.item_ids.dtype)
    item_ids = np.union1d(ratings.item_ids, new_ids)
    place = np.searchsorted(item_ids, ratings.item_ids).astype(np.int32)
    # NumPy drops trailing null characters, so none are kept at all.
    words = [titles.get(i, "").replace("\0", "").strip() for i in item_ids.tolist()]
    short = np.array([word[:MAX_TITLE_LENGTH] for word in words], np.str_)
    return replace(ratings, items=place[ratings.items], item_ids=item_ids, titles=short)


def checked(ratings: Ratings, duplicates: str = "error") -> Ratings:
    """Return the ratings after checking that there are some, all finite, with distinct pairs."""
    check_policy(duplicates)
    require(len(ratings) > 0, "there are no ratings: give at least one.")
    finite = np.isfinite(ratings.values)
    row = int(np.argmin(finite))
    require(
        bool(finite.all()),
        f"row {row} has the rating {ratings.values[row]}, which is not a finite number: "
        "correct it or drop the row.",
    )
    if duplicates != "error":
        return resolve(ratings, duplicates)[0]
    repeated = repeated_rows(ratings)
    row = int(np.argmax(repeated))
    user = ratings.user_ids[ratings.users[row]]
    item = ratings.item_ids[ratings.items[row]]
    require(
        not repeated.any(),
        f"row {row} rates item {item} by user {user} a second time: choose which one "
        "counts, for example with duplicates='last'.",
    )
    return ratings


def as_ratings(
    obj: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    duplicates: str | None = None,
    clicks: bool = False,
) -> Ratings:
    """Make `Ratings` from a name or path, a table, a sparse matrix, or (users, items, values).

    Parameters
    ----------
    obj : Ratings, str, path, table, sparse matrix or tuple of arrays
        The ratings. A table is one of pandas, polars or pyarrow. A tuple may have the times as its fourth
        column.
    user : str, optional
        Name of the column with the user; by default it is recognised.
    item : str, optional
        Name of the column with the item; by default it is recognised.
    rating : str, optional
        Name of the column with the rating; by default it is recognised.
    time : str, optional
        Name of the column with the time; by default it is recognised.
    duplicates : "error", "last", "first", "mean" or "sum", optional
        How several ratings of one item by one user are resolved; by default "error", and "sum" for clicks.
    clicks : bool, default False
        Whether rows are clicks: a table may lack ratings and a tuple may be (users, items); each row then
        counts 1.

    Returns
    -------
    Ratings
        The ratings, with sorted tables of ids.

    Examples
    --------
    >>> from asyncqn_recommender import as_ratings
    >>> as_ratings(([1, 1, 2], [10, 20, 20], [5.0, 3.0, 4.0]))
    Ratings(3 ratings of 2 users on 2 items)
    """
    names = {"user": user, "item": item, "rating": rating, "time": time}
    policy = duplicates or ("sum" if clicks else "error")
    check_policy(policy)
    if isinstance(obj, str | os.PathLike):
        from asyncqn_recommender.data.cache import load

        return load(obj, **names, duplicates=duplicates, clicks=clicks)
    # Frames of pandas and polars and Arrow's tables have it; matrices and tuples do not.
    if hasattr(obj, "columns"):
        return Ratings.from_table(obj, **names, duplicates=policy, clicks=clicks)
    require(
        not any(names.values()),
        f"{type(obj).__name__} has no named columns: leave user= and so on out.",
    )
    if isinstance(obj, Ratings):
        return obj
    if hasattr(obj, "tocsr"):
        return _from_sparse(obj)
    if clicks and isinstance(obj, tuple | list) and len(obj) == 2:
        obj = (*obj, [1.0] * len(obj[0]))
    if isinstance(obj, tuple | list) and len(obj) in (3, 4):
        return Ratings.from_arrays(*obj, duplicates=policy)
    raise BadInput(
        f"Ratings cannot be made from {type(obj).__name__}: give a data frame, an Arrow "
        "table, a sparse matrix, (users, items, ratings), or the name or path of a set."
    )


def _from_sparse(matrix: Any) -> Ratings:
    """Make ratings from a sparse matrix, users x items; ids are row and column numbers.

    Stored entries are ratings, including stored zeros; entries stored twice are added, as SciPy defines it.
    """
    entries = checked_csr(matrix, "the sparse matrix").tocoo()
    require(
        entries.dtype.kind in "fiub",
        f"the sparse matrix holds {entries.dtype}, not real numbers: convert its entries.",
    )
    rows = entries.row.astype(np.int32)
    columns = entries.col.astype(np.int32)
    ids = (np.arange(size) for size in entries.shape)
    return checked(Ratings(rows, columns, entries.data.astype(np.float32), *ids), "sum")
