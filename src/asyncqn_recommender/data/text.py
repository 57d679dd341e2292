"""Rows of a clean text file, read by Arrow at full speed; anything unusual is left to `scan`."""

from __future__ import annotations

import io
import time
import weakref
from traceback import clear_frames
from typing import IO, Any

import numpy as np

from asyncqn.errors import BadInput
from asyncqn_recommender.data.arrow import MISSING_WORDS, arrow, encode_text_column, time_column
from asyncqn_recommender.data.dialect import Dialect
from asyncqn_recommender.data.ids import Ids
from asyncqn_recommender.data.ratings import Ratings
from asyncqn_recommender.data.sources import ZIP_ERRORS, Source

# No text file should contain this control character, so it can replace `::`.
_UNIT_SEPARATOR = b"\x1f"
_BLOCK = 1 << 22
_RELEASE_TIMEOUT = 10.0
"""Longest wait for Arrow's threads, in seconds."""


class _Bytes(io.RawIOBase):
    """A stream for Arrow; when it is released, Arrow's threads have finished with it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next block."""
        return self._stream.read(size)


class _DoubleColons(_Bytes):
    """A stream in which `::` is one byte, so that Arrow can read the files of MovieLens 1M and 10M.

    A stray separator byte in the file would shift fields, so it ends the fast path.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        """Return the next block, cut where no `::` can straddle; it is empty only at the end."""
        # The byte that is carried over counts, because Arrow expects at most `size`.
        block = self._stream.read(_BLOCK if size < 0 else max(size - len(self._left), 1))
        if _UNIT_SEPARATOR in block:
            raise ValueError("separator byte in the data")
        block = self._left + block
        cut = len(block) > 1 and block.endswith(b":") and not block.endswith(b"::")
        self._left = b":" if cut else b""
        return block[: len(block) - len(self._left)].replace(b"::", _UNIT_SEPARATOR)


def read_clean(source: Source, dialect: Dialect) -> Ratings | None:
    """Return the ratings if every row is sound apart from repeated pairs; None if a row needs a closer
    look."""
    lib = arrow()
    number, text = lib.int64(), lib.dictionary(lib.int32(), lib.string())
    # Integers first, which most files have and which are read several times faster than texts.
    for kind in (number,) if dialect.whole_ids else (number, text):
        waiting: list[weakref.ref[_Bytes]] = []
        parsed = None
        try:
            with source.open() as stream:
                parsed = _parse(stream, dialect, kind, waiting)
            ratings = _finish(parsed, dialect)
        except (lib.ArrowException, BadInput, *ZIP_ERRORS):
            parsed = None
        except BaseException as error:
            clear_frames(error.__traceback__)  # they hold the stream, whose release is awaited below
            raise
        finally:
            _await_release(waiting)
        if parsed is not None:
            return ratings
    return None


def _await_release(streams: list[weakref.ref[_Bytes]]) -> None:
    """Wait until Arrow releases these streams.

    One of its threads may still hold one; a program that ends in the meantime is aborted, because that thread
    needs an interpreter that is gone.
    """
    ends = time.monotonic() + _RELEASE_TIMEOUT
    while any(stream() is not None for stream in streams) and time.monotonic() < ends:
        time.sleep(1e-3)


def _parse(stream: IO[bytes], dialect: Dialect, kind: Any, waiting: list[weakref.ref[_Bytes]]) -> Any:
    """Return the table; a weak reference to the stream is appended to `waiting`."""
    lib, reader = arrow(), arrow("pyarrow.csv")
    names = [str(k) for k in range(dialect.width)]
    wanted = {str(dialect.user): kind, str(dialect.item): kind}
    if dialect.rating is not None:
        wanted[str(dialect.rating)] = lib.float32()
    # Other columns are parsed, but not converted.
    included = list(wanted)
    if dialect.time is not None:
        included.append(str(dialect.time))
        if dialect.time_is_number:  # otherwise Arrow infers the kind of date
            wanted[str(dialect.time)] = lib.float64()
    colons = dialect.delimiter == "::"
    given = _DoubleColons(stream) if colons else _Bytes(stream)
    waiting.append(weakref.ref(given))
    return reader.read_csv(
        lib.PythonFile(given, mode="r"),
        read_options=reader.ReadOptions(column_names=names, skip_rows=dialect.skip),
        parse_options=reader.ParseOptions(
            delimiter=_UNIT_SEPARATOR.decode() if colons else dialect.delimiter,
            # Formats without a header have no quoted fields, and a stray quote would swallow lines.
            quote_char='"' if dialect.quoted else False,
            newlines_in_values=dialect.quoted,
        ),
        convert_options=reader.ConvertOptions(
            column_types=wanted, include_columns=included, decimal_point=dialect.decimal
        ),
    )


def _finish(table: Any, dialect: Dialect) -> Ratings | None:
    needed = (str(place) for place in (dialect.user, dialect.item, dialect.rating) if place is not None)
    # `None` sends the file to the slow reader, which names the line.
    if table.num_rows == 0 or any(table[name].null_count for name in needed):
        return None
    clicks = dialect.rating is None
    values = np.ones(table.num_rows, np.float32) if clicks else table[str(dialect.rating)].to_numpy()
    if not np.isfinite(values).all():
        return None
    users, user_ids = encode_text_column(table[str(dialect.user)], "user")
    items, item_ids = encode_text_column(table[str(dialect.item)], "item")
    if not (_sound(user_ids, dialect) and _sound(item_ids, dialect)):
        return None
    times = None if dialect.time is None else time_column(table[str(dialect.time)])
    if dialect.time_asked and times is None:
        return None
    return Ratings(users, items, values, user_ids, item_ids, None, times)


def _sound(table: Ids, dialect: Dialect) -> bool:
    if table.dtype.kind == "i":
        return not dialect.whole_ids or bool(table[0] >= 0)
    # Arrow keeps "NA" in a column of texts as a word.
    return not np.isin(table, MISSING_WORDS).any()
