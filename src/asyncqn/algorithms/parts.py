"""Parts of the data: the number of rows of each, its share of the gradient, and sums over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncqn.kernels.vectors import add_one, sum_of_squares
from asyncqn.types import Array, Counters, Rows, extra


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


def share_of(
    problem: Any, theta: Array, rows: Rows, share: float
) -> tuple[Array, float, bool]:
    """Return `share` of the estimates of the gradient and of U from `rows`, and whether they are finite.

    U is NaN where the problem offers neither `grad_with_value` nor `value_rows`.
    """
    g, value = np.empty_like(theta), math.nan
    both, value_rows = (
        extra(problem, name) for name in ("grad_with_value", "value_rows")
    )
    # One pass over the rows for both where the problem offers it; `value_rows` costs a second one.
    if both is not None:
        value = share * float(both(theta, rows, g))
    else:
        problem.grad(theta, rows, g)
        if value_rows is not None:
            value = share * float(value_rows(theta, rows))
    g *= share
    # Without a value U is NaN by design, which does not mean that theta is bad.
    silent = both is None and value_rows is None
    finite = math.isfinite(sum_of_squares(g)) and (silent or math.isfinite(value))
    if not finite:  # the coordinator must hear of it, to turn back
        g[...] = 0.0
    return g, value, finite
