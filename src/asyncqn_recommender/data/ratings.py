"""`Ratings`: a table of ratings, with dense indices and the ids that they stand for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn.parameters import Refused, array_like
from asyncqn_recommender.data.arrow import (
    arrow,
    encode_column,
    rating_column,
    time_column,
    usable_rows,
)
from asyncqn_recommender.data.columns import Columns, Names, choose
from asyncqn_recommender.data.duplicates import check_policy, repeated_rows, resolve
from asyncqn_recommender.data.ids import Ids, Index, encode, lookup
from asyncqn_recommender.data.splits import drawn, last_of_each_user, latest
from asyncqn_recommender.data.times import Times, plain_times


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
        columns = (("users", np.int32), ("items", np.int32), ("values", np.float32))
        for name, dtype in columns:
            array = getattr(self, name)
            require(
                # Exact types, because compiled loops are specialised for them; a conversion here would copy
                # memory maps.
                isinstance(array, np.ndarray)
                and array.dtype == dtype
                and array.shape == (len(self.users),),
                f"Ratings needs '{name}' as a flat array of {np.dtype(dtype)}, all three of one length: "
                "Ratings.from_arrays converts other types.",
            )
        if self.times is not None:
            require(
                self.times.dtype == np.float64 and self.times.shape == self.users.shape,
                "Ratings needs 'times' as float64, one per rating: Ratings.from_arrays converts other types.",
            )
        if self.titles is not None:
            require(
                len(self.titles) == len(self.item_ids),
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
            # float32 holds half stars exactly, and halves the memory of large sets.
            numbers = np.asarray(whole(values), dtype=np.float32)
        except Refused as refusal:
            raise BadInput(f"the ratings must be numbers, not {refusal}.") from None
        except (TypeError, ValueError) as error:
            raise BadInput("the ratings must be numbers.") from error
        require(
            numbers.shape == user_index.shape == item_index.shape,
            f"users, items and ratings differ in length: {len(user_index)}, {len(item_index)} and "
            f"shape {numbers.shape}.",
        )
        words = (
            None
            if titles is None
            else np.array([titles.get(i, "") for i in item_ids.tolist()], str)
        )
        stamps = None if times is None else plain_times(times, len(numbers))
        return checked(
            cls(user_index, item_index, numbers, user_ids, item_ids, words, stamps),
            duplicates,
        )

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
        labels = {
            str(label): label for label in getattr(table, "column_names", table.columns)
        }
        names = choose(
            [*labels], "The table", Columns(user, item, rating, time), clicks
        )
        needed = [labels[name] for name in names.present]
        try:
            columns = lib.table(
                table.select(needed) if hasattr(table, "select") else table[needed]
            )
        except (lib.ArrowException, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0][:200]
            raise BadInput(
                f"a column mixes types, or has a type that Arrow does not know ({reason})."
            ) from error
        usable = usable_rows(columns, names, time is not None)
        if not usable.all():
            row = int(np.argmin(usable))
            lacking = (
                "a user, an item or a finite rating"
                if time is None
                else "a user, item, rating or time"
            )
            raise BadInput(f"row {row} lacks {lacking}: fill it in or drop the row.")
        return checked(from_usable(columns, names), duplicates)

    @classmethod
    def from_server(
        cls,
        url: str,
        user: str | None = None,
        item: str | None = None,
        rating: str | None = None,
        time: str | None = None,
        *,
        duplicates: str = "error",
        clicks: bool = False,
    ) -> Ratings:
        """Read ratings from the data server at `flight://HOST:PORT/NAME`, which `asyncqn share` starts.

        The calling process reads all rows: a factorization needs the ratings of every user and item.
        """
        from asyncqn_recommender.data.served import read_served

        columns = Columns(user, item, rating, time)
        return read_served(url, columns, duplicates=duplicates, clicks=clicks)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Ratings({len(self):,} ratings of {self.n_users:,} users on {self.n_items:,} items)"

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
        times = None if self.times is None else self.times[rows]
        return replace(
            self,
            users=self.users[rows],
            items=self.items[rows],
            values=self.values[rows],
            times=times,
        )

    def split(self, test_fraction: float, seed: int) -> tuple[Ratings, Ratings]:
        """Draw round(test_fraction * len) ratings without replacement; return (train, test).

        Both keep the tables and the order of rows.  Equal seeds give equal splits.
        """
        test = drawn(self, test_fraction, seed)
        return self.take(~test), self.take(test)

    def split_by_time(
        self, test_fraction: float, *, per_user: bool = False
    ) -> tuple[Ratings, Ratings]:
        """Return (train, test); the test is the latest share of all ratings, or of each user's.

        Equal times are ordered by row.  Both keep the tables and the order of rows.
        """
        test = latest(self, test_fraction, per_user)
        return self.take(~test), self.take(test)

    def split_last(self, n: int = 1) -> tuple[Ratings, Ratings]:
        """Return (train, test); the test has the last n ratings of every user with more than n."""
        test = last_of_each_user(self, n)
        return self.take(~test), self.take(test)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of ratings, tables and titles, which identifies the data in a run's manifest.

        Times are excluded: no fit depends on them, and sets stored without times keep their digest.
        """
        total = hashlib.sha256()
        for array in (
            self.users,
            self.items,
            self.values,
            self.user_ids,
            self.item_ids,
            self.titles,
        ):
            if array is None:
                continue
            # Type and shape separate the columns: bytes moved from one to the next change the digest.
            total.update(f"{array.dtype.str}{array.shape}".encode())
            # An empty memoryview cannot be cast to bytes.
            total.update(
                np.ascontiguousarray(array).data.cast("B") if array.size else b""
            )
        return total.hexdigest()


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


def whole(values: Any) -> Any:
    """Return the values; raise `Refused` for complex numbers and masks, of which a part would be lost."""
    # Other objects, such as columns of pandas, convert themselves.
    if isinstance(values, (np.ndarray, list, tuple)):
        array_like(values)
    return values


def checked(ratings: Ratings, duplicates: str = "error") -> Ratings:
    """Return the ratings after checking that there are some, all finite, with distinct pairs."""
    check_policy(duplicates)
    require(len(ratings) > 0, "there are no ratings: give at least one.")
    finite = np.isfinite(ratings.values)
    if not finite.all():
        # `argmin` of booleans is the first False.
        row = int(np.argmin(finite))
        raise BadInput(
            f"row {row} has the rating {ratings.values[row]}, which is not a finite number: correct it or "
            "drop the row."
        )
    if duplicates != "error":
        return resolve(ratings, duplicates).ratings
    repeated = repeated_rows(ratings)
    if repeated.any():
        row = int(np.argmax(repeated))
        user = ratings.user_ids[ratings.users[row]]
        item = ratings.item_ids[ratings.items[row]]
        raise BadInput(
            f"row {row} rates item {item} by user {user} a second time: choose which one counts, for example "
            "with duplicates='last'."
        )
    return ratings
