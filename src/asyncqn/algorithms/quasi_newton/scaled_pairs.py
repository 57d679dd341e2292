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
from typing import NamedTuple

import numpy as np

from asyncqn.kernels.conjugation import conjugate
from asyncqn.kernels.recursion import fit_diagonal, two_loops, weighed
from asyncqn.kernels.ring import COUNT, NEWEST, REJECTED, empty_ring, forget_slots, next_slot, points_inside
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array, Counters

LEAD, FADING = 3.0, 0.9
"""The sum above which D is used, and the factor on it for every new pair."""
WIDEST = 1e12
"""D's entries differ from their geometric mean by at most this factor."""
FITS = 1e-3
"""How far from symmetric pairs may be for U to be called a quadratic, on which the slopes tell the rise."""
COSINE = 1e-5
"""The least cosine of s and y: pairs of any scale are welcome, so the rule stands on it alone."""


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


class Pairs(NamedTuple):
    """The memory as `safeguard.Metric`, pairs made conjugate near a quadratic."""

    memory: Memory
    conjugacy: float

    def direction(self, at: Array, out: Array) -> bool:
        memory = self.memory
        if memory.ring[COUNT] == 0:
            return False
        two_loops(
            memory.pairs, memory.products[0], memory.ring[NEWEST], memory.numbers[0], self._used(), at[0], out
        )
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
        fit_diagonal(memory.pairs, memory.products[0], WIDEST, memory.diagonal)
        used = self._used()
        memory.numbers[0] = dot(s, y) / (weighed(y, used)[0] if used.size else dot(y, y))
        return True

    def _test(self, s: Array, y: Array) -> None:
        """Whether D of the pairs so far fits this one better than I does."""
        (_, sDs), (yDy, _) = weighed(s, self.memory.diagonal), weighed(y, self.memory.diagonal)
        gain = (dot(s, s) / sDs) * (dot(y, y) / yDy) if sDs > 0.0 and yDy > 0.0 else 0.0
        if 0.0 < gain < math.inf:
            self.memory.numbers[1] = FADING * self.memory.numbers[1] + math.log(gain)

    def fits(self, s: Array, y: Array) -> bool:
        return fit_one_quadratic(self.memory.pairs, self.memory.products[0], s, y)

    def forget(self) -> None:
        memory = self.memory
        memory.pairs[...], memory.products[...], memory.diagonal[...] = 0, 0.0, 1.0
        memory.numbers[...] = 1.0, 0.0
        forget_slots(memory.ring)

    def softness(self) -> float:
        own, lengths = self.memory.products
        known = own > 0.0
        return float(np.max(lengths[known] / own[known], initial=0.0)) or math.inf

    def keep(self) -> None:
        pass


def take_pair(pairs: Array, products: Array, ring: Counters, s: Array, y: Array, conjugacy: float) -> bool:
    """Put (s, y) into the next slot, made conjugate to the others where they nearly are; False: rejected."""
    if conjugacy > 0.0:
        conjugate(pairs, products[0], s, y, conjugacy, math.sqrt(np.finfo(s.dtype).eps))
    ss, sy, yy = dot(s, s), dot(s, y), dot(y, y)
    if not (0.0 < ss < math.inf and yy < math.inf and sy > 0.0 and sy >= COSINE * math.sqrt(ss * yy)):
        ring[REJECTED] += 1
        return False
    slot = next_slot(ring, pairs.shape[1])
    pairs[0, slot], pairs[1, slot] = s, y
    products[:, slot] = sy, ss
    return True


def fit_one_quadratic(pairs: Array, own: Array, s: Array, y: Array) -> bool:
    """Whether (s, y) is symmetric to all stored pairs, of which there are at least two; own: their s'y."""
    (S, Y), sy = pairs, dot(s, y)
    used = np.flatnonzero(own > 0.0)
    return used.size > 1 and all(
        abs(dot(Y[i], s) - dot(S[i], y)) <= FITS * math.sqrt(max(own[i] * sy, 0.0)) for i in used
    )
