"""Curvature pairs on top of an H0 that only workers can apply: the master is given y and H0 y together.

H v = H0 v + [S, H0 Y] N [S, H0 Y]'v with the small matrix N of `kernels.memory`, where the memory
keeps H0 y in the place of y, as it does with a diagonal H0.
"""

from __future__ import annotations

import math

from asyncqn.algorithms.memory import Memory
from asyncqn.algorithms.quasi_newton.stored_pairs import COSINE
from asyncqn.kernels import memory as kernels
from asyncqn.kernels.pairs import factor
from asyncqn.kernels.ring import COUNT, REJECTED, next_slot
from asyncqn.kernels.vectors import add_one, dot
from asyncqn.types import Array


def consider_pair(memory: Memory, s: Array, y: Array, image: Array) -> bool:
    """Admit the pair (s, y), image = H0 y, if it shows positive curvature; the oldest makes room."""
    ring, (S, images) = memory.ring, memory.pairs
    sy = dot(s, y)
    size = math.sqrt(dot(s, s) * dot(y, y))
    if not (0.0 < size < math.inf and sy > COSINE * size and 0.0 < dot(y, image) < math.inf):
        ring[REJECTED] += 1
        return False
    slot = next_slot(ring, len(S))
    S[slot], images[slot] = s, image
    for j in range(len(S)):
        memory.gram[0, j, slot] = dot(S[j], y)
        memory.gram[1, j, slot] = memory.gram[1, slot, j] = dot(images[j], y)
    factor(memory.gram, int(ring[COUNT]), slot, 1.0, memory.middle)
    return True


def product(memory: Memory, v: Array, image: Array, out: Array) -> Array:
    """out = H v, where image = H0 v."""
    kernels.product(memory.pairs, memory.middle, 0.0, memory.diagonal, v, out)
    add_one(out, image)
    return out
