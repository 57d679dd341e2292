"""Which data points a list of rows means, and what is said where they are none."""

from __future__ import annotations

import numpy as np

from asyncqn.errors import BadInput, require
from asyncqn.kernels.vectors import is_range
from asyncqn.types import Problem, Rows


def chosen(rows: Rows, n_data: int) -> slice | Rows:
    """A slice where `rows` count up by one, else `rows`; `BadInput` where one does not exist."""
    rows = np.asarray(rows)
    require(
        int(rows.min()) >= 0 and int(rows.max()) < n_data, f"rows must lie in 0..{n_data - 1}: some do not."
    )
    return slice(int(rows[0]), int(rows[0]) + len(rows)) if is_range(rows) else rows


def misfit(problem: Problem) -> BadInput:
    """The error where a kernel found that sizes or rows do not fit; made only then, for it takes time."""
    return BadInput(
        f"theta and out must hold dim = {problem.dim} numbers, and rows lie between 0 and "
        f"n_data - 1 = {problem.n_data - 1}."
    )
