"""Curvature pairs on top of an H0 that only workers can apply: the master is given y and H0 y together.

H v = H0 v + [S, H0 Y] N [S, H0 Y]'v with the small matrix N of `kernels.memory`, where the memory
keeps H0 y in the place of y, as it does with a diagonal H0.

A product is asked for once per pass over the data: it is made of inner products, pair by pair, which others
ask for too, so that nothing more is compiled for it.
"""

from __future__ import annotations

import math

import numpy as np

from asyncqn.algorithms.memory import Memory
from asyncqn.algorithms.quasi_newton.stored_pairs import COSINE
from asyncqn.kernels.ring import COUNT, REJECTED, next_slot
from asyncqn.kernels.vectors import add_scaled, dot
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
    _renew(memory, int(ring[COUNT]), slot)
    return True


def _renew(memory: Memory, count: int, newest: int) -> None:
    """The small matrix N after a change of the Gram matrices: `kernels.pairs.factor`, without compiling.

    `np.einsum` calls no BLAS, whose bits change with its threads.
    """
    m = len(memory.gram[0])
    slots = (newest - count + 1 + np.arange(count)) % m  # the oldest first
    R, inner = (gram[np.ix_(slots, slots)] for gram in memory.gram)
    inner += np.diag(R.diagonal())
    inverse = np.zeros((count, count))  # R^-1, upper triangular
    for j in range(count):
        inverse[j, j] = 1.0 / R[j, j]
        inverse[:j, j] = -np.einsum("iq,q->i", inverse[:j, :j], R[:j, j]) / R[j, j]
    corner = np.einsum("ia,ib->ab", inverse, np.einsum("iq,qb->ib", inner, inverse))
    memory.middle[:] = 0.0
    memory.middle[np.ix_(slots, slots)] = corner
    memory.middle[np.ix_(slots, m + slots)] = -inverse.T
    memory.middle[np.ix_(m + slots, slots)] = -inverse


def product(memory: Memory, v: Array, image: Array, out: Array) -> Array:
    """out = H v, where image = H0 v."""
    vectors = memory.pairs.reshape(-1, v.size)
    shares = np.einsum("ij,j->i", memory.middle, np.array([dot(x, v) for x in vectors]))
    out[:] = image
    for x, share in zip(vectors, shares):
        if share:
            add_scaled(out, share, x)
    return out
