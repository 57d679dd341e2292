"""The only import of pyarrow: its modules, and its columns as dense indices, values and times."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, MissingExtra
from asyncqn_recommender.data.columns import Names
from asyncqn_recommender.data.ids import Ids, Index, encode, whole_number
from asyncqn_recommender.data.times import Times, time_of

MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Texts that mean that an id is missing."""


def arrow(module: str = "pyarrow") -> Any:
    """Return `pyarrow` or one of its modules, imported only when ratings are read."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra("pyarrow", "data", "Reading ratings") from error


def encode_column(column: Any, what: str, spelled: bool = False) -> tuple[Index, Ids]:
    """Return dense indices and the sorted table of ids of a column of integers or texts without nulls.

    With `spelled`, texts become integers if all of them are integers.
    """
    types = arrow("pyarrow.types")
    if not types.is_dictionary(column.type):
        column = column.dictionary_encode()
    # Chunks may have dictionaries of their own; one code must mean one word.
    column = column.unify_dictionaries().combine_chunks()
    codes = column.indices.to_numpy()
    kind = column.type.value_type
    # A dictionary may list words that no row uses; only those in use become ids.
    used = np.flatnonzero(np.bincount(codes, minlength=len(column.dictionary)))
    if types.is_string(kind) or types.is_large_string(kind):
        words = np.array(column.dictionary.to_pylist(), dtype=object)[used]
        integers = [whole_number(word) for word in words] if spelled else [None]
        # "7" and "07" are then the same id.
        distinct: Any = words if None in integers else np.array(integers, np.int64)
    elif types.is_integer(kind) or types.is_floating(kind):
        distinct = column.dictionary.to_numpy()[used]
    else:
        raise BadInput(f"the {what} ids have the type {kind}: give integers or texts.")
    place = np.full(len(column.dictionary), -1, np.int32)
    place[used], table = encode(distinct, what)
    return place[codes], table


def usable_rows(table: Any, names: Names, time_asked: bool) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows with a user, an item, a finite rating and, if it is needed, a time."""
    compute = arrow("pyarrow.compute")
    floating = arrow("pyarrow.types").is_floating
    mask = np.ones(len(table), dtype=bool)
    for column in (
        table[names.user],
        table[names.item],
        rating_column(table, names.rating),
    ):
        # Arrow counts NaN, which other programs write for a missing number, as valid.
        good = (
            compute.is_finite(column)
            if floating(column.type)
            else compute.is_valid(column)
        )
        mask &= compute.fill_null(good, False).to_numpy()
    if time_asked:
        mask &= np.isfinite(time_column(table[names.time]))
    return mask


def rating_column(table: Any, name: str | None) -> Any:
    """Return the rating column as float32; without one, every row counts 1."""
    lib = arrow()
    if name is None:
        return lib.chunked_array([np.ones(len(table), np.float32)])
    column = _decoded(table[name])
    try:
        # `safe=False` lets large integers be rounded to float32, as NumPy does.
        return column.cast(lib.float32(), safe=False)
    except lib.ArrowException as error:
        raise BadInput(
            f"the rating column '{name}' of type {column.type} does not hold numbers: name another column."
        ) from error


def time_column(column: Any) -> Times:
    """Return times from a column of numbers, dates or texts; a row without a time has NaN."""
    lib = arrow()
    column = _decoded(column)
    types = lib.types
    if types.is_string(column.type) or types.is_large_string(column.type):
        return np.array([time_of(word) for word in column.to_pylist()], np.float64)
    dates = types.is_date(column.type) or types.is_timestamp(column.type)
    try:
        if dates:
            # Microseconds: files have seconds, milliseconds or nanoseconds.
            column = column.cast(
                lib.timestamp("us", getattr(column.type, "tz", None)), safe=False
            )
            column = column.cast(lib.int64())
        times: Times = column.cast(lib.float64(), safe=False).to_numpy()
    except lib.ArrowException:
        # A column whose name looks like a time may hold anything.
        return np.full(len(column), np.nan)
    times = times / 1e6 if dates else times
    sound = np.isfinite(times)
    return times if sound.all() else np.where(sound, times, np.nan)


def _decoded(column: Any) -> Any:
    """Return a column of a dictionary as a plain one."""
    return (
        column.cast(column.type.value_type)
        if arrow().types.is_dictionary(column.type)
        else column
    )
