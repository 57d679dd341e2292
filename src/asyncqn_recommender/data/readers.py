"""`read_ratings`: MovieLens of every size, and CSV, TSV or Parquet with named columns, also compressed.

Arrow parses the files.  A row is named by its number: the header is row 1, and blank lines do not count.
"""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, DamagedFile, require
from asyncqn_recommender.data.arrow import arrow, usable_rows
from asyncqn_recommender.data.columns import Names, RatingColumns, choose
from asyncqn_recommender.data.duplicates import check_policy, repeated_rows, resolve
from asyncqn_recommender.data.ids import whole_number
from asyncqn_recommender.data.ratings import Ratings, from_usable, with_titles
from asyncqn_recommender.data.sources import Source, find

_DELIMITERS = (",", "\t", ";", "|")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Enough for the header and the first row.
_FIRST_BYTES = 1 << 16
_ROW_OF_100K = re.compile(r"\d+\t\d+\t\d+(\.\d+)?(\t\d+)?")
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
# Bad rows that are shown in full; the others are only counted.
_MAX_SENTENCES = 10


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


@dataclass
class BadRows:
    """The bad rows of a file: the first one raises an error, or all are counted and skipped."""

    label: str
    skip: bool
    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, faults: dict[int, str], advice: str = "fix the file") -> None:
        """Raise `BadInput` for the first of these rows, by number, or count them."""
        for number in sorted(faults):
            sentence = f"{self.label}, row {number}: {faults[number]}"
            require(
                self.skip,
                f"{sentence}; {advice}, or skip bad rows with --skip-bad (skip_bad=True).",
            )
            if len(self.shown) == _MAX_SENTENCES:
                break
            self.shown.append(sentence)
        self.count += len(faults)


class FileLayout(NamedTuple):
    """The layout of a text file: all columns in their order, and those that are read."""

    columns: list[str]
    names: Names
    delimiter: str
    header: bool
    """Whether the first row names the columns; such files may have quoted fields."""


@dataclass(frozen=True)
class Rows:
    """Rows of a file as an Arrow table, with the number of each."""

    table: Any
    numbers: npt.NDArray[np.int64]
    faults: dict[int, str] = field(default_factory=dict)
    """What is wrong with rows that are not in the table, by their numbers."""


def read_ratings(
    path: str | os.PathLike[str],
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
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
    given = RatingColumns(user, item, rating, time)
    source, title_source = find(path)
    bad = BadRows(source.label, skip_bad)
    parquet = source.name.lower().endswith((".parquet", ".pq"))
    if parquet:
        rows, names = _parquet_rows(source, given, clicks)
    else:
        data = source.read().removeprefix(_BYTE_ORDER_MARK).lstrip(b"\r\n")
        require(bool(data), f"{source.label} is empty: give a file of ratings.")
        layout = None
        # Formats without a header are recognised only if the user says nothing else about the file.
        if given == RatingColumns():
            layout = _movielens_layout(data, source.name)
        if layout is None:
            layout = _header_layout(data, source.label, given, clicks)
        names = layout.names
        rows = _text_rows(data, layout, bad.label)
    # Values that are not valid are nulls by now, in whichever format they came.
    usable = usable_rows(rows.table, names, time is not None)
    lacking = "a user, an item or a finite rating"
    if time is not None:
        lacking = "a user, an item, a finite rating or a time"
    lacks = f"{lacking} is missing or not valid"
    bad.add(rows.faults | dict.fromkeys(rows.numbers[~usable].tolist(), lacks))
    if not usable.any():
        raise BadInput(f"{source.label}: the file has no usable row of ratings.")
    sound = rows.table.filter(arrow().array(usable))
    ratings = from_usable(sound, names, spelled=not parquet)
    ratings, repeated = _distinct(ratings, bad, rows.numbers[usable], duplicates)
    # Titles of MovieLens have integer ids; with texts as ids the file beside it is not about these items.
    if title_source is not None and ratings.item_ids.dtype.kind == "i":
        ratings = with_titles(ratings, _read_titles(title_source, bad))
    return Reading(ratings, bad.count, tuple(bad.shown), repeated)


def _movielens_layout(data: bytes, name: str) -> FileLayout | None:
    """Return the layout of a MovieLens file without a header, or None."""
    first = _first_line(data)
    colons = name.endswith(".dat") or first.count("::") >= 2
    if not colons and name != "u.data" and _ROW_OF_100K.fullmatch(first) is None:
        return None
    delimiter = "::" if colons else "\t"
    # Some files in this form have no times.
    time = None if first.count(delimiter) == 2 else "time"
    names = Names("user", "item", "rating", time)
    return FileLayout(names.present, names, delimiter, header=False)


def _header_layout(
    data: bytes, label: str, given: RatingColumns, clicks: bool
) -> FileLayout:
    """Return the layout of a file whose first row names the columns."""
    first = _first_line(data)
    headers = {mark: _fields(first, mark) for mark in _DELIMITERS}
    # The delimiter that gives the most fields in the first line wins.
    best = max(headers, key=lambda mark: len(headers[mark]))
    names = choose(headers[best], f"{label}, row 1", given, clicks)
    return FileLayout(headers[best], names, best, header=True)


def _first_line(data: bytes) -> str:
    # Not `splitlines`, which also splits at characters that may be part of a name.
    return re.split("[\r\n]", data[:_FIRST_BYTES].decode("utf-8", "replace"))[0]


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        fields = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
    return [name.strip() for name in fields]


def _text_rows(data: bytes, layout: FileLayout, label: str) -> Rows:
    """Return the rows of a text file, with nulls in place of values that are not valid."""
    lib = arrow()
    user, item, rating, time = layout.names
    types = {user: lib.int64(), item: lib.int64()}
    if rating is not None:
        types[rating] = lib.float32()
    first = 1 + layout.header
    try:
        # At full speed if all ids are integers and every row is sound.
        table = _parse(data, layout, types)
        return Rows(table, np.arange(first, first + len(table)))
    except lib.ArrowException:
        types = dict.fromkeys(types, lib.string())
    rows = _words(data, layout, types, label)
    compute = arrow("pyarrow.compute")
    table = rows.table

    def only(name: str, pattern: str) -> Any:
        words = table[name]
        fits = compute.match_substring_regex(words, pattern=pattern)
        return compute.if_else(fits, words, None)

    for place, name in enumerate(table.column_names):
        if name == rating:
            words = compute.utf8_trim_whitespace(only(name, _NUMBER))
            # `safe=False`: a number with more digits than float32 has is rounded.
            column = words.cast(lib.float32(), safe=False)
        elif name == time:
            continue
        # Files without a header are MovieLens files, in which an id is a number.
        else:
            column = only(name, r"\S" if layout.header else r"^\s*\d{1,18}\s*$")
        table = table.set_column(place, name, column)
    return replace(rows, table=table)


def _words(data: bytes, layout: FileLayout, types: dict[str, Any], label: str) -> Rows:
    """Return the rows with the right number of fields; the others are faults."""
    try:
        # Arrow would report each bad row by an exception of its own.
        data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{label} is not UTF-8 text: convert it.") from None
    lib = arrow()
    faults: dict[int, str] = {}

    def skip(row: Any) -> str:
        faults[row.number] = (
            f"{row.actual_columns} fields where {row.expected_columns} separated by "
            f"{layout.delimiter!r} are expected"
        )
        return "skip"

    try:
        table = _parse(data, layout, types, skip)
    except lib.ArrowException as error:
        reason = str(error).partition("\n")[0][:200]
        raise BadInput(
            f"{label} cannot be read as a table of text ({reason})."
        ) from error
    first = 1 + layout.header
    every = np.arange(first, first + len(table) + len(faults))
    # Rows with a wrong number of fields are not in the table, but count.
    numbers = np.setdiff1d(every, list(faults), assume_unique=True)
    return Rows(table, numbers, faults)


def _parse(
    data: bytes, layout: FileLayout, types: dict[str, Any], on_invalid: Any = None
) -> Any:
    lib = arrow()
    reader = arrow("pyarrow.csv")
    # Arrow takes delimiters of one byte.
    colons = layout.delimiter == "::"
    return reader.read_csv(
        lib.BufferReader(data.replace(b"::", b"\t") if colons else data),
        read_options=reader.ReadOptions(
            # Arrow knows the numbers of rows only if it reads them in order.
            use_threads=on_invalid is None,
            column_names=layout.columns,
            skip_rows=int(layout.header),
        ),
        parse_options=reader.ParseOptions(
            delimiter="\t" if colons else layout.delimiter,
            # Formats without a header have no quoted fields, and a stray quote would swallow rows.
            quote_char='"' if layout.header else False,
            newlines_in_values=layout.header,
            invalid_row_handler=on_invalid,
        ),
        convert_options=reader.ConvertOptions(
            column_types=types,
            include_columns=layout.names.present,
            null_values=_MISSING,
            strings_can_be_null=True,
        ),
    )


def _parquet_rows(
    source: Source, given: RatingColumns, clicks: bool
) -> tuple[Rows, Names]:
    lib = arrow()
    data = lib.BufferReader(source.read())
    damaged = DamagedFile(
        f"{source.label} is not a complete Parquet file: write it again."
    )
    errors = (lib.ArrowException, OSError, ValueError, RuntimeError)
    try:
        file = arrow("pyarrow.parquet").ParquetFile(data)
    except errors as error:
        raise damaged from error
    # Only the columns that are needed are decoded.
    names = choose(file.schema_arrow.names, source.label, given, clicks)
    try:
        table = file.read(columns=names.present)
    except errors as error:
        raise damaged from error
    return Rows(table, np.arange(1, 1 + len(table))), names


def _distinct(
    ratings: Ratings,
    bad: BadRows,
    numbers: npt.NDArray[np.int64],
    duplicates: str | None,
) -> tuple[Ratings, int]:
    """Return ratings with distinct pairs and how many rows were dropped; without a policy those are bad."""
    if duplicates not in (None, "error"):
        return resolve(ratings, str(duplicates))
    faults = {}
    for row in np.flatnonzero(repeated_rows(ratings)).tolist():
        user = ratings.user_ids[ratings.users[row]]
        item = ratings.item_ids[ratings.items[row]]
        faults[int(numbers[row])] = f"user {user} rates item {item} a second time"
    if duplicates == "error" and faults:
        number = min(faults)
        raise BadInput(
            f"{bad.label}, row {number}: {faults[number]}; keep one with "
            "duplicates='last'."
        )
    bad.add(faults, "keep the newest with --duplicates last (duplicates='last')")
    return resolve(ratings, "last")[0], 0


def _read_titles(source: Source, bad: BadRows) -> dict[int, str]:
    """Return titles by movie id from movies.dat, movies.csv or u.item.

    The 1M and 100K files are Latin-1 and the later ones UTF-8; a file that is not UTF-8 is read as Latin-1.
    """
    data = source.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    kind = PurePosixPath(source.name).suffix
    delimiter = {".csv": ",", ".dat": "::"}.get(kind, "|")
    width = 1 + text.partition("\n")[0].count(delimiter)
    columns = ["movie", "title", *map(str, range(2, width))]
    names = Names("movie", "title", None)
    layout = FileLayout(columns, names, delimiter, header=kind == ".csv")
    words = dict.fromkeys(names.present, arrow().string())
    rows = _words(text.encode(), layout, words, source.label)
    titles: dict[int, str] = {}
    words_and_titles = (column.to_pylist() for column in rows.table.columns)
    for number, word, title in zip(rows.numbers.tolist(), *words_and_titles):
        movie = whole_number(word)
        if movie is None or movie < 0:
            rows.faults[number] = f"the movie id {word!r:.40} is not a positive integer"
        else:
            titles[movie] = str(title or "")
    faulty = BadRows(source.label, bad.skip)
    faulty.add(rows.faults)
    bad.count += faulty.count
    return titles
