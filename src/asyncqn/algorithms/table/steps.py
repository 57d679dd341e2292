"""The steps of the table, and the one rule for their length.

Every part compares itself with its last update: its point has moved by s, its own value by u - u_i, and g_i's
is the slope where it was.  Over a window of updates, with slope and rise the sums of both,

    factor = -slope / (2 (rise - slope)), between 1/4 and 4

is how far the moves should have gone: there the parabola through them is lowest.  Nothing in it is noise of
sampling, because every part is compared with itself.  Both kinds of steps go by it.

*Stochastic start*, where rows are few for the numbers in theta: each update is a step,

    theta <- theta - rate g / sqrt v                                  v the running mean of g^2, by coordinate
    rate  <- min(factor^(moved / seen) rate,  SAFETY / (L (1 + l)))   after every window

since the moves are those of a full round, in which this happens seen / moved times.  L = |sum y| / |sum s| is
the curvature in the norms |s|^2 = sum s_j^2 sqrt v_j and |y|^2 = sum y_j^2 / sqrt v_j, and l the mean
staleness: with a delay of l rate L l must stay below 1, and the factor says so too late.  The start ends when
the rate has fallen to the share `NOISE` of its highest: then the noise of single updates does as much harm as
their mean does good, and the table has no such noise.

*Table*: theta = mean z - min(1, radius / |H mean g|) H mean g, and after every window, at most once in a round
trip,

    radius <- longest step x max(2 factor, 1)          so that good steps may double
    radius <- longest step x min(2 factor, 1/2)        after harm: the mean rise exceeds three standard errors
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.exact.inverse import InverseHessian
from asyncqn.algorithms.exact.scatter import ScatterInverse
from asyncqn.algorithms.table.state import LARGEST_FACTOR, Iterate, Pace, Update
from asyncqn.kernels.table import MOVED, SEEN, table_means
from asyncqn.kernels.vectors import dot, sum_of_squares

WINDOW_SHARE, MIN_WINDOW_SHARE = 0.25, 0.5
"""Length of a window: the first share of the parts seen, but at least the second share of the parts active at
the start, or of the numbers in theta if these are fewer.  Before the first pair, the first share of the parts
active at the start is enough."""
FIRST_LENGTH = 0.1
"""Length of a step without any knowledge of curvature, in units of |mean z|."""
PROMISE = 0.5
"""Before the first pair a step by the scatter of the gradients promises at most this share of |U|."""
FADING = 0.9
"""Factor on the lead of the scatter with every new pair."""
FIRST_RATE = 3e-3
"""The first rate: a step changes every number of theta by about as much, as Adam's usual one does.  With 0.01
the laboratory's relu network (W = 40) has U = 1159 after three passes in place of 591, with 0.001 its saddle
(W = 40) ends at 18657 in place of 3710."""
SAFETY = 0.6
"""Largest rate L (1 + l).  Without this limit the relu network (W = 40) has U = 2732 after two passes in place of
929."""
NOISE = 0.5
"""The start ends when the rate has fallen to this share of its highest.  With 0.25 the dark network (W = 16)
ends at 344 and 460 in place of 315 and 371."""
FLOOR = 1e-6
"""Smallest mean of g_j^2, in units of the largest."""


def window_is_full(it: Iterate, first: int) -> bool:
    """Return whether enough parts have moved for a pair; first: how many are active at the start."""
    moved, seen = it.table.tally[MOVED], it.table.tally[SEEN]
    # H is P F^-1 until the first pair and may be far too long, so that pair must not wait for a full window.
    enough, least = WINDOW_SHARE * first, MIN_WINDOW_SHARE * min(first, it.theta.size)
    if it.pace.rate > 0.0:
        enough = least
    elif it.memory.stored > 0:
        enough = max(WINDOW_SHARE * seen, least)
    # A standard error needs two.
    return bool(moved >= max(enough, 2.0))


def close_window(it: Iterate, pace: Pace, version: int, read: int) -> Pace:
    """Learn a pair, begin another window, and set the radius by this one."""
    table, known = it.table, it.memory.stored > 0
    tally = table.counts
    # A common factor of s and y changes nothing in H; means keep both within the range of float32.
    kind = it.theta.dtype
    s, y = ((total / tally.moved).astype(kind) for total in table.sums[2:])
    # Also a window that did harm has measured curvature.
    gain = it.initial.gain(s, y)
    if inverse_of(it, pace).learn(s, y[None]):
        before, pace = pace, pace._replace(lead=FADING * pace.lead + gain)
        # c F^-1 and c I have c of different units, so c is taken whole from this pair, without caution.
        if pace.scattered != before.scattered:
            inverse_of(it, pace, cautious=False).follow()
    table.next_window()
    # Once per round trip: the steps since then have not been heard of yet.
    if pace.longest == 0.0 or read < pace.changed:
        return pace
    # The step before the first pair is not judged, because that pair corrects it.
    slack = min(2.0 * tally.factor, LARGEST_FACTOR)
    if known and tally.harmful:
        return pace.resized(min(slack, 0.5), version)
    return pace.resized(max(slack, 1.0), version)


def go_back(it: Iterate, pace: Pace, version: int, read: int) -> Pace:
    """Shorten the steps, once per round trip, and return to the entries: an update was not finite."""
    if read < pace.changed:
        return pace
    if pace.rate > 0.0:
        if it.table.tally[SEEN] > 0.0:
            it.theta[...] = it.table.sums[1] / it.table.tally[SEEN]
        return pace._replace(rate=0.5 * pace.rate, changed=version)
    if pace.longest == 0.0 and pace.radius == math.inf:
        return pace
    return aim(it, pace.resized(0.5, version))


def inverse_of(it: Iterate, pace: Pace, cautious: bool = True) -> InverseHessian:
    """Return H, on the scatter while it does not mislead; cautious: for the table's steps."""
    if not pace.scattered:
        return InverseHessian(it.memory, ())
    return ScatterInverse(it.memory, it.initial, cautious)


def aim(it: Iterate, pace: Pace) -> Pace:
    """Set theta = mean z - H mean g, the step no longer than the radius."""
    table, memory = it.table, it.memory
    d = it.theta.size
    seen = float(table.tally[SEEN])
    # In double precision, as the sums are.
    g, z = np.empty(d), np.empty(d)
    g_sum, z_sum = table.sums[:2]
    norm, far = map(math.sqrt, table_means(g_sum, z_sum, seen, g, z))
    known = memory.stored > 0
    # With V the covariance of one row's gradient, n V is the Hessian B (`exact.scatter`).  The gradient of
    # n / P rows, scaled up by P, has the covariance P n V: F is about P B, and c = P.
    if not known:
        memory.scale[0] = len(table.read)
    step = inverse_of(it, pace).times(g)
    length = _norm(step)
    # A zero gradient leaves theta where it is, and norm = 0 makes the method hold it.
    if not (0.0 < length < math.inf and norm < math.inf):
        return pace._replace(norm=norm)
    most = pace.radius
    if not known:
        # The decrease on the quadratic whose Hessian is H^-1.
        promised = 0.5 * dot(g, step)
        allowed = length * PROMISE * abs(table.value) / promised
        if not (it.initial.known and pace.scattered) or math.isnan(allowed):
            allowed = min(max(1.0 / norm, FIRST_LENGTH * far), max(1.0, far))
        most = min(most, allowed)
    scale = min(1.0, most / length)
    # From the mean z, not from theta: see the top of `table_lbfgs`.
    it.theta[...] = z - scale * step
    # Theta does not move before its first step, so these are estimates at the start.
    if pace.first_norm == 0.0:
        pace = pace._replace(
            first_norm=norm,
            first_value=table.value,
        )
    return pace._replace(
        norm=norm,
        longest=max(pace.longest, scale * length),
    )


# The stochastic start


def stochastic_step(it: Iterate, pace: Pace, update: Update, version: int) -> Pace:
    """Take a step by a single update; theta and v change in place."""
    if pace.first_norm == 0.0:
        pace = pace._replace(first_norm=_norm(update.g), first_value=it.table.value)
    v, updates = it.squares, pace.updates + 1
    weight = 1.0 / min(updates, len(it.table.read))
    v += weight * (update.g.astype(np.float64) ** 2 - v)
    np.maximum(v, FLOOR * v.max(), out=v)
    if v.any():
        it.theta[...] = it.theta - pace.rate * update.g / np.sqrt(v)
    # An update that read the version before this commit has the staleness 0.
    late = version - 1 - update.read - pace.staleness
    return pace._replace(
        updates=updates,
        staleness=pace.staleness + weight * late,
    )


def set_rate(it: Iterate, pace: Pace, version: int) -> Pace:
    """Set the rate by a window, and end the start where noise has brought it down."""
    table, tally = it.table, it.table.counts
    S, Y = table.sums[2:]
    roots = np.sqrt(it.squares)
    rate = pace.rate * tally.factor ** (tally.moved / tally.seen)
    change, response = dot(S * S, roots), dot(Y * Y, 1.0 / roots)
    if change > 0.0 and response > 0.0:
        limit = SAFETY / (1.0 + pace.staleness) * math.sqrt(change / response)
        rate = min(rate, limit)
    pace = pace._replace(rate=rate, top=max(pace.top, rate))
    length = _norm(S) / tally.moved
    table.next_window()
    if rate >= NOISE * pace.top or not table.whole:
        return pace
    # The table's first step may be as long as a part has moved between two updates.
    return pace._replace(rate=0.0, radius=length, longest=0.0, changed=version)


def _norm(v: npt.NDArray[Any]) -> float:
    return math.sqrt(sum_of_squares(v))
