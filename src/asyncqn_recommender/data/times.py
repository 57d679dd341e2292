"""Times of ratings: one float64 per rating, of which only the order matters.

Numbers stay unchanged, whatever their unit; dates become seconds since 1970 (UTC without a time zone).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require

Times: TypeAlias = npt.NDArray[np.float64]


def time_of(word: str) -> float | None:
    """Return the time in a text, a number or an ISO 8601 date, or None."""
    bare = word.strip()
    try:
        number = float(bare if bare.isascii() and "_" not in bare else "")
    except ValueError:
        try:
            moment = datetime.fromisoformat(bare)
        except ValueError:
            return None
        # UTC and not local time, so that a file gives the same times on every machine.
        number = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return number if math.isfinite(number) else None


def plain_times(times: Any, length: int) -> Times:
    """Return times from an array of numbers, dates or texts, one for each of `length` ratings."""
    array = np.asarray(times)
    if array.dtype.kind == "M":
        seconds = array.astype("datetime64[us]").astype(np.int64) / 1e6
        # NaT is the smallest integer, which would count as a very early time.
        seconds[np.isnat(array)] = np.nan
    elif array.dtype.kind in "iuf":
        seconds = array.astype(np.float64)
    else:
        # Anything whose `str` is a date: texts, datetime.date, pandas' Timestamp.
        seconds = np.array(
            [_spelled(x) for x in array.ravel().tolist()], np.float64
        ).reshape(array.shape)
    require(
        seconds.shape == (length,),
        f"there must be one time for each of {length} ratings, not {array.shape}.",
    )
    sound = np.isfinite(seconds)
    if not sound.all():
        row = int(np.argmin(sound))
        word = str(array[row])[:40]
        raise BadInput(
            f"row {row} has the time {word!r}: give a number or a date such as 2024-05-31."
        )
    return seconds


def _spelled(value: Any) -> float:
    time = time_of(str(value))
    return math.nan if time is None else time
