"""`read_ratings`: MovieLens of every size, compressed or not, and any CSV, TSV or Parquet with named columns.

Arrow reads a clean text file at full speed (`text`).  Only if it finds anything odd is the file read again
row by row (`scan`), so that a bad row can be reported with its line.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from asyncqn.errors import BadInput, DamagedFile
from asyncqn_recommender.data.arrow import arrow, usable_rows
from asyncqn_recommender.data.columns import Columns, choose
from asyncqn_recommender.data.dialect import detect
from asyncqn_recommender.data.duplicates import check_policy, repeated_rows, resolve
from asyncqn_recommender.data.ratings import Ratings, from_usable
from asyncqn_recommender.data.scan import BadRows, line_of, scan
from asyncqn_recommender.data.sources import MAX_TITLE_BYTES, ZIP_ERRORS, Source, find, telling_unreadable
from asyncqn_recommender.data.text import read_clean
from asyncqn_recommender.data.titles import read_titles, with_titles


class Reading(NamedTuple):
    """The content of a file of ratings.

    Attributes
    ----------
    ratings : Ratings
        The ratings.
    skipped : int, default 0
        Number of bad rows that were skipped.
    problems : tuple of str, default ()
        The first bad rows, one sentence each.
    repeated : int, default 0
        Number of rows whose user and item also occur in another row.

    Examples
    --------
    >>> from pathlib import Path
    >>> from asyncqn_recommender import read_ratings
    >>> _ = Path("ratings.csv").write_text("user,item,rating\\n1,10,5\\n1,20,3\\n2,20,x\\n")
    >>> reading = read_ratings("ratings.csv", skip_bad=True)
    >>> len(reading.ratings), reading.skipped
    (2, 1)
    """

    ratings: Ratings
    skipped: int = 0
    problems: tuple[str, ...] = ()
    repeated: int = 0

    def remarks(self) -> list[str]:
        """Return sentences for the user: the first bad rows, and the totals."""
        said = [f"Skipped: {problem}" for problem in self.problems]
        if self.skipped:
            said.append(f"bad rows skipped: {self.skipped:,}")
        if self.repeated:
            said.append(f"rows that repeat a user and an item: {self.repeated:,}")
        return said


def read_ratings(
    path: str | os.PathLike[str],
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    delimiter: str | None = None,
    skip_bad: bool = False,
    duplicates: str | None = None,
    clicks: bool = False,
) -> Reading:
    """Read ratings from a file, plain or compressed by gzip or zstd, a zip archive or a MovieLens folder.

    Parameters
    ----------
    path : path
        A CSV, TSV or Parquet file, an archive, or a folder.
    user : str, optional
        Name of the column with the user; by default it is recognised.
    item : str, optional
        Name of the column with the item; by default it is recognised.
    rating : str, optional
        Name of the column with the rating; by default it is recognised.
    time : str, optional
        Name of the column with the time; by default it is recognised.
    delimiter : str, optional
        Character between two columns of a text; by default it is recognised.
    skip_bad : bool, default False
        Whether bad rows are counted and skipped; otherwise the first one raises `BadInput` with file and
        line.
    duplicates : "error", "last", "first", "mean" or "sum", optional
        How several ratings of one item by one user are resolved; "last" and "first" go by time, else by
        position. By default they are an error; with `skip_bad` the last one is kept; clicks are summed.
    clicks : bool, default False
        Whether rows are clicks: a row without a rating counts 1.

    Returns
    -------
    Reading
        The ratings, and a report of the rows that were skipped.

    Raises
    ------
    BadInput
        If the file cannot be read as ratings.

    Examples
    --------
    >>> from pathlib import Path
    >>> from asyncqn_recommender import read_ratings
    >>> _ = Path("ratings.csv").write_text("user,item,rating\\n1,10,5\\n1,20,3\\n2,20,4\\n")
    >>> read_ratings("ratings.csv").ratings
    Ratings(3 ratings of 2 users on 2 items)
    """
    check_policy(duplicates)
    duplicates = duplicates or ("sum" if clicks else None)
    asked = Columns(user, item, rating, time)
    source, title_source = find(path)
    with telling_unreadable(source):
        source.check_size()
        if title_source is not None:
            title_source.check_size(MAX_TITLE_BYTES)
    bad = BadRows(source.label, skip_bad)
    # By the name without the suffix of a compression, so that ratings.parquet.gz is Parquet.
    if source.name.lower().endswith((".parquet", ".pq")):
        ratings, place = _read_parquet(source, bad, asked, clicks)
    else:
        ratings, place = _read_text(source, bad, title_source is not None, asked, delimiter, clicks)
    ratings, repeated = _without_repeats(ratings, bad, place, duplicates)
    # Titles of MovieLens have integer ids; with texts as ids the file beside it is not about these items.
    if title_source is not None and ratings.item_ids.dtype.kind == "i":
        with telling_unreadable(title_source), title_source.open() as stream:
            data = stream.read()
        titles, bad_lines = read_titles(data, title_source.label, skip_bad=skip_bad)
        ratings = with_titles(ratings, titles)
        bad.count += bad_lines
    return Reading(ratings, bad.count, tuple(bad.shown), repeated)


Place = Callable[[int], tuple[str, int]]
"""Returns the unit ("line" or "row") and number of a rating in its file."""


def _read_text(
    source: Source, bad: BadRows, movielens: bool, asked: Columns, delimiter: str | None, clicks: bool
) -> tuple[Ratings, Place]:
    dialect = detect(source, asked, movielens=movielens, delimiter=delimiter, clicks=clicks)
    ratings, lines = read_clean(source, dialect), None
    if ratings is None:
        # Bytes from a broken archive are not bad rows, so the archive is checked first.
        source.check()
        ratings, lines = scan(source, dialect, bad)
    if len(ratings) == 0:
        raise BadInput(f"{source.label}, line {dialect.skip + 1}: the file has no usable row of ratings.")
    return ratings, lambda row: ("line", line_of(source, dialect, row) if lines is None else int(lines[row]))


def _read_parquet(source: Source, bad: BadRows, asked: Columns, clicks: bool) -> tuple[Ratings, Place]:
    lib, parquet = arrow(), arrow("pyarrow.parquet")
    try:
        with source.open() as stream:
            # Parquet is read from its end, so that a compressed file must be in memory as a whole.
            file = parquet.ParquetFile(str(source.path) if source.plain else lib.BufferReader(stream.read()))
            names = choose(file.schema_arrow.names, source.label, asked, clicks)
            _check_rows(source, file)
            table = file.read(columns=names.present)
    except (lib.ArrowException, *ZIP_ERRORS) as error:
        # `BadInput` is a ValueError, and so among the errors of `zipfile`; its sentence is the better one.
        if isinstance(error, BadInput):
            raise
        source.check()
        raise DamagedFile(f"{source.label} is not a complete Parquet file: write it again.") from error
    usable = usable_rows(table, names)
    rows = np.flatnonzero(usable)
    for row in np.flatnonzero(~usable).tolist():
        bad.add(row + 1, "a user, an item or a finite rating is missing", "row")
    if len(rows) == 0:
        raise BadInput(f"{source.label}, row 1: the file has no usable row of ratings.")
    ratings = from_usable(table.filter(lib.array(usable)), names, asked.time is not None, source.label)
    return ratings, lambda row: ("row", int(rows[row]) + 1)


def _check_rows(source: Source, file: Any) -> None:
    """Raise `DamagedFile` for more rows than bytes can encode: a row needs at least a bit."""
    # The metadata are read before any column, so a forged count costs nothing.
    rows, length = file.metadata.num_rows, source.path.stat().st_size
    if rows > 1_000_000 and rows > 8 * length:
        raise DamagedFile(
            f"{source.label} claims {rows:,} rows in {length:,} bytes, which is impossible: write it again."
        )


def _without_repeats(
    ratings: Ratings, bad: BadRows, place: Place, duplicates: str | None
) -> tuple[Ratings, int]:
    """Return ratings with distinct pairs and the number of rows dropped; without a policy those are bad
    rows."""
    if duplicates is None or duplicates == "error":
        repeated = repeated_rows(ratings)
        if not repeated.any():
            return ratings, 0
        rows = np.flatnonzero(repeated)
        # Finding the line of a row means reading the file again, so only a few are named.
        for row in rows[:5].tolist():
            user, item = ratings.user_ids[ratings.users[row]], ratings.item_ids[ratings.items[row]]
            unit, number = place(row)
            what = f"user {user} rates item {item} a second time"
            if duplicates == "error":
                raise BadInput(f"{bad.label}, {unit} {number}: {what}; keep one with duplicates='last'.")
            bad.add(number, what, unit, "keep the newest with --duplicates last (duplicates='last')")
        # The rows that were not named above are bad as well.
        bad.count += max(0, len(rows) - 5)
        return resolve(ratings, "last").ratings, 0
    return resolve(ratings, duplicates)
