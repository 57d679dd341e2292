"""The stochastic phase: SGD with a learned step, before the steps of the centred table.

Where U is not convex, the start often lies on a plateau or beside a saddle.  There the steps of the table
are slow, for each rests on gradients that are up to a pass old, and many small noisy steps leave it first.
In this phase each update is one such step,

    theta <- theta - h g / D,       D = (V + max V / k^1.5)^(1/2)

with V the running variance of the updates (the diagonal of the scatter) and k the updates seen, at most 1000.
The table is filled all the while, and tells the step: the sums S and Y over `WINDOW` parts that have sent a
second update are changes of points and gradients on the same rows, so they measure curvature without the
noise of sampling.  In the norms of D,

    L = max(|Y|_(1/D) / |S|_D,  0.9 L before),      h = SAFETY / (L max(1 + l, P / NOISE))

with l the mean staleness: a delay of l updates needs h L l < 1, and P / NOISE bounds the noise that the steps
of one pass leave.  h at most doubles from one window to the next.  No number is set by hand for a problem.

Progress is the fall of the parts' own values, each compared with its update before.  After a half pass whose
fall is below a quarter of the best one, or after `MAX_PASSES` passes, the phase ends and the table continues
from its entries.  Where U has risen since the start, or is not finite, the table turns back to the start, and
h is halved.

The form of D is Adam's with its numerator left out; learning L from parts evaluated again is our own, and so
are all constants.  They were chosen on draw 0 of the laboratory (`benchmarks.studies.laboratory`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.quasi_newton.centred_table import Progress, Table, Update, aim, may_step, turn_back
from asyncqn.algorithms.quasi_newton.composition import Iterate
from asyncqn.algorithms.quasi_newton.scatter_inverse import WINDOW as LARGEST_COUNT
from asyncqn.algorithms.quasi_newton.scatter_inverse import ScatterMatrix
from asyncqn.kernels.vectors import sum_of_squares

WINDOW = 40
"""Updates of parts that had an entry at another point, between two estimates of L."""
SAFETY, NOISE = 0.6, 20.0
"""`SAFETY` is the value of h L max(1 + l, P / NOISE); a delay of l updates requires it to be below 1.
`NOISE` parts count as one update of delay: with few workers l is small, and would allow noisy steps."""
DECAY = 0.9
"""The estimate of L falls by this factor at most from one window to the next."""
FALL = 0.25
"""The phase ends after a half pass in which U falls by less than this share of the best one."""
MAX_PASSES = 12
"""Passes after which the phase ends in any case."""
STALENESS_MEMORY = 200
"""Updates over which the mean staleness is taken."""


class Phase(NamedTuple):
    """The state of the stochastic phase."""

    active: bool = False
    updates: int = 0
    """Updates taken in the phase; a turn does not reset them."""
    curvature: float = 0.0
    """L; 0: not known yet, and the steps are the table's."""
    step: float = 0.0
    """h, before the halvings of `Progress.turns`."""
    staleness: float = 0.0
    """l, in commits."""
    fall: float = 0.0
    """The sum of the falls of the parts' own values since the last half pass."""
    compared: int = 0
    """Their number."""
    best: float = 0.0
    """The largest mean fall of a half pass."""
    gained: float = 0.0
    """The sum of the mean falls of all half passes."""
    slowing: bool = False
    """Whether U fell by less than the share `FALL` of that in the last half pass."""


def stochastic_step(
    iterate: Iterate, table: Table, progress: Progress, phase: Phase, update: Update, version: int, first: int
) -> tuple[Progress, Phase]:
    """Take a step from an update that was entered into the table; theta changes in place.

    Parameters
    ----------
    progress : Progress
        The sums of the table, this update included.
    version : int
        The number of the commit under way.
    first : int
        Parts that are active at the start.

    Returns
    -------
    tuple of Progress and Phase
        The phase is not active any more where it ends with this update.
    """
    parts = len(table.read)
    # An update that read the version before this commit has the staleness 0.
    phase = _note_update(phase, version - 1 - update.read)
    metric = _metric(iterate.initial)
    if progress.moved >= WINDOW and metric is not None:
        progress, phase = _learn_step(table, progress, phase, metric)
        # Half passes are counted in parts compared, not in updates: a first entry has no fall.
        if 2 * phase.compared >= parts:
            phase = _judge_half_pass(phase)
            # `harmless` is still the start, since no window of the table closes in this phase.
            if phase.gained < 0.0:
                return turn_back(iterate, table, progress, version), _from_start(phase)
            ends = phase.slowing or phase.updates > MAX_PASSES * parts
            # With parts missing, the first step of the table would follow the gradient of a sample.
            if ends and progress.seen == parts:
                iterate.memory.forget()
                table.harmless[...] = table.z_sum / progress.seen
                return progress, phase._replace(active=False)
    # Theta must move before two updates of a part can differ, so the table takes the first steps.
    if phase.curvature == 0.0 or metric is None:
        if may_step(progress, first):
            progress = aim(iterate, table, progress, version)
        return progress, phase
    step = (phase.step * 0.5**progress.turns) * (update.g / metric)
    # From theta, not from mean z: this is SGD, and noise is what leaves the plateau.
    iterate.theta[...] -= step
    length = math.sqrt(sum_of_squares(step))
    # An infinite norm: `endless_table` must not hold a point because |mean g| over scattered points is small.
    return progress._replace(norm=math.inf, longest=max(progress.longest, length)), phase


def _note_update(phase: Phase, staleness: int) -> Phase:
    # The mean of all at first, then one that fades over `STALENESS_MEMORY` updates.
    updates = phase.updates + 1
    change = (staleness - phase.staleness) / min(updates, STALENESS_MEMORY)
    return phase._replace(updates=updates, staleness=phase.staleness + change)


def _metric(scatter: ScatterMatrix) -> npt.NDArray[np.float64] | None:
    """Return D; None before there is a scatter."""
    variance = np.diagonal(scatter.F) if scatter.whole else scatter.F[0]
    seen, largest = int(scatter.seen[0]) - 1, float(variance.max())
    if seen < 1 or not 0.0 < largest < math.inf:
        return None
    # The floor keeps coordinates that hardly varied so far from steps that are too long.
    metric: npt.NDArray[np.float64] = np.sqrt(variance + largest / min(seen, LARGEST_COUNT) ** 1.5)
    return metric


def _learn_step(
    table: Table, progress: Progress, phase: Phase, metric: npt.NDArray[np.float64]
) -> tuple[Progress, Phase]:
    """Estimate L and set h, count the falls, and begin another window."""
    # With x = D^(1/2) theta these are the lengths of the changes of x and of the gradient in x, so that L is
    # a curvature there; the step h g / D is h times the gradient in x.
    change = math.sqrt(float((table.S * table.S * metric).sum()))
    response = math.sqrt(float((table.Y * table.Y / metric).sum()))
    curvature, step = phase.curvature, phase.step
    if change > 0.0 and math.isfinite(response):
        # S and Y are sums over parts, in which the stiffest direction may cancel by chance: L falls slowly.
        curvature = max(response / change, DECAY * curvature)
        longest = SAFETY / (curvature * max(1.0 + phase.staleness, len(table.read) / NOISE))
        # Shorter at once, longer by a factor of 2 at most.
        step = longest if step == 0.0 else min(longest, 2.0 * step)
    # The window of the table begins anew as well, but no pair is learned: h, not H, scales these steps.
    table.S[:], table.Y[:] = 0.0, 0.0
    phase = phase._replace(
        curvature=curvature,
        step=step,
        fall=phase.fall - progress.rise,
        compared=phase.compared + progress.moved,
    )
    return progress._replace(moved=0, rise=0.0, squares=0.0, slopes=0.0, bend=0.0), phase


def _judge_half_pass(phase: Phase) -> Phase:
    # Per part compared and so in units of U: a part's value is scaled to all rows.
    fall = phase.fall / phase.compared
    best = max(phase.best, fall)
    return phase._replace(
        fall=0.0,
        compared=0,
        best=best,
        gained=phase.gained + fall,
        # `<=`: in the first half pass a fall of zero is also the best one.
        slowing=fall <= FALL * best,
    )


def _from_start(phase: Phase) -> Phase:
    """Begin again, with what is known of the curvature; `Progress.turns` halves the step."""
    return phase._replace(fall=0.0, compared=0, best=0.0, gained=0.0, slowing=False)
