"""Shared parts of the commands for ratings: options of `read_ratings`, and tables for other programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli import Generated, Output
from asyncqn.errors import require
from asyncqn.storage import check_output, write_whole
from asyncqn_recommender.data.arrow import arrow
from asyncqn_recommender.data.readers import read_ratings

if TYPE_CHECKING:
    from asyncqn_recommender.data import Reading

Model = Annotated[Path, typer.Argument(help="Folder of a saved model.")]
Source = Annotated[
    str,
    typer.Argument(
        help="Name of a stored set (see 'asyncqn recommender data list'), a file, or "
        "flight://HOST:PORT/NAME."
    ),
]
_OPTIONS = "user item rating time duplicates clicks skip_bad"
How = Annotated[dict[str, Any], Generated(read_ratings, tuple(_OPTIONS.split()))]
"""How a file is read: what the user gave."""
Saved = Annotated[Path | None, typer.Option(help="Save the model here.", metavar="DIR")]
_SUFFIXES = (".csv", ".parquet")


def read(source: str, out: Output, how: dict[str, Any], clicks: bool) -> Reading:
    """Read ratings by name or from a file, and print remarks about what was skipped."""
    from asyncqn_recommender.data.cache import load_reading

    reading = load_reading(source, **{**how, "clicks": clicks})
    for sentence in reading.remarks():
        out.say(sentence)
    return reading


def check_model_place(out: Path | None) -> None:
    """Raise `BadInput` early for a folder into which no model can be written later."""
    from asyncqn_recommender.files import MODEL

    if out is not None:
        MODEL.check_place(out)


def check_table_place(path: Path) -> None:
    """Raise `BadInput` early for a table that could not be written later."""
    require(
        path.suffix.lower() in _SUFFIXES,
        f"{path} has no suffix of a table: use {' or '.join(_SUFFIXES)}.",
    )
    require(not path.is_dir(), f"{path} is a folder: give the name of a file.")
    check_output(path)
    arrow()


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """Write a table of these columns, CSV or Parquet by the suffix, completely or not at all."""
    kind = path.suffix.lower().removeprefix(".")
    module = arrow(f"pyarrow.{kind}")
    write = module.write_csv if kind == "csv" else module.write_table
    write_whole(path, lambda file: write(arrow().table(dict(columns)), file))
