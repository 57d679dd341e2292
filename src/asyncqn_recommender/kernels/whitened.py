"""Clicks: confidence-weighted factorization; a sum over all pairs at the cost of one over the clicks.

Hu, Koren and Volinsky (2008): with p = 1 and confidence c = 1 + w where user u has clicked item m, else p = 0
and c = 1, user u's row minimises

    sum over all items of c (p - f_m.g)^2 / 2 + lambda |g|^2 / 2,

so it solves (F'F + lambda I + sum_{m in u} w f f') g = sum_{m in u} c f.  With F'F + lambda I = L L', rows
f~ = L^-1 f and g~ = L' g this is a ridge problem over the clicks alone, with ridge 1:

    (I + sum_{m in u} w f~ f~') g~ = sum_{m in u} c f~,          f.g = f~.g~

which `kernels.profiled` solves.  The gradient, with the solutions as constants, is

    sum_u c (f_m.g_u - p) g_u  =  L^-T [ S~ f~_m + sum_{u of m} (w f.g - c) g~_u ],      S~ = sum_u g~ g~'
"""

import numpy as np

from asyncqn.kernels import reducing_kernel
from asyncqn_recommender.kernels.profiled import add_turned, rows_to_columns
from asyncqn_recommender.kernels.tiles import SIDE


@reducing_kernel
def turned_rows(rows, rank, matrix, out, work):
    """out[m] = M' rows[m]; `rows` have `rank` numbers, and those of `out` are padded like M."""
    length = np.uintp(rank)
    size = np.uintp(len(work.goal))
    zero = np.uintp(0)
    eights = np.uintp(SIDE)
    n = np.uintp(len(rows)) // np.uintp(rank)
    # Both are free here: the scratch space serves every kernel of a thread in turn.
    columns = work.across
    turned = work.matrix
    for first in range(zero, n, eights):
        here = min(eights, n - first)
        rows_to_columns(rows, first, here, length, work, columns)
        for k in range(size * eights):
            turned[k] = turned.dtype.type(0.0)
        add_turned(columns, matrix, work, turned)
        for i in range(here):
            for k in range(size):
                out[(first + i) * size + k] = turned[k * eights + i]


@reducing_kernel
def add_gradient(white, second, inverse, sums, out, work):
    """out[m] += L^-T (S~ white[m] + sums[m]); all but `out` are padded."""
    size = np.uintp(len(work.goal))
    rank = size - work.lead
    n = np.uintp(len(white)) // size
    zero = np.uintp(0)
    eights = np.uintp(SIDE)
    before = work.across
    after = work.matrix
    for first in range(zero, n, eights):
        here = min(eights, n - first)
        rows_to_columns(white, first, here, size, work, before)
        # `after` starts with the sums over clicks, to which S~ f~ is added.
        rows_to_columns(sums, first, here, size, work, after)
        add_turned(before, second, work, after)
        for k in range(size * eights):
            before[k] = before.dtype.type(0.0)
        add_turned(after, inverse, work, before)
        for i in range(here):
            for k in range(rank):
                share = before[(work.lead + k) * eights + i]
                out[(first + i) * rank + k] += share
