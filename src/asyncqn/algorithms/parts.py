"""Parts of the data: how many rows each has, and sums over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncqn.kernels.vectors import add_one
from asyncqn.types import Array, Counters, Rows


def rows_of_parts(n_data: Any, parts: Any, part: Counters) -> Rows:
    """Return how many of n_data rows lie in each of the given parts."""
    first = part.astype(np.int64)
    rows: Rows = (first + 1) * n_data // parts - first * n_data // parts
    return rows


def whole_sum(updates: Sequence[Any], parts: int) -> tuple[Array | None, float]:
    """Return the gradient and U of all parts, summed in the parts' own order.

    None and NaN where a part is missing or not finite.
    """
    if len({update.part for update in updates if update.finite}) < parts:
        return None, math.nan
    g, value = np.zeros_like(updates[0].g), 0.0
    for update in sorted(updates, key=lambda update: update.part):
        add_one(g, update.g)
        value += update.value
    return g[None], value
