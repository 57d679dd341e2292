"""The steps of the table, and the one rule that keeps a step from harming: its radius."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from asyncqn.algorithms.exact.inverse import COSINE, InverseHessian
from asyncqn.algorithms.exact.scatter import ScatterInverse, ScatterMatrix
from asyncqn.algorithms.pair_memory import PairRule, RecursiveMemory
from asyncqn.algorithms.table.entries import Table
from asyncqn.kernels.table import MOVED, SEEN, table_means
from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array

WINDOW_SHARE, MIN_WINDOW_SHARE = 0.25, 0.5
"""Length of a window: the first share of the parts seen, but at least the second share of the parts active at
the start, or of the numbers in theta if these are fewer.  Before the first pair, the first share of the parts
active at the start is enough."""
STANDARD_ERRORS = 3.0
"""Standard errors by which the mean rise of a window must exceed 0 to count as harm."""
GROWTH, SHRINK = 4.0, 0.5
"""Factors of the radius after a window in which U fell, and after harm.  With a growth of 10 the dark network
of the laboratory (W = 16, 112 parts) ends at 1239 in place of 458; with a shrinkage of 0.25 its saddle (W = 2)
ends at 8252 in place of 4460."""
FIRST_LENGTH = 0.1
"""Length of a step without any knowledge of curvature, in units of |mean z|.  With 0.01 the relu network of
the laboratory (W = 16) has U = 1019 after 1.5 passes, with 0.1 it has 728."""
PROMISE, SIGNAL = 0.5, 2.0
"""Before the first pair a step by the scatter of the gradients promises at most this share of |U|, and it is
taken where their mean exceeds its own error by this factor.  The factor is below 1 on the factorization, its
saddle and the dark network of the laboratory, and above 2 on its other networks.  With a share of 0.1 the relu network
(W = 40) has U = 936 after two passes in place of 595."""
BELIEF = 2.0
"""The exponent p of `exact.scatter`, where the choice for the table is explained."""

LEAD, FADING = 3.0, 0.9
"""The scatter is not used where its lead over I is below minus the first number; the second one multiplies
the lead with every new pair.  Where a prior has most of the curvature, F says nothing of it: 60 workers with a
row each then take 300 passes and more in place of 50."""


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


class Pace(NamedTuple):
    """The radius, and what the steps have shown."""

    radius: float = math.inf
    """The longest step that is taken."""
    longest: float = 0.0
    """The longest step since the radius was last changed."""
    changed: int = 0
    """The version at which the radius was last changed: updates that read earlier ones do not judge it."""
    norm: float = math.inf
    """|mean g| at the last step; infinite during the stochastic start."""
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
    enough = WINDOW_SHARE * first
    if walk.memory.stored > 0:
        enough = max(WINDOW_SHARE * seen, least_window(walk, first))
    # A standard error needs two.
    return bool(moved >= max(enough, 2.0))


def least_window(walk: Walk, first: int) -> float:
    """Return how many parts must have moved in any window."""
    return MIN_WINDOW_SHARE * min(first, walk.theta.size)


def close_window(walk: Walk, pace: Pace, version: int, read: int) -> Pace:
    """Learn a pair, begin another window, and judge the radius by it."""
    table, known = walk.table, walk.memory.stored > 0
    tally = table.counts
    kind = walk.theta.dtype
    # A common factor of s and y changes nothing in H; means keep both within the range of float32.
    s, y = ((total / tally.moved).astype(kind) for total in table.sums[2:])
    # Also a window that did harm has measured curvature.
    initial = initial_of(walk, pace)
    gain = initial.gain(s, y)
    if InverseHessian(walk.memory, initial, PairRule(0.0, COSINE)).learn(s, y[None]):
        pace = with_lead(walk, pace, FADING * pace.lead + gain)
    table.next_window()
    # Once per round trip: the steps since then have not been heard of yet.
    if pace.longest == 0.0 or read < pace.changed:
        return pace
    # The step before the first pair is not judged, because that pair corrects it.  Negated, so that a mean
    # that is not a number is harm.
    if known and not tally.mean_rise <= STANDARD_ERRORS * tally.error:
        return pace.resized(SHRINK, version)
    return pace.resized(1.0 if tally.mean_rise > 0.0 else GROWTH, version)


def with_lead(walk: Walk, pace: Pace, lead: float) -> Pace:
    """Note how well the scatter fits; where it comes into use or goes out of it, c is that of another H0."""
    changed = pace._replace(lead=lead)
    # c F^-1 and c I have c of different units, so c is taken whole from the newest pair, without caution.
    if changed.scattered != pace.scattered:
        ScatterInverse(walk.initial, trusted=changed.scattered).follow(walk.memory)
    return changed


def initial_of(walk: Walk, pace: Pace) -> ScatterInverse:
    """Return H0 as the table uses it."""
    return ScatterInverse(
        walk.initial,
        BELIEF,
        cautious=True,
        trusted=pace.scattered,
    )


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
    length = math.sqrt(sum_of_squares(step))
    # A zero gradient leaves theta where it is, and norm = 0 makes the method hold it.
    if not (0.0 < length < math.inf and norm < math.inf):
        return pace._replace(norm=norm)
    most = pace.radius
    if not known:
        # The decrease on the quadratic whose Hessian is H^-1; were g all error, 2 P (d / seen) of it.
        promised = 0.5 * dot(g, step)
        believed = 2.0 * promised * seen >= SIGNAL * d * len(table.read)
        allowed = length * PROMISE * abs(table.value) / promised
        if not (walk.initial.known and pace.scattered and believed) or math.isnan(
            allowed
        ):
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
