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

from asyncqn.algorithms.exact.inverse import InitialInverse
from asyncqn.algorithms.pair_memory import RecursiveMemory
from asyncqn.kernels.two_loop import fit_diagonal, weighed
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array

MIN_LEAD = 3.0
"""Sum of logarithms above which D is used: the pairs together must favour it by e^3, a factor of 20."""
FADING = 0.9
"""Factor on that sum with every new pair: about the last ten pairs count."""


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

    def apply(self, memory: RecursiveMemory, v: Array) -> None:
        scale = v.dtype.type(memory.scale[0])
        v *= scale * self.state.D if self._in_use else scale

    def offer(self, memory: RecursiveMemory, s: Array, y: Array) -> bool:
        """Test whether D of the pairs so far fits this one better than I does."""
        # Before the first pair D says nothing that could be tested.
        if memory.stored > 0:
            # D does not contain this pair yet, as `follow` comes after admission: a D fitted to the pair
            # would be favoured by the test.
            sDs = weighed(s, self.state.D)[1]
            yDy = weighed(y, self.state.D)[0]
            # fit(D) / fit(I): (s'y)^2 cancels.
            usable = sDs > 0.0 and yDy > 0.0
            gain = (dot(s, s) / sDs) * (dot(y, y) / yDy) if usable else 0.0
            # A pair whose products overflow or vanish tells nothing.
            if 0.0 < gain < math.inf:
                self.state.lead[0] = FADING * self.state.lead[0] + math.log(gain)
        return True

    def follow(self, memory: RecursiveMemory) -> None:
        D, newest = self.state.D, memory.newest
        sy, _, yy = memory.products[:, newest].tolist()
        # From all stored pairs anew, because the oldest may just have made room.
        fit_diagonal(memory.pairs, memory.products[0], D, np.zeros((2, D.size)))
        # c must belong to the H0 in use: either s'y / y'D y or s'y / y'y.
        size = weighed(memory.pairs[1, newest], D)[0] if self._in_use else yy
        memory.scale[0] = sy / size

    def forget(self, memory: RecursiveMemory) -> None:
        # D with its lead: it was fitted to the pairs that were just removed.
        self.state.D[...] = 1.0
        self.state.lead[0] = 0.0
        memory.scale[0] = 1.0
