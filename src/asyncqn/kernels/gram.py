"""Products of tall matrices and triangular factors, without BLAS: the dense metric of a linear model.

The bits of BLAS change with its number of threads, and these numbers decide the course of a run.
"""

import math

import numpy as np

from asyncqn.kernels.jit import kernel, reducing_kernel, reducing_piece

CHUNK = 248
"""Rows of the data in one product; not a power of two, because such strides use few lines of the cache."""
_BAND, _BLOCK = 16, 128
"""Columns and rows of S that are finished together: their inputs stay in the first and second cache.  The
number of rows must be a multiple of the number of columns."""


@reducing_kernel
def add_gram(a, b, S):
    """Add a b', which must be symmetric, to S in and above the diagonal; tiles of 4 x 2 share their loads."""
    D, m = a.shape
    full = D - D % 4
    for top in range(0, full, _BLOCK):
        for left in range(top, full, _BAND):
            right = min(left + _BAND, full)
            for j in range(top, min(top + _BLOCK, right), 4):
                # Tiles on the diagonal also write entries below it, which no caller reads.
                for k in range(max(j, left), right, 2):
                    _tile(a, b, S, j, k)
    # The columns that fill no tile.
    for k in range(full, D):
        for j in range(k + 1):
            total = a.dtype.type(0.0)
            for r in range(m):
                total += a[j, r] * b[k, r]
            S[j, k] += total


@reducing_piece
def _tile(a, b, S, j, k):
    """Add the eight products of a tile to S[j : j + 4, k : k + 2]; more sums would not fit the registers."""
    a0, a1 = a[j], a[j + 1]
    a2, a3 = a[j + 2], a[j + 3]
    b0, b1 = b[k], b[k + 1]
    # In the precision of the data: CHUNK rows are few enough for float32, and S adds up the chunks.
    s00 = s01 = s10 = s11 = a0.dtype.type(0.0)
    s20 = s21 = s30 = s31 = a0.dtype.type(0.0)
    for r in range(a0.size):
        x0, x1 = a0[r], a1[r]
        x2, x3 = a2[r], a3[r]
        y0, y1 = b0[r], b1[r]
        s00 += x0 * y0
        s01 += x0 * y1
        s10 += x1 * y0
        s11 += x1 * y1
        s20 += x2 * y0
        s21 += x2 * y1
        s30 += x3 * y0
        s31 += x3 * y1
    S[j, k] += s00
    S[j, k + 1] += s01
    S[j + 1, k] += s10
    S[j + 1, k + 1] += s11
    S[j + 2, k] += s20
    S[j + 2, k + 1] += s21
    S[j + 3, k] += s30
    S[j + 3, k + 1] += s31


def pack_upper(S, out):
    """Write the upper triangle of S to `out`, row by row; whole rows are copied, so this is not compiled."""
    at = 0
    for j in range(len(S)):
        out[at : at + len(S) - j] = S[j, j:]
        at += len(S) - j


def unpack_lower(packed, out):
    """Write the packed upper triangle to the lower triangle of a symmetric matrix."""
    at = 0
    for j in range(len(out)):
        out[j:, j] = packed[at : at + len(out) - j]
        at += len(out) - j


@kernel
def add_outer(F, x, share, weight):
    """F += weight (share x x' - F) in and below the diagonal, the part that `cholesky` reads."""
    for j in range(x.size):
        row = F[j]
        part = share * x[j]
        for k in range(j + 1):
            row[k] += weight * (part * x[k] - row[k])


@reducing_kernel
def cholesky(A):
    """Replace the lower triangle of A by L with L L' = A; return False if A is not positive definite.

    The loop goes row by row, so that both factors of every product are contiguous in memory.
    """
    D = A.shape[0]
    for i in range(D):
        row = A[i]
        for j in range(i):
            other = A[j]
            total = 0.0
            for k in range(j):
                total += row[k] * other[k]
            row[j] = (row[j] - total) / other[j]
        total = 0.0
        for k in range(i):
            total += row[k] * row[k]
        rest = row[i] - total
        # NaN fails this comparison as well.
        if not 0.0 < rest < np.inf:
            return False
        row[i] = math.sqrt(rest)
    return True


@reducing_kernel
def solve(L, v):
    """Replace v by (L L')^-1 v."""
    D = v.size
    for i in range(D):
        row = L[i]
        total = 0.0
        for k in range(i):
            total += row[k] * v[k]
        v[i] = (v[i] - total) / row[i]
    # The back substitution runs over rows of L as well, because its columns are not contiguous.
    for i in range(D - 1, -1, -1):
        row = L[i]
        v[i] /= row[i]
        # L is stored by rows, so the column of L' is subtracted as a whole.
        part = v[i]
        for k in range(i):
            v[k] -= part * row[k]


@reducing_kernel
def invert_lower(L, out):
    """Write L^-1 to `out`; both are lower triangular, with zeros above."""
    D = L.shape[0]
    for i in range(D):
        for k in range(i):
            out[i, k] = 0.0
        for j in range(i):
            part = L[i, j]
            for k in range(j + 1):
                # Row i of L L^-1 = I, solved for row i of the inverse from the rows above it.
                out[i, k] -= part * out[j, k]
        for k in range(i):
            out[i, k] /= L[i, i]
        out[i, i] = 1.0 / L[i, i]
        for k in range(i + 1, D):
            out[i, k] = 0.0
