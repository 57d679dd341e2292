"""The resolution of several ratings of one item by one user."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require

if TYPE_CHECKING:
    from asyncqn_recommender.data.ratings import Ratings

POLICIES = ("error", "last", "first", "mean", "sum")


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


def resolve(ratings: Ratings, policy: str) -> tuple[Ratings, int]:
    """Keep one rating per pair: the last or first by time, else by position, or the mean or sum of all.

    The row that is kept stays in its position; a mean or sum takes that of the last one.  Also returns the
    number of rows that were dropped.
    """
    if not repeated_rows(ratings).any():
        return ratings, 0
    pairs = _pairs(ratings)
    times = np.zeros(len(pairs)) if ratings.times is None else ratings.times
    # By pair, then time; the sort is stable, so that position decides between equal times.
    order = np.lexsort((times, pairs))
    # Rows of one pair are neighbours now; a group begins where the pair changes.
    begins = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    lengths = np.diff(begins, append=len(order))
    kept = order[begins] if policy == "first" else order[begins + lengths - 1]
    if policy in ("mean", "sum"):
        values = ratings.values.copy()
        sums = np.add.reduceat(ratings.values[order].astype(np.float64), begins)
        values[kept] = sums / lengths if policy == "mean" else sums
        ratings = replace(ratings, values=values)
    return ratings.take(np.sort(kept)), len(order) - len(kept)


def _pairs(ratings: Ratings) -> npt.NDArray[np.int64]:
    """Return one number per pair; int32 would not hold 46,341 users times as many items."""
    return ratings.users.astype(np.int64) * ratings.n_items + ratings.items
