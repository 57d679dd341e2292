"""Validation of row numbers, and the error for rows or sizes that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn.kernels.vectors import is_range
from asyncqn.parameters import Refused, brief, real_array
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
        f"theta and out must be arrays of floats with dim = {problem.dim} entries, and rows must lie between "
        f"0 and n_data - 1 = {problem.n_data - 1}, as an array of integers."
    )


def is_vector(array: Any, kinds: str = "f") -> bool:
    """Return whether compiled code can read this object as a vector of numbers of these kinds of dtype."""
    # Subclasses of arrays, such as masked ones, are no arrays for Numba.
    return type(array) is np.ndarray and array.ndim == 1 and array.dtype.kind in kinds


def theta_of(problem: Problem, run: Any) -> npt.NDArray[Any]:
    """Return the theta of a run, or the array that stands for one; raise `BadInput` if it does not fit."""
    given = getattr(run, "theta", run)
    try:
        theta = real_array(given)
    except Refused:
        theta = np.zeros(0)
    require(
        theta.shape == (problem.dim,),
        f"the run must be one of this problem, with dim = {problem.dim} numbers in theta, not "
        f"{brief(given)}.",
    )
    return theta
