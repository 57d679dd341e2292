"""What memories of pairs (s, y) at the master share: the rule that admits one, and what all tell together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from asyncqn.kernels.recursion import conjugate
from asyncqn.kernels.ring import REJECTED, forget_slots, next_slot
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array, Counters

COSINE = 1e-5
"""The least cosine of s and y: pairs of any scale are welcome, so the rule stands on it alone."""
FITS = 1e-3
"""How far from symmetric pairs may be for U to be called a quadratic, on which the slopes tell the rise."""


class StoredPairs:
    """Base of a `safeguard.Metric`; its memory has `pairs` (S, Y), `products` (s'y, s's, ...) and `ring`."""

    memory: Any

    def fits(self, s: Array, y: Array) -> bool:
        """Whether (s, y) is symmetric to all stored pairs, of which there are at least two."""
        (S, Y), own, sy = self.memory.pairs, self.memory.products[0], dot(s, y)
        used = np.flatnonzero(own > 0.0)
        return used.size > 1 and all(
            abs(dot(Y[i], s) - dot(S[i], y)) <= FITS * math.sqrt(max(own[i] * sy, 0.0)) for i in used
        )

    def forget_pairs(self) -> None:
        """Empty the ring, and leave H0 as it is."""
        memory = self.memory
        memory.pairs[...], memory.products[...] = 0, 0.0
        forget_slots(memory.ring)

    def softness(self) -> float:
        own, lengths = self.memory.products[:2]
        known = own > 0.0
        return float(np.max(lengths[known] / own[known], initial=0.0)) or math.inf

    def keep(self) -> None:
        pass


def take_pair(pairs: Array, products: Array, ring: Counters, s: Array, y: Array, conjugacy: float) -> bool:
    """Put (s, y) into the next slot, made conjugate to the others where they nearly are; False: rejected."""
    if conjugacy > 0.0:
        room = np.zeros(len(products[0])), np.zeros(len(products[0]))
        conjugate(pairs, products[0], s, y, conjugacy, math.sqrt(np.finfo(s.dtype).eps), *room)
    ss, sy, yy = dot(s, s), dot(s, y), dot(y, y)
    if not (0.0 < ss < math.inf and yy < math.inf and sy > 0.0 and sy >= COSINE * math.sqrt(ss * yy)):
        ring[REJECTED] += 1
        return False
    slot = next_slot(ring, pairs.shape[1])
    pairs[0, slot], pairs[1, slot] = s, y
    products[:, slot] = (sy, ss, yy)[: len(products)]
    return True
