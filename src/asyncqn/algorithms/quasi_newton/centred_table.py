"""The centred table: the newest gradient of every part, the point where it was taken, and the step from both.

The newest update of part i is g_i, taken at z_i; it is scaled so that the mean over all parts is the gradient
of U.  With means over the parts that have sent an update,

    theta = mean z - H mean g                                 after every update
    S += z - z_i,  Y += g - g_i,  (g_i, z_i) <- (g, z)        an update (g, z) of part i
    H learns (S, Y) / count                                   when count parts have moved; then S = Y = 0

Where U is a quadratic with Hessian B the error of the new point is (I - H B) times the mean error of the z_i:
staleness does not shrink the step, for the step does not start at theta but at the points where the gradients
are right.  (Started at theta, it diverges.)  The gradients of a pair are of the same rows at both ends, so
it measures curvature without the noise of sampling.

Before the first pair H = P F^-1 with P parts and F the scatter of their updates, which is the inverse Hessian
where U is a negative log-likelihood.  That may be wrong, so the decrease that the step promises is limited to
half of |U|, where U comes with the updates; without it the step is no longer than the safeguard's first one.

A pair is of the whole way between two points, and where U bends its scale c is that of the flattest stretch.
The others' entries are where the curvature was higher, and H B > 2 there throws theta further out with every
update; so c rises only half way (in its logarithm) to what a pair says, and falls at once.

The updates between two pairs are a *window*.  The safeguard of the table compares each part with itself: the
rise of its own estimate of U since its last update (by values, or by the slopes at both ends) has a mean and
a standard error over the window.  A window has done harm where the mean exceeds both two standard errors
and `SAMPLING_FACTOR` times what sampling explains.  Sampling explains c d / 2 over the number of parts seen:
a point that fits few parts too well fits them worse when others join.  After a harmful window, an update that
is not finite or a step that leads too far, the table turns back: it is emptied and the pairs are forgotten.
Theta then returns to the last mean z up to which nothing had risen, and the steps are halved.  The step
before the first pair is not judged by its window, because the pair corrects it.

This file has the table and its steps; the plan that uses it is in `endless_table`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.exact.inverse import COSINE, InverseHessian
from asyncqn.algorithms.exact.scatter import ScatterInverse
from asyncqn.algorithms.pair_memory import PairRule
from asyncqn.algorithms.quasi_newton.composition import Iterate
from asyncqn.algorithms.safeguard import FIRST, STEP_GROWTH
from asyncqn.kernels.table import (
    MOVED,
    RESPONSES,
    SEEN,
    UPDATES,
    VALUE,
    replace_entry,
    step_from,
    table_means,
)
from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array, Commit

WINDOW_SHARE, MIN_WINDOW_SHARE = 0.25, 0.5
"""Length of a window: the first share of the parts seen, but at least the second share of the parts active at
the start, or of the numbers in theta if these are fewer.  Before the first pair, the first share of the parts
active at the start is enough."""
FIRST_STEP_SHARE = 0.1
"""Share of the parts active at the start that must have an entry before the first step is taken."""
SAMPLING_FACTOR, STANDARD_ERRORS = 10.0, 2.0
"""A rise counts where it exceeds both this multiple of what sampling explains and this number of standard
errors."""
MAX_DISTANCE = 1e6
"""Largest distance of theta from the start, in any coordinate, in units of 1 plus the largest number of the
start; a step that leads further has gone astray."""
BELIEF = 2.0
"""The exponent p of `scatter_inverse`, where the choice of 2 for the table is explained."""
LEAD, FADING = 3.0, 0.9
"""The scatter is not used where its lead over I is below minus `LEAD`; `FADING` multiplies the lead with
every new pair.  Both values are those of `initial_inverse`, but a diagonal must earn its lead there, whereas
the scatter is used until it has lost it: the first steps need it."""
TURNS = 1
"""After more turns than this, before a point was held, a plan continues with exact gradients.  On the
laboratory's network (draw 0, W = 4, 16, 40) five turns left runs unfinished after 300 passes that one turn
ends after 100 to 200."""


class Tally(NamedTuple):
    """The numbers that every update changes; `Table.tally` holds them in this order, written in place.

    With many workers an update must cost the master little, and a new tuple for each would be half of it.
    """

    seen: float
    """Parts that have an entry."""
    value: float
    """The sum of their values; NaN where none come."""
    # Of the window under way, from here to `responses`.
    moved: float
    """Updates since the last pair whose part's point had moved."""
    # Rises are per part, but in units of U: a part's estimate of U is scaled to all rows.
    rise: float
    squares: float
    """The sum of their rises, and of the squares of these."""
    slopes: float
    bend: float
    """The sum of the rises by slopes, without signs, and of what these differ by from those by values."""
    changes: float
    responses: float
    """The sums of |z - z_i|^2 and of |g - g_i|^2: their ratio is the squared curvature of a part."""
    unpaired: float
    """Updates since the last pair that was admitted."""
    updates: float
    """Updates that the table has taken since a point was last held."""


class Table(NamedTuple):
    """One entry per part, and sums over the entries."""

    entries: Array
    """Shape (2, P, d): the newest gradient of every part, and the point where it was taken."""
    values: npt.NDArray[np.float64]
    """Shape (P,): the part's estimate of U at z; NaN where there is none."""
    read: npt.NDArray[np.int64]
    """Shape (P,): the version whose theta is z; -1: there is no entry."""
    sums: npt.NDArray[np.float64]
    """Shape (4, d): g_sum, z_sum, S and Y.  They are float64 whatever the dtype of theta: each update adds a
    small difference to a large sum."""
    tally: npt.NDArray[np.float64]
    """Shape (11,): see `Tally`."""
    harmless: Array
    """Shape (d,): the last mean z up to which nothing had risen; the start before there is one."""

    @classmethod
    def empty(cls, parts: int, theta0: Array) -> Table:
        """Return a table without entries."""
        entries = np.zeros((2, parts, theta0.size), theta0.dtype)
        values, read = np.full(parts, math.nan), np.full(parts, -1, np.int64)
        sums, tally = np.zeros((4, theta0.size)), np.zeros(len(Tally._fields))
        return cls(entries, values, read, sums, tally, theta0.copy())

    # Views: few arrays make a kernel quick to call.

    @property
    def g(self) -> Array:
        """Shape (P, d): the newest gradient of every part."""
        return self.entries[0, :]

    @property
    def z(self) -> Array:
        """Shape (P, d): the point where it was taken."""
        return self.entries[1, :]

    @property
    def g_sum(self) -> npt.NDArray[np.float64]:
        """Shape (d,): the sum of all g_i."""
        return self.sums[0, :]

    @property
    def z_sum(self) -> npt.NDArray[np.float64]:
        """Shape (d,): the sum of all z_i."""
        return self.sums[1, :]

    @property
    def S(self) -> npt.NDArray[np.float64]:
        """Shape (d,): the sum of the changes of z since the last pair."""
        return self.sums[2, :]

    @property
    def Y(self) -> npt.NDArray[np.float64]:
        """Shape (d,): the sum of the changes of g since the last pair."""
        return self.sums[3, :]

    @property
    def counts(self) -> Tally:
        """Return the tally as it is now."""
        return Tally(*self.tally.tolist())

    def next_window(self) -> None:
        """Begin another window, whose sums are zeros."""
        self.sums[2:] = 0.0
        self.tally[MOVED : RESPONSES + 1] = 0.0

    def clear(self) -> None:
        """Remove all entries."""
        # g and z keep their old numbers: `replace_entry` does not read them where `read` is -1.
        self.read[:], self.values[:] = -1, math.nan
        self.sums[:] = 0.0
        # `updates` is a measure of time, and continues.
        self.tally[:UPDATES] = 0.0


class Progress(NamedTuple):
    """Record of the steps on the table, which a step or the end of a window changes."""

    bent: bool = False
    """Whether values and slopes disagreed in the last window."""
    stride: float = 0.0
    """The longest step of all windows that did no harm; 0: none yet."""
    last_stride: float = 0.0
    """The longest step of the last window."""
    longest: float = 0.0
    """The longest step in this window."""
    norm: float = math.inf
    """|mean g| at the last step."""
    first_norm: float = 0.0
    first_value: float = math.nan
    """|mean g| and the mean value at the first step."""
    turns: int = 0
    """Turns that have not been forgiven: the steps are multiplied by 0.5^turns."""
    turned: int = 0
    """The version of the last turn: updates that read earlier ones are void."""
    windows: int = 0
    """Windows that did no harm since the last turn, or since a turn was forgiven."""
    lead: float = 0.0
    """How much better F^-1 fits the pairs than I does: the sum of the logarithms, older ones fading."""

    @property
    def scattered(self) -> bool:
        """Return whether H0 is made of the scatter; it is c I where the pairs say that F misleads."""
        return self.lead >= -LEAD


class Update(NamedTuple):
    """A part's estimates of the gradient and of U at z, scaled so that their mean over the parts is exact."""

    g: Array
    z: Array
    value: float
    """NaN where the problem offers no values."""
    part: int
    finite: bool
    """False: U or its gradient was not finite, and the worker has set g to zero."""
    read: int
    """The version at which the worker took the gradient."""


def enter(table: Table, update: Update) -> tuple[float, float]:
    """Put an update in the place of its part's entry; return how many parts have moved and been seen."""
    entries, values, read, sums, tally, _ = table
    g, z, value, part, _, version = update
    moved, seen = replace_entry(
        entries, values, read, sums, tally, part, g, z, value, version
    )
    return moved, seen


def window_is_full(iterate: Iterate, moved: float, seen: float, first: int) -> bool:
    """Return whether enough parts have moved for a pair; first: how many are active at the start."""
    # H is P F^-1 until the first pair and may be far too long, so that pair must not wait for a full window.
    if iterate.memory.stored > 0:
        enough = max(
            WINDOW_SHARE * seen, MIN_WINDOW_SHARE * min(first, iterate.theta.size)
        )
    else:
        enough = WINDOW_SHARE * first
    # A standard error needs two.
    return moved >= max(enough, 2.0)


def may_step(seen: float, first: int) -> bool:
    """Return whether enough parts have an entry for a step."""
    return seen >= max(2.0, FIRST_STEP_SHARE * first)


def initial_of(iterate: Iterate, progress: Progress) -> ScatterInverse:
    """Return H0 as the table uses it."""
    return ScatterInverse(
        iterate.initial, BELIEF, cautious=True, trusted=progress.scattered
    )


def harmful(iterate: Iterate, tally: Tally) -> bool:
    """Return whether the parts that have moved are worse off, beyond error and sampling."""
    count, d = tally.moved, iterate.theta.size
    # Means of differences of the same part: the differences between parts, which are far larger, cancel.
    mean = tally.rise / count
    error = math.sqrt(max(tally.squares / count - mean * mean, 0.0) / count)
    # U exceeds its minimum by tr(H Cov(mean g)) / 2 on average; H = c F^-1 and Cov(mean g) = F / seen.
    sampling = 0.5 * float(iterate.memory.scale[0]) * d / max(tally.seen, 1.0)
    # Negated, so that a mean that is not a number is harmful.
    return not (mean <= STANDARD_ERRORS * error or mean <= SAMPLING_FACTOR * sampling)


def close(iterate: Iterate, table: Table, progress: Progress) -> tuple[Progress, bool]:
    """Learn a pair and begin another window; return whether the pair was admitted."""
    kind, tally = iterate.theta.dtype, table.counts
    # A common factor of s and y changes nothing in H; means keep both within the range of float32.
    s, y = ((total / tally.moved).astype(kind) for total in (table.S, table.Y))
    inverse = InverseHessian(
        iterate.memory, initial_of(iterate, progress), PairRule(0.0, COSINE)
    )
    admitted = inverse.learn(s, y[None])
    # Also after a refusal: a sum that is not admitted would spoil the next window as well.
    table.next_window()
    # Stricter than `harmful`: a point to return to must not have risen at all, not even within the error.
    if tally.rise <= 0.0:
        table.harmless[...] = table.z_sum / tally.seen
    stride = max(progress.stride, progress.longest)
    return progress._replace(stride=stride, longest=0.0), admitted


def aim(
    iterate: Iterate,
    table: Table,
    progress: Progress,
    version: int,
    bound: float = math.inf,
) -> Progress:
    """Set theta = mean z - H mean g, the step no longer than `bound`; turn back where that is too far."""
    memory, d = iterate.memory, iterate.theta.size
    seen, value = float(table.tally[SEEN]), float(table.tally[VALUE])
    # In double precision, as the sums are.
    g, z = np.empty(d), np.empty(d)
    norm, far = map(math.sqrt, table_means(table.g_sum, table.z_sum, seen, g, z))
    known = memory.stored > 0
    # With V the covariance of one row's gradient, n V is the Hessian B (`scatter_inverse`).  The gradient of
    # n / P rows, scaled up by P, has the covariance P n V: F is about P B, and c = P.
    if not known:
        memory.scale[0] = len(table.read)
    step = initial_of(iterate, progress).times(memory, g)
    halving = 0.5**progress.turns
    length = halving * math.sqrt(sum_of_squares(step))
    # A zero gradient leaves theta where it is, and norm = 0 makes `endless_table` hold it.
    if not (0.0 < length < math.inf and norm < math.inf):
        return progress._replace(norm=norm)
    # As the safeguard bounds its steps; no bound before a window has closed without harm.
    most = (
        math.inf if progress.stride == 0.0 else STEP_GROWTH * max(progress.stride, far)
    )
    most = min(most, bound)
    if not known:
        # The decrease on the quadratic whose Hessian is H^-1.
        promised = 0.5 * halving * dot(g, step)
        if not (iterate.initial.known and progress.scattered) or math.isnan(value):
            # Without F, or without U to limit the promise: the length of the first step in `safeguard._aim`.
            most = min(most, max(1.0 / norm, FIRST * far), max(1.0, far))
        # A promise of more than half of |U| is taken as a sign that F is too small.
        elif promised > 0.0:
            most = min(most, length * 0.5 * abs(value / seen) / promised)
    scale = halving if length <= most else halving * (most / length)
    # From the mean z, not from theta: see the top of this file.
    away, size = step_from(iterate.theta, z, step, scale, iterate.start)
    # Negated, so that a point that is not a number turns back too.
    if not away <= MAX_DISTANCE * (1.0 + size):
        return turn_back(iterate, table, progress._replace(norm=norm), version)
    longest = max(progress.longest, min(length, most))
    # Theta does not move before its first step, so these are estimates at the start, with which later
    # points are compared.
    if progress.first_norm == 0.0:
        progress = progress._replace(first_norm=norm, first_value=value / seen)
    return progress._replace(norm=norm, longest=longest)


def turn_back(
    iterate: Iterate, table: Table, progress: Progress, version: int
) -> Progress:
    """Empty the table and begin again at the last harmless mean, with half the step."""
    table.clear()
    # The pairs go, because they made the step; F stays, unless `endless_table` drops it.
    iterate.memory.forget()
    iterate.theta[...] = table.harmless
    # All sums start again.  `stride` too, for its steps did harm in the end.
    return Progress(
        turns=progress.turns + 1,
        turned=version,
        first_norm=progress.first_norm,
        first_value=progress.first_value,
        lead=progress.lead,
    )


def above_start(
    iterate: Iterate, progress: Progress, finite: bool, value: float, commit: Commit
) -> bool:
    """Return whether U is higher at theta, to which the table's steps have led, than at the start.

    U at the start is evaluated only where an estimate, or the lack of one, leaves a doubt: it costs a pass.
    """
    theta, start = iterate.theta, iterate.start
    # `first_value` is NaN where no values come; the comparison is then false, and U decides.
    if theta.tobytes() == start.tobytes() or value <= progress.first_value:
        return False
    value = value if finite and not math.isnan(value) else commit.value(theta)
    return not (finite and value <= commit.value(start))
