"""The stochastic start: steps by single updates, where the table does not leave a plateau.

    theta <- theta - h g / sqrt v,       v the running mean of g^2, by coordinate
    1 / h = max(L (1 + l) / SAFETY,  NOISE Lambda,  1 / (2 h before))
    L = |sum y| / |sum s|                of the parts that answered a second time, their points s apart
    Lambda = (sum |y|^2 / sum |s|^2)^1/2

with the norms |s|^2 = sum s_j^2 sqrt v_j and |y|^2 = sum y_j^2 / sqrt v_j, and l the mean staleness.  The
changes s and y of a part are on the same rows, so they measure curvature without the noise of sampling.  A
delay of l updates needs h L l < 1; the noise of single steps grows where h exceeds a share of 1 / Lambda.  No
step is longer than the radius.

At a saddle or on a plateau a table makes one step per pass out of all gradients, while each update is a step
here.  So the start begins after a half pass in which the parts' own values fell by less than the share
`PLATEAU` of |U| at the start, if they have not fallen by the share `LEFT` in all; and it happens once.  It
ends after a half pass in which they fell by less than a quarter of the best half pass, once they have fallen
by `LEFT`, or after `MAX_WAIT` half passes.  The table then continues with the radius that parts moved between
two answers.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.table.entries import Update
from asyncqn.algorithms.table.pace import Pace, Walk
from asyncqn.kernels.table import note_squares
from asyncqn.kernels.vectors import dot, sum_of_squares

PLATEAU, LEFT = 0.02, 0.3
"""Shares of |U| at the start.  The laboratory's factorization falls by 0.4 to 2 % in a half pass on its plateau,
its networks by 8 % and more; a start that needs no plateau costs these the first pass (relu, W = 16: U = 1276
after 1.5 passes in place of 630)."""
FALL, MAX_WAIT = 0.25, 6
"""The start ends after a half pass in which U falls by less than this share of the best one, once U has fallen
by `LEFT`, or after this number of half passes."""
SAFETY, NOISE = 0.6, 12.0
"""Largest h L (1 + l), for a delay of l updates requires it to be below 1, and smallest 1 / (h Lambda): with 4
in place of 12 the relu network (W = 16) ends at 130 in place of 117."""
FASTER = 2.0
"""Largest growth of h from one window to the next; with 1.1 the saddle (W = 16) ends at 23107 in place of
3737."""
FLOOR = 1e-6
"""Smallest mean of g_j^2, in units of the largest."""


class State(IntEnum):
    """The state of the stochastic start."""

    READY = 0
    WALKING = 1
    OVER = 2


class Start(NamedTuple):
    """The state of the stochastic start."""

    state: State = State.OVER
    updates: int = 0
    """Updates so far."""
    staleness: float = 0.0
    """Their mean staleness, l, in commits; older ones fade."""
    stiffness: float = 0.0
    """1 / h; 0: not known yet."""
    fall: float = 0.0
    compared: int = 0
    """The falls of the parts' own values in this half pass: their sum and their number."""
    halves: int = 0
    best: float = 0.0
    """Half passes since the start began, and the largest mean fall of one."""

    @property
    def walking(self) -> bool:
        """Return whether the steps are stochastic."""
        return self.state is State.WALKING


def note(walk: Walk, start: Start, update: Update, version: int) -> Start:
    """Take account of an update's size and age."""
    updates = start.updates + 1
    weight = 1.0 / min(updates, len(walk.table.read))
    if update.finite:
        note_squares(walk.table.scales, update.g, weight, FLOOR)
    # An update that read the version before this commit has the staleness 0.
    late = version - 1 - update.read - start.staleness
    return start._replace(
        updates=updates,
        staleness=start.staleness + weight * late,
    )


def judge(walk: Walk, pace: Pace, start: Start) -> Start:
    """Begin or end the start after a half pass, by the window that closes."""
    table, tally = walk.table, walk.table.counts
    # A sample is fitted soon: only falls of all parts count.
    if start.state is State.OVER or not table.whole or math.isnan(pace.first_value):
        return start
    start = start._replace(
        fall=start.fall - tally.rise, compared=start.compared + int(tally.moved)
    )
    if 2 * start.compared < len(table.read):
        return start
    fall, size = start.fall / start.compared, abs(pace.first_value)
    left = pace.first_value - table.value >= LEFT * size
    start = start._replace(
        fall=0.0,
        compared=0,
        halves=start.halves + 1,
    )
    if start.walking:
        best = max(start.best, fall)
        ends = fall <= FALL * best and (left or start.halves > MAX_WAIT)
        return start._replace(
            state=State.OVER if ends else State.WALKING,
            best=best,
        )
    if left or fall >= PLATEAU * size:
        return start
    return start._replace(
        state=State.WALKING,
        halves=0,
    )


def learn_step(
    walk: Walk, pace: Pace, start: Start, version: int
) -> tuple[Pace, Start]:
    """Estimate the curvatures and set h, judge the half pass, and begin another window."""
    table, tally = walk.table, walk.table.counts
    S, Y = table.sums[2:]
    roots = np.sqrt(table.scales)
    change, response = dot(S * S, roots), dot(Y * Y, 1.0 / roots)
    stiffness = start.stiffness
    if change > 0.0 and math.isfinite(response + tally.responses):
        delayed = (1.0 + start.staleness) * math.sqrt(response / change) / SAFETY
        noisy = NOISE * math.sqrt(tally.responses / tally.changes)
        # Shorter at once, longer by a factor of 2 at most.
        stiffness = max(delayed, noisy, stiffness / FASTER)
    start = judge(walk, pace, start)._replace(stiffness=stiffness)
    clipped = pace.longest >= 0.999 * pace.radius
    if not start.walking:
        walk.memory.forget()
        length = math.sqrt(sum_of_squares(S)) / tally.moved
        pace = pace._replace(
            radius=length,
            longest=0.0,
            changed=version,
        )
    elif clipped and tally.rise <= 0.0:
        pace = pace.resized(FASTER, version)
    table.next_window()
    return pace._replace(longest=0.0), start


def step(walk: Walk, pace: Pace, start: Start, update: Update) -> Pace:
    """Take a stochastic step; theta changes in place."""
    if start.stiffness == 0.0:
        return pace
    away = update.g / (start.stiffness * np.sqrt(walk.table.scales))
    length = math.sqrt(sum_of_squares(away))
    scale = min(1.0, pace.radius / length) if length > 0.0 else 0.0
    walk.theta[...] = walk.theta - scale * away
    # An infinite norm: a point must not be held because |mean g| over scattered points is small.
    longest = max(pace.longest, scale * length)
    return pace._replace(
        norm=math.inf,
        longest=longest,
    )
