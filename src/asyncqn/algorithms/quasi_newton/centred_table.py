"""The centred table: the newest gradient of every part, the point where it was taken, and the step from both.

With g_i the newest update of part i, scaled so that the mean over all parts is the gradient of U, taken at
z_i, and means over the parts that have answered,

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

The updates between two pairs are a *window*, and the safeguard of the table compares each part with itself:
the rise of its own estimate of U since its last update (by values, or by the slopes at both ends) has a mean
and a standard error over the window.  Where the mean is positive by two of these, and by `TOLERATED` times
what sampling explains (a point that fits few parts too well fits them worse when others join: c d / 2 over
the parts seen), or where an update is not finite or theta goes too far, the table is emptied, the pairs are
forgotten, and theta turns back to the last mean z up to which nothing had risen, with half the step.  The
step before the first pair is not judged so: the pair corrects it.

This file has the table and its steps; the plan that uses it is in `endless_table`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.pair_memory import PairRule
from asyncqn.algorithms.quasi_newton.composition import Iterate
from asyncqn.algorithms.quasi_newton.initial_inverse import COSINE, InverseHessian
from asyncqn.algorithms.quasi_newton.scatter_inverse import ScatterInverse
from asyncqn.algorithms.safeguard import FIRST, STEP_GROWTH
from asyncqn.kernels.table import replace_entry
from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array, Commit

SHARE, HALF = 0.25, 0.5
"""A pair is of this share of the parts seen, and of that share of the parts active at the start, or of the
numbers in theta if these are fewer, at least; the first pair is of a quarter of the parts at the start."""
EARLY = 0.1
"""The share of the first parts after whose updates the first step is taken."""
TOLERATED, ERRORS = 10.0, 2.0
"""By how many times what sampling explains, and by how many standard errors, a rise must show to be one."""
FAR = 1e6
"""A step further than this times 1 plus the largest number of the start has gone astray."""
BELIEF = 2.0
"""How soon the scatter of the updates is believed, see `scatter_inverse`."""
LEAD, FADING = 3.0, 0.9
"""The scatter is not used where its lead over I is below minus this; the factor on it for every new pair."""
TURNS = 1
"""After more turns than this, before a point was held, a plan continues with exact gradients.  On the
laboratory's network (draw 0, W = 4, 16, 40) five turns left runs unfinished after 300 passes that one turn
ends after 100 to 200."""


class Table(NamedTuple):
    """One entry per part, and sums over the entries."""

    g: Array
    """Shape (P, d): the newest gradient of every part."""
    z: Array
    """Shape (P, d): the point where it was taken."""
    values: npt.NDArray[np.float64]
    """Shape (P,): the part's estimate of U at z; NaN where there is none."""
    read: npt.NDArray[np.int64]
    """Shape (P,): the version that is z; -1: there is no entry."""
    g_sum: npt.NDArray[np.float64]
    """Shape (d,): the sum of all g_i."""
    z_sum: npt.NDArray[np.float64]
    """Shape (d,): the sum of all z_i."""
    S: npt.NDArray[np.float64]
    """Shape (d,): the sum of the changes of z since the last pair."""
    Y: npt.NDArray[np.float64]
    """Shape (d,): the sum of the changes of g since the last pair."""
    harmless: Array
    """Shape (d,): the last mean z up to which nothing had risen; the start before there is one."""

    @classmethod
    def empty(cls, parts: int, theta0: Array) -> Table:
        """Return a table without entries."""
        entries = np.zeros((parts, theta0.size), theta0.dtype)
        g_sum, z_sum, S, Y = (np.zeros(theta0.size) for _ in range(4))
        values, read = np.full(parts, math.nan), np.full(parts, -1, np.int64)
        return cls(entries, entries.copy(), values, read, g_sum, z_sum, S, Y, theta0.copy())

    def clear(self) -> None:
        """Remove all entries."""
        self.read[:], self.values[:] = -1, math.nan
        self.g_sum[:], self.z_sum[:], self.S[:], self.Y[:] = 0.0, 0.0, 0.0, 0.0


class Progress(NamedTuple):
    """How the steps on the table have gone."""

    seen: int = 0
    """Parts that have an entry."""
    value: float = 0.0
    """The sum of their values; NaN where none come."""
    moved: int = 0
    """Updates since the last pair whose part's point had moved."""
    rise: float = 0.0
    squares: float = 0.0
    """The sum of their rises, and of the squares of these."""
    slopes: float = 0.0
    bend: float = 0.0
    """The sum of the rises by slopes, without signs, and of what these differ by from those by values."""
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
    turned: int = 0
    """The version of the last turn: updates that read earlier ones are void."""
    windows: int = 0
    """Windows that did no harm since the last turn, or since a turn was forgiven."""
    unpaired: int = 0
    """Updates since the last pair that was admitted."""
    lead: float = 0.0
    """How much better F^-1 fits the pairs than I does: the sum of the logarithms, older ones fading."""

    @property
    def scattered(self) -> bool:
        """Return whether H0 is made of the scatter; it is c I where the pairs say that F misleads."""
        return self.lead >= -LEAD


class Update(NamedTuple):
    """Of a part of the table: its estimates of the gradient and of U at z; of a block: its share of both."""

    g: Array
    z: Array
    value: float
    part: int
    finite: bool
    read: int


def enter(table: Table, progress: Progress, update: Update) -> Progress:
    """Put an update in the place of its part's entry; return the sums with it."""
    part = update.part
    new = bool(table.read[part] < 0)
    sums = table.g_sum, table.z_sum, table.S, table.Y
    moved, slope = replace_entry(table.g, table.z, sums, part, update.g, update.z, new)
    before = 0.0 if new else float(table.values[part])
    table.values[part], table.read[part] = update.value, update.read
    progress = progress._replace(seen=progress.seen + new, value=progress.value + (update.value - before))
    if not moved:
        return progress
    rise = slope if math.isnan(update.value) else update.value - before
    return progress._replace(
        moved=progress.moved + 1,
        rise=progress.rise + rise,
        squares=progress.squares + rise * rise,
        slopes=progress.slopes + abs(slope),
        bend=progress.bend + abs(rise - slope),
    )


def window_is_full(iterate: Iterate, progress: Progress, first: int) -> bool:
    """Return whether enough parts have moved for a pair; first: how many are active at the start."""
    if iterate.memory.stored > 0:
        enough = max(SHARE * progress.seen, HALF * min(first, iterate.theta.size))
    else:
        enough = SHARE * first
    return progress.moved >= max(enough, 2.0)


def may_step(progress: Progress, first: int) -> bool:
    """Return whether enough parts have answered for a step."""
    return progress.seen >= max(2.0, EARLY * first)


def initial_of(iterate: Iterate, progress: Progress) -> ScatterInverse:
    """Return H0 as the table uses it."""
    return ScatterInverse(iterate.initial, BELIEF, cautious=True, trusted=progress.scattered)


def harmful(iterate: Iterate, progress: Progress) -> bool:
    """Return whether the parts that have moved are worse off, beyond error and sampling."""
    count, d = progress.moved, iterate.theta.size
    mean = progress.rise / count
    error = math.sqrt(max(progress.squares / count - mean * mean, 0.0) / count)
    sampling = 0.5 * float(iterate.memory.scale[0]) * d / max(progress.seen, 1)
    return not (mean <= ERRORS * error or mean <= TOLERATED * sampling)


def close(iterate: Iterate, table: Table, progress: Progress) -> tuple[Progress, bool]:
    """Learn a pair and begin another window; return whether the pair was admitted."""
    kind = iterate.theta.dtype
    s, y = ((total / progress.moved).astype(kind) for total in (table.S, table.Y))
    inverse = InverseHessian(iterate.memory, initial_of(iterate, progress), PairRule(0.0, COSINE))
    admitted = inverse.learn(s, y[None])
    table.S[:], table.Y[:] = 0.0, 0.0
    if progress.rise <= 0.0:
        table.harmless[...] = table.z_sum / progress.seen
    stride = max(progress.stride, progress.longest)
    closed = progress._replace(
        moved=0, rise=0.0, squares=0.0, slopes=0.0, bend=0.0, stride=stride, longest=0.0
    )
    return closed, admitted


def aim(
    iterate: Iterate, table: Table, progress: Progress, version: int, bound: float = math.inf
) -> Progress:
    """Set theta = mean z - H mean g, the step no longer than `bound`; turn back where that is too far."""
    memory = iterate.memory
    g, z = table.g_sum / progress.seen, table.z_sum / progress.seen
    known = memory.stored > 0
    if not known:
        memory.scale[0] = len(table.read)
    step = initial_of(iterate, progress).times(memory, g)
    step *= 0.5**progress.turns
    length, far, norm = (math.sqrt(sum_of_squares(v)) for v in (step, z, g))
    progress = progress._replace(norm=norm)
    if not (0.0 < length < math.inf and norm < math.inf):
        return progress
    most = math.inf if progress.stride == 0.0 else STEP_GROWTH * max(progress.stride, far)
    most = min(most, bound)
    if not known:
        promised = 0.5 * dot(g, step)
        if not (iterate.initial.known and progress.scattered) or math.isnan(progress.value):
            most = min(most, max(1.0 / norm, FIRST * far), max(1.0, far))
        elif promised > 0.0:
            most = min(most, length * 0.5 * abs(progress.value / progress.seen) / promised)
    if length > most:
        step *= most / length
        length = most
    limit = FAR * (1.0 + float(np.abs(iterate.start).max(initial=0.0)))
    if not float(np.abs(z - step - iterate.start).max(initial=0.0)) <= limit:
        return turn_back(iterate, table, progress, version)
    iterate.theta[...] = z - step
    if progress.first_norm == 0.0:
        progress = progress._replace(first_norm=norm, first_value=progress.value / progress.seen)
    return progress._replace(longest=max(progress.longest, length))


def turn_back(iterate: Iterate, table: Table, progress: Progress, version: int) -> Progress:
    """Empty the table and begin again at the last harmless mean, with half the step."""
    table.clear()
    iterate.memory.forget()
    iterate.theta[...] = table.harmless
    return Progress(
        turns=progress.turns + 1,
        turned=version,
        first_norm=progress.first_norm,
        first_value=progress.first_value,
        lead=progress.lead,
    )


def above_start(iterate: Iterate, progress: Progress, finite: bool, value: float, commit: Commit) -> bool:
    """Return whether U is higher at theta, to which the table's steps have led, than at the start.

    U at the start is asked for only where an estimate, or the lack of one, leaves a doubt.
    """
    theta, start = iterate.theta, iterate.start
    if theta.tobytes() == start.tobytes() or value <= progress.first_value:
        return False
    value = value if finite and not math.isnan(value) else commit.value(theta)
    return not (finite and value <= commit.value(start))
