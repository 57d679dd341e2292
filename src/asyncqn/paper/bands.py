"""The shades of figures: from the 10th to the 90th percentile, or the paper's three standard deviations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

PERCENTILES, SIGMA = "percentiles", "sigma"
BANDS = {
    PERCENTILES: "from the 10th to the 90th percentile",
    SIGMA: "three standard deviations to either side",
}
_chosen: ContextVar[str] = ContextVar("bands", default=PERCENTILES)


@contextmanager
def shaded(bands: str) -> Iterator[None]:
    """Everything drawn inside has these bands, as it has matplotlib's settings of the moment."""
    token = _chosen.set(bands)
    try:
        yield
    finally:
        _chosen.reset(token)


def spread(values: Any) -> tuple[Any, Any]:
    """The lower and the upper end of the band over the first axis.

    On a logarithmic axis three standard deviations may end below zero: that part cannot be seen.
    """
    if _chosen.get() == PERCENTILES:
        low, high = np.quantile(values, (0.1, 0.9), axis=0)
        return low, high
    middle, wide = np.mean(values, axis=0), 3.0 * np.std(values, axis=0)
    return middle - wide, middle + wide
