"""Ids of users and items, integers or texts, and their dense indices 0, 1, 2, ...

A table of ids is sorted, so the same ids give the same indices in any order of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require

Ids: TypeAlias = npt.NDArray[Any]
Index: TypeAlias = npt.NDArray[np.int32]

MAX_ID_LENGTH = 256
"""Longest id in characters; the table has a fixed width, so one very long id would cost memory for all."""

_NO_IDS = (Mapping, Set, list, tuple, complex, type)
"""Types that cannot be ids: they are refused as a mistake instead of being reported as unknown."""


def encode(ids: Any, what: str) -> tuple[Index, Ids]:
    """Return dense indices and the sorted table of distinct ids; `table[indices]` gives the ids back."""
    table, indices = np.unique(plain_ids(ids, what), return_inverse=True)
    return indices.astype(np.int32), table


def plain_ids(ids: Any, what: str) -> Ids:
    """Return the ids as a one-dimensional array of int64 or str, the two types of a table."""
    try:
        array = np.asarray(ids)
        if array.dtype.kind == "U" and not hasattr(ids, "dtype"):
            # NumPy would turn numbers among texts into text, and drop final zero bytes.
            array = np.array(ids, dtype=object)
    except ValueError as error:
        raise BadInput(
            f"the {what} ids must be a flat list of integers or texts."
        ) from error
    require(
        array.ndim == 1,
        f"the {what} ids must be one-dimensional, not of shape {array.shape}.",
    )
    kind = array.dtype.kind
    if kind == "i":
        return array.astype(np.int64, copy=False)
    if kind == "u":
        largest = int(array.max(initial=0))
        require(
            largest < 2**63,
            f"the {what} id {largest} is too large: give such ids as text.",
        )
        return array.astype(np.int64)
    if kind == "f":
        return _whole(array, what)
    if kind in "UTO":
        return _from_objects(array.tolist(), what)
    raise BadInput(
        f"the {what} ids have the type {array.dtype}: give integers or texts."
    )


def id_array(ids: Any) -> npt.NDArray[Any]:
    """Return ids for a lookup as an array of any shape; raise `BadInput` for objects that cannot be ids."""
    try:
        array = np.asarray(ids)
    except ValueError:
        raise BadInput(
            "ids must be a list of integers or texts, not a ragged list."
        ) from None
    if array.dtype.kind in "Oc":
        wrong = next(
            (x for x in array.ravel().tolist() if isinstance(x, _NO_IDS)), None
        )
        require(wrong is None, f"an id must be an integer or a text, not {wrong!r}.")
    return array


def lookup(table: Ids, ids: Any) -> npt.NDArray[np.int64]:
    """Return the index of every id in the sorted `table`, -1 if it is unknown, in the shape of `ids`.

    A text such as "42" finds the number 42 and vice versa, because a command line and a data frame often
    disagree about the type of the same id.
    """
    words = id_array(ids)
    possible = np.ones(words.shape, dtype=bool)
    if table.dtype.kind == "i":
        if words.dtype.kind not in "iu":
            # Object by object, which is slow but rare: arrays of integers do not come here.
            numbers = [whole_number(x) for x in words.ravel().tolist()]
            possible = np.array([x is not None for x in numbers], dtype=bool).reshape(
                words.shape
            )
            # Words that are no integers become 0 here, and -1 below by `possible`.
            words = np.array([x or 0 for x in numbers], dtype=np.int64).reshape(
                words.shape
            )
    elif words.dtype.kind != "U":
        words = np.array(
            [str(x) for x in words.ravel().tolist()], dtype=np.str_
        ).reshape(words.shape)
    if len(table) == 0:
        return np.full(words.shape, -1, dtype=np.int64)
    # An id beyond the last has no place; it is compared with the last, and does not match.
    place = np.minimum(np.searchsorted(table, words), len(table) - 1)
    return np.where(possible & (table[place] == words), place, -1)


def whole_number(text: Any) -> int | None:
    """Return the integer that `text` spells in decimal digits, or None if there is none of up to 18
    digits."""
    word = str(text).strip()
    # int() would also accept "1_000" and digits of other scripts.
    digits = word[1:] if word.startswith("-") else word
    return (
        int(word)
        if digits.isascii() and digits.isdigit() and len(digits) <= 18
        else None
    )


def check_text(table: list[str], what: str) -> None:
    """Raise `BadInput` for texts that a fixed-width table would alter, or that cannot be printed."""
    for word in table:
        if len(word) > MAX_ID_LENGTH:
            raise BadInput(
                f"the {what} id '{word[:20]}...' is longer than {MAX_ID_LENGTH} characters: shorten it."
            )
        if "\0" in word or (
            not word.isascii() and any("\ud800" <= c <= "\udfff" for c in word)
        ):
            raise BadInput(
                f"the {what} id {word[:20]!r} contains a null byte or an invalid character: remove it."
            )


def _whole(array: npt.NDArray[Any], what: str) -> Ids:
    # Beyond 2^53 a float no longer holds every integer, so that ids would be merged silently.
    good = np.isfinite(array) & (np.abs(array) < 2**53) & (np.trunc(array) == array)
    if not good.all():
        row = int(np.argmin(good))
        raise BadInput(
            f"row {row} has the {what} id {array[row]}: ids must be integers or texts."
        )
    return array.astype(np.int64)


def _from_objects(values: list[Any], what: str) -> Ids:
    for row, value in enumerate(values):
        # NaN is the only value that differs from itself.
        if value is None or value != value:
            raise BadInput(f"row {row} has no {what} id: fill it in or drop the row.")
    if all(isinstance(v, str) for v in values):
        check_text(list(set(values)), what)
        return np.array(values, dtype=np.str_)
    if all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values):
        # Python's integers have no limit, and NumPy's do.
        largest = max(values, key=abs)
        require(
            abs(largest) < 2**63,
            f"the {what} id {largest} is too large: give such ids as text.",
        )
        return np.array(values, dtype=np.int64)
    raise BadInput(
        f"the {what} ids mix types, or are neither integers nor texts: convert them to one type."
    )
