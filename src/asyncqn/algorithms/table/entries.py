"""The centred table: the newest gradient of every part, and the point where it was taken."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.safeguard import ROUNDING
from asyncqn.kernels.table import MOVED, REFUSED, SEEN, VALUE, replace_entry
from asyncqn.kernels.vectors import add_one
from asyncqn.types import Array

EXCESS = 10.0
"""A part's first value is refused once where it exceeds the mean of the others by this multiple of it.  With
the saddle of the laboratory (W = 16) one such step filled the table with values of 10^12."""
NO_ENTRY, REFUSED_ONCE = -1, -2


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
    """The numbers that every update changes; `Table.tally` holds them in this order, written in place."""

    seen: float
    """Parts that have an entry."""
    value: float
    """The sum of their values; NaN where none come."""
    sizes: float
    """The sum of their |g|^2."""
    # Of the window under way, from here on.
    moved: float
    """Updates whose part's point had moved."""
    rise: float
    squares: float
    """The sum of the rises of the parts' own estimates of U, and of the squares of these."""
    changes: float
    responses: float
    """The sums of |z - z_i|^2 and of |g - g_i|^2, in the metric of the scales."""
    refused: float
    """Updates that were refused."""

    @property
    def mean_rise(self) -> float:
        """Return the mean rise of the parts that have moved."""
        return self.rise / self.moved

    @property
    def error(self) -> float:
        """Return the standard error of the mean rise."""
        variance = self.squares / self.moved - self.mean_rise * self.mean_rise
        return math.sqrt(max(variance, 0.0) / self.moved)


class Table(NamedTuple):
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
    """Shape (9,): see `Tally`."""
    scales: npt.NDArray[np.float64]
    """Shape (d,): the running mean of g_j^2, for the stochastic start; zeros where there is none."""

    @classmethod
    def empty(cls, parts: int, theta0: Array) -> Table:
        """Return a table without entries."""
        return cls(
            np.zeros((2, parts, theta0.size), theta0.dtype),
            np.full(parts, math.nan),
            np.full(parts, NO_ENTRY, np.int64),
            np.zeros((4, theta0.size)),
            np.zeros(len(Tally._fields)),
            np.zeros(theta0.size),
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

    def enter(self, update: Update, judged: bool = True) -> bool:
        """Put an update in the place of its part's entry, if it is not refused; return whether it was put."""
        g, z, value, part, _, version = update
        others, several = self.value, self.tally[SEEN] >= 2.0
        first = several and self.read[part] == NO_ENTRY
        if judged and first and value - others > EXCESS * abs(others):
            self.read[part] = REFUSED_ONCE
            self.tally[REFUSED] += 1.0
            return False
        # Rounding of U must not look like a rise; without values there is none.
        slack = ROUNDING * float(np.finfo(z.dtype).eps) * abs(value)
        slack = 0.0 if math.isnan(slack) else slack
        return bool(
            replace_entry(
                *self[:6], part, g, z, value, version, slack if judged else -1.0
            )
        )

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
