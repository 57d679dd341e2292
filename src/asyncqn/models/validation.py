"""Validation of row numbers, and the error for rows or sizes that do not fit."""

from __future__ import annotations

import numpy as np

from asyncqn.errors import BadInput, require
from asyncqn.kernels.vectors import is_range
from asyncqn.types import Problem, Rows


def chosen(rows: Rows, n_data: int) -> slice | Rows:
    """Return a slice if `rows` are consecutive, else `rows`; raise `BadInput` if one does not exist."""
    rows = np.asarray(rows)
    require(
        int(rows.min()) >= 0 and int(rows.max()) < n_data,
        f"rows must lie in 0..{n_data - 1}: some do not.",
    )
    # A slice is a view of the data; an index array would copy the rows.
    return slice(int(rows[0]), int(rows[0]) + len(rows)) if is_range(rows) else rows


def misfit(problem: Problem) -> BadInput:
    """Return the error for sizes or rows that do not fit; kernels only report that there is one."""
    return BadInput(
        f"theta and out must have dim = {problem.dim} entries, and rows must lie between 0 and "
        f"n_data - 1 = {problem.n_data - 1}."
    )
