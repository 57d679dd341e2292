"""H0 = c D, a diagonal that the pairs teach, where D fits them better than I; else c I.

D is what the stored pairs say of each coordinate j,

    D_j^2 = sum_i (s_ij^2 / s_i'y_i) / sum_i (y_ij^2 / s_i'y_i),

which is right for D = diag(1 / x_j^2) when the coordinates of theta are measured in units x_j that differ by
orders of magnitude: the method then hardly notices the units.  c = s'y / y'D y of the newest pair.

A diagonal is of no use where the curvature does not lie along the coordinates, so every new pair is a test.
For a matrix D that fits a pair exactly, s = c D y, the quotient

    fit(D) = (s'y)^2 / (s'D^-1 s  y'D y) <= 1

is 1.  D of the earlier pairs is compared with I: the logarithms of fit(D) / fit(I) are summed, older ones
fading, and D = I is used as long as the sum is below `MIN_LEAD`.  D, the test and the constants are our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.exact.inverse import InitialInverse
from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array

MIN_LEAD = 3.0
"""Sum of logarithms above which D is used: the pairs together must favour it by e^3, a factor of 20."""
FADING = 0.9
"""Factor on that sum with every new pair: about the last ten pairs count."""
WIDEST = 1e12
"""Largest factor between an entry of D and the geometric mean of all."""


class Diagonal(NamedTuple):
    """The state of `LearnedDiagonal`."""

    D: Array
    """Shape (d,)."""
    lead: Array
    """Shape (1,): the sum of the logarithms, which tells whether D is used."""


@dataclass
class LearnedDiagonal(InitialInverse):
    """H0 = c D or c I, as the module explains."""

    state: Diagonal

    @classmethod
    def empty(cls, theta0: Array, curvature: int) -> Diagonal:
        # An array even for the one number, because the state is written in place.
        return Diagonal(np.ones_like(theta0), np.zeros(1))

    @property
    def _in_use(self) -> bool:
        # D is fitted whether it is in use or not: otherwise it could never win the lead.
        return bool(self.state.lead[0] > MIN_LEAD)

    def apply(self, memory: PairMemory, v: Array) -> None:
        scale = v.dtype.type(memory.scale[0])
        v *= scale * self.state.D if self._in_use else scale

    def offer(self, memory: PairMemory, s: Array, y: Array) -> bool:
        """Test whether D of the pairs so far fits this one better than I does."""
        # Before the first pair D says nothing that could be tested.
        if memory.stored > 0:
            # D does not contain this pair yet, as `follow` comes after admission: a D fitted to the pair
            # would be favoured by the test.
            D = self.state.D
            s, y = s.astype(np.float64), y.astype(np.float64)
            sDs = dot(s / D, s)
            yDy = dot(y * D, y)
            # fit(D) / fit(I): (s'y)^2 cancels.
            usable = sDs > 0.0 and yDy > 0.0
            gain = (dot(s, s) / sDs) * (dot(y, y) / yDy) if usable else 0.0
            # A pair whose products overflow or vanish tells nothing.
            if 0.0 < gain < math.inf:
                self.state.lead[0] = FADING * self.state.lead[0] + math.log(gain)
        return True

    def follow(self, memory: PairMemory) -> None:
        D, newest = self.state.D, memory.newest
        sy, _, yy = memory.products[:, newest].tolist()
        # From all stored pairs anew, because the oldest may just have made room.
        D[...] = fitted_diagonal(memory)
        # c must belong to the H0 in use: either s'y / y'D y or s'y / y'y.
        y = memory.pairs[1, newest].astype(np.float64)
        size = dot(y * D, y) if self._in_use else yy
        # In a tail that is nearly flat y'y underflows, and the pair says nothing about the scale.
        if size > 0.0:
            memory.scale[0] = sy / size

    def forget(self, memory: PairMemory) -> None:
        # D with its lead: it was fitted to the pairs that were just removed.
        self.state.D[...] = 1.0
        self.state.lead[0] = 0.0
        memory.scale[0] = 1.0


def fitted_diagonal(memory: PairMemory) -> npt.NDArray[np.float64]:
    """Return D of the formula above over its geometric mean; 1 where the pairs say nothing."""
    own = memory.products[0]
    filled = np.flatnonzero(own > 0.0)
    squares = np.zeros((2, memory.pairs.shape[2]))
    for i in filled.tolist():
        squares += memory.pairs[:, i].astype(np.float64) ** 2 / own[i]
    # A coordinate that no pair has moved says nothing about its scale.
    known = np.all((squares > 0.0) & (squares < np.inf), axis=0)
    # Logarithms, because the ratio of the two sums may overflow.
    logs = np.log(squares[:, known])
    width = 0.5 * (logs[0] - logs[1])
    D = np.ones(known.size)
    if known.any():
        widest = math.log(WIDEST)
        D[known] = np.exp(np.clip(width - width.mean(), -widest, widest))
    return D
