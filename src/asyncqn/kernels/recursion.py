"""Pairs whose H0 changes with every pair: H v by the two-loop recursion (Nocedal 1980), and conjugate pairs.

`pairs` is (2, M, d): S and Y in ring slots, `own` is (M,): s'y of each slot, 0 where there is none.
"""

import numpy as np

from asyncqn.kernels.jit import reducing_kernel
from asyncqn.kernels.vectors import dot


@reducing_kernel
def first_loop(pairs, own, newest, v, shares):
    """The loop from the newest pair to the oldest, on v in place; what it took goes into `shares`."""
    m, d = own.size, v.size
    kind = v.dtype.type
    for back in range(m):
        i = (newest - back) % m
        if own[i] > 0.0:
            shares[i] = dot(pairs[0, i], v) / own[i]
            a = kind(shares[i])
            for j in range(d):
                v[j] -= a * pairs[1, i, j]


@reducing_kernel
def second_loop(pairs, own, newest, shares, v):
    """The loop back, on H0 times what the first loop left, in place: then v is H times what it began with."""
    m, d = own.size, v.size
    kind = v.dtype.type
    for back in range(m - 1, -1, -1):
        i = (newest - back) % m
        if own[i] > 0.0:
            a = kind(shares[i] - dot(pairs[1, i], v) / own[i])
            for j in range(d):
                v[j] += a * pairs[0, i, j]


@reducing_kernel
def fit_diagonal(pairs, own, widest, out, s2, y2):
    """out_j = sqrt(sum_i s_ij^2 / s_i'y_i  /  sum_i y_ij^2 / s_i'y_i) over its geometric mean.

    Entries for which the pairs say nothing are 1, all lie between 1 / widest and widest.  `s2` and `y2` are
    zeros, room for a vector each.
    """
    m, d = own.size, out.size
    for i in range(m):
        if own[i] > 0.0:
            for j in range(d):
                s, y = np.float64(pairs[0, i, j]), np.float64(pairs[1, i, j])
                s2[j] += s * s / own[i]
                y2[j] += y * y / own[i]
    total, known = 0.0, 0
    for j in range(d):
        told = s2[j] > 0.0 and y2[j] > 0.0 and s2[j] < np.inf and y2[j] < np.inf
        s2[j] = 0.5 * (np.log(s2[j]) - np.log(y2[j])) if told else np.nan
        if told:
            total += s2[j]
            known += 1
    mean = total / known if known else 0.0
    most = np.log(widest)
    for j in range(d):
        out[j] = 1.0 if np.isnan(s2[j]) else np.exp(min(max(s2[j] - mean, -most), most))


@reducing_kernel
def weighed(v, diagonal):
    """v' D v and v' D^-1 v."""
    by, over = 0.0, 0.0
    for j in range(v.size):
        x, w = np.float64(v[j]), np.float64(diagonal[j])
        by += x * x * w
        over += x * x / w
    return by, over


@reducing_kernel
def conjugate(memory, products, s, y, tolerance, least, along_s, along_y):
    """Take from (s, y) its part along the stored pairs, in place, if they nearly fit one quadratic.

    s <- s - sum_i s_i (y_i's)/(s_i'y_i),   y <- y - sum_i y_i (s_i'y)/(s_i'y_i)

    For a quadratic s_i'y = y_i's.  The pair stays as it is when any |s_i'y - y_i's| exceeds
    tolerance * sqrt(s_i'y_i * s'y), or when less than the share `least` of s'y would be left, which
    rounding would drown.  products: s_i'y_i of every slot, 0 where it is empty; along_s and along_y: zeros,
    a number for each.
    Returns whether it was changed.
    """
    m = memory.shape[1]
    sy = dot(s, y)
    if not sy > 0.0:
        return False
    left = sy
    for i in range(m):
        own = products[i]
        if not own > 0.0:
            continue
        a, b = dot(memory[1, i], s), dot(memory[0, i], y)
        if not abs(a - b) <= tolerance * np.sqrt(own * sy):
            return False
        along_s[i], along_y[i] = a / own, b / own
        left -= a * b / own
    if not left >= least * sy:
        return False
    kind = memory.dtype.type
    for i in range(m):
        a, b = kind(along_s[i]), kind(along_y[i])
        if a != 0.0 or b != 0.0:
            for j in range(s.size):
                s[j] -= a * memory[0, i, j]
                y[j] -= b * memory[1, i, j]
    return True
