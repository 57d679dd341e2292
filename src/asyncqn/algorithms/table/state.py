"""State of the coordinator: the centred table, the length of steps, the point that is held."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.exact.scatter import ScatterMatrix
from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.algorithms.safeguard import Trial
from asyncqn.kernels.table import MOVED, SEEN, VALUE, replace_entry
from asyncqn.kernels.vectors import add_one
from asyncqn.types import Array

STANDARD_ERRORS, FEWEST = 3.0, 5
"""The mean rise counts as harm where it exceeds this many standard errors of it, over at least this many
parts."""
LARGEST_FACTOR = 4.0
"""The most by which one window lengthens the steps, and 1 over the most by which it shortens them."""
LEAD = 3.0
"""The scatter is not used where its lead over I is below minus this number.  Where a prior has most of the
curvature, F says nothing of it: 60 workers with a row each then take 300 passes and more in place of 50."""
NO_ENTRY = -1


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


class Tally(NamedTuple):
    """The numbers that every update changes; `GradientTable.tally` holds them in this order, written in place."""

    seen: float
    """Parts that have an entry."""
    value: float
    """The sum of their values; NaN where none come."""
    # Of the window under way, from here on.
    moved: float
    """Updates whose part's point had moved, by s."""
    rise: float
    squares: float
    """The sum of the rises of these parts' own values, u - u_i, and of the squares of the rises."""
    slope: float
    """The sum of g_i's."""

    @property
    def harmful(self) -> bool:
        """Return whether the parts' own values rose by more than their noise."""
        if self.moved < FEWEST:
            return False
        mean = self.rise / self.moved
        variance = max(self.squares / self.moved - mean * mean, 0.0)
        # Negated, so that a mean that is not a number is harm.
        return not mean <= STANDARD_ERRORS * math.sqrt(variance / self.moved)

    @property
    def factor(self) -> float:
        """Return how far the moves of this window should have gone, in units of how far they went.

        Along the parabola with this slope at the old points and this rise at the new ones U is lowest there.
        """
        bend = self.rise - self.slope
        if bend > 0.0:
            best = -0.5 * self.slope / bend
            return min(max(best, 1.0 / LARGEST_FACTOR), LARGEST_FACTOR)
        # U bends downwards: the farther down the slope the better.
        return LARGEST_FACTOR if self.slope < 0.0 else 1.0 / LARGEST_FACTOR


class GradientTable(NamedTuple):
    """One entry per part, and sums over the entries."""

    entries: Array
    """Shape (2, P, d): the newest gradient of every part, and the point where it was taken."""
    values: npt.NDArray[np.float64]
    """Shape (P,): the part's estimate of U at z; NaN where there is none."""
    read: npt.NDArray[np.int64]
    """Shape (P,): the version whose theta is z; negative: there is no entry."""
    sums: npt.NDArray[np.float64]
    """Shape (4, d): the sums of g and z over the entries, and of the changes of z and g in this window.  They
    are float64 whatever the dtype of theta: each update adds a small difference to a large sum."""
    tally: npt.NDArray[np.float64]
    """Shape (6,): see `Tally`."""

    @classmethod
    def empty(cls, parts: int, theta0: Array) -> GradientTable:
        """Return a table without entries."""
        return cls(
            np.zeros((2, parts, theta0.size), theta0.dtype),
            np.full(parts, math.nan),
            np.full(parts, NO_ENTRY, np.int64),
            np.zeros((4, theta0.size)),
            np.zeros(len(Tally._fields)),
        )

    @property
    def counts(self) -> Tally:
        """Return the tally as it is now."""
        return Tally(*self.tally.tolist())

    @property
    def whole(self) -> bool:
        """Return whether every part has an entry."""
        return bool(self.tally[SEEN] == len(self.read))

    @property
    def value(self) -> float:
        """Return the mean of the parts' estimates of U, each at its own point."""
        return float(self.tally[VALUE]) / max(float(self.tally[SEEN]), 1.0)

    def enter(self, update: Update) -> None:
        """Put an update in the place of its part's entry."""
        g, z, value, part, _, version = update
        replace_entry(*self, part, g, z, value, version)

    def next_window(self) -> None:
        """Begin another window, whose sums are zeros."""
        self.sums[2:] = 0.0
        self.tally[MOVED:] = 0.0

    def exact(self) -> tuple[Array, float]:
        """Return the gradient and U of entries at one point, summed in the parts' own order."""
        # The running sums, which are renewed, have gathered rounding errors that depend on the order in which
        # updates arrived; the verdict on a point must not.
        self.sums[:2] = 0.0
        for g, z in zip(*self.entries, strict=True):
            add_one(self.sums[0], g)
            add_one(self.sums[1], z)
        value = 0.0
        for each in self.values.tolist():
            value += each
        self.tally[VALUE] = value
        parts = len(self.read)
        return (self.sums[0] / parts).astype(self.entries.dtype)[None], value / parts


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


class Hold(NamedTuple):
    """Knowledge of the point that is held, and the rule for when the next one will be."""

    since: int = -1
    """The version whose theta is held; -1: none is."""
    arrived: int = 0
    """Parts whose update at it has arrived."""
    trial: bool = False
    """Whether the point is a trial of the safeguard; else the table's steps have led to it."""
    exact: bool = False
    """Whether an exact phase follows in any case."""
    judged: bool = False
    """Whether the last commit completed a point."""
    until: float = 0.0
    """The exact phase ends when `Trial.kept` has reached this number."""
    phases: int = 0
    """Exact phases so far."""
    updates: int = 0
    """Updates since a point was last held."""
    slope: float = math.nan
    """A point is held where |mean g| is at most this; NaN: none was held yet."""


class Iterate(NamedTuple):
    """The state of the coordinator; all arrays are written in place."""

    theta: Array
    base: Array
    """The last point that was held and accepted; the start before there is one."""
    at_base: Array
    """Shape (1, d): the gradient there."""
    memory: PairMemory
    initial: ScatterMatrix
    squares: npt.NDArray[np.float64]
    """Shape (d,): the running mean of g^2, for the stochastic start."""
    trial: Trial
    """The safeguard's knowledge."""
    begin: Array
    """A copy of theta0, which is returned where all else is above it."""
    table: GradientTable
    pace: Pace
    hold: Hold
