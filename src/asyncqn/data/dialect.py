"""How the rows of a text file are written: delimiter, header, and where user, item and rating stand."""

from __future__ import annotations

import csv
import re
from typing import NamedTuple

from asyncqn.data.columns import choose
from asyncqn.data.sources import ZIP_ERRORS, Source, unreadable
from asyncqn.errors import BadInput, require

_DELIMITERS = (",", "\t", ";", "|")
_FIRST_BYTES = 1 << 16
_ROW_OF_100K = re.compile(r"\d+\t\d+\t\d+(\.\d+)?(\t\d+)?")


class Dialect(NamedTuple):
    """The form of a text file of ratings."""

    delimiter: str
    quoted: bool
    """Whether a field may stand in double quotes."""
    skip: int
    """Lines before the first row: the header and blank lines above it."""
    width: int
    """Fields in every row."""
    user: int
    item: int
    rating: int
    whole_ids: bool
    """Whether ids must be whole numbers that are not negative, as MovieLens promises."""


def detect(
    source: Source,
    *,
    movielens: bool,
    user: str | None,
    item: str | None,
    rating: str | None,
    delimiter: str | None,
) -> Dialect:
    """The dialect of `source`, judged by its name and its first line."""
    try:
        with source.open() as stream:
            head = stream.read(_FIRST_BYTES).decode("utf-8-sig", errors="replace")
    except ZIP_ERRORS as error:
        raise unreadable(source, error) from error
    lines = re.split("\r\n|\r|\n", head)
    above = next((k for k, line in enumerate(lines) if line.strip()), None)
    if above is None:
        raise BadInput(f"{source.label}, line 1: the file is empty.")
    first = lines[above]
    named = not (user is None and item is None and rating is None and delimiter is None)
    if not named and (source.name.endswith(".dat") or first.count("::") >= 2):
        width = 3 if first.count("::") == 2 else 4
        return Dialect("::", False, 0, width, 0, 1, 2, True)
    if not named and (source.name == "u.data" or _ROW_OF_100K.fullmatch(first)):
        width = 3 if first.count("\t") == 2 else 4
        return Dialect("\t", False, 0, width, 0, 1, 2, True)
    return _with_header(source, first, above + 1, movielens, delimiter, (user, item, rating))


def _with_header(
    source: Source,
    first: str,
    skip: int,
    movielens: bool,
    delimiter: str | None,
    asked: tuple[str | None, str | None, str | None],
) -> Dialect:
    if delimiter is not None:
        usable = len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n\0'
        require(usable, f"the delimiter must be one plain character, not {delimiter!r}.")
    found: list[str] = []
    best = delimiter or ","
    for candidate in (delimiter,) if delimiter else _DELIMITERS:
        try:
            fields = next(csv.reader([first], delimiter=candidate), [])
        except csv.Error:
            continue
        if len(fields) > len(found):
            found, best = fields, candidate
    found = [name.strip() for name in found]
    names = choose(found, f"{source.label}, line {skip}", *asked)
    places = [found.index(name) for name in names]
    whole = movielens and found[:3] == ["userId", "movieId", "rating"]
    return Dialect(best, True, skip, len(found), places[0], places[1], places[2], whole)
