"""The ring of slots in which a memory stores its pairs: four counters, indexed by name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from asyncqn.kernels.jit import strict_piece

COUNT, NEWEST, ACCEPTED, REJECTED = range(4)
"""Indices: pairs in the ring, the slot of the newest, and the totals of admitted and rejected pairs."""


def empty_ring() -> npt.NDArray[np.int64]:
    """Return an empty ring: the first pair will go to slot 0."""
    # NEWEST = -1, so that the next slot is 0.
    return np.array([0, -1, 0, 0], np.int64)


def forget_slots(ring: npt.NDArray[np.int64]) -> None:
    """Empty the ring, but keep the totals of admitted and rejected pairs."""
    ring[COUNT], ring[NEWEST] = 0, -1


def next_slot(ring, size):
    """Count a pair as admitted and return its slot; a full ring overwrites the oldest pair."""
    slot = (ring[NEWEST] + 1) % size
    ring[COUNT] = min(ring[COUNT] + 1, size)
    ring[NEWEST] = slot
    ring[ACCEPTED] += 1
    return slot


next_slot_piece = strict_piece(next_slot)
"""The same for kernels; Python calls the function above, which needs no compilation."""
