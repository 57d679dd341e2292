"""A diagonal metric from the scatter of the updates, which costs no further gradient.

    D_j = running mean of (g_j - previous g_j)^2 / 2          half the squared difference of two updates
    theta_j += step_j / (D_j / max D + 1 / k)                 after k updates

Consecutive updates are computed at nearby points, so their difference is noise and not progress: D_j is the
variance of an update.  For a negative log-likelihood the variance of the gradient of a data point is its
curvature (the information equality), so D is close to a multiple of the diagonal of the Hessian.  The power
is therefore -1, as in Newton's method, and not -1/2 as in Adam, which uses sizes only.

Our own choices.  The metric is 1 for the stiffest coordinate, so that h keeps its meaning, and lengthens the
step of every other.  No coordinate counts as flatter by more than the number of updates seen.  No step is
lengthened before `MIN_UPDATES` updates, and the running mean covers `WINDOW` updates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.scatter import add_lengthened, note_difference
from asyncqn.kernels.vectors import add_scaled
from asyncqn.types import Array

MIN_UPDATES, WINDOW = 20, 1000
"""Number of updates before the metric is used, by when D_j is known to about a third; and the length of the
running mean, in updates."""


class Scatter(NamedTuple):
    """The scatter of the updates so far; its arrays are empty where no metric is wanted."""

    D: Array
    last: Array
    seen: int
    largest: float


def new_scatter(theta0: Array, wanted: bool) -> Scatter:
    """Return the scatter before the first update."""
    size = theta0.size if wanted else 0
    return Scatter(np.zeros(size), np.zeros(size), 0, 0.0)


def note_update(scatter: Scatter, update: Array) -> Scatter:
    """Return the scatter after one more update, any fixed multiple of g: only ratios of D count."""
    if not scatter.D.size:
        return scatter
    seen = scatter.seen + 1
    if seen == 1:
        scatter.last[:] = update
        return scatter._replace(seen=seen)
    # 1 / k for the first WINDOW differences is the plain mean; then old ones fade.
    largest = note_difference(
        scatter.D, scatter.last, update, 1.0 / min(seen - 1, WINDOW)
    )
    return scatter._replace(seen=seen, largest=float(largest))


def add_step(theta: Array, scale: float, step: Array, scatter: Scatter) -> None:
    """theta += scale * step, in the metric once enough updates were seen."""
    if scatter.seen < MIN_UPDATES or scatter.largest == 0.0:
        add_scaled(theta, scale, step)
    else:
        # The bound 1 / k on the flattest coordinate, as the formula at the top says.
        add_lengthened(
            theta,
            scale,
            step,
            scatter.D,
            scatter.largest,
            float(min(scatter.seen, WINDOW)),
        )
