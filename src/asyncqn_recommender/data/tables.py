"""Tables for other programs: CSV or Parquet, by the suffix, written completely or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy.typing as npt

from asyncqn.errors import require
from asyncqn.storage import write_whole
from asyncqn_recommender.data.arrow import arrow
from asyncqn_recommender.data.ratings import Ratings

Columns = Mapping[str, npt.NDArray[Any]]
_SUFFIXES = (".csv", ".parquet")


def check_table_name(path: str | Path) -> None:
    """Raise `BadInput` early for a suffix other than CSV or Parquet, and `MissingExtra` without pyarrow."""
    suffix = Path(path).suffix.lower()
    require(
        suffix in _SUFFIXES,
        f"{path} has no suffix of a table: use {' or '.join(_SUFFIXES)}.",
    )
    require(not Path(path).is_dir(), f"{path} is a folder: give the name of a file.")
    arrow()


def write_table(path: str | Path, parts: Iterable[Columns]) -> int:
    """Write the parts of a table one after another, and return the number of rows."""
    check_table_name(path)
    rows = 0

    def write(file: IO[bytes]) -> None:
        nonlocal rows
        writer = None
        for part in parts:
            # Part by part, so that lists for millions of users need no more memory than a chunk.
            table = arrow().table(dict(part))
            if writer is None:
                kind = "csv" if Path(path).suffix.lower() == ".csv" else "parquet"
                module = arrow(f"pyarrow.{kind}")
                writer = (module.CSVWriter if kind == "csv" else module.ParquetWriter)(
                    file, table.schema
                )
            # All parts of a Parquet file must have the types of the first.
            writer.write_table(
                table.cast(writer.schema) if hasattr(writer, "schema") else table
            )
            rows += table.num_rows
        if writer is not None:
            writer.close()

    write_whole(path, write)
    return rows


def write_ratings(path: str | Path, ratings: Ratings) -> int:
    """Write ratings as a table with the columns user, item, rating and, if there are times, time."""
    columns = {
        "user": ratings.user_ids[ratings.users],
        "item": ratings.item_ids[ratings.items],
        "rating": ratings.values,
    }
    return write_table(
        path, [columns if ratings.times is None else {**columns, "time": ratings.times}]
    )
