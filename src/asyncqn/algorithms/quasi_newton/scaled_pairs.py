"""Curvature pairs at the master, on top of a diagonal H0 that they teach themselves.

H is the BFGS matrix of the last M pairs on H0 = c D.  D is what the pairs say of each coordinate j,

    D_j^2 = sum_i (s_ij^2 / s_i'y_i) / sum_i (y_ij^2 / s_i'y_i),

which is right for D = diag(1 / x_j^2) when the coordinates of theta are measured in units x_j that differ by
orders of magnitude: the method then hardly notices the units.  c = s'y / y'D y of the newest pair.

A diagonal is of no use where the curvature does not lie along the coordinates, so every new pair is a test:
of a matrix D that fits a pair, s = c D y, the share

    fit(D) = (s'y)^2 / (s'D^-1 s  y'D y) <= 1

is 1.  D from the pairs before is compared with I; the logarithms of fit(D) / fit(I) are summed up, older ones
fading, and as long as the sum is below `LEAD`, D = I.  D, the test and the constants are our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.quasi_newton.stored_pairs import StoredPairs, take_pair
from asyncqn.kernels.recursion import first_loop, fit_diagonal, second_loop, weighed
from asyncqn.kernels.ring import COUNT, NEWEST, empty_ring, points_inside
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array, Counters

LEAD, FADING = 3.0, 0.9
"""The sum above which D is used, and the factor on it for every new pair."""
WIDEST = 1e12
"""D's entries differ from their geometric mean by at most this factor."""


class Memory(NamedTuple):
    """Pairs in ring slots; `ring`: see `kernels.ring`."""

    pairs: Array  # (2, M, d): S, Y
    products: Array  # (2, M): s'y and s's, 0 in empty slots, float64
    diagonal: Array  # (d,): D
    numbers: Array  # (2,): c, and the sum that tells whether D is used
    ring: Counters

    def sound(self) -> bool:
        """Whether the counters point into the ring, which kernels rely on; asked of what was loaded."""
        return points_inside(self.ring, self.pairs.shape[1])


def empty_memory(size: int, theta0: Array) -> Memory:
    """A memory with room for `size` pairs and none in it."""
    return Memory(
        pairs=np.zeros((2, size, theta0.size), theta0.dtype),
        products=np.zeros((2, size)),
        diagonal=np.ones_like(theta0),
        numbers=np.array([1.0, 0.0]),
        ring=empty_ring(),
    )


@dataclass(frozen=True)
class Pairs(StoredPairs):
    """The memory as `safeguard.Metric`, pairs made conjugate near a quadratic."""

    memory: Memory
    conjugacy: float

    def direction(self, at: Array, out: Array) -> bool:
        (pairs, products, _, numbers, ring), diagonal = self.memory, self._used()
        if ring[COUNT] == 0:
            return False
        newest, shares = int(ring[NEWEST]), np.zeros(pairs.shape[1])
        out[...] = at[0]
        first_loop(pairs, products[0], newest, out, shares)
        scale = out.dtype.type(numbers[0])
        out *= scale * diagonal if diagonal.size else scale
        second_loop(pairs, products[0], newest, shares, out)
        return True

    def _used(self) -> Array:
        """D where it is used, else nothing."""
        diagonal, (_, lead) = self.memory.diagonal, self.memory.numbers
        return diagonal if lead > LEAD else diagonal[:0]

    def learn(self, s: Array, change: Array) -> bool:
        y, memory = change[0], self.memory
        if memory.ring[COUNT] > 0:
            self._test(s, y)
        if not take_pair(memory.pairs, memory.products, memory.ring, s, y, self.conjugacy):
            return False
        room = np.zeros(memory.diagonal.size), np.zeros(memory.diagonal.size)
        fit_diagonal(memory.pairs, memory.products[0], WIDEST, memory.diagonal, *room)
        used = self._used()
        memory.numbers[0] = dot(s, y) / (weighed(y, used)[0] if used.size else dot(y, y))
        return True

    def _test(self, s: Array, y: Array) -> None:
        """Whether D of the pairs so far fits this one better than I does."""
        (_, sDs), (yDy, _) = weighed(s, self.memory.diagonal), weighed(y, self.memory.diagonal)
        gain = (dot(s, s) / sDs) * (dot(y, y) / yDy) if sDs > 0.0 and yDy > 0.0 else 0.0
        if 0.0 < gain < math.inf:
            self.memory.numbers[1] = FADING * self.memory.numbers[1] + math.log(gain)

    def forget(self) -> None:
        self.forget_pairs()
        self.memory.diagonal[...] = 1.0
        self.memory.numbers[...] = 1.0, 0.0
