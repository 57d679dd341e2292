"""The slow reader: one row at a time, so that every bad row can be reported with its line."""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput
from asyncqn_recommender.data.arrow import MISSING_WORDS
from asyncqn_recommender.data.dialect import Dialect
from asyncqn_recommender.data.ids import MAX_ID_LENGTH, Ids, Index, encode, settle, whole_number
from asyncqn_recommender.data.ratings import Ratings
from asyncqn_recommender.data.sources import Source
from asyncqn_recommender.data.times import time_of

# Bad rows that are shown in full; the others are only counted.
_MAX_SENTENCES = 10
# Ratings that are remembered as good; a file with more different ones is not worth a larger table.
_CACHE_SIZE = 10_000
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass
class BadRows:
    """The bad rows of a file: the first one raises an error, or all are counted and skipped."""

    label: str
    skip: bool
    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, line: int, what: str, unit: str = "line", advice: str = "fix the file") -> None:
        """Raise `BadInput` for this row, or count it if bad rows are skipped."""
        sentence = f"{self.label}, {unit} {line}: {what}"
        if not self.skip:
            raise BadInput(f"{sentence}; {advice}, or skip bad rows with --skip-bad (skip_bad=True).")
        self.count += 1
        if len(self.shown) < _MAX_SENTENCES:
            self.shown.append(sentence)


def scan(source: Source, dialect: Dialect, bad: BadRows) -> tuple[Ratings, npt.NDArray[np.int64]]:
    """Return the good rows of a file and the line of each; ids are interned as they come."""
    user_words: dict[str, int] = {}
    item_words: dict[str, int] = {}
    # Arrays of machine numbers need far less memory than lists of Python objects.
    users, items, values, lines, times = array("i"), array("i"), array("f"), array("q"), array("d")
    # Ids and ratings repeat: one that was good once needs no second check.
    known: dict[str, float] = {}
    user, item, rating, width = dialect.user, dialect.item, dialect.rating, dialect.width
    for line, fields in records(source, dialect):
        if (
            len(fields) != width
            or fields[user] not in user_words
            or fields[item] not in item_words
            or (word := "1" if rating is None else fields[rating]) not in known
        ):
            if fault := _fault(fields, dialect):
                bad.add(line, fault)
                continue
            # Emptied and not kept: a file of many different numbers then costs time, but no memory.
            if len(known) >= _CACHE_SIZE:
                known.clear()
            word = "1" if rating is None else fields[rating]
            known[word] = float(_plain(word, dialect))
            user_words.setdefault(fields[user], len(user_words))
            item_words.setdefault(fields[item], len(item_words))
        if dialect.time is not None:
            time = time_of(fields[dialect.time])
            if time is None and dialect.time_asked:
                bad.add(line, f"the time {fields[dialect.time][:40]!r} is neither a number nor an ISO date")
                continue
            # A recognised column with a single row that is no time is dropped as a whole, below.
            times.append(math.nan if time is None else time)
        users.append(user_words[fields[user]])
        items.append(item_words[fields[item]])
        values.append(known[word])
        lines.append(line)
    user_index, user_ids = _encode(users, user_words)
    item_index, item_ids = _encode(items, item_words)
    stamps = np.array(times, dtype=np.float64)
    told = dialect.time is not None and bool(np.isfinite(stamps).all())
    numbers = np.array(values, dtype=np.float32)
    ratings = Ratings(user_index, item_index, numbers, user_ids, item_ids, None, stamps if told else None)
    return ratings, np.array(lines, dtype=np.int64)


def line_of(source: Source, dialect: Dialect, row: int) -> int:
    """Return the line of the row-th record of a file in which every record is well formed."""
    return next(line for k, (line, _) in enumerate(records(source, dialect)) if k == row)


def records(source: Source, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number (from 1) and the fields of every row that is not blank."""
    with source.open() as stream:
        # csv must see the line ends itself, because a quoted field may contain one.
        newline = "" if dialect.quoted else None
        # Invalid bytes become surrogates, which `_fault` finds in an id and ignores elsewhere.
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline=newline)
        for _ in range(dialect.skip):
            text.readline()
        if dialect.quoted:
            yield from _quoted(text, dialect)
            return
        for line, record in enumerate(text, start=dialect.skip + 1):
            stripped = record.rstrip("\n")
            if stripped:
                yield line, stripped.split(dialect.delimiter)


def _quoted(text: io.TextIOWrapper, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text, delimiter=dialect.delimiter)
    while True:
        line = dialect.skip + reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error:
            # The field exceeds csv's limit: report a row without fields, and continue after it.
            yield line, []
            continue
        if fields is None:
            return
        if fields:
            yield line, fields


def _fault(fields: list[str], dialect: Dialect) -> str | None:
    """Return a phrase about what is wrong with a row, or None."""
    if len(fields) != dialect.width:
        return (
            f"found {len(fields)} field{'s' * (len(fields) != 1)} where {dialect.width} separated by "
            f"{dialect.delimiter!r} are expected"
        )
    for role, word in (("user", fields[dialect.user]), ("item", fields[dialect.item])):
        bare = word.strip()
        if bare in MISSING_WORDS:
            return f"the {role} id is missing"
        number = whole_number(bare)
        if dialect.whole_ids and number is None:
            return f"the {role} id {bare[:40]!r} is not an integer"
        if dialect.whole_ids and number is not None and number < 0:
            return f"the {role} id {number} is negative"
        if len(word) > MAX_ID_LENGTH:
            return f"the {role} id {word[:20]!r}... is longer than {MAX_ID_LENGTH} characters"
        if "\0" in word or any("\ud800" <= c <= "\udfff" for c in word):
            return f"the {role} id is not valid UTF-8 text"
    return None if dialect.rating is None else _rating_fault(fields[dialect.rating], dialect)


def _plain(word: str, dialect: Dialect) -> str:
    """Return a number in Python's notation."""
    return word.replace(",", ".", 1) if dialect.decimal == "," else word


def _rating_fault(word: str, dialect: Dialect) -> str | None:
    if not word.strip():
        return "the rating is missing"
    try:
        # Python's `float` accepts "1_000" and digits of other scripts, which Arrow does not; both readers
        # must agree.
        value = float(_plain(word, dialect) if word.isascii() and "_" not in word else "")
    except ValueError:
        return f"the rating {word[:40]!r} is not a number"
    if not math.isfinite(value) or abs(value) > _MAX_FLOAT32:
        return f"the rating {word[:40]!r} is not a finite number"
    return None


def _encode(codes: array[int], words: dict[str, int]) -> tuple[Index, Ids]:
    if not words:
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    place, table = encode(list(words), "row")
    # `codes` number the words in order of appearance, `place` maps them to the sorted table.
    return settle(place[np.array(codes, dtype=np.int32)], table)
