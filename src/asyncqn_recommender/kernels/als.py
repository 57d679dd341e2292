"""Alternating least squares: ratings grouped by row, and exact half-sweeps over one or more threads.

One half-sweep replaces every row of one side by the minimiser of U given the other side, so U never rises.
Rows are independent, so the number of threads does not change a single bit of the result.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn_recommender.kernels import profiled

if TYPE_CHECKING:
    from asyncqn.types import Array


class Grouped(NamedTuple):
    """Ratings by row of one side: those of row r are at start[r]:start[r + 1] of `others` and `values`."""

    start: npt.NDArray[np.int64]
    others: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


def grouped(keys: Any, others: Any, values: Any, n_rows: int) -> Grouped:
    """Group ratings by `keys`; each group keeps the given order.

    Columns that are already sorted by key, as those of MovieLens are by user, are not copied if kernels can
    use them: the result then holds `others` and `values` themselves.
    """
    start = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=n_rows), out=start[1:])
    # Sorted already, as MovieLens is by user.
    if not (keys[1:] < keys[:-1]).any():
        return Grouped(start, _usable(others, np.int32), _usable(values, np.float32))
    # NumPy's stable sort is linear for integers of 16 bits alone.
    short = keys.astype(np.uint16) if n_rows <= 1 << 16 else keys
    order = np.argsort(short, kind="stable")
    sorted_others = _usable(others[order], np.int32)
    return Grouped(start, sorted_others, _usable(values[order], np.float32))


def _usable(column: Any, dtype: Any) -> Any:
    """Return the column itself if kernels are compiled for such an array, else a copy."""
    return np.require(column, dtype, ("C_CONTIGUOUS", "WRITEABLE"))


def solve_side(
    side: Grouped,
    fixed: Array,
    ridges: Array,
    rank: int,
    out: Array,
    threads: int = 1,
    weights: Array | None = None,
) -> None:
    """Write to out[row] the minimiser of U over that row given the other side, for all rows of `side`.

    `fixed` has the other side's rows, flat; `ridges[row]` is lambda of the row; `weights` are those of the
    ratings, see `kernels.profiled`.
    """
    n_rows = len(side.start) - 1
    # Equal shares of ratings, not of rows: a few rows have most ratings.
    cuts = np.searchsorted(side.start, np.linspace(0, side.start[-1], threads + 1))
    # Rows without ratings at either end belong to the first and the last share.
    cuts[0] = 0
    cuts[-1] = n_rows

    # Padded once for all threads, which only read them.
    rows = profiled.padded_rows(fixed, rank)
    order = np.arange(n_rows)
    # A half-sweep needs the solved rows alone, and no gradient.
    none = profiled.nothing(out)
    results = profiled.Results(none.ravel(), none, out.reshape(n_rows, rank))

    def share(part: int) -> None:
        visit = profiled.Visit(order, order[cuts[part] : cuts[part + 1]], ridges)
        work = profiled.workspace(rank, out.dtype)
        scale = out.dtype.type(0.0)
        profiled.solve_rows(side, weights, visit, rows, scale, results, work)

    if threads == 1:
        share(0)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(share, range(threads)))
