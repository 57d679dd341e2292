"""The only import of pyarrow: its modules, and its columns as dense indices, values and times."""

from __future__ import annotations

import importlib
import math
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn_recommender.data.columns import Names
from asyncqn_recommender.data.ids import Ids, Index, encode, whole_number

Times: TypeAlias = npt.NDArray[np.float64]
"""One time per rating, of which only the order matters: numbers unchanged, dates as seconds since 1970."""


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


def usable_rows(table: Any, names: Names, timed: bool) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows with a user, an item, a finite rating and, if `timed`, a time."""
    compute = arrow("pyarrow.compute")
    floating = arrow("pyarrow.types").is_floating
    ratings = rating_column(table, names.rating)
    mask = np.ones(len(table), dtype=bool)
    for column in (table[names.user], table[names.item], ratings):
        # Arrow counts NaN, which other programs write for a missing number, as valid.
        test = compute.is_finite if floating(column.type) else compute.is_valid
        mask &= compute.fill_null(test(column), False).to_numpy()
    if timed:
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
            f"the rating column '{name}' of type {column.type} does not hold numbers: "
            "name another column."
        ) from error


def time_of(word: Any) -> float:
    """Return the time in a text, a number or an ISO date, or NaN."""
    try:
        return float(word)
    except (TypeError, ValueError):
        pass
    try:
        moment = datetime.fromisoformat(str(word).strip())
    except ValueError:
        return math.nan
    # UTC and not local time, so that a file gives the same times on every machine.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def time_column(column: Any) -> Times:
    """Return times from a column of numbers, dates or texts; a row without a time has NaN."""
    lib = arrow()
    types = lib.types
    column = _decoded(column)
    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return _finite(np.array([time_of(word) for word in column.to_pylist()]))
    try:
        if types.is_date(kind) or types.is_timestamp(kind):
            # Microseconds: files have seconds, milliseconds or nanoseconds.
            unit = lib.timestamp("us", getattr(kind, "tz", None))
            seconds = column.cast(unit, safe=False).cast(lib.int64())
            times: Times = seconds.cast(lib.float64(), safe=False).to_numpy() / 1e6
        else:
            times = column.cast(lib.float64(), safe=False).to_numpy()
    except lib.ArrowException:
        # A column whose name looks like a time may hold anything.
        return np.full(len(column), np.nan)
    return _finite(times)


def _finite(times: Times) -> Times:
    return np.where(np.isfinite(times), times, np.nan)


def plain_times(times: Any, length: int) -> Times:
    """Return times from an array of numbers, dates or texts, one for each of `length` ratings."""
    array = np.asarray(times)
    if array.dtype.kind == "M":
        # NaT is the smallest integer, which would count as a very early time.
        seconds = array.astype("datetime64[us]").astype(np.int64) / 1e6
        array = np.where(np.isnat(array), np.nan, seconds)
    elif array.dtype.kind not in "iuf":
        # Anything whose `str` is a date: texts, datetime.date, pandas' Timestamp.
        array = np.array([time_of(word) for word in array.ravel().tolist()], np.float64)
    require(
        array.shape == (length,) and bool(np.isfinite(array).all()),
        f"there must be a time for each of {length} ratings: a number or a date such as "
        "2024-05-31.",
    )
    return array.astype(np.float64)


def _decoded(column: Any) -> Any:
    """Return a column of a dictionary as a plain one."""
    if not arrow().types.is_dictionary(column.type):
        return column
    return column.cast(column.type.value_type)
