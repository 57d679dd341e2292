"""Which data points a list of rows means, as an index that copies nothing where they are consecutive."""

from __future__ import annotations

import numpy as np

from asyncqn.errors import require
from asyncqn.kernels.factorization import is_range
from asyncqn.types import Rows


def chosen(rows: Rows, n_data: int) -> slice | Rows:
    """A slice where `rows` count up by one, else `rows`; `BadInput` where one does not exist."""
    rows = np.asarray(rows)
    require(
        int(rows.min()) >= 0 and int(rows.max()) < n_data,
        f"rows must lie in 0..{n_data - 1}: some do not.",
    )
    return slice(int(rows[0]), int(rows[0]) + len(rows)) if is_range(rows) else rows
