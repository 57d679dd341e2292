"""Tables of numbers in files: CSV and Parquet with pyarrow, libsvm with scikit-learn.

Every message names the file or the column, because these mistakes come from job files, far from any code.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.models.adapters.libsvm import read_libsvm
from asyncqn.parameters import suggestion
from asyncqn.storage import check_input, open_input

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


class Columns(NamedTuple):
    """The columns of a file from which a problem is made."""

    X: Any
    y: npt.NDArray[Any]
    names: tuple[str, ...] | None
    weights: npt.NDArray[Any] | None
    offset: npt.NDArray[Any] | None


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
    try:
        # Before pyarrow opens the path itself, which would also accept a pipe.
        check_input(path, _memory())
        if kind != "libsvm":
            return _from_arrow(
                _arrow_table(path, kind),
                path,
                label,
                features,
                (weights, offset),
                dtype,
            )
    except FileNotFoundError:
        raise BadInput(
            f"there is no file {str(path)!r}: data names a CSV, Parquet or libsvm file."
        ) from None
    except OSError as error:
        raise BadInput(
            f"{str(path)!r} cannot be read: {error.strerror or error}."
        ) from None
    given = {"label": label, "features": features, "weights": weights, "offset": offset}
    named = [name for name, value in given.items() if value is not None]
    require(
        not named,
        f"a libsvm file has no named columns, and each of its lines begins with the label: remove "
        f"{', '.join(named)}.",
    )
    X, y = read_libsvm(path, dtype=dtype)
    return Columns(X, y, None, None, None)


def _format_of(path: Path) -> Format:
    # rows.csv.gz is a CSV file.
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".bz2")]
    kind = SUFFIXES.get(suffixes[-1].lower() if suffixes else "")
    if kind is None:
        raise BadInput(
            f"the format of {str(path)!r} is unknown: use one of the suffixes {', '.join(SUFFIXES)}, or give "
            f'format = "csv", "parquet" or "libsvm".'
        )
    return kind


def _memory() -> int:
    """Return the memory of this machine in bytes: a larger file cannot be read as a whole."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _arrow_table(path: Path, kind: Format) -> Any:
    try:
        pyarrow = importlib.import_module("pyarrow")
        csv, parquet = (
            importlib.import_module("pyarrow.csv"),
            importlib.import_module("pyarrow.parquet"),
        )
    except ImportError:
        raise MissingExtra("pyarrow", "data", "Reading CSV and Parquet files") from None
    try:
        with open_input(path, _memory()) as file:
            if kind == "parquet":
                return parquet.read_table(file)
            compressed = path.suffix.lower() in (".gz", ".bz2")
            name = {".gz": "gzip", ".bz2": "bz2"}.get(path.suffix.lower())
            stream = pyarrow.CompressedInputStream(file, name) if compressed else file
            # All suffixes, because of names such as rows.tsv.gz.
            separator = (
                "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes] else ","
            )
            return csv.read_csv(
                stream, parse_options=csv.ParseOptions(delimiter=separator)
            )
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        # One line: a message of Arrow may have several.
        said = str(error).splitlines()[0].rstrip(".")[:200]
        raise BadInput(f"{str(path)!r} cannot be read as {kind}: {said}.") from None


def _from_arrow(
    table: Any,
    path: Path,
    label: str | None,
    features: Sequence[str] | None,
    others: tuple[str | None, str | None],
    dtype: Any,
) -> Columns:
    names = list(table.column_names)
    # A repeated name would make the choice of a column ambiguous.
    twice = next((name for name in names if names.count(name) > 1), None)
    require(
        twice is None, f"{str(path)!r} has two columns named {twice!r}: rename one."
    )
    require(
        label is not None,
        f"label is missing: name the column to predict, one of {_some(names)}.",
    )
    for name in (label, *others, *(features or ())):
        require(
            name is None or name in names,
            f"{str(path)!r} has no column {name!r}; {suggestion(str(name), names)}.",
        )
    # By default every column without another role is a feature.
    special = [name for name in (label, *others) if name is not None]
    chosen = (
        [name for name in names if name not in special]
        if features is None
        else list(features)
    )
    require(
        bool(chosen),
        f"{str(path)!r} has no column besides {', '.join(special)}: there are no features.",
    )
    shared = next((name for name in chosen if name in special), None)
    require(
        shared is None,
        f"the column {shared!r} is listed in features and has another role: choose one.",
    )
    require(table.num_rows > 0, f"{str(path)!r} has no rows.")
    # Filled column by column: Arrow stores columns, and kernels read rows in C order.
    X = np.empty((table.num_rows, len(chosen)), dtype)
    for j, name in enumerate(chosen):
        X[:, j] = _numbers(table, name)
    weights, offset = (
        None if name is None else _numbers(table, name) for name in others
    )
    return Columns(X, _values(table, str(label)), tuple(chosen), weights, offset)


def _values(table: Any, name: str) -> npt.NDArray[Any]:
    column = table.column(name)
    lacking = column.null_count
    require(
        lacking == 0,
        f"column {name!r} has {lacking} missing value{'s' * (lacking > 1)}: fill or remove those rows.",
    )
    values: npt.NDArray[Any] = column.to_numpy()
    # Text in Arrow becomes an array of objects, which NumPy cannot sort or compare quickly.
    if values.dtype == object and all(isinstance(value, str) for value in values):
        values = values.astype(str)
    return values


def _numbers(table: Any, name: str) -> npt.NDArray[Any]:
    values = _values(table, name)
    require(
        values.dtype.kind in "biuf",
        f"column {name!r} holds {'texts' if values.dtype.kind in 'OUS' else values.dtype}, not numbers: "
        f"encode it, or list the columns to use in features.",
    )
    return values


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
