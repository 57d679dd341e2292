"""`read_ratings`: MovieLens of every size, and CSV, TSV or Parquet with named columns, also compressed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile
from asyncqn_recommender.data.arrow import arrow, usable_rows
from asyncqn_recommender.data.columns import Columns, choose
from asyncqn_recommender.data.duplicates import check_policy, repeated_rows, resolve
from asyncqn_recommender.data.ratings import Ratings, from_usable
from asyncqn_recommender.data.sources import Source, find
from asyncqn_recommender.data.text import (
    BadRows,
    Faults,
    checked_table,
    header_layout,
    movielens_layout,
    sound_table,
    without_mark,
)
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
        sentences = [f"Skipped: {problem}" for problem in self.problems]
        if self.skipped:
            sentences.append(f"bad rows skipped: {self.skipped:,}")
        if self.repeated:
            sentences.append(f"rows that repeat a user and an item: {self.repeated:,}")
        return sentences


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
    """Read ratings from a file, plain or compressed (.gz, .zst, .bz2), a zip archive or a MovieLens folder.

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
        row.
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
    bad = BadRows(source.label, skip_bad)
    # By the name without the suffix of a compression, so that ratings.parquet.gz is Parquet.
    if source.name.lower().endswith((".parquet", ".pq")):
        ratings, numbers = _read_parquet(source, bad, asked, clicks)
    else:
        ratings, numbers = _read_text(
            source, bad, title_source is not None, asked, delimiter, clicks
        )
    ratings, repeated = _without_repeats(ratings, bad, numbers, duplicates)
    # Titles of MovieLens have integer ids; with texts as ids the file beside it is not about these items.
    if title_source is not None and ratings.item_ids.dtype.kind == "i":
        bad_titles = BadRows(title_source.label, skip_bad)
        ratings = with_titles(
            ratings, read_titles(title_source.read(), title_source.name, bad_titles)
        )
        bad.count += bad_titles.count
    return Reading(ratings, bad.count, tuple(bad.shown), repeated)


Numbers: TypeAlias = range | npt.NDArray[np.int64]
"""The number of each rating's row in its file."""


def _read_text(
    source: Source,
    bad: BadRows,
    titled: bool,
    asked: Columns,
    delimiter: str | None,
    clicks: bool,
) -> tuple[Ratings, Numbers]:
    data = without_mark(source.read())
    if not data:
        raise BadInput(f"{source.label} is empty: give a file of ratings.")
    layout = None
    # Formats without a header are recognised only if the user says nothing else about the file.
    if asked == Columns() and delimiter is None:
        layout = movielens_layout(data, source.name)
    if layout is None:
        layout = header_layout(data, source.label, asked, delimiter, clicks)
        # In MovieLens files an id that is not an integer is a fault of the file, and not a text.
        layout = layout._replace(
            whole_ids=titled and layout.columns[:3] == ["userId", "movieId", "rating"]
        )
    table = sound_table(data, layout, asked.time is not None)
    if table is not None:
        numbers: Numbers = range(1 + layout.header, 1 + layout.header + len(table))
    else:
        table, numbers, faults = checked_table(
            data, layout, source.label, asked.time is not None
        )
        bad.add_all(faults)
    if len(table) == 0:
        raise BadInput(f"{source.label}: the file has no usable row of ratings.")
    return from_usable(table, layout.names, spelled=True), numbers


def _read_parquet(
    source: Source, bad: BadRows, asked: Columns, clicks: bool
) -> tuple[Ratings, Numbers]:
    lib = arrow()
    parquet = arrow("pyarrow.parquet")
    with _whole_parquet(source):
        file = parquet.ParquetFile(lib.BufferReader(source.read()))
    names = choose(file.schema_arrow.names, source.label, asked, clicks)
    with _whole_parquet(source):
        table = file.read(columns=names.present)
    usable = usable_rows(table, names, asked.time is not None)
    lacking = "a user, an item or a finite rating is missing"
    if asked.time is not None:
        lacking = "a user, an item, a finite rating or a time is missing"
    bad.add_all(dict.fromkeys((np.flatnonzero(~usable) + 1).tolist(), lacking))
    if not usable.any():
        raise BadInput(f"{source.label}: the file has no usable row of ratings.")
    return from_usable(table.filter(lib.array(usable)), names), np.flatnonzero(
        usable
    ) + 1


@contextmanager
def _whole_parquet(source: Source) -> Iterator[None]:
    try:
        yield
    except AsyncqnError:
        raise
    except (arrow().ArrowException, OSError, ValueError, RuntimeError) as error:
        raise DamagedFile(
            f"{source.label} is not a complete Parquet file: write it again."
        ) from error


def _without_repeats(
    ratings: Ratings, bad: BadRows, numbers: Numbers, duplicates: str | None
) -> tuple[Ratings, int]:
    """Return ratings with distinct pairs and the number of rows dropped; without a policy those are bad
    rows."""
    if duplicates not in (None, "error"):
        return resolve(ratings, str(duplicates))
    repeats: Faults = {}
    for row in np.flatnonzero(repeated_rows(ratings)).tolist():
        user = ratings.user_ids[ratings.users[row]]
        item = ratings.item_ids[ratings.items[row]]
        repeats[int(numbers[row])] = f"user {user} rates item {item} a second time"
    if duplicates == "error" and repeats:
        number = min(repeats)
        raise BadInput(
            f"{bad.label}, row {number}: {repeats[number]}; keep one with duplicates='last'."
        )
    bad.add_all(repeats, "keep the newest with --duplicates last (duplicates='last')")
    return resolve(ratings, "last").ratings if repeats else ratings, 0
