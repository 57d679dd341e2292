"""Vertical axis of a convergence plot, and its curves: one rule for the terminal, figures and the page.

Twelve digits of progress are invisible in U itself, so that U minus the best value of all runs is drawn,
where the error is unknown.

A diverging run must not flatten the others, and an error of zero, or slightly below it by rounding, must not
prevent a logarithmic axis.  Values above ten times the largest start are therefore drawn at the upper edge;
for metrics that are not positive, the limit is the starts plus their whole range.  On a logarithmic axis,
values of zero or less are drawn at the lower edge.  page.html repeats this rule in its function `axisOf`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.columns import Table

Floats = npt.NDArray[np.floating[Any]]

EXCESS = "U - best"
"""Name of the column of U minus the best value."""
LABELS = {"error": "relative error (U - U*) / U*", "fun": "objective U", "rmse": "RMSE"}
ROUNDING = 1e-9
"""A negative value counts as rounding below this share of the largest start."""
MIN_LOG_RATIO = 1e-16
"""The lower edge of a logarithmic axis is at least this share of its upper edge."""


class Axis(NamedTuple):
    """The range of an axis, and whether it is logarithmic."""

    log: bool
    low: float
    high: float
    cut: bool
    """Whether values above `high` were cut off."""

    def clip(self, values: Floats) -> Floats:
        """Return the values clipped to the range; infinite values become NaN."""
        # A gap in the curve, not a line to the edge: only finite values are known to lie beyond it.
        finite = np.where(np.isfinite(values), values, np.nan)
        return np.clip(finite, self.low, self.high)


class Curves(NamedTuple):
    """The values of several runs on one axis."""

    values: list[Floats]
    label: str
    axis: Axis | None
    """None where no value is finite."""
    base: float = 0.0
    """What was subtracted from the column."""


def curves_of(tables: Sequence[Table], metric: str | None = None) -> Curves:
    """Return the values to draw of each metric table, of its column `metric`.

    By default that is the error where all runs have it, else U minus its best value.
    """
    if metric is None and all("error" in table for table in tables):
        metric = "error"
    if metric is None:
        values, best = excess([table["fun"] for table in tables])
        axis = axis_of(values)
        # Where nothing is above the best value, the column itself is drawn.
        if axis is not None:
            return Curves(values, EXCESS, axis, best)
    metric = metric or "fun"
    values = [table[metric] for table in tables]
    return Curves(values, LABELS.get(metric, metric), axis_of(values))


def excess(curves: Sequence[Floats]) -> tuple[list[Floats], float]:
    """Return how far each value is above the best of all, and that best value.

    The best value itself has no place on a logarithmic axis, and becomes NaN: it would be a vertical line to
    the lower edge, at the end of the curve.
    """
    every = np.concatenate(curves)
    best = float(every[np.isfinite(every)].min(initial=np.inf))
    # Differences of this size are rounding of U.
    least = 4.0 * np.finfo(float).eps * abs(best)
    above = [np.asarray(curve, float) - best for curve in curves]
    return [np.where(curve > least, curve, np.nan) for curve in above], best


def axis_of(curves: Sequence[Floats]) -> Axis | None:
    """Return the axis for these curves, or None where no value is finite."""
    finite = [curve[np.isfinite(curve)].astype(float) for curve in curves]
    finite = [curve for curve in finite if curve.size]
    if not finite:
        return None
    values = np.concatenate(finite)
    # The largest start, so that every curve's beginning is visible.
    start = max(float(curve[0]) for curve in finite)
    low = float(values.min())
    high = float(values.max())
    positive = values[values > 0]
    if start > 0 and low >= -ROUNDING * start and positive.size:
        # Runs may rise a little before they fall, which should stay visible; a divergence should not.
        top = min(high, 10.0 * start)
        bottom = max(float(positive.min()), MIN_LOG_RATIO * top)
        # A logarithmic axis over less than a decade would have no label between its ends.
        log = top > 10.0 * bottom
        return Axis(log, bottom if log else low, top, high > top)
    # `abs(start)` gives room where the first value is also the lowest.
    top = min(high, start + max(start - low, abs(start)))
    return Axis(False, low, max(top, low), high > top)
