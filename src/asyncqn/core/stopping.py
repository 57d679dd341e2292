"""Stopping rules of a run: convergence, stalling, a target, patience, and limits.

A method with exact gradients tells where it stands (`core.algorithm.Standing`).  With g its gradient and U
its value at the last accepted point, eps that of theta's numbers, and t = max(tol, 100 eps), it has converged
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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from asyncqn.core.algorithm import Standing
from asyncqn.core.outcome import Outcome
from asyncqn.core.problem import Array
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import Checked, parameter

_MIN_TOLERANCE, _ROUNDING = 100.0, 10.0
"""In units of eps: the smallest tolerance that can be met, and the decrease of U that cannot be seen."""


class Ended(Exception):
    """The run has ended with `outcome`; the text says why."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class EndedByCallback(Ended):
    """The callback asked for the end, or failed: then its error is the cause of this one."""


Tolerance = Annotated[float | None, parameter(gt=0.0, lt=1.0)]
MaxPasses = Annotated[float | None, parameter(gt=0.0)]
MaxTime = Annotated[float | None, parameter(gt=0.0)]
Target = Annotated[float | None, parameter()]


@dataclass(frozen=True)
class Patience(Checked):
    """End a run when a metric has not improved for a number of evaluations.

    Pass it to `minimize` as a callback.  It works on every engine, a saved run holds it, and a replay ends
    at the same commit with the same point.

    Parameters
    ----------
    metric : str, default "fun"
        The column of the metric table that is watched; `fun` is U over all rows.  Others come from the
        problem's own `metrics`.
    evaluations : int, default 10
        How many rows of the table in a row may fail to improve on the best one.  A row whose metric is not
        a finite number is no improvement.  `minimize(evaluate=...)` says how often a row is made.
    keep_best : bool, default True
        Whether the run reports the point of the best row as `theta`, and U there as `fun`, however it ends.
        Otherwise it reports what it would without patience.
    maximize : bool, default False
        Whether larger is better, as for an accuracy.

    Notes
    -----
    A stochastic run that its patience ends is `completed`: it did what it was asked for.  A method with exact
    gradients has not converged then, and its run is no success.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, aq.AsyncSGD(h=5e-4, batch=2), engine=aq.Threads(2), commits=100_000,
    ...                   evaluate=50, callback=aq.Patience("fun", evaluations=5))
    >>> run.status, run.nit < 100_000, run.fun == min(run.metrics["fun"].tolist())
    ('completed', True, True)
    """

    metric: str = "fun"
    evaluations: Annotated[int, parameter(ge=1)] = 10
    keep_best: bool = True
    maximize: bool = False


@dataclass
class Best:
    """The best row of a run by the metric of its patience, and how many rows came after it."""

    rule: Patience
    value: float = math.nan
    fun: float = math.nan
    commit: int = -1
    rows_since: int = 0
    theta: Array | None = None
    """The point of that row, where the rule keeps it."""

    def sees(self, record: Mapping[str, float], theta: Array) -> bool:
        """Compare a row with the best one; return whether the patience has run out."""
        rule, value = self.rule, record[self.rule.metric]
        lower = not rule.maximize
        # The first finite row is the best so far, whatever its value.
        better = self.commit < 0 or (
            value < self.value if lower else value > self.value
        )
        if math.isfinite(value) and better:
            self.value = value
            self.fun = record["fun"]
            self.commit = int(record["commit"])
            self.rows_since = 0
            self.theta = theta.copy() if rule.keep_best else None
            return False
        self.rows_since += 1
        return self.rows_since >= rule.evaluations

    @property
    def sentence(self) -> str:
        """The reason for the end of a run whose patience has run out."""
        rows, metric = self.rule.evaluations, self.rule.metric
        if self.commit < 0:
            return f"{metric} was not finite in {rows} evaluations"
        return f"{metric} has not improved on {self.value:.6g}, of commit {self.commit}, in {rows} evaluations"


@dataclass(frozen=True)
class Stopping(Checked):
    """The conditions that end a run before its last commit; None turns a condition off.

    Parameters
    ----------
    tol : float, optional
        Tolerance of the test at the top of this file, for methods with exact gradients.
    max_passes : float, optional
        Largest number of rows whose gradient is computed, divided by n_data.
    max_time : float, optional
        Largest time on the engine's clock, in its unit.
    target : float, optional
        Value of `metric` at or below which the run has converged.
    metric : str, default "fun"
        Column of the metric table that `target` refers to.
    patience : Patience, optional
        Ends the run where a metric fails to improve.
    """

    tol: Tolerance = None
    max_passes: MaxPasses = None
    max_time: MaxTime = None
    target: Target = None
    metric: str = "fun"
    patience: Patience | None = None

    def ends_at(self, standing: Standing) -> Ended | None:
        """Return how the run ends at this standing, or None to continue."""
        if self.tol is None:
            return None
        if converged(standing, self.tol):
            return Ended(Outcome.CONVERGED, slope_of(standing))
        # Convergence is tested first: a method that cannot move any more may well be at the minimum.
        if standing.stalled:
            return Ended(
                Outcome.STALLED,
                f"no step lowers the objective any more, but {slope_of(standing)}",
            )
        return None


TO_THE_END = Stopping()
"""All commits are made."""


def slope_of(standing: Standing) -> str:
    """Return a phrase about the size of the gradient."""
    # The start was already stationary; a quotient would divide by zero.
    if not standing.first_grad_norm > 0.0:
        return "the gradient is zero"
    return f"the gradient is {standing.grad_norm / standing.first_grad_norm:.1e} of the first"


def converged(standing: Standing, tol: float) -> bool:
    """Return whether the test at the top of this file holds."""
    eps = float(np.finfo(standing.point.dtype).eps)
    t = max(tol, _MIN_TOLERANCE * eps)
    g, size = standing.grad_norm, abs(standing.value)
    length = math.sqrt(sum_of_squares(standing.point))
    # |g| |theta| has the unit of U; the two max(1, ...) keep the test meaningful near theta = 0 and U = 0.
    flat = g * max(1.0, length) <= t * max(1.0, size)
    return flat and (
        g <= t * standing.first_grad_norm or standing.decrease <= _ROUNDING * eps * size
    )
