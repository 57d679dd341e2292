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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.quasi_newton.pairs_over_scatter import Memory, PairsOverScatter
from asyncqn.algorithms.safeguard import FIRST, LONGEST
from asyncqn.algorithms.scatter_metric import note_from_mean
from asyncqn.kernels.ring import COUNT
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
"""How soon the scatter of the answers is believed, see `scatter_metric`."""
TURNS = 5
"""After so many turns the table has done what it could."""


class Table(NamedTuple):
    """One entry per part."""

    g: Array  # (P, d)
    z: Array  # (P, d)
    values: npt.NDArray[np.float64]  # (P,): the part's estimate of U at z; NaN where there is none
    read: npt.NDArray[np.int64]  # (P,): the version that is z; -1: there is no entry
    sums: npt.NDArray[np.float64]  # (4, d): of g, of z, S, Y


class Course(NamedTuple):
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


def empty_table(parts: int, theta0: Array) -> Table:
    """No part has answered."""
    d = theta0.size
    return Table(
        np.zeros((parts, d), theta0.dtype),
        np.zeros((parts, d), theta0.dtype),
        np.full(parts, math.nan),
        np.full(parts, -1, np.int64),
        np.zeros((4, d)),
    )


class Steps(NamedTuple):
    """What the table's steps read and write in place: all of the iterate but `course`."""

    start: Array
    theta: Array
    base: Array
    """The last mean z that did no harm; the start before there is one."""
    table: Table
    memory: Memory


def take_answer(steps: Steps, course: Course, update: Any, version: int, first: int) -> Course:
    """Enter an answer, and set theta; returns how it goes.

    version: the one that this commit makes; first: how many parts are active at the start.
    """
    table, part = steps.table, update.part
    if update.read < max(course.turned, int(table.read[part])) or course.turns > TURNS:
        return course  # void, or older than what another worker answered
    if not update.finite:
        return _turn_back(steps, course, version)
    note_from_mean(steps.memory.metric, update.g)
    new = bool(table.read[part] < 0)
    moved, rise = replace_entry(table.g, table.z, table.sums, part, update.g, update.z, new)
    before = 0.0 if new else float(table.values[part])
    table.values[part], table.read[part] = update.value, update.read
    course = course._replace(seen=course.seen + new, value=course.value + (update.value - before))
    if moved:
        rise = rise if math.isnan(update.value) else update.value - before
        course = course._replace(
            moved=course.moved + 1, rise=course.rise + rise, squares=course.squares + rise * rise
        )
    known = steps.memory.ring[COUNT] > 0
    enough = max(SHARE * course.seen, HALF * min(first, steps.theta.size)) if known else SHARE * first
    if course.moved >= max(enough, 2.0):
        if known and _harmful(steps, course):
            return _turn_back(steps, course, version)
        course = _close(steps, course)
    return course if course.seen < max(2.0, EARLY * first) else _aim(steps, course, version)


def _harmful(steps: Steps, course: Course) -> bool:
    """Whether the parts that have moved are worse off, beyond error and sampling."""
    count, d = course.moved, steps.theta.size
    mean = course.rise / count
    error = math.sqrt(max(course.squares / count - mean * mean, 0.0) / count)
    sampling = 0.5 * float(steps.memory.scale[0]) * d / max(course.seen, 1)
    return not (mean <= ERRORS * error or mean <= TOLERATED * sampling)


def _close(steps: Steps, course: Course) -> Course:
    """Learn a pair, and remember where the table stands."""
    sums, kind = steps.table.sums, steps.theta.dtype
    s, y = ((sums[k] / course.moved).astype(kind) for k in (2, 3))
    PairsOverScatter(steps.memory, 0.0, BELIEF, cautious=True).learn(s, y[None])
    sums[2:] = 0.0
    if course.rise <= 0.0:
        steps.base[...] = sums[1] / course.seen
    stride = max(course.stride, course.longest)
    return course._replace(moved=0, rise=0.0, squares=0.0, stride=stride, longest=0.0)


def _aim(steps: Steps, course: Course, version: int) -> Course:
    """theta = mean z - H mean g."""
    table, memory = steps.table, steps.memory
    g, z = table.sums[0] / course.seen, table.sums[1] / course.seen
    known = bool(memory.ring[COUNT] > 0)
    if not known:
        memory.scale[0] = len(table.read)
    step = PairsOverScatter(memory, 0.0, BELIEF, cautious=True).product(g)
    step *= 0.5**course.turns
    length, far, norm = (math.sqrt(sum_of_squares(v)) for v in (step, z, g))
    if not (0.0 < length < math.inf and norm < math.inf):
        return course
    most = math.inf if course.stride == 0.0 else LONGEST * max(course.stride, far)
    if not known:
        promised = 0.5 * dot(g, step)
        if not memory.metric.known or math.isnan(course.value):
            most = min(most, max(1.0 / norm, FIRST * far), max(1.0, far))
        elif promised > 0.0:
            most = min(most, length * 0.5 * abs(course.value / course.seen) / promised)
    if length > most:
        step *= most / length
        length = most
    bound = FAR * (1.0 + float(np.abs(steps.start).max(initial=0.0)))
    if not float(np.abs(z - step - steps.start).max(initial=0.0)) <= bound:
        return _turn_back(steps, course, version)
    steps.theta[...] = z - step
    if course.first_norm == 0.0:
        course = course._replace(first_norm=norm, first_value=course.value / course.seen)
    return course._replace(longest=max(course.longest, length))


def _turn_back(steps: Steps, course: Course, version: int) -> Course:
    """Empty the table and begin again at the base, with half the step."""
    table = steps.table
    table.read[:], table.values[:], table.sums[...] = -1, math.nan, 0.0
    PairsOverScatter(steps.memory, 0.0).forget()
    steps.theta[...] = steps.base
    return Course(
        turns=course.turns + 1,
        turned=version,
        first_norm=course.first_norm,
        first_value=course.first_value,
    )
