"""The resolution of several ratings of one item by one user."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require

if TYPE_CHECKING:
    from asyncqn_recommender.data.ratings import Ratings

POLICIES = ("error", "last", "first", "mean", "sum")


class Resolved(NamedTuple):
    """Ratings with distinct pairs, and the number of rows that were dropped."""

    ratings: Ratings
    dropped: int


def check_policy(duplicates: str | None) -> None:
    """Raise `BadInput` for an unknown policy; None lets the reader choose."""
    require(
        duplicates is None or duplicates in POLICIES,
        f"duplicates must be one of {', '.join(POLICIES)}, not {duplicates!r}.",
    )


def repeated_rows(ratings: Ratings) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that repeat the (user, item) pair of an earlier row."""
    pairs = _pairs(ratings)
    repeated = np.zeros(len(pairs), dtype=bool)
    ordered = np.sort(pairs)
    # Few sets have repeats, and sorting the pairs alone is several times faster than sorting their rows.
    if (ordered[1:] == ordered[:-1]).any():
        repeated[:] = True
        repeated[np.unique(pairs, return_index=True)[1]] = False
    return repeated


def _pairs(ratings: Ratings) -> npt.NDArray[np.int64]:
    """Return one number per pair; int32 would not hold 46,341 users times as many items."""
    return ratings.users.astype(np.int64) * ratings.n_items + ratings.items


def resolve(ratings: Ratings, policy: str) -> Resolved:
    """Keep one rating per pair: the last or first by time, else by position, or the mean or sum of all.

    The row that is kept stays in its position; a mean or sum takes that of the last one.
    """
    repeated = repeated_rows(ratings)
    if not repeated.any():
        return Resolved(ratings, 0)
    pairs = _pairs(ratings)
    # Only rows of repeated pairs are sorted, which are usually few.
    rows = np.flatnonzero(np.isin(pairs, pairs[repeated]))
    times = np.zeros(len(rows)) if ratings.times is None else ratings.times[rows]
    # By pair, then time, then position.
    order = np.lexsort((rows, times, pairs[rows]))
    rows = rows[order]
    # Rows of one pair are neighbours now; a group begins where the pair changes.
    begins = np.flatnonzero(np.diff(pairs[rows], prepend=-1))
    lengths = np.diff(begins, append=len(rows))
    kept = rows[begins] if policy == "first" else rows[begins + lengths - 1]
    if policy in ("mean", "sum"):
        values = ratings.values.copy()
        sums = np.add.reduceat(ratings.values[rows].astype(np.float64), begins)
        values[kept] = sums / lengths if policy == "mean" else sums
        ratings = replace(ratings, values=values)
    keep = np.ones(len(ratings), dtype=bool)
    keep[rows] = False
    keep[kept] = True
    return Resolved(ratings.take(keep), len(rows) - len(kept))
