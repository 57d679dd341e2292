"""H v by the two-loop recursion (Nocedal 1980), for an H0 that changes with every pair.

`pairs` is (2, M, d): S and Y in ring slots.  `own` is (M,): s'y of each slot, 0 where it is empty.
"""

from asyncqn.kernels.jit import reducing_kernel
from asyncqn.kernels.vectors import dot


@reducing_kernel
def first_loop(pairs, own, newest, v, shares):
    """Do the loop from the newest pair to the oldest on v, in place; store its coefficients in `shares`."""
    m = own.size
    for back in range(m):
        i = (newest - back) % m
        if own[i] > 0.0:
            # alpha_i = s_i'v / s_i'y_i, then v -= alpha_i y_i.
            shares[i] = dot(pairs[0, i], v) / own[i]
            for j in range(v.size):
                v[j] -= v.dtype.type(shares[i]) * pairs[1, i, j]


@reducing_kernel
def second_loop(pairs, own, newest, shares, v):
    """Do the loop back, in place; v must be H0 times the result of the first loop, and becomes H v."""
    m = own.size
    for back in range(m - 1, -1, -1):
        i = (newest - back) % m
        if own[i] > 0.0:
            # v += (alpha_i - y_i'v / s_i'y_i) s_i, from the oldest pair to the newest.
            share = shares[i] - dot(pairs[1, i], v) / own[i]
            for j in range(v.size):
                v[j] += v.dtype.type(share) * pairs[0, i, j]
