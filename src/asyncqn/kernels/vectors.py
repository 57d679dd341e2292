"""Small vector kernels of the master: the commit, and a look at what it produced."""

import numpy as np

from asyncqn.kernels.jit import kernel, reducing_kernel


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
    """|a|^2 in tiles, so that float32 keeps its digits; not finite if any entry is not."""
    total = 0.0
    for lo in range(0, a.size, 512):
        tile = a[lo : lo + 512]  # a loop from 0 to its size is vectorised, one from lo to a minimum is not
        part = a.dtype.type(0)
        for i in range(tile.size):
            part += tile[i] * tile[i]
        total += part
    return total


@reducing_kernel
def sum_of_two_squares(a, b):
    """|a|^2 + |b|^2 for vectors of one length, as `sum_of_squares`."""
    total = 0.0
    for lo in range(0, a.size, 512):
        x, y = a[lo : lo + 512], b[lo : lo + 512]
        part = a.dtype.type(0)
        for i in range(x.size):
            part += x[i] * x[i] + y[i] * y[i]
        total += part
    return total


@reducing_kernel
def dot(a, b):
    """a'b in tiles, so that float32 keeps its digits."""
    total = 0.0
    for lo in range(0, a.size, 512):
        left, right = a[lo : lo + 512], b[lo : lo + 512]
        part = a.dtype.type(0)
        for i in range(left.size):
            part += left[i] * right[i]
        total += part
    return total


@kernel
def inspect(a, words, limit):
    """(fingerprint, how many entries are beyond `limit` or not numbers); `words`: a viewed as unsigned.

    The fingerprint is the sum of the words, each times the odd number 2i + 1, folded to 32 bits:
    enough to notice where a replay first leaves the recorded run, in one pass.
    """
    total = np.uint64(0)
    beyond = 0
    for i in range(a.size):
        total += np.uint64(words[i]) * np.uint64(2 * i + 1)
        beyond += not (abs(a[i]) <= limit)
    return (total >> np.uint64(32)) ^ (total & np.uint64(0xFFFFFFFF)), beyond


@kernel
def is_range(rows):
    """Return whether rows = first, first + 1, first + 2, ...; random rows are found out at once."""
    first, n = rows[0], len(rows)
    if rows[n - 1] - first != n - 1:
        return False
    gaps = 0
    for place in range(n):
        gaps += rows[place] != first + place
    return gaps == 0
