"""Tables for other programs: CSV or Parquet, by the suffix, written completely or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def write_table(path: str | Path, columns: Columns) -> None:
    """Write a table of these columns."""
    check_table_name(path)
    kind = Path(path).suffix.lower().removeprefix(".")
    module = arrow(f"pyarrow.{kind}")
    write = module.write_csv if kind == "csv" else module.write_table
    write_whole(path, lambda file: write(arrow().table(dict(columns)), file))


def write_ratings(path: str | Path, ratings: Ratings) -> None:
    """Write ratings as a table with the columns user, item, rating and, if there are times, time."""
    columns = {
        "user": ratings.user_ids[ratings.users],
        "item": ratings.item_ids[ratings.items],
        "rating": ratings.values,
    }
    if ratings.times is not None:
        columns["time"] = ratings.times
    write_table(path, columns)
