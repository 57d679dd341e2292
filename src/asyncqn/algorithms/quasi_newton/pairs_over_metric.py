"""Curvature pairs on top of an H0 that the master applies, made of a summary of the potential's curvature.

H v by the two-loop recursion, with H0 between the loops; pairs are kept as (s, y), so that H0 may change
under them.  While there is no summary, H0 = (s'y / y'y) I of the newest pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.quasi_newton.stored_pairs import StoredPairs, take_pair
from asyncqn.kernels.recursion import first_loop, second_loop
from asyncqn.kernels.ring import COUNT, NEWEST, empty_ring, points_inside
from asyncqn.types import Array, Counters


class Memory(NamedTuple):
    """Pairs in ring slots; `ring`: see `kernels.ring`."""

    pairs: Array  # (2, M, d): S, Y
    products: Array  # (3, M): s'y, s's and y'y, 0 in empty slots, float64
    summary: Array  # of the curvature that H0 is made of; its last entry is 0 where there is none
    ring: Counters

    def sound(self) -> bool:
        """Whether the counters point into the ring, which kernels rely on; asked of what was loaded."""
        return points_inside(self.ring, self.pairs.shape[1])


def empty_memory(size: int, curvature: int, theta0: Array) -> Memory:
    """A memory with room for `size` pairs and none in it."""
    return Memory(
        pairs=np.zeros((2, size, theta0.size), theta0.dtype),
        products=np.zeros((3, size)),
        summary=np.zeros(curvature),
        ring=empty_ring(),
    )


@dataclass
class PairsOverMetric(StoredPairs):
    """The memory as `safeguard.Metric`; `fresh` is the summary at the trial, taken up where that is kept."""

    memory: Memory
    fresh: Array | None
    inverse_metric_from: Callable[[Array], Any]

    @property
    def known(self) -> bool:
        """Whether there is an H0 of a summary."""
        return bool(self.memory.summary[-1] > 0.0)

    def direction(self, at: Array, out: Array) -> bool:
        (pairs, products, summary, ring), g = self.memory, at[0]
        newest, known = int(ring[NEWEST]), self.known
        if not known and ring[COUNT] == 0:
            return False
        shares = np.zeros(pairs.shape[1])
        rest = g.copy()
        first_loop(pairs, products[0], newest, rest, shares)
        if known:
            self.inverse_metric_from(summary).apply(rest, out)
        else:
            np.multiply(rest, rest.dtype.type(products[0, newest] / products[2, newest]), out=out)
        second_loop(pairs, products[0], newest, shares, out)
        return True

    def learn(self, s: Array, change: Array) -> bool:
        memory = self.memory
        return take_pair(memory.pairs, memory.products, memory.ring, s, change[0], conjugacy=0.0)

    def fits(self, s: Array, y: Array) -> bool:
        return False

    def forget(self) -> None:
        """H0 goes too: a direction that keeps failing may be its fault."""
        self.forget_pairs()
        self.memory.summary[...] = 0.0

    def keep(self) -> None:
        if self.fresh is not None:
            self.memory.summary[...] = self.fresh
