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
_NO_INTEGER = np.iinfo(np.int64).min
"""Stands for a text that is no integer; no table has it."""


def encode(ids: Any, what: str) -> tuple[Index, Ids]:
    """Return dense indices and the sorted table of distinct ids."""
    table, indices = np.unique(plain_ids(ids, what), return_inverse=True)
    return indices.astype(np.int32), table


def plain_ids(ids: Any, what: str) -> Ids:
    """Return the ids as a one-dimensional array of int64 or str, the types of a table."""
    array = id_array(ids)
    if array.dtype.kind == "U" and not hasattr(ids, "dtype"):
        # NumPy would turn numbers among texts into text, and drop final zero bytes.
        array = np.array(ids, dtype=object)
    require(
        array.ndim == 1,
        f"the {what} ids must be one-dimensional, not of shape {array.shape}.",
    )
    if array.dtype.kind in "UTO":
        array = _from_objects(array.tolist(), what)
    if array.dtype.kind == "f":
        # Beyond 2^53 a float does not hold every integer: ids would be merged silently.
        whole = (np.abs(array) < 2**53) & (np.trunc(array) == array)
        row = int(np.argmin(whole)) if len(whole) else 0
        require(
            bool(whole.all()),
            f"row {row} has the {what} id {array[row : row + 1]}: ids must be integers "
            "or texts.",
        )
        array = array.astype(np.int64)
    if array.dtype.kind == "u":
        require(
            int(array.max(initial=0)) < 2**63,
            f"the {what} id {array.max(initial=0)} is too large: give such ids as text.",
        )
    require(
        array.dtype.kind in "iuU",
        f"the {what} ids have the type {array.dtype}: give integers or texts.",
    )
    return array if array.dtype.kind == "U" else array.astype(np.int64, copy=False)


def id_array(ids: Any) -> npt.NDArray[Any]:
    """Return ids as an array of any shape."""
    try:
        array = np.asarray(ids)
    except ValueError:
        raise BadInput(
            "ids must be a flat list of integers or texts, not a ragged list."
        ) from None
    kinds = (Mapping, Set, complex, type)
    wrong = array.dtype.kind in "Oc" and any(isinstance(x, kinds) for x in array.flat)
    require(not wrong, f"an id must be an integer or a text, not {ids!r:.80}.")
    return array


def lookup(table: Ids, ids: Any) -> npt.NDArray[np.int64]:
    """Return the index of every id in the sorted `table`, -1 if it is unknown, in the shape of `ids`.

    A text such as "42" finds the number 42 and vice versa, because a command line and a data frame often
    disagree about the type of the same id.
    """
    words = id_array(ids)
    if table.dtype.kind == "i" and words.dtype.kind not in "iu":
        # Object by object, which is slow but rare: arrays of integers do not come here.
        numbers = [whole_number(x) for x in words.ravel().tolist()]
        numbers = [_NO_INTEGER if x is None else x for x in numbers]
        words = np.array(numbers, np.int64).reshape(words.shape)
    elif table.dtype.kind == "U" and words.dtype.kind != "U":
        texts = [str(x) for x in words.ravel().tolist()]
        words = np.array(texts, np.str_).reshape(words.shape)
    if len(table) == 0:
        return np.full(words.shape, -1, dtype=np.int64)
    # An id beyond the last has no place; it is compared with the last, and does not match.
    place = np.minimum(np.searchsorted(table, words), len(table) - 1)
    return np.where(table[place] == words, place, -1)


def whole_number(text: Any) -> int | None:
    """Return the integer that `text` spells in up to 18 decimal digits, or None."""
    word = str(text).strip()
    # int() would also accept "1_000" and digits of other scripts.
    digits = word.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and len(digits) <= 18
    return int(word) if plain else None


def _from_objects(values: list[Any], what: str) -> Ids:
    for row, value in enumerate(values):
        # NaN is the only value that differs from itself.
        if value is None or value != value:
            raise BadInput(f"row {row} has no {what} id: fill it in or drop the row.")
    if all(isinstance(v, str) for v in values):
        _check_texts(set(values), what)
        return np.array(values, dtype=np.str_)
    if all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values):
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            raise BadInput(
                f"the {what} id {max(values, key=abs)} is too large: give such ids as text."
            ) from None
    raise BadInput(
        f"the {what} ids mix types, or are neither integers nor texts: convert them to "
        "one type."
    )


def _check_texts(words: set[str], what: str) -> None:
    """Raise `BadInput` for texts that a fixed-width table would alter, or that cannot be printed."""
    for word in words:
        if len(word) > MAX_ID_LENGTH:
            raise BadInput(
                f"the {what} id '{word[:20]}...' is longer than {MAX_ID_LENGTH} "
                "characters: shorten it."
            )
        # Surrogates stand for bytes that were no text.
        if "\0" in word or any("\ud800" <= c <= "\udfff" for c in word):
            raise BadInput(
                f"the {what} id {word[:20]!r} contains a null byte or an invalid "
                "character: remove it."
            )
