"""The stochastic phase: SGD with a learned step, before the steps of the centred table.

Where U is not convex, the start often lies on a plateau or beside a saddle.  There the steps of the table
are slow, for each rests on gradients that are up to a pass old, and many small noisy steps leave it first.
In this phase each update is one such step, theta <- theta - h g.  The table is filled all the while.  Parts
that have sent a second update determine h: the changes s and y of their points and gradients are on the same
rows, so they measure curvature without the noise of sampling.  Over `WINDOW` such parts,

    L = |sum y| / |sum s|                    the curvature of U along the way
    Lambda = (sum |y|^2 / sum |s|^2)^1/2     the curvature of one part
    1 / h = max(L (1 + l) / SAFETY,  NOISE Lambda,  DECAY / h before)

with l the mean staleness.  A delay of l updates needs h L l < 1; the noise of single steps grows where h
exceeds a share of 1 / Lambda (the expected smoothness of Gower et al. 2019 is the mean of L and of the parts'
largest curvature).  Few workers are limited by the second, many by the first.  h at most doubles from one
window to the next.  No number is set by hand for a problem.

Progress is the fall of the parts' own values, each compared with its update before.  After a half pass whose
fall is below a quarter of the best one, or after `MAX_PASSES` passes, the phase ends and the table continues
from its entries.  On a plateau falls are small and of either sign, and in the first half pass theta recovers
from the table's own first steps.  So the phase does not end before U has fallen by a share of |U| at the
start, for some half passes at most.  Where U is not finite, or has risen far since the start (after a half
pass, or farther at once), the table turns back to the start, and h is halved.

Learning both curvatures from parts evaluated again is our own, and so are all constants.  They were chosen on
draws 0 and 10 to 19 of the laboratory (`benchmarks.studies.laboratory`).  There steps scaled by the scatter
of the updates, g / D, were slower: the first percent is lost along directions in which the gradients hardly
vary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from asyncqn.algorithms.quasi_newton.centred_table import (
    MAX_DISTANCE,
    Progress,
    Table,
    Update,
    aim,
    may_step,
    turn_back,
)
from asyncqn.algorithms.quasi_newton.composition import Iterate
from asyncqn.kernels.table import MOVED, SEEN, step_from
from asyncqn.kernels.vectors import sum_of_squares

WINDOW = 20
"""Updates of parts that had an entry at another point, between two estimates of the curvature."""
SAFETY = 0.6
"""Largest h L (1 + l): a delay of l updates requires it to be below 1."""
NOISE = 12.0
"""Smallest 1 / (h Lambda).  12 reaches 5 % of the gap in 0.93 of the time of 16 (draws 10 to 19), and 10 is
like 12; with 8, *factorization* with W = 16 takes 1.5 times as long."""
DECAY = 0.9
"""1 / h falls by this factor at most from one window to the next: S and Y are sums over parts, in which the
stiffest direction may cancel by chance."""
HARM, RISE = 1.0, 0.1
"""Rises of the parts' own values since the start, as shares of |U| there, at which theta returns: at once and
after a half pass.  The first steps, which are the table's, often make U rise by half of it, and the phase
recovers from that.  On a plateau the noise of the steps makes U rise by a percent or so."""
FALL = 0.25
"""The phase ends after a half pass in which U falls by less than this share of the best one."""
LEFT, MAX_WAIT = 0.3, 6
"""It does not end before U has fallen by this share of |U| at the start, for this number of half passes.  On
*factorization* with W = 40 (draws 10 to 19) that takes 6.1 passes to 5 % of the gap in place of 10.6."""
MAX_PASSES = 12
"""Passes after which the phase ends in any case."""
STALENESS_MEMORY = 200
"""Updates over which the mean staleness is taken."""


class Phase(NamedTuple):
    """The state of the stochastic phase."""

    active: bool = False
    updates: int = 0
    """Updates taken in the phase; a turn does not reset them."""
    stiffness: float = 0.0
    """The largest 1 / h that the curvatures asked for, fading; 0: not known yet, and the steps are the
    table's."""
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
    halves: int = 0
    """Half passes since the start."""
    slowing: bool = False
    """Whether U fell by less than the share `FALL` of that in the last half pass."""


def stochastic_step(
    iterate: Iterate,
    table: Table,
    progress: Progress,
    phase: Phase,
    update: Update,
    version: int,
    first: int,
) -> tuple[Progress, Phase]:
    """Take a step from an update that was entered into the table; theta changes in place.

    Parameters
    ----------
    table : Table
        With the entry of this update.
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
    if table.tally[MOVED] >= WINDOW:
        phase = _learn_step(table, phase)
        # A start that throws theta far out is not given the half pass.
        if phase.gained + phase.fall / phase.compared < -HARM * abs(
            progress.first_value
        ):
            return turn_back(iterate, table, progress, version), _from_start(phase)
        # Half passes are counted in parts compared, not in updates: a first entry has no fall.
        if 2 * phase.compared >= parts:
            phase = _judge_half_pass(phase)
            # `harmless` is still the start, since no window of the table closes in this phase.
            if phase.gained < -RISE * abs(progress.first_value):
                return turn_back(iterate, table, progress, version), _from_start(phase)
            ends = (
                phase.slowing and _has_left(table, progress, phase)
            ) or phase.updates > MAX_PASSES * parts
            # With parts missing, the first step of the table would follow the gradient of a sample.
            if ends and table.tally[SEEN] == parts:
                iterate.memory.forget()
                table.harmless[...] = table.z_sum / parts
                return progress, phase._replace(active=False)
    # Theta must move before two updates of a part can differ, so the table takes the first steps.
    if phase.stiffness == 0.0:
        if may_step(table.tally[SEEN], first):
            progress = aim(iterate, table, progress, version)
        return progress, phase
    h = phase.step * 0.5**progress.turns
    # From theta, not from mean z: this is SGD, and noise is what leaves the plateau.
    away, size = step_from(iterate.theta, iterate.theta, update.g, h, iterate.start)
    # Negated, so that a point that is not a number turns back too.
    if not away <= MAX_DISTANCE * (1.0 + size):
        return turn_back(iterate, table, progress, version), _from_start(phase)
    length = h * math.sqrt(sum_of_squares(update.g))
    # An infinite norm: `endless_table` must not hold a point because |mean g| over scattered points is small.
    return progress._replace(
        norm=math.inf, longest=max(progress.longest, length)
    ), phase


def _note_update(phase: Phase, staleness: int) -> Phase:
    # The mean of all at first, then one that fades over `STALENESS_MEMORY` updates.
    updates = phase.updates + 1
    change = (staleness - phase.staleness) / min(updates, STALENESS_MEMORY)
    return phase._replace(updates=updates, staleness=phase.staleness + change)


def _learn_step(table: Table, phase: Phase) -> Phase:
    """Estimate the curvatures and set h, count the falls, and begin another window."""
    tally = table.counts
    change, response = (
        math.sqrt(sum_of_squares(table.S)),
        math.sqrt(sum_of_squares(table.Y)),
    )
    stiffness, step = phase.stiffness, phase.step
    if change > 0.0 and math.isfinite(response + tally.responses):
        delayed = (1.0 + phase.staleness) * response / change / SAFETY
        noisy = NOISE * math.sqrt(tally.responses / tally.changes)
        stiffness = max(delayed, noisy, DECAY * stiffness)
        # Shorter at once, longer by a factor of 2 at most.  A zero is a U without curvature so far.
        if stiffness > 0.0:
            step = 1.0 / stiffness if step == 0.0 else min(1.0 / stiffness, 2.0 * step)
    # The window of the table begins anew as well, but no pair is learned: h, not H, scales these steps.
    table.next_window()
    return phase._replace(
        stiffness=stiffness,
        step=step,
        fall=phase.fall - tally.rise,
        compared=phase.compared + int(tally.moved),
    )


def _judge_half_pass(phase: Phase) -> Phase:
    # Per part compared and so in units of U: a part's value is scaled to all rows.
    fall = phase.fall / phase.compared
    best = max(phase.best, fall)
    return phase._replace(
        fall=0.0,
        compared=0,
        best=best,
        gained=phase.gained + fall,
        halves=phase.halves + 1,
        # `<=`: in the first half pass a fall of zero is also the best one.
        slowing=fall <= FALL * best,
    )


def _has_left(table: Table, progress: Progress, phase: Phase) -> bool:
    """Return whether U is well below its value at the start, or has been given the time for it."""
    tally, first = table.counts, progress.first_value
    # Negated, so that a phase without values ends as soon as it slows.
    return (
        not first - tally.value / tally.seen < LEFT * abs(first)
        or phase.halves > MAX_WAIT
    )


def _from_start(phase: Phase) -> Phase:
    """Begin again, with what is known of the curvature; `Progress.turns` halves the step."""
    return phase._replace(
        fall=0.0, compared=0, best=0.0, gained=0.0, halves=0, slowing=False
    )
