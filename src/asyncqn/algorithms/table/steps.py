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
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.exact.inverse import InverseHessian
from asyncqn.algorithms.exact.scatter import ScatterInverse, ScatterMatrix
from asyncqn.algorithms.pair_memory import RecursiveMemory
from asyncqn.algorithms.table.entries import LARGEST_FACTOR, Table, Update
from asyncqn.kernels.table import MOVED, SEEN, table_means
from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array

WINDOW_SHARE, MIN_WINDOW_SHARE = 0.25, 0.5
"""Length of a window: the first share of the parts seen, but at least the second share of the parts active at
the start, or of the numbers in theta if these are fewer.  Before the first pair, the first share of the parts
active at the start is enough."""
FIRST_LENGTH = 0.1
"""Length of a step without any knowledge of curvature, in units of |mean z|."""
PROMISE = 0.5
"""Before the first pair a step by the scatter of the gradients promises at most this share of |U|."""
BELIEF = 2.0
"""The exponent p of `exact.scatter`, where the choice for the table is explained."""
LEAD, FADING = 3.0, 0.9
"""The scatter is not used where its lead over I is below minus the first number; the second one multiplies
the lead with every new pair.  Where a prior has most of the curvature, F says nothing of it: 60 workers with a
row each then take 300 passes and more in place of 50."""
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


class Walk(Protocol):
    """The part of an iterate that steps write, in place."""

    @property
    def theta(self) -> Array: ...
    @property
    def memory(self) -> RecursiveMemory: ...
    @property
    def initial(self) -> ScatterMatrix: ...
    @property
    def table(self) -> Table: ...
    @property
    def squares(self) -> npt.NDArray[np.float64]:
        """v, the running mean of g^2."""

    @property
    def pace(self) -> Pace: ...


class Pace(NamedTuple):
    """The length of steps, and what they have shown."""

    radius: float = math.inf
    """The longest step of the table that is taken."""
    longest: float = 0.0
    """The longest one since the radius was last changed."""
    changed: int = 0
    """The version at which the radius was last changed: updates that read earlier ones do not judge it."""
    rate: float = 0.0
    """The rate of the stochastic start; 0 where it is over, or never began."""
    top: float = 0.0
    """The highest rate so far."""
    updates: int = 0
    """Updates of the start."""
    staleness: float = 0.0
    """Their mean staleness, l, in commits; older ones fade."""
    norm: float = math.inf
    """|mean g| at the last step; infinite during the start."""
    first_norm: float = 0.0
    first_value: float = math.nan
    """|mean g| and the mean value at the first step."""
    lead: float = 0.0
    """How much better F^-1 fits the pairs than I does: the sum of the logarithms, older ones fading."""

    @property
    def scattered(self) -> bool:
        """Return whether H0 is made of the scatter; it is c I where the pairs say that F misleads."""
        return self.lead >= -LEAD

    def resized(self, factor: float, version: int) -> Pace:
        """Return the pace with a radius in units of the longest step."""
        longest = min(self.radius, self.longest or math.inf)
        return self._replace(
            radius=factor * longest,
            longest=0.0,
            changed=version,
        )


def window_is_full(walk: Walk, first: int) -> bool:
    """Return whether enough parts have moved for a pair; first: how many are active at the start."""
    moved, seen = walk.table.tally[MOVED], walk.table.tally[SEEN]
    # H is P F^-1 until the first pair and may be far too long, so that pair must not wait for a full window.
    enough, least = WINDOW_SHARE * first, MIN_WINDOW_SHARE * min(first, walk.theta.size)
    if walk.pace.rate > 0.0:
        enough = least
    elif walk.memory.stored > 0:
        enough = max(WINDOW_SHARE * seen, least)
    # A standard error needs two.
    return bool(moved >= max(enough, 2.0))


def close_window(walk: Walk, pace: Pace, version: int, read: int) -> Pace:
    """Learn a pair, begin another window, and set the radius by this one."""
    table, known = walk.table, walk.memory.stored > 0
    tally = table.counts
    # A common factor of s and y changes nothing in H; means keep both within the range of float32.
    kind = walk.theta.dtype
    s, y = ((total / tally.moved).astype(kind) for total in table.sums[2:])
    # Also a window that did harm has measured curvature.
    initial = initial_of(walk, pace)
    gain = initial.gain(s, y)
    if InverseHessian(walk.memory, initial).learn(s, y[None]):
        before, pace = pace, pace._replace(lead=FADING * pace.lead + gain)
        # c F^-1 and c I have c of different units, so c is taken whole from this pair, without caution.
        if pace.scattered != before.scattered:
            ScatterInverse(walk.initial, trusted=pace.scattered).follow(walk.memory)
    table.next_window()
    # Once per round trip: the steps since then have not been heard of yet.
    if pace.longest == 0.0 or read < pace.changed:
        return pace
    # The step before the first pair is not judged, because that pair corrects it.
    slack = min(2.0 * tally.factor, LARGEST_FACTOR)
    if known and tally.harmful:
        return pace.resized(min(slack, 0.5), version)
    return pace.resized(max(slack, 1.0), version)


def go_back(walk: Walk, pace: Pace, version: int, read: int) -> Pace:
    """Shorten the steps, once per round trip, and return to the entries: an update was not finite."""
    if read < pace.changed:
        return pace
    if pace.rate > 0.0:
        if walk.table.tally[SEEN] > 0.0:
            walk.theta[...] = walk.table.sums[1] / walk.table.tally[SEEN]
        return pace._replace(rate=0.5 * pace.rate, changed=version)
    if pace.longest == 0.0 and pace.radius == math.inf:
        return pace
    return aim(walk, pace.resized(0.5, version))


def initial_of(walk: Walk, pace: Pace) -> ScatterInverse:
    """Return H0 as the table uses it."""
    return ScatterInverse(walk.initial, BELIEF, cautious=True, trusted=pace.scattered)


def aim(walk: Walk, pace: Pace) -> Pace:
    """Set theta = mean z - H mean g, the step no longer than the radius."""
    table, memory = walk.table, walk.memory
    d = walk.theta.size
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
    step = initial_of(walk, pace).times(memory, g)
    length = _norm(step)
    # A zero gradient leaves theta where it is, and norm = 0 makes the method hold it.
    if not (0.0 < length < math.inf and norm < math.inf):
        return pace._replace(norm=norm)
    most = pace.radius
    if not known:
        # The decrease on the quadratic whose Hessian is H^-1.
        promised = 0.5 * dot(g, step)
        allowed = length * PROMISE * abs(table.value) / promised
        if not (walk.initial.known and pace.scattered) or math.isnan(allowed):
            allowed = min(max(1.0 / norm, FIRST_LENGTH * far), max(1.0, far))
        most = min(most, allowed)
    scale = min(1.0, most / length)
    # From the mean z, not from theta: see the top of `table_lbfgs`.
    walk.theta[...] = z - scale * step
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


def stochastic_step(walk: Walk, pace: Pace, update: Update, version: int) -> Pace:
    """Take a step by a single update; theta and v change in place."""
    if pace.first_norm == 0.0:
        pace = pace._replace(first_norm=_norm(update.g), first_value=walk.table.value)
    v, updates = walk.squares, pace.updates + 1
    weight = 1.0 / min(updates, len(walk.table.read))
    v += weight * (update.g.astype(np.float64) ** 2 - v)
    np.maximum(v, FLOOR * v.max(), out=v)
    if v.any():
        walk.theta[...] = walk.theta - pace.rate * update.g / np.sqrt(v)
    # An update that read the version before this commit has the staleness 0.
    late = version - 1 - update.read - pace.staleness
    return pace._replace(
        updates=updates,
        staleness=pace.staleness + weight * late,
    )


def set_rate(walk: Walk, pace: Pace, version: int) -> Pace:
    """Set the rate by a window, and end the start where noise has brought it down."""
    table, tally = walk.table, walk.table.counts
    S, Y = table.sums[2:]
    roots = np.sqrt(walk.squares)
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
