"""Curvature pairs on top of an H0 from the scatter of the answers (`algorithms.scatter_metric`).

H v by the two-loop recursion, with H0 = c F^-1 between the loops and c = s'y / y'F^-1 y of the newest pair.
Pairs are kept as (s, y), so that F may change under them.  While there is no F, it is I.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.quasi_newton.stored_pairs import StoredPairs, take_pair
from asyncqn.algorithms.scatter_metric import ScatterMetric, apply_inverse, make_metric, new_metric
from asyncqn.kernels.recursion import first_loop, second_loop
from asyncqn.kernels.ring import COUNT, NEWEST, empty_ring, points_inside
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array, Counters


class Memory(NamedTuple):
    """Pairs in ring slots; `ring`: see `kernels.ring`."""

    pairs: Array  # (2, M, d): S, Y
    products: Array  # (2, M): s'y and s's, 0 in empty slots, float64
    scale: Array  # (1,): c
    ring: Counters
    metric: ScatterMetric

    def sound(self) -> bool:
        """Whether the counters point into the ring, which kernels rely on; asked of what was loaded."""
        return points_inside(self.ring, self.pairs.shape[1])


def empty_memory(size: int, theta0: Array) -> Memory:
    """A memory with room for `size` pairs and none in it."""
    return Memory(
        pairs=np.zeros((2, size, theta0.size), theta0.dtype),
        products=np.zeros((2, size)),
        scale=np.ones(1),
        ring=empty_ring(),
        metric=new_metric(theta0),
    )


@dataclass(frozen=True)
class PairsOverScatter(StoredPairs):
    """The memory as `safeguard.Metric`; near a quadratic, pairs are made conjugate."""

    memory: Memory
    conjugacy: float
    p: float = 1.0
    """How soon the scatter is believed (`scatter_metric`)."""
    cautious: bool = False
    """Whether c, where there is an F, rises only half way, in its logarithm, to what the newest pair says,
    and fewer directions are believed to be flat."""

    def direction(self, at: Array, out: Array) -> bool:
        if self.memory.ring[COUNT] == 0:
            return False
        out[...] = self.product(at[0])
        return True

    def product(self, v: Array) -> Array:
        """H v in double precision."""
        (pairs, products, scale, ring, metric), rest = self.memory, v.astype(np.float64)
        if make_metric(metric, self.p, 1.5 if self.cautious else 2.0) and not self.cautious:
            self._rescale()
        shares, newest = np.zeros(pairs.shape[1]), int(ring[NEWEST])
        if newest >= 0:
            first_loop(pairs, products[0], newest, rest, shares)
        if metric.known:
            apply_inverse(metric, rest)
        rest *= scale[0]
        if newest >= 0:
            second_loop(pairs, products[0], newest, shares, rest)
        return rest

    def _rescale(self) -> None:
        """c by the newest pair."""
        (pairs, products, scale, ring, metric) = self.memory
        newest = int(ring[NEWEST])
        if newest < 0:
            return
        y = pairs[1, newest].astype(np.float64)
        image = y.copy()
        if metric.known:
            apply_inverse(metric, image)
        size = dot(y, image)
        if 0.0 < size < math.inf:
            said, before = products[0, newest] / size, float(scale[0])
            scale[0] = math.sqrt(before * said) if self.cautious and metric.known and said > before else said

    def learn(self, s: Array, change: Array) -> bool:
        memory = self.memory
        if not take_pair(memory.pairs, memory.products, memory.ring, s, change[0], self.conjugacy):
            return False
        self._rescale()
        return True

    def forget(self) -> None:
        """Empty the memory but for the scatter: that is no guess, and c comes with the next pair."""
        self.forget_pairs()
