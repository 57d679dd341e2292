"""Tables written for others to read: CSV or Parquet, by the name of the file, whole or not at all."""

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
    """Refuse, before any work is done, a name that says neither CSV nor Parquet, and a missing pyarrow."""
    suffix = Path(path).suffix.lower()
    require(suffix in _SUFFIXES, f"{path} names no kind of table: let it end in {' or '.join(_SUFFIXES)}.")
    require(not Path(path).is_dir(), f"{path} is a folder: name a file.")
    arrow()


def write_table(path: str | Path, parts: Iterable[Columns]) -> int:
    """Write the parts of a table one after another, and return how many rows they were."""
    check_table_name(path)
    rows = 0

    def write(file: IO[bytes]) -> None:
        nonlocal rows
        writer = None
        for part in parts:
            table = arrow().table(dict(part))
            if writer is None:
                kind = "csv" if Path(path).suffix.lower() == ".csv" else "parquet"
                module = arrow(f"pyarrow.{kind}")
                writer = (module.CSVWriter if kind == "csv" else module.ParquetWriter)(file, table.schema)
            writer.write_table(table.cast(writer.schema) if hasattr(writer, "schema") else table)
            rows += table.num_rows
        if writer is not None:
            writer.close()

    write_whole(path, write)
    return rows


def write_ratings(path: str | Path, ratings: Ratings) -> int:
    """Write ratings as a table user, item, rating and, where there are times, time."""
    columns = {
        "user": ratings.user_ids[ratings.users],
        "item": ratings.item_ids[ratings.items],
        "rating": ratings.values,
    }
    return write_table(path, [columns if ratings.times is None else {**columns, "time": ratings.times}])
