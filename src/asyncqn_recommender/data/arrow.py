"""The only import of pyarrow: its modules, and its columns as dense indices and values."""

from __future__ import annotations

import importlib
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, MissingExtra
from asyncqn_recommender.data.columns import Names
from asyncqn_recommender.data.ids import Ids, Index, encode, settle
from asyncqn_recommender.data.times import Times, plain_times

MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Texts that mean that an id is missing."""


def arrow(module: str = "pyarrow") -> Any:
    """Return `pyarrow` or one of its modules, imported only when ratings are read."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra("pyarrow", "data", "Reading ratings") from error


def encode_column(column: Any, what: str) -> tuple[Index, Ids]:
    """Return dense indices and the sorted table of ids of a column of integers or texts without nulls."""
    types = arrow("pyarrow.types")
    if types.is_integer(column.type) or types.is_floating(column.type):
        return encode(column.to_numpy(), what)
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_integer(kind):
        return encode(column.cast(kind).to_numpy(), what)
    if not (types.is_string(kind) or types.is_large_string(kind)):
        raise BadInput(f"the {what} ids have the type {kind}: give integers or texts.")
    if not types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if len(column) == 0:
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype="U1")
    # Chunks may have dictionaries of their own; one code must mean one word.
    column = column.unify_dictionaries()
    # A dictionary may list words that no row uses; only those in use become ids.
    words = np.array(column.chunk(0).dictionary.to_pylist(), dtype=object)
    codes, used = encode(np.concatenate([chunk.indices.to_numpy() for chunk in column.chunks]), what)
    place, table = encode(words[used], what)
    return place[codes], table


def encode_text_column(column: Any, what: str) -> tuple[Index, Ids]:
    """Do the same as `encode_column`; ids from a text file become numbers if all of them are numbers."""
    indices, table = encode_column(column, what)
    return settle(indices, table) if table.dtype.kind == "U" else (indices, table)


def usable_rows(table: Any, names: Names) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows with a user, an item and a finite rating."""
    compute = arrow("pyarrow.compute")
    floating = arrow("pyarrow.types").is_floating
    mask = np.ones(len(table), dtype=bool)
    for column in (table[names.user], table[names.item], as_float32(table, names.rating)):
        # pandas writes a missing number as NaN, which Arrow counts as valid.
        good = compute.is_finite(column) if floating(column.type) else compute.is_valid(column)
        mask &= compute.fill_null(good, False).to_numpy()
    return mask


def as_float32(table: Any, name: str | None) -> Any:
    """Return the rating column as float32; without one, every row counts 1."""
    lib = arrow()
    if name is None:
        return lib.chunked_array([np.ones(len(table), np.float32)])
    column = table[name]
    try:
        if lib.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        # `safe=False` lets large integers be rounded to float32, as NumPy does.
        return column.cast(lib.float32(), safe=False)
    except lib.ArrowException as error:
        raise BadInput(
            f"the rating column '{name}' of type {column.type} does not hold numbers: name another column."
        ) from error


def time_column(column: Any) -> Times | None:
    """Return times from a column of numbers, dates or texts, or None unless every row has one."""
    lib = arrow()
    types = lib.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        if types.is_date(column.type) or types.is_timestamp(column.type):
            # Microseconds: files have seconds, milliseconds or nanoseconds.
            column = column.cast(lib.timestamp("us", getattr(column.type, "tz", None)), safe=False)
            times = column.cast(lib.int64()).to_numpy() / 1e6
        elif types.is_integer(column.type) or types.is_floating(column.type):
            times = column.cast(lib.float64(), safe=False).to_numpy()
        elif types.is_string(column.type) or types.is_large_string(column.type):
            times = plain_times(column.to_pylist(), len(column))
        # A column whose name looks like a time may hold anything; then there are no times.
        else:
            return None
    except (lib.ArrowException, BadInput):
        return None
    return times if column.null_count == 0 and bool(np.isfinite(times).all()) else None


def zstd_stream(fileobj: IO[bytes]) -> Any:
    """Return a stream of the bytes of an open file compressed with zstd."""
    return arrow().CompressedInputStream(arrow().PythonFile(fileobj, mode="r"), "zstd")
