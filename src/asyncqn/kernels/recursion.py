"""H v by the two-loop recursion (Nocedal 1980), for memories whose H0 changes with every pair.

`pairs` is (2, M, d): S and Y in ring slots, `own` is (M,): s'y of each slot, 0 where there is none.
"""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.jit import reducing_kernel
from asyncqn.kernels.vectors import dot


@reducing_kernel
def two_loops(pairs, own, newest, scale, diagonal, v, out):
    """out = H v with H0 = scale times `diagonal`, or times I where that is empty; v may not be out."""
    m, d = own.size, v.size
    kind = v.dtype.type
    for j in range(d):
        out[j] = v[j]
    shares = np.zeros(m)
    for back in range(m):  # from the newest to the oldest
        i = (newest - back) % m
        if own[i] > 0.0:
            shares[i] = dot(pairs[0, i], out) / own[i]
            a = kind(shares[i])
            for j in range(d):
                out[j] -= a * pairs[1, i, j]
    c = kind(scale)
    if diagonal.size:
        for j in range(d):
            out[j] *= c * diagonal[j]
    else:
        for j in range(d):
            out[j] *= c
    for back in range(m - 1, -1, -1):
        i = (newest - back) % m
        if own[i] > 0.0:
            a = kind(shares[i] - dot(pairs[1, i], out) / own[i])
            for j in range(d):
                out[j] += a * pairs[0, i, j]


@reducing_kernel
def fit_diagonal(pairs, own, widest, out):
    """out_j = sqrt(sum_i s_ij^2 / s_i'y_i  /  sum_i y_ij^2 / s_i'y_i) over its geometric mean.

    Entries for which the pairs say nothing are 1, all lie between 1 / widest and widest.
    """
    m, d = own.size, out.size
    s2, y2 = np.zeros(d), np.zeros(d)
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
