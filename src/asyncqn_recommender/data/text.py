"""Rows of a text file, read by Arrow: at full speed if all are sound, otherwise with a name for each fault.

A row is named by its number: the header is row 1, and blank lines do not count.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn_recommender.data.arrow import MISSING_WORDS, arrow, time_column
from asyncqn_recommender.data.columns import Columns, Names, choose
from asyncqn_recommender.data.ids import MAX_ID_LENGTH, whole_number

_DELIMITERS = (",", "\t", ";")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Enough for the header and the first row.
_FIRST_BYTES = 1 << 16
_ROW_OF_100K = re.compile(r"\d+\t\d+\t\d+(\.\d+)?(\t\d+)?")
# Bad rows that are shown in full; the others are only counted.
_MAX_SENTENCES = 10
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


Faults = dict[int, str]
"""What is wrong with a row, by its number."""


@dataclass
class BadRows:
    """The bad rows of a file: the first one raises an error, or all are counted and skipped."""

    label: str
    skip: bool
    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add_all(self, faults: Faults, advice: str = "fix the file") -> None:
        """Raise `BadInput` for the first of these rows, or count them if bad rows are skipped."""
        for number in sorted(faults):
            sentence = f"{self.label}, row {number}: {faults[number]}"
            if not self.skip:
                raise BadInput(
                    f"{sentence}; {advice}, or skip bad rows with --skip-bad (skip_bad=True)."
                )
            if len(self.shown) == _MAX_SENTENCES:
                break
            self.shown.append(sentence)
        self.count += len(faults)


class Layout(NamedTuple):
    """The layout of a text file."""

    columns: list[str]
    """The names of all columns, in their order."""
    names: Names
    """The columns that are read."""
    delimiter: str = ","
    header: bool = True
    """Whether the first row names the columns; such files may have quoted fields."""
    whole_ids: bool = False
    """Whether ids must be non-negative integers, as in MovieLens files."""


def single_bytes(data: bytes) -> bytes:
    """Return the content of a file with tabs in place of `::`, because Arrow takes delimiters of one byte."""
    return data.replace(b"::", b"\t")


def movielens_layout(data: bytes, name: str) -> Layout | None:
    """Return the layout of a MovieLens file without a header, or None."""
    first = (
        data[:_FIRST_BYTES].decode("utf-8", "replace").partition("\n")[0].rstrip("\r")
    )
    colons = name.endswith(".dat") or first.count("::") >= 2
    if not colons and name != "u.data" and _ROW_OF_100K.fullmatch(first) is None:
        return None
    columns = ["user", "item", "rating", "time"]
    # Some files in this form have no times.
    if first.count("::" if colons else "\t") == 2:
        del columns[3]
    time = "time" if "time" in columns else None
    names = Names("user", "item", "rating", time)
    return Layout(
        columns, names, "::" if colons else "\t", header=False, whole_ids=True
    )


def header_layout(
    data: bytes,
    label: str,
    asked: Columns,
    delimiter: str | None = None,
    clicks: bool = False,
) -> Layout:
    """Return the layout of a file whose first row names the columns."""
    if delimiter is not None:
        usable = (
            len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n\0'
        )
        require(
            usable,
            f"the delimiter must be one ASCII character other than a quote, not {delimiter!r}.",
        )
    # Not `splitlines`, which also splits at characters that may be part of a name.
    first = re.split(
        "[\r\n]", data[:_FIRST_BYTES].decode("utf-8", "replace"), maxsplit=1
    )[0]
    headers = {
        mark: _fields(first, mark)
        for mark in (delimiter and [delimiter]) or _DELIMITERS
    }
    # The delimiter that gives the most fields in the first line wins.
    best = max(headers, key=lambda mark: len(headers[mark]))
    columns = headers[best]
    return Layout(columns, choose(columns, f"{label}, row 1", asked, clicks), best)


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return [
            name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])
        ]
    except csv.Error:
        return []


def sound_table(data: bytes, layout: Layout, time_asked: bool) -> Any:
    """Return the columns of a file with integer ids in which every row is sound; None for any other file."""
    lib = arrow()
    user, item, rating, time = layout.names
    types = {user: lib.int64(), item: lib.int64()}
    if rating is not None:
        types[rating] = lib.float32()
    try:
        table = _parse(data, layout, types)
    except lib.ArrowException:
        return None
    if len(table) == 0 or any(table[name].null_count for name in types):
        return None
    least = arrow("pyarrow.compute").min
    if (
        layout.whole_ids
        and min(least(table[name]).as_py() for name in (user, item)) < 0
    ):
        return None
    if time is not None and time_asked and np.isnan(time_column(table[time])).any():
        return None
    return (
        None
        if rating is not None and not np.isfinite(table[rating].to_numpy()).all()
        else table
    )


def words_table(
    data: bytes, layout: Layout, label: str, wordy: list[str]
) -> tuple[Any, npt.NDArray[np.int64], Faults]:
    """Return the rows with the right number of fields, the number of each, and the faults of the others.

    The columns `wordy` are dictionaries of texts; the types of other columns are inferred.
    """
    lib = arrow()
    faults: Faults = {}

    def skip(row: Any) -> str:
        faults[row.number] = (
            f"found {row.actual_columns} field{'s' * (row.actual_columns != 1)} where {row.expected_columns} "
            f"separated by {layout.delimiter!r} are expected"
        )
        return "skip"

    words = lib.dictionary(lib.int32(), lib.string())
    try:
        table = _parse(_valid_text(data), layout, dict.fromkeys(wordy, words), skip)
    except lib.ArrowException as error:
        reason = str(error).partition("\n")[0][:200]
        raise BadInput(
            f"{label} cannot be read as a table of text ({reason})."
        ) from error
    first = 1 + layout.header
    every = np.arange(first, first + len(table) + len(faults))
    # `column` is read from one dictionary, although its chunks had one each.
    return (
        table.unify_dictionaries(),
        np.setdiff1d(every, list(faults), assume_unique=True),
        faults,
    )


def _valid_text(data: bytes) -> bytes:
    """Return the content with null characters in place of bytes that are not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return re.sub(
            "[\udc80-\udcff]", "\0", data.decode("utf-8", "surrogateescape")
        ).encode()
    return data


def _parse(
    data: bytes, layout: Layout, types: dict[Any, Any], on_invalid: Any = None
) -> Any:
    lib = arrow()
    reader = arrow("pyarrow.csv")
    colons = layout.delimiter == "::"
    return reader.read_csv(
        lib.BufferReader(single_bytes(data) if colons else data),
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
            column_types=types, include_columns=layout.names.present
        ),
    )


def checked_table(
    data: bytes, layout: Layout, label: str, time_asked: bool
) -> tuple[Any, npt.NDArray[np.int64], Faults]:
    """Return the sound rows of a file, the number of each, and the faults of all others."""
    lib = arrow()
    user, item, rating, time = layout.names
    checks = {user: _user_fault, item: _item_fault} | (
        {} if rating is None else {rating: _rating_fault}
    )
    table, numbers, faults = words_table(data, layout, label, list(checks))
    columns: dict[str, Any] = {}
    for name, fault_of in checks.items():
        column = table[name].combine_chunks()
        codes = column.indices.to_numpy()
        words = column.dictionary.to_pylist()
        wrong = [fault_of(word, layout.whole_ids) for word in words]
        bad_words = np.array([fault is not None for fault in wrong], bool)
        for row in np.flatnonzero(bad_words[codes]).tolist():
            faults.setdefault(int(numbers[row]), str(wrong[codes[row]]))
        if name == rating:
            values = [
                0.0 if fault else float(word) for word, fault in zip(words, wrong)
            ]
            columns[name] = np.array(values, np.float32)[codes]
        else:
            spelled = ["" if fault else word for word, fault in zip(words, wrong)]
            columns[name] = lib.DictionaryArray.from_arrays(
                column.indices, lib.array(spelled, lib.string())
            )
    if time is not None:
        columns[time] = time_column(table[time])
        for row in (
            np.flatnonzero(np.isnan(columns[time])).tolist() if time_asked else ()
        ):
            word = str(table[time][row])[:40]
            faults.setdefault(
                int(numbers[row]),
                f"the time {word!r} is neither a number nor an ISO date",
            )
    keep = ~np.isin(numbers, list(faults))
    return lib.table(columns).filter(lib.array(keep)), numbers[keep], faults


def _user_fault(word: str, whole: bool) -> str | None:
    return _id_fault("user", word, whole)


def _item_fault(word: str, whole: bool) -> str | None:
    return _id_fault("item", word, whole)


def _id_fault(role: str, word: str, whole: bool) -> str | None:
    """Return a phrase about what is wrong with an id, or None."""
    bare = word.strip()
    if bare in MISSING_WORDS:
        return f"the {role} id is missing"
    number = whole_number(bare)
    if whole and number is None:
        return f"the {role} id {bare[:40]!r} is not an integer"
    if whole and number is not None and number < 0:
        return f"the {role} id {number} is negative"
    if len(word) > MAX_ID_LENGTH:
        return (
            f"the {role} id {word[:20]!r}... is longer than {MAX_ID_LENGTH} characters"
        )
    if "\0" in word:
        return f"the {role} id is not valid UTF-8 text, or has a null character"
    return None


def _rating_fault(word: str, whole: bool) -> str | None:
    if not word.strip():
        return "the rating is missing"
    try:
        # Python's `float` accepts "1_000" and digits of other scripts, which Arrow does not; both must agree.
        value = float(word if word.isascii() and "_" not in word else "")
    except ValueError:
        return f"the rating {word[:40]!r} is not a number"
    if not math.isfinite(value) or abs(value) > _MAX_FLOAT32:
        return f"the rating {word[:40]!r} is not a finite number"
    return None


def without_mark(data: bytes) -> bytes:
    """Return the content without a byte-order mark and without blank lines at its beginning."""
    return data.removeprefix(_BYTE_ORDER_MARK).lstrip(b"\r\n")
