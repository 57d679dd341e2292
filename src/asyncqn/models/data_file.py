"""Tables of numbers in files: CSV and Parquet by pyarrow, libsvm by scikit-learn.

Every message names the file or the column, because these mistakes come from job files, far from any code.
CSV is read by `pyarrow.csv`, not by `pyarrow.dataset`, which would take the type of a column from its first
megabyte alone.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.parameters import suggestion
from asyncqn.storage import open_input

Format = Literal["csv", "parquet", "libsvm"]
SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
}
_COMPRESSED = (".gz", ".bz2")
_BLOCK_BYTES = 1 << 24
"""Bytes of CSV that Arrow parses at a time; a row must fit."""


class Columns(NamedTuple):
    """The columns of a file from which a problem is made."""

    X: Any
    y: npt.NDArray[Any]
    names: tuple[str, ...] | None
    weights: npt.NDArray[Any] | None
    offset: npt.NDArray[Any] | None


class Roles(NamedTuple):
    """The columns of a table by their role; the features are in the order of the columns of X."""

    label: str
    features: list[str]
    weights: str | None
    offset: str | None


def read_columns(
    path: Path,
    format: Format | None,
    label: str | None,
    features: Sequence[str] | None,
    weights: str | None,
    offset: str | None,
    dtype: Any,
) -> Columns:
    """Read features, label, weights and offset from a file; raise `BadInput` for anything wrong with it."""
    kind = format or _format_of(path)
    if kind == "libsvm":
        require(
            all(name is None for name in (label, features, weights, offset)),
            "a libsvm file has no named columns, and each of its lines begins with the label: remove label, "
            "features, weights and offset.",
        )
        return _read_libsvm(path, dtype)
    table = read_table(path, kind)
    names = table.column_names
    roles = roles_of(names, repr(str(path)), label, features, weights, offset)
    require(table.num_rows > 0, f"{str(path)!r} has no rows.")
    return columns_of(table, roles, dtype)


def columns_of(table: Any, roles: Roles, dtype: Any, first: int = 0) -> Columns:
    """Return the columns of an Arrow table by their roles; `first` is the number of its first row."""
    # Filled column by column: Arrow stores columns, and kernels read rows in C order.
    X = np.empty((table.num_rows, len(roles.features)), dtype)
    for j, name in enumerate(roles.features):
        X[:, j] = numbers(table.column(name), name, first)
    extras = [
        None if name is None else numbers(table.column(name), name, first)
        for name in (roles.weights, roles.offset)
    ]
    y = values(table.column(roles.label), roles.label, first)
    return Columns(X, y, tuple(roles.features), *extras)


def _read_libsvm(path: Path, dtype: Any) -> Columns:
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError:
        raise MissingExtra("scikit-learn", "sklearn", "reading libsvm files") from None
    with _one_sentence(path, "libsvm"):
        X, y = load_svmlight_file(str(path), dtype=np.dtype(dtype))
    require(len(y) > 0, f"{str(path)!r} is empty: a libsvm file has one line per row.")
    return Columns(X, y, None, None, None)


def read_table(path: Path, format: Format | None = None) -> Any:
    """Return the Arrow table in a CSV or Parquet file."""
    kind = format or _format_of(path)
    require(kind != "libsvm", f"{str(path)!r} is no table: name a CSV or Parquet file.")
    try:
        from pyarrow import csv, parquet
    except ImportError:
        raise MissingExtra("pyarrow", "data", "Reading CSV and Parquet files") from None
    with _one_sentence(path, kind):
        if kind == "parquet":
            # Names of folders add no columns.
            return parquet.read_table(path, partitioning=None)
        # All suffixes, because of names such as rows.tsv.gz.
        tabs = ".tsv" in [suffix.lower() for suffix in path.suffixes]
        reading = csv.ReadOptions(block_size=_BLOCK_BYTES)
        parsing = csv.ParseOptions(delimiter="\t" if tabs else ",")
        # Arrow decompresses by the suffix.
        table = csv.read_csv(path, read_options=reading, parse_options=parsing)
        # Arrow decodes the header only now.
        _ = table.column_names
        return table


@contextmanager
def _one_sentence(path: Path, kind: str) -> Iterator[None]:
    """Turn the errors of opening and parsing a file into sentences that name it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        # The readers open the path themselves, and would also accept a pipe, or more than fits in memory.
        open_input(path, memory).close()
        yield
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(
            f"there is no file {str(path)!r}: name a CSV, Parquet or libsvm file."
        ) from None
    except UnicodeDecodeError:
        raise BadInput(
            f"{str(path)!r} is not in UTF-8: convert it, for example with iconv -f latin1 -t utf-8."
        ) from None
    except OSError as error:
        raise BadInput(
            f"{str(path)!r} cannot be read: {error.strerror or error}."
        ) from None
    # Arrow's errors of parsing are ValueErrors, and may have several lines.
    except ValueError as error:
        reason = str(error).splitlines()[0].rstrip(".")[:200]
        raise BadInput(f"{str(path)!r} cannot be read as {kind}: {reason}.") from None


def _format_of(path: Path) -> Format:
    # rows.csv.gz is a CSV file.
    suffixes = [each.lower() for each in path.suffixes]
    suffixes = [suffix for suffix in suffixes if suffix not in _COMPRESSED]
    kind = SUFFIXES.get(suffixes[-1] if suffixes else "")
    if kind is None:
        raise BadInput(
            f"the format of {str(path)!r} is unknown: use one of the suffixes {', '.join(SUFFIXES)}, or give "
            f'format = "csv", "parquet" or "libsvm".'
        )
    return kind


def roles_of(
    names: Sequence[str],
    where: str,
    label: str | None,
    features: Sequence[str] | None,
    weights: str | None,
    offset: str | None,
) -> Roles:
    """Assign a role to every column; by default each without another role is a feature."""
    counts = Counter(names)
    duplicate = next((name for name, count in counts.items() if count > 1), None)
    # A repeated name would make the choice of a column ambiguous.
    require(
        duplicate is None, f"{where} has two columns named {duplicate!r}: rename one."
    )
    if label is None:
        some = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise BadInput(f"label is missing: name the column to predict, one of {some}.")
    special = [name for name in (label, weights, offset) if name is not None]
    for name in (*special, *(features or ())):
        if name not in counts:
            raise BadInput(
                f"{where} has no column {name!r}; {suggestion(name, names)}."
            )
    others = [name for name in names if name not in special]
    chosen = others if features is None else list(features)
    require(
        bool(chosen),
        f"{where} has no column besides {', '.join(special)}: there are no features.",
    )
    shared = next((name for name in special if name in chosen), None)
    require(
        shared is None,
        f"the column {shared!r} is listed in features and has another role: choose one.",
    )
    return Roles(label, chosen, weights, offset)


def values(column: Any, name: str, first: int = 0) -> npt.NDArray[Any]:
    """Return a column of Arrow as an array; raise `BadInput` if a value is missing.

    `first` is the number of its first row in the data.
    """
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise _missing(name, column.null_count, first + row)
    array: npt.NDArray[Any] = np.asarray(column)
    # Text in Arrow becomes an array of objects, which NumPy cannot sort or compare quickly.
    if array.dtype == object and all(isinstance(value, str) for value in array):
        array = array.astype(str)
    return array


def numbers(column: Any, name: str, first: int = 0) -> npt.NDArray[Any]:
    """Return a column of finite numbers; raise `BadInput` for anything else."""
    array = values(column, name, first)
    kind = "texts" if array.dtype.kind in "OUS" else str(array.dtype)
    require_numbers(array.dtype.kind in "biuf", kind, name)
    finite = np.isfinite(array)
    if not finite.all():
        raise _missing(name, int((~finite).sum()), first + int(np.argmin(finite)))
    return array


def require_numbers(numeric: bool, kind: str, name: str) -> None:
    """Raise `BadInput` unless a column is numeric; `kind` is what it holds instead."""
    require(
        numeric,
        f"column {name!r} holds {kind}, not numbers: encode it as columns of 0 and 1, for example with "
        f"pandas.get_dummies(frame, columns=[{name!r}]), or list the columns to use in features.",
    )


def _missing(name: str, count: int, row: int) -> BadInput:
    values = "value" if count == 1 else "values"
    return BadInput(
        f"column {name!r} has {count} missing or infinite {values}, first in row {row + 1} of the data: fill "
        f"or remove those rows."
    )
