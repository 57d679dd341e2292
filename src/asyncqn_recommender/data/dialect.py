"""The dialect of a text file: delimiter, header, and the positions of user, item, rating and time."""

from __future__ import annotations

import csv
import re
from typing import NamedTuple

from asyncqn.errors import BadInput, require
from asyncqn_recommender.data.columns import Columns, choose
from asyncqn_recommender.data.sources import Source, telling_unreadable

_DELIMITERS = (",", "\t", ";", "|")
# Enough for the header and the first rows.
_FIRST_BYTES = 1 << 16
_WITH_COMMA = re.compile(r"[-+]?\d+,\d+")
_ROW_OF_100K = re.compile(r"\d+\t\d+\t\d+(\.\d+)?(\t\d+)?")


class Dialect(NamedTuple):
    """The dialect of a text file of ratings."""

    delimiter: str
    quoted: bool
    """Whether a field may be in double quotes."""
    skip: int
    """Lines before the first row: the header and blank lines above it."""
    width: int
    """Number of fields in every row."""
    user: int
    item: int
    rating: int | None
    """None: every row is a click, which counts as a rating of 1."""
    whole_ids: bool
    """Whether ids must be non-negative integers, as in MovieLens files."""
    time: int | None = None
    """Position of the time; None: there is none."""
    time_asked: bool = False
    """Whether the user asked for the time, so that a row without one is bad."""
    time_is_number: bool = False
    """Whether the time of the first row is a number."""
    decimal: str = "."
    """The decimal separator of ratings: a point or a comma."""


def detect(
    source: Source,
    asked: Columns,
    *,
    movielens: bool = False,
    delimiter: str | None = None,
    clicks: bool = False,
) -> Dialect:
    """Return the dialect of `source`, from its name and its first lines."""
    with telling_unreadable(source), source.open() as stream:
        # Spreadsheets write a byte-order mark, which would become part of the first column's name.
        head = stream.read(_FIRST_BYTES).decode("utf-8-sig", errors="replace")
    # Not `splitlines`, which also splits at characters that may be part of an id.
    lines = re.split("\r\n|\r|\n", head)
    above = next((k for k, line in enumerate(lines) if line.strip()), None)
    if above is None:
        raise BadInput(f"{source.label}, line 1: the file is empty.")
    first = lines[above]
    # Formats without a header are recognised only if the user says nothing else about the file.
    if asked == Columns() and delimiter is None:
        for mark, told in (
            ("::", source.name.endswith(".dat") or first.count("::") >= 2),
            ("\t", source.name == "u.data" or _ROW_OF_100K.fullmatch(first)),
        ):
            if told and first.count(mark) == 2:
                return Dialect(mark, False, 0, 3, 0, 1, 2, True)
            if told:
                return Dialect(mark, False, 0, 4, 0, 1, 2, True, 3, False, True)
    return _with_header(source, lines[above:], above + 1, movielens, delimiter, asked, clicks)


def _with_header(
    source: Source,
    lines: list[str],
    skip: int,
    movielens: bool,
    delimiter: str | None,
    asked: Columns,
    clicks: bool,
) -> Dialect:
    if delimiter is not None:
        usable = len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n\0'
        require(usable, f"the delimiter must be one ASCII character other than a quote, not {delimiter!r}.")
    found: list[str] = []
    best = delimiter or ","
    # The delimiter that gives the most fields in the first line wins.
    for candidate in (delimiter,) if delimiter else _DELIMITERS:
        try:
            fields = next(csv.reader(lines[:1], delimiter=candidate), [])
        except csv.Error:
            continue
        if len(fields) > len(found):
            found, best = fields, candidate
    found = [name.strip() for name in found]
    names = choose(found, f"{source.label}, line {skip}", asked, clicks)
    user, item = found.index(names.user), found.index(names.item)
    rating = None if names.rating is None else found.index(names.rating)
    time = None if names.time is None else found.index(names.time)
    # In MovieLens files an id that is not an integer is a fault of the file, and not a text.
    whole = movielens and found[:3] == ["userId", "movieId", "rating"]
    is_number = time is not None and _tells_a_number(lines[1:], best, time)
    asked_for = asked.time is not None
    # The last line may be cut in the middle, so it is not examined.
    decimal = "," if rating is not None and _has_decimal_commas(lines[1:-1], best, rating) else "."
    return Dialect(
        best, True, skip, len(found), user, item, rating, whole, time, asked_for, is_number, decimal
    )


def _has_decimal_commas(lines: list[str], delimiter: str, place: int) -> bool:
    """Return whether ratings of the first rows are written as 3,5 and none as 3.5."""
    try:
        words = [row[place].strip() for row in csv.reader(lines, delimiter=delimiter) if len(row) > place]
    except csv.Error:
        return False
    return any(_WITH_COMMA.fullmatch(word) for word in words) and not any("." in word for word in words)


def _tells_a_number(lines: list[str], delimiter: str, place: int) -> bool:
    """Return whether the first row has a number at this position."""
    try:
        float(next(row for row in csv.reader(lines, delimiter=delimiter) if row)[place])
    except (csv.Error, StopIteration, IndexError, ValueError):
        return False
    return True
