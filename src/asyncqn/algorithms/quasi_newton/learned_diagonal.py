"""H0 = c D, a diagonal that the pairs teach.

D is what the stored pairs say of each coordinate j,

    D_j^2 = sum_i (s_ij^2 / s_i'y_i) / sum_i (y_ij^2 / s_i'y_i),

which is right for D = diag(1 / x_j^2) when the coordinates of theta are measured in units x_j that differ by
orders of magnitude: the method then hardly notices the units.  c = s'y / y'D y of the newest pair.

A diagonal is of no use where the curvature does not lie along the coordinates, so every new pair is a test.
For a matrix D that fits a pair exactly, s = c D y, the quotient

    fit(D) = (s'y)^2 / (s'D^-1 s  y'D y) <= 1

is 1.  D of the earlier pairs is compared with I: the logarithms of fit(D) / fit(I) are summed, older ones
fading, and D = I is used as long as the sum is below `LEAD`.  D, the test and the constants are our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.algorithms.quasi_newton.initial_inverse import ScalarInverse
from asyncqn.kernels.recursion import fit_diagonal, weighed
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array

LEAD, FADING = 3.0, 0.9
"""The sum above which D is used, and the factor on it for every new pair."""
WIDEST = 1e12
"""D's entries differ from their geometric mean by at most this factor."""


class Diagonal(NamedTuple):
    """The state of `LearnedDiagonal`."""

    D: Array
    """Shape (d,)."""
    lead: Array
    """Shape (1,): the sum of the logarithms, which tells whether D is used."""


@dataclass
class LearnedDiagonal(ScalarInverse):
    """H0 = c D where the pairs have shown that D fits them better than I, and else c I."""

    state: Diagonal

    @classmethod
    def empty(cls, theta0: Array, summary_size: int) -> Diagonal:
        return Diagonal(np.ones_like(theta0), np.zeros(1))

    @property
    def _in_use(self) -> bool:
        return bool(self.state.lead[0] > LEAD)

    def apply(self, memory: PairMemory, v: Array) -> None:
        scale = v.dtype.type(memory.scale[0])
        v *= scale * self.state.D if self._in_use else scale

    def offer(self, memory: PairMemory, s: Array, y: Array) -> bool:
        """Test whether D of the pairs so far fits this one better than I does."""
        if memory.stored > 0:
            (_, sDs), (yDy, _) = weighed(s, self.state.D), weighed(y, self.state.D)
            gain = (dot(s, s) / sDs) * (dot(y, y) / yDy) if sDs > 0.0 and yDy > 0.0 else 0.0
            if 0.0 < gain < math.inf:
                self.state.lead[0] = FADING * self.state.lead[0] + math.log(gain)
        return True

    def follow(self, memory: PairMemory) -> None:
        D, (sy, _, yy) = self.state.D, memory.products[:, memory.newest].tolist()
        fit_diagonal(memory.pairs, memory.products[0], WIDEST, D, np.zeros(D.size), np.zeros(D.size))
        memory.scale[0] = sy / (weighed(memory.pairs[1, memory.newest], D)[0] if self._in_use else yy)

    def forget(self, memory: PairMemory) -> None:
        self.state.D[...], self.state.lead[0], memory.scale[0] = 1.0, 0.0, 1.0
