"""`read_ratings`: MovieLens of every size, packed or not, and any CSV, TSV or Parquet with named columns."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from asyncqn.data.arrow import arrow, as_float32, encode_column, usable_rows
from asyncqn.data.columns import choose
from asyncqn.data.dialect import detect
from asyncqn.data.ratings import Ratings, repeated_rows
from asyncqn.data.scan import BadRows, line_of, scan
from asyncqn.data.sources import MOST_TITLES, ZIP_ERRORS, Source, find, unreadable
from asyncqn.data.text import read_clean
from asyncqn.data.titles import read_titles, with_titles
from asyncqn.errors import BadInput, DamagedFile


class Reading(NamedTuple):
    """What a file gave: its ratings, how many bad rows were skipped, and the first of them in words."""

    ratings: Ratings
    skipped: int
    problems: tuple[str, ...]


def read_ratings(
    path: str | os.PathLike[str],
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    delimiter: str | None = None,
    skip_bad: bool = False,
) -> Reading:
    """Read a file, a zip or a MovieLens directory.

    `user`, `item` and `rating` name the columns where their names are unusual.  A bad row raises
    `BadInput` with file and line, or is counted and skipped with `skip_bad`; of a repeated
    (user, item) pair the later row is the bad one.
    """
    source, title_source = find(path)
    try:
        source.check_size()
        if title_source is not None:
            title_source.check_size(MOST_TITLES)
    except ZIP_ERRORS as error:
        if isinstance(error, BadInput):
            raise
        raise unreadable(source, error) from error
    bad = BadRows(source.label, skip_bad)
    if source.name.lower().endswith((".parquet", ".pq")):
        ratings = _read_parquet(source, bad, user, item, rating)
    else:
        ratings = _read_text(source, bad, title_source is not None, (user, item, rating), delimiter)
    if title_source is not None and ratings.item_ids.dtype.kind == "i":
        titles, bad_lines = _titles(title_source, skip_bad)
        ratings = with_titles(ratings, titles)
        bad.count += bad_lines
    return Reading(ratings, bad.count, tuple(bad.shown))


def _read_text(
    source: Source,
    bad: BadRows,
    movielens: bool,
    asked: tuple[str | None, str | None, str | None],
    delimiter: str | None,
) -> Ratings:
    user, item, rating = asked
    dialect = detect(source, movielens=movielens, user=user, item=item, rating=rating, delimiter=delimiter)
    ratings, lines = read_clean(source, dialect), None
    if ratings is None:
        # Bytes out of a broken archive are not bad rows: look at the archive first.
        source.check()
        ratings, lines = scan(source, dialect, bad)
    if len(ratings) == 0:
        raise BadInput(f"{source.label}, line {dialect.skip + 1}: the file has no usable row of ratings.")

    def line(row: int) -> int:
        return int(lines[row]) if lines is not None else line_of(source, dialect, row)

    return _without_repeats(ratings, bad, line, "line")


def _read_parquet(
    source: Source, bad: BadRows, user: str | None, item: str | None, rating: str | None
) -> Ratings:
    lib, parquet = arrow(), arrow("pyarrow.parquet")
    try:
        with source.open() as stream:
            file = parquet.ParquetFile(lib.BufferReader(stream.read()) if source.member else str(source.path))
            names = choose(file.schema_arrow.names, source.label, user, item, rating)
            _check_rows(source, file)
            table = file.read(columns=list(names))
    except (lib.ArrowException, *ZIP_ERRORS) as error:
        if isinstance(error, BadInput):
            raise
        source.check()
        raise DamagedFile(f"{source.label} is not a whole Parquet file: fetch or write it again.") from error
    users, items = table[names.user], table[names.item]
    values = as_float32(table[names.rating], names.rating)
    usable = usable_rows(users, items, values)
    rows = np.flatnonzero(usable)
    for row in np.flatnonzero(~usable).tolist():
        bad.add(row + 1, "a user, an item or a finite rating is missing", "row")
    if len(rows) == 0:
        raise BadInput(f"{source.label}, row 1: the file has no usable row of ratings.")
    mask = lib.array(usable)
    (user_index, user_ids), (item_index, item_ids) = (
        encode_column(column.filter(mask), what) for column, what in ((users, "user"), (items, "item"))
    )
    ratings = Ratings(user_index, item_index, values.filter(mask).to_numpy(), user_ids, item_ids)
    return _without_repeats(ratings, bad, lambda row: int(rows[row]) + 1, "row")


def _check_rows(source: Source, file: Any) -> None:
    """A row is of another user or item than the one before, which no encoding tells in less than a bit."""
    rows, length = file.metadata.num_rows, source.path.stat().st_size
    if rows > 1_000_000 and rows > 8 * length:
        raise DamagedFile(
            f"{source.label} claims {rows:,} rows in {length:,} bytes, which no file of ratings has."
        )


def _without_repeats(ratings: Ratings, bad: BadRows, place: Any, unit: str) -> Ratings:
    repeated = repeated_rows(ratings)
    if not repeated.any():
        return ratings
    rows = np.flatnonzero(repeated)
    for row in rows[:5].tolist():
        user, item = ratings.user_ids[ratings.users[row]], ratings.item_ids[ratings.items[row]]
        bad.add(place(row), f"user {user} rates item {item} a second time", unit)
    bad.count += max(0, len(rows) - 5)
    return ratings.take(~repeated)


def _titles(source: Source, skip_bad: bool) -> tuple[dict[int, str], int]:
    try:
        with source.open() as stream:
            data = stream.read()
    except ZIP_ERRORS as error:
        raise unreadable(source, error) from error
    return read_titles(data, source.label, skip_bad=skip_bad)
