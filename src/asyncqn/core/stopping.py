"""When a run ends by itself: converged, stalled, at its target, or at a limit.

A method with exact gradients tells where it stands (`core.algorithm.Standing`).  With g its gradient and U
its value at the last point kept, eps that of theta's numbers, and t = max(tol, 100 eps), it has converged
when

    |g| max(1, |theta|) <= t max(1, |U|)                         the slope is small against U itself,
    and  |g| <= t |g_first|  or  decrease <= 10 eps |U|          and against the first slope, or what is
                                                                 left to gain drowns in the rounding of U.

The first line does not depend on the start: a wild one, whose gradient is huge, cannot make a steep point
look flat.  The second keeps a large constant in U from hiding a slope, and lets a run that starts at the
minimum end there.  100 eps is what sums over many rows leave of a number: in float32 about 1e-5.

Every decision is a function of the numbers and of the schedule, so a replay ends where the run ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from asyncqn.core.algorithm import Standing
from asyncqn.core.outcome import Outcome
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import Checked, parameter

_LEAST_TOLERANCE, _ROUNDING = 100.0, 10.0
"""In units of eps: the smallest tolerance that can be met, and the decrease of U that cannot be seen."""


class Ended(Exception):
    """The run has ended with `outcome`; the text says why."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class EndedByCallback(Ended):
    """The callback asked for the end, or failed: then its error is the cause of this one."""


Tolerance = Annotated[
    float | None, parameter("When a method with exact gradients has converged; None: never", gt=0.0)
]
MaxPasses = Annotated[float | None, parameter("Passes over the data at most; None: any number", gt=0.0)]
MaxTime = Annotated[
    float | None, parameter("How long a run lasts at most", unit="of the engine's clock", gt=0.0)
]
Target = Annotated[
    float | None, parameter("The metric at or below which a run ends; None: no target", infinite=True)
]
Metric = Annotated[str, parameter("Column of the metric table that the target is about")]


@dataclass(frozen=True)
class Stopping(Checked):
    """When to end before the last commit; None: not by this.

    tol: the tolerance above, for methods with exact gradients.  max_passes: rows whose gradient was
    computed, over n_data.  max_time: on the engine's clock, in its unit.  target: the metric (a column of
    the metric table, `fun` where none is named) at or below which the run has what was asked for.
    """

    tol: Tolerance = None
    max_passes: MaxPasses = None
    max_time: MaxTime = None
    target: Target = None
    metric: Metric = "fun"

    def ends_at(self, standing: Standing) -> Ended | None:
        """How a run ends that stands so; None: it goes on."""
        if self.tol is None:
            return None
        if converged(standing, self.tol):
            return Ended(Outcome.CONVERGED, slope_of(standing))
        if standing.stalled:
            return Ended(Outcome.STALLED, f"no step lowers the objective any more, but {slope_of(standing)}")
        return None


TO_THE_END = Stopping()
"""All commits are made."""


def slope_of(standing: Standing) -> str:
    """The size of the gradient in words."""
    if not standing.first_grad_norm > 0.0:
        return "the gradient is zero"
    return f"the gradient is {standing.grad_norm / standing.first_grad_norm:.1e} of the first"


def converged(standing: Standing, tol: float) -> bool:
    """The test at the top of this file."""
    eps = float(np.finfo(standing.point.dtype).eps)
    t = max(tol, _LEAST_TOLERANCE * eps)
    g, size = standing.grad_norm, abs(standing.value)
    length = math.sqrt(sum_of_squares(standing.point))
    flat = g * max(1.0, length) <= t * max(1.0, size)
    return flat and (g <= t * standing.first_grad_norm or standing.decrease <= _ROUNDING * eps * size)
