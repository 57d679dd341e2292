"""The centred table: the newest gradient of every part, the point where it was taken, and the step from both.

With g_i the newest answer of part i, scaled so that the mean over all parts is the gradient of U, taken at
z_i, and means over the parts that have answered,

    theta = mean z - H mean g                                 after every answer
    S += z - z_i,  Y += g - g_i,  (g_i, z_i) <- (g, z)        an answer (g, z) of part i
    H learns (S, Y) / count                                   when count parts have moved; then S = Y = 0

Where U is a quadratic with Hessian B the error of the new point is (I - H B) times the mean error of the z_i:
staleness does not shrink the step, for the step does not start at theta but at the points where the gradients
are right.  (Started at theta, it diverges.)  The gradients of a pair are of the same rows at both ends, so
it measures curvature without the noise of sampling.

Before the first pair H = P F^-1 with P parts and F the scatter of their answers, which is the inverse Hessian
where U is a negative log-likelihood; as that may be wrong, the step is held to what it promises: half of |U|,
where U comes with the answers, and else the safeguard's first step.

A pair is of the whole way between two points, and where U bends its scale c is that of the flattest stretch.
The others' entries are where the curvature was higher, and H B > 2 there throws theta further out with every
answer; so c rises only half way (in its logarithm) to what a pair says, and falls at once.

The safeguard of the table is a paired comparison.  Over the answers between two pairs, the rise of each
part's own estimate of U since its last answer (by values, or by the slopes at both ends) has a mean and a
standard error.  Where the mean is positive by two of these, and by `TOLERATED` times what sampling explains
(a point that fits few parts too well fits them worse when others join: c d / 2 over the parts seen), or where
an answer is not finite or theta goes too far, the table is emptied, the pairs are forgotten, and theta turns
back to the last mean z up to which nothing had risen, with half the step.  The step before the first pair is
not judged so: the pair corrects it.  After `TURNS` turns theta stays there, and exact passes go on from it.
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
from asyncqn.algorithms.safeguard import FIRST, LONGEST
from asyncqn.kernels.table import replace_entry
from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array

SHARE, HALF = 0.25, 0.5
"""A pair is of this share of the parts seen, and of that share of the parts active at the start, or of the
numbers in theta if these are fewer, at least; the first pair is of a quarter of the parts at the start."""
EARLY = 0.1
"""The share of the first parts after whose answers the first step is taken."""
TOLERATED, ERRORS = 10.0, 2.0
"""By how many times what sampling explains, and by how many standard errors, a rise must show to be one."""
FAR = 1e6
"""A step further than this times 1 plus the largest number of the start has gone astray."""
BELIEF = 2.0
"""How soon the scatter of the answers is believed, see `scatter_inverse`."""
TURNS = 5
"""After so many turns the table has done what it could."""


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

    @classmethod
    def empty(cls, parts: int, theta0: Array) -> Table:
        """Return a table without entries."""
        entries = np.zeros((parts, theta0.size), theta0.dtype)
        sums = (np.zeros(theta0.size) for _ in range(4))
        return cls(entries, entries.copy(), np.full(parts, math.nan), np.full(parts, -1, np.int64), *sums)

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
    """Answers since the last pair whose part's point had moved."""
    rise: float = 0.0
    squares: float = 0.0
    """The sum of their rises, and of the squares of these."""
    stride: float = 0.0
    """The longest step of the last window that did no harm; 0: none yet."""
    longest: float = 0.0
    """The longest step in this window."""
    first_norm: float = 0.0
    first_value: float = math.nan
    """|mean g| and the mean value at the first step."""
    turns: int = 0
    turned: int = 0
    """The version of the last turn: answers that read earlier ones are void."""


class Course(NamedTuple):
    """The state of a plan with a table."""

    table: Table
    progress: Progress


class Update(NamedTuple):
    """Of a part of the table: its estimates of the gradient and of U at z; of a block: its share of both."""

    g: Array
    z: Array
    value: float
    part: int
    finite: bool
    read: int


def take_update(iterate: Iterate, progress: Progress, update: Update, version: int, first: int) -> Progress:
    """Enter an update and set theta, in place; return how it goes.

    iterate: `base` is the last mean z that did no harm, or the start before there is one.
    version: the one that this commit makes; first: how many parts are active at the start.
    """
    table, part = iterate.course.table, update.part
    if update.read < max(progress.turned, int(table.read[part])) or progress.turns > TURNS:
        return progress  # void, or older than what another worker answered
    if not update.finite:
        return _turn_back(iterate, progress, version)
    iterate.initial.note_deviation(update.g)
    new = bool(table.read[part] < 0)
    sums = table.g_sum, table.z_sum, table.S, table.Y
    moved, rise = replace_entry(table.g, table.z, sums, part, update.g, update.z, new)
    before = 0.0 if new else float(table.values[part])
    table.values[part], table.read[part] = update.value, update.read
    progress = progress._replace(seen=progress.seen + new, value=progress.value + (update.value - before))
    if moved:
        rise = rise if math.isnan(update.value) else update.value - before
        progress = progress._replace(
            moved=progress.moved + 1, rise=progress.rise + rise, squares=progress.squares + rise * rise
        )
    known = iterate.memory.stored > 0
    enough = max(SHARE * progress.seen, HALF * min(first, iterate.theta.size)) if known else SHARE * first
    if progress.moved >= max(enough, 2.0):
        if known and _harmful(iterate, progress):
            return _turn_back(iterate, progress, version)
        progress = _close(iterate, progress)
    return progress if progress.seen < max(2.0, EARLY * first) else _aim(iterate, progress, version)


def _initial(iterate: Iterate) -> ScatterInverse:
    """Return H0 as the table uses it."""
    return ScatterInverse(iterate.initial, BELIEF, cautious=True)


def _harmful(iterate: Iterate, progress: Progress) -> bool:
    """Whether the parts that have moved are worse off, beyond error and sampling."""
    count, d = progress.moved, iterate.theta.size
    mean = progress.rise / count
    error = math.sqrt(max(progress.squares / count - mean * mean, 0.0) / count)
    sampling = 0.5 * float(iterate.memory.scale[0]) * d / max(progress.seen, 1)
    return not (mean <= ERRORS * error or mean <= TOLERATED * sampling)


def _close(iterate: Iterate, progress: Progress) -> Progress:
    """Learn a pair, and remember where the table stands."""
    table, kind = iterate.course.table, iterate.theta.dtype
    s, y = ((total / progress.moved).astype(kind) for total in (table.S, table.Y))
    InverseHessian(iterate.memory, _initial(iterate), PairRule(0.0, COSINE)).learn(s, y[None])
    table.S[:], table.Y[:] = 0.0, 0.0
    if progress.rise <= 0.0:
        iterate.base[...] = table.z_sum / progress.seen
    stride = max(progress.stride, progress.longest)
    return progress._replace(moved=0, rise=0.0, squares=0.0, stride=stride, longest=0.0)


def _aim(iterate: Iterate, progress: Progress, version: int) -> Progress:
    """theta = mean z - H mean g."""
    table, memory = iterate.course.table, iterate.memory
    g, z = table.g_sum / progress.seen, table.z_sum / progress.seen
    known = memory.stored > 0
    if not known:
        memory.scale[0] = len(table.read)
    step = _initial(iterate).times(memory, g)
    step *= 0.5**progress.turns
    length, far, norm = (math.sqrt(sum_of_squares(v)) for v in (step, z, g))
    if not (0.0 < length < math.inf and norm < math.inf):
        return progress
    most = math.inf if progress.stride == 0.0 else LONGEST * max(progress.stride, far)
    if not known:
        promised = 0.5 * dot(g, step)
        if not iterate.initial.known or math.isnan(progress.value):
            most = min(most, max(1.0 / norm, FIRST * far), max(1.0, far))
        elif promised > 0.0:
            most = min(most, length * 0.5 * abs(progress.value / progress.seen) / promised)
    if length > most:
        step *= most / length
        length = most
    bound = FAR * (1.0 + float(np.abs(iterate.start).max(initial=0.0)))
    if not float(np.abs(z - step - iterate.start).max(initial=0.0)) <= bound:
        return _turn_back(iterate, progress, version)
    iterate.theta[...] = z - step
    if progress.first_norm == 0.0:
        progress = progress._replace(first_norm=norm, first_value=progress.value / progress.seen)
    return progress._replace(longest=max(progress.longest, length))


def _turn_back(iterate: Iterate, progress: Progress, version: int) -> Progress:
    """Empty the table and begin again at the base, with half the step."""
    iterate.course.table.clear()
    iterate.memory.forget()
    iterate.theta[...] = iterate.base
    return Progress(
        turns=progress.turns + 1,
        turned=version,
        first_norm=progress.first_norm,
        first_value=progress.first_value,
    )
