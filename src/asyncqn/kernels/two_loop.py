"""H v by the two-loop recursion (Nocedal 1980), for an H0 that changes with every pair, and its diagonal.

`pairs` is (2, M, d): S and Y in ring slots.  `own` is (M,): s'y of each slot, 0 where it is empty.

Each loop of the recursion needs an inner product with v, then adds a multiple of another vector to v.  The
addition for one pair and the inner product for the next are made in one pass over v, tile by tile: v leaves
the first-level cache once per pair instead of twice, and two vectors stream from memory side by side.  The
tiles are those of `vectors.dot`, so the bits are those of separate passes.
"""

import numpy as np

from asyncqn.kernels.jit import reducing_kernel, reducing_piece
from asyncqn.kernels.vectors import SUM_TILE

NO_SLOT = -1
"""In place of a ring slot: there is no pair before the first, or after the last."""
WIDEST = 1e12
"""Largest factor between an entry of a fitted diagonal and the geometric mean of all."""


@reducing_piece
def _add_tile(v, a, x):
    """v += a x."""
    for j in range(v.size):
        v[j] += a * x[j]


@reducing_piece
def _tile_dot(x, v):
    """x'v."""
    part = x.dtype.type(0)
    for j in range(v.size):
        part += x[j] * v[j]
    return part


@reducing_piece
def _add_then_dot(v, a, added, before, measured, i):
    """v += a added[before], then measured[i]'v; either is left out where its slot is `NO_SLOT`."""
    total = 0.0
    for lo in range(0, v.size, SUM_TILE):
        tile = v[lo : lo + SUM_TILE]
        if before != NO_SLOT:
            _add_tile(tile, a, added[before, lo : lo + SUM_TILE])
        if i != NO_SLOT:
            total += _tile_dot(measured[i, lo : lo + SUM_TILE], tile)
    return total


@reducing_kernel
def first_loop(pairs, own, newest, v, shares):
    """Do the loop from the newest pair to the oldest on v, in place; store its coefficients in `shares`."""
    m = own.size
    kind = v.dtype.type
    before = NO_SLOT
    a = kind(0)
    for back in range(m):
        i = (newest - back) % m
        if own[i] > 0.0:
            # alpha_i = s_i'v / s_i'y_i, then v -= alpha_i y_i: the subtraction shares its pass over v with
            # the inner product of the next older pair.
            shares[i] = _add_then_dot(v, a, pairs[1], before, pairs[0], i) / own[i]
            before = i
            a = -kind(shares[i])
    # The oldest pair's subtraction has no inner product to share its pass with.
    _add_then_dot(v, a, pairs[1], before, pairs[0], NO_SLOT)


@reducing_kernel
def second_loop(pairs, own, newest, shares, v):
    """Do the loop back, in place; v must be H0 times the result of the first loop, and becomes H v."""
    m = own.size
    kind = v.dtype.type
    before = NO_SLOT
    a = kind(0)
    for back in range(m - 1, -1, -1):
        i = (newest - back) % m
        if own[i] > 0.0:
            # v += (alpha_i - y_i'v / s_i'y_i) s_i, from the oldest pair to the newest.
            a = kind(
                shares[i] - _add_then_dot(v, a, pairs[0], before, pairs[1], i) / own[i]
            )
            before = i
    _add_then_dot(v, a, pairs[0], before, pairs[1], NO_SLOT)


@reducing_kernel
def fit_diagonal(pairs, own, out, sums):
    """out_j = sqrt(sum_i s_ij^2 / s_i'y_i  /  sum_i y_ij^2 / s_i'y_i) over its geometric mean.

    Entries without information are 1, and all lie between 1 / `WIDEST` and `WIDEST`.  `sums` must be zeros,
    with room for two vectors.
    """
    s2 = sums[0]
    y2 = sums[1]
    m = own.size
    d = out.size
    for i in range(m):
        if own[i] > 0.0:
            for j in range(d):
                s = np.float64(pairs[0, i, j])
                y = np.float64(pairs[1, i, j])
                s2[j] += s * s / own[i]
                y2[j] += y * y / own[i]
    total = 0.0
    known = 0
    for j in range(d):
        # A coordinate that no pair has moved says nothing about its scale.
        informed = s2[j] > 0.0 and y2[j] > 0.0 and s2[j] < np.inf and y2[j] < np.inf
        # Logarithms, because the ratio of the two sums may overflow; s2 is reused for them, with NaN as
        # "unknown".
        s2[j] = 0.5 * (np.log(s2[j]) - np.log(y2[j])) if informed else np.nan
        if informed:
            total += s2[j]
            known += 1
    mean = total / known if known else 0.0
    most = np.log(WIDEST)
    for j in range(d):
        out[j] = 1.0 if np.isnan(s2[j]) else np.exp(min(max(s2[j] - mean, -most), most))


@reducing_kernel
def weighed(v, diagonal):
    """Return v' D v and v' D^-1 v."""
    by = 0.0
    over = 0.0
    for j in range(v.size):
        x = np.float64(v[j])
        w = np.float64(diagonal[j])
        by += x * x * w
        over += x * x / w
    return by, over
