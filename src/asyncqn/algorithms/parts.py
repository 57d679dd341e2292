"""Parts of the data: the number of rows of each, and sums over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncqn.kernels.vectors import add_one
from asyncqn.types import Array, Counters, Rows


def rows_of_parts(n_data: Any, parts: Any, part: Counters) -> Rows:
    """Return the number of rows of each of the given parts."""
    first = part.astype(np.int64)
    # As `AsyncSAGA.step` and the plans cut them: part i has the rows from i n / P to (i + 1) n / P, rounded
    # down.
    rows: Rows = (first + 1) * n_data // parts - first * n_data // parts
    return rows


def whole_sum(updates: Sequence[Any], parts: int) -> tuple[Array | None, float]:
    """Return the gradient, of shape (1, d), and U, summed over all parts in the order of their numbers.

    They are None and NaN where a part is missing or not finite.
    """
    if len({update.part for update in updates if update.finite}) < parts:
        return None, math.nan
    g, value = np.zeros_like(updates[0].g), 0.0
    # In the order of the parts, not of arrival: sums then have the same bits on every engine.
    for update in sorted(updates, key=lambda update: update.part):
        add_one(g, update.g)
        value += update.value
    return g[None], value
