"""Small vector kernels of the master: the commit, norms, and the check of its result."""

import numpy as np

from asyncqn.kernels.jit import kernel, reducing_kernel

SUM_TILE = 512
"""Numbers that are summed in the precision of the data before they are added to a float64 total: few enough
that float32 loses little, and two float64 tiles take 8 KiB of the first-level cache."""


@kernel
def add_two(a, da, b, db):
    """a += da and b += db: the master's commit of (theta, u)."""
    for i in range(a.size):
        a[i] += da[i]
        b[i] += db[i]


@kernel
def add_one(a, da):
    """a += da."""
    for i in range(a.size):
        a[i] += da[i]


@kernel
def add_scaled(a, c, x):
    """a += c x."""
    k = a.dtype.type(c)
    for i in range(a.size):
        a[i] += k * x[i]


@reducing_kernel
def sum_of_squares(a):
    """Return |a|^2, summed in tiles so that float32 keeps its precision; not finite if any entry is not."""
    total = 0.0
    for lo in range(0, a.size, SUM_TILE):
        tile = a[
            lo : lo + SUM_TILE
        ]  # a loop from 0 to its size is vectorised; one from lo to a minimum is not
        part = a.dtype.type(0)
        for i in range(tile.size):
            part += tile[i] * tile[i]
        total += part
    return total


@reducing_kernel
def dot(a, b):
    """Return a'b, summed in tiles so that float32 keeps its precision."""
    total = 0.0
    for lo in range(0, a.size, SUM_TILE):
        left, right = a[lo : lo + SUM_TILE], b[lo : lo + SUM_TILE]
        part = a.dtype.type(0)
        for i in range(left.size):
            part += left[i] * right[i]
        total += part
    return total


@kernel
def inspect(a, words, limit):
    """Return a fingerprint and the number of entries beyond `limit` or NaN; `words` is a viewed as unsigned.

    The fingerprint is the sum of the words, each multiplied by the odd number 2i + 1, folded to 32 bits.  One
    pass suffices to find where a replay first differs from the recorded run.
    """
    total = np.uint64(0)
    beyond = 0
    for i in range(a.size):
        total += np.uint64(words[i]) * np.uint64(2 * i + 1)
        # The negation makes NaN count as beyond.
        beyond += not (abs(a[i]) <= limit)
    return (total >> np.uint64(32)) ^ (total & np.uint64(0xFFFFFFFF)), beyond


@kernel
def is_range(rows):
    """Return whether rows = first, first + 1, first + 2, ...; random rows fail at the first comparison."""
    first, n = rows[0], len(rows)
    if rows[n - 1] - first != n - 1:
        return False
    gaps = 0
    # Counting instead of returning early lets the loop vectorise.
    for place in range(n):
        gaps += rows[place] != first + place
    return gaps == 0
