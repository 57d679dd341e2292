"""The ring of slots in which a memory keeps its pairs: four counters, by the names of their positions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from asyncqn.kernels.jit import strict_piece

COUNT, NEWEST, ACCEPTED, REJECTED = range(4)
"""Pairs in the ring, the slot of the newest, and how many were ever admitted and refused."""


def empty_ring() -> npt.NDArray[np.int64]:
    """No pairs: the first one will go to slot 0."""
    return np.array([0, -1, 0, 0], np.int64)


def forget_slots(ring: npt.NDArray[np.int64]) -> None:
    """Empty the ring, keeping the counts of what was admitted and refused."""
    ring[COUNT], ring[NEWEST] = 0, -1


def next_slot(ring, size):
    """Count a pair as admitted; the slot it goes to, where the oldest makes room once all are full."""
    slot = (ring[NEWEST] + 1) % size
    ring[COUNT] = min(ring[COUNT] + 1, size)
    ring[NEWEST] = slot
    ring[ACCEPTED] += 1
    return slot


next_slot_piece = strict_piece(next_slot)
"""The same for kernels; Python calls the above, for which nothing is compiled."""
