"""Ids of users and items, whole numbers or text, and their dense indices 0, 1, 2, ...

A table of ids is sorted, so that the same ids give the same indices whatever the order of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require

Ids: TypeAlias = npt.NDArray[Any]
Index: TypeAlias = npt.NDArray[np.int32]

LONGEST_ID = 256
"""Characters in an id; the table has fixed width, so one giant id would cost memory for all."""

_DENSE_FACTOR = 8
_NO_IDS = (Mapping, Set, list, tuple, complex, type)
"""Types that can be no id: asked for by mistake, they are refused and not called unknown."""


def encode(ids: Any, what: str) -> tuple[Index, Ids]:
    """Dense indices and the sorted table of distinct ids: `table[indices]` gives the ids back."""
    return _encode_plain(plain_ids(ids, what), what)


def plain_ids(ids: Any, what: str) -> Ids:
    """The ids as a one-dimensional array of int64 or of str, the two kinds a table may have."""
    try:
        array = np.asarray(ids)
        if array.dtype.kind == "U" and not hasattr(ids, "dtype"):
            # NumPy would turn numbers among texts into text, and drop final zero bytes.
            array = np.array(ids, dtype=object)
    except ValueError as error:
        raise BadInput(f"the {what} ids must be a flat list of whole numbers or texts.") from error
    require(array.ndim == 1, f"the {what} ids must be one-dimensional, not of shape {array.shape}.")
    kind = array.dtype.kind
    if kind == "i":
        return array.astype(np.int64, copy=False)
    if kind == "u":
        largest = int(array.max(initial=0))
        require(largest < 2**63, f"the {what} id {largest} is too large: give such ids as text.")
        return array.astype(np.int64)
    if kind == "f":
        return _whole(array, what)
    if kind in "UTO":
        return _from_objects(array.tolist(), what)
    raise BadInput(f"the {what} ids are of type {array.dtype}: give whole numbers or texts.")


def id_array(ids: Any) -> npt.NDArray[Any]:
    """Return ids to be looked up as an array of any shape; `BadInput` for what can be no id."""
    try:
        asked = np.asarray(ids)
    except ValueError:
        raise BadInput("ids must be a list of whole numbers or texts, not a ragged list.") from None
    if asked.dtype.kind in "Oc":
        wrong = next((x for x in asked.ravel().tolist() if isinstance(x, _NO_IDS)), None)
        require(wrong is None, f"an id must be a whole number or a text, not {wrong!r}.")
    return asked


def lookup(table: Ids, ids: Any) -> npt.NDArray[np.int64]:
    """The index of every id in the sorted `table`, -1 where it is unknown; keeps the shape of `ids`.

    A text such as "42" finds the number 42 and the other way round, because a command line and a
    data frame often disagree about the type of the same id.
    """
    asked = id_array(ids)
    known = np.ones(asked.shape, dtype=bool)
    if table.dtype.kind == "i":
        if asked.dtype.kind not in "iu":
            numbers = [whole_number(x) for x in asked.ravel().tolist()]
            known = np.array([x is not None for x in numbers], dtype=bool).reshape(asked.shape)
            asked = np.array([x or 0 for x in numbers], dtype=np.int64).reshape(asked.shape)
    elif asked.dtype.kind != "U":
        asked = np.array([str(x) for x in asked.ravel().tolist()], dtype=np.str_).reshape(asked.shape)
    if len(table) == 0:
        return np.full(asked.shape, -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(table, asked), len(table) - 1)
    return np.where(known & (table[place] == asked), place, -1)


def whole_number(text: Any) -> int | None:
    """The integer that `text` spells in plain decimal digits, if it fits in 64 bits with room to spare."""
    word = str(text).strip()
    digits = word[1:] if word.startswith("-") else word
    return int(word) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def settle(indices: Index, table: Ids) -> tuple[Index, Ids]:
    """Turn a table of texts that all spell whole numbers into numbers, merging "7" and "07"."""
    numbers = [whole_number(x) for x in table.tolist()]
    if any(x is None for x in numbers):
        return indices, table
    place, merged = _encode_plain(np.array(numbers, dtype=np.int64), "")
    return place[indices], merged


def check_text(table: list[str], what: str) -> None:
    """Refuse texts that a fixed-width table would alter, or that cannot be printed."""
    for word in table:
        if len(word) > LONGEST_ID:
            raise BadInput(
                f"the {what} id '{word[:20]}...' is longer than {LONGEST_ID} characters: shorten it."
            )
        if "\0" in word or (not word.isascii() and any("\ud800" <= c <= "\udfff" for c in word)):
            raise BadInput(
                f"the {what} id {word[:20]!r} holds a character that text files forbid: remove it."
            )


def _encode_plain(ids: Ids, what: str) -> tuple[Index, Ids]:
    if ids.dtype.kind == "U":
        return _encode_text(ids.tolist(), what)
    if len(ids) == 0:
        return np.zeros(0, dtype=np.int32), ids.astype(np.int64)
    low, high = int(ids.min()), int(ids.max())
    if high - low < max(_DENSE_FACTOR * len(ids), 1 << 20):
        # A lookup table over the range of ids takes one pass, where np.unique sorts.
        seen = np.zeros(high - low + 1, dtype=bool)
        shifted = ids - low
        seen[shifted] = True
        place = np.cumsum(seen, dtype=np.int32) - np.int32(1)
        return place[shifted], np.flatnonzero(seen).astype(np.int64) + low
    table, inverse = np.unique(ids, return_inverse=True)
    return inverse.astype(np.int32), table


def _encode_text(words: list[str], what: str) -> tuple[Index, Ids]:
    table = sorted(set(words))
    check_text(table, what)
    place = {word: k for k, word in enumerate(table)}
    indices = np.fromiter((place[word] for word in words), dtype=np.int32, count=len(words))
    return indices, np.array(table, dtype=np.str_)


def _whole(array: npt.NDArray[Any], what: str) -> Ids:
    good = np.isfinite(array) & (np.abs(array) < 2**53) & (np.trunc(array) == array)
    if not good.all():
        row = int(np.argmin(good))
        raise BadInput(f"row {row} has the {what} id {array[row]}: ids must be whole numbers or texts.")
    return array.astype(np.int64)


def _from_objects(values: list[Any], what: str) -> Ids:
    for row, value in enumerate(values):
        if value is None or value != value:
            raise BadInput(f"row {row} has no {what} id: fill it in or drop the row.")
    if all(isinstance(v, str) for v in values):
        check_text(list(set(values)), what)
        return np.array(values, dtype=np.str_)
    if all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values):
        largest = max(values, key=abs)
        require(abs(largest) < 2**63, f"the {what} id {largest} is too large: give such ids as text.")
        return np.array(values, dtype=np.int64)
    raise BadInput(f"the {what} ids mix types or are neither whole numbers nor texts: convert them to one.")
