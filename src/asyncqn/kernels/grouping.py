"""Ratings grouped by one of their columns: counting, and a stable counting sort."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn.kernels.jit import kernel


def in_order(keys: Any) -> bool:
    """Whether no key is smaller than the one before."""
    return not (keys[1:] < keys[:-1]).any()


def count(keys: Any, start: Any) -> None:
    """start[r + 1] = how many of `keys` are at most r; `start` must be zeros, one more than rows."""
    np.cumsum(np.bincount(keys, minlength=start.size - 1), out=start[1:])


@kernel
def group(keys: Any, others: Any, values: Any, place: Any, grouped: Any, sorted_values: Any) -> None:
    """Stable counting sort: the next row of key r goes to place[r], which moves on."""
    for row in range(len(keys)):
        goal = place[keys[row]]
        grouped[goal] = others[row]
        sorted_values[goal] = values[row]
        place[keys[row]] = goal + 1


@kernel
def repeats(start: Any, others: Any, stamp: Any) -> bool:
    """Whether a group start[r]:start[r + 1] names one of `others` twice; `stamp`: -1 for each of them."""
    for r in range(start.size - 1):
        for place in range(start[r], start[r + 1]):
            if stamp[others[place]] == r:
                return True
            stamp[others[place]] = r
    return False
