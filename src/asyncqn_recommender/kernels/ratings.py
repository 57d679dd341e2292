"""Loops that draw synthetic ratings."""

import numpy as np

from asyncqn.kernels import kernel, strict_piece

# The constants of SplitMix64.
_SHIFT_1 = np.uint64(30)
_SHIFT_2 = np.uint64(27)
_SHIFT_3 = np.uint64(31)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
# A float64 has 53 significant bits, so that the lower 11 of 64 are dropped.
_TO_UNIT = 1.0 / (1 << 53)
_LOW_BITS = np.uint64(11)


@strict_piece
def _next_unit(state):
    """Return a uniform number in [0, 1) from the SplitMix64 sequence with the state `state[0]`."""
    state[0] += _STEP
    z = state[0]
    z = (z ^ (z >> _SHIFT_1)) * _MIX_1
    z = (z ^ (z >> _SHIFT_2)) * _MIX_2
    z = z ^ (z >> _SHIFT_3)
    return float(z >> _LOW_BITS) * _TO_UNIT


@kernel
def draw_items(start, light, accept, alias, state, stamp, items):
    """Draw distinct items for every user of `light`, into items[start[u]:start[u + 1]].

    Items come from an alias table (`accept`, `alias`).  An item that the user already has is drawn again,
    which is exact sampling without replacement, one item at a time, by popularity.
    """
    n_items = len(accept)
    stamp[:] = -1
    for user in light:
        place = start[user]
        while place < start[user + 1]:
            x = _next_unit(state) * n_items
            item = int(x)
            # One uniform number serves twice: its integer part chooses the cell, its fraction decides.
            if x - item >= accept[item]:
                item = alias[item]
            if stamp[item] != user:
                stamp[item] = user
                items[place] = item
                place += 1
