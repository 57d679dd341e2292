"""The vertical axis of a convergence plot, one rule for the terminal, figures and the page.

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

Floats = npt.NDArray[np.floating[Any]]

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
        kept = np.where(np.isfinite(values), values, np.nan)
        return np.clip(kept, self.low, self.high)


def axis_of(curves: Sequence[Floats]) -> Axis | None:
    """Return the axis for these curves, or None where no value is finite."""
    finite = [curve[np.isfinite(curve)].astype(float) for curve in curves]
    finite = [curve for curve in finite if curve.size]
    if not finite:
        return None
    seen = np.concatenate(finite)
    # The largest start, so that every curve's beginning is visible.
    start, low, high = (
        max(float(curve[0]) for curve in finite),
        float(seen.min()),
        float(seen.max()),
    )
    positive = seen[seen > 0]
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
