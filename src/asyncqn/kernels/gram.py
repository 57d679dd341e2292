"""Products of tall matrices, and triangular factors: the dense metric of a linear model; no BLAS.

BLAS changes its bits with the number of its threads, and these numbers decide where a run goes.
"""

import math

import numpy as np

from asyncqn.kernels.jit import reducing_kernel, reducing_piece

CHUNK = 248
"""Rows of the data in one product; not a power of two, whose columns would share few lines of the cache."""
_BAND, _BLOCK = 16, 128
"""Columns and rows of S that are finished together: what they are made of stays in the first cache and in
the second; the rows are a multiple of the columns."""


@reducing_kernel
def add_gram(a, b, S):
    """S += a b' in and above the diagonal, where a b' is symmetric; tiles of 4 x 2 share what they load."""
    D, m = a.shape
    full = D - D % 4
    for top in range(0, full, _BLOCK):
        for left in range(top, full, _BAND):
            right = min(left + _BAND, full)
            for j in range(top, min(top + _BLOCK, right), 4):
                for k in range(max(j, left), right, 2):
                    _tile(a[j], a[j + 1], a[j + 2], a[j + 3], b[k], b[k + 1], S, j, k)
    for k in range(full, D):
        for j in range(k + 1):
            total = a.dtype.type(0.0)
            for r in range(m):
                total += a[j, r] * b[k, r]
            S[j, k] += total


@reducing_piece
def _tile(a0, a1, a2, a3, b0, b1, S, j, k):
    """S[j : j + 4, k : k + 2] += the eight products; as many sums as there are registers for, and no more."""
    zero = a0.dtype.type(0.0)
    s00, s01, s10, s11 = zero, zero, zero, zero
    s20, s21, s30, s31 = zero, zero, zero, zero
    for r in range(a0.size):
        x0, x1, x2, x3 = a0[r], a1[r], a2[r], a3[r]
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
    """The upper triangle of S, row after row; copies of rows, which need not be compiled."""
    at = 0
    for j in range(len(S)):
        out[at : at + len(S) - j] = S[j, j:]
        at += len(S) - j


def unpack_lower(packed, out):
    """The inverse of `pack_upper`, transposed: the lower triangle of a symmetric matrix."""
    at = 0
    for j in range(len(out)):
        out[j:, j] = packed[at : at + len(out) - j]
        at += len(out) - j


@reducing_kernel
def cholesky(A):
    """The lower triangle of A becomes L with L L' = A; False where A is not positive definite.

    Row by row, so that both factors of every product lie side by side in memory.
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
        if not 0.0 < rest < np.inf:
            return False
        row[i] = math.sqrt(rest)
    return True


@reducing_kernel
def solve(L, v):
    """v becomes (L L')^-1 v."""
    D = v.size
    for i in range(D):
        row = L[i]
        total = 0.0
        for k in range(i):
            total += row[k] * v[k]
        v[i] = (v[i] - total) / row[i]
    for i in range(D - 1, -1, -1):
        row = L[i]
        v[i] /= row[i]
        part = v[i]
        for k in range(i):
            v[k] -= part * row[k]


@reducing_kernel
def invert_lower(L, out):
    """out becomes L^-1; both are lower triangles, with zeros above."""
    D = L.shape[0]
    for i in range(D):
        for k in range(i):
            out[i, k] = 0.0
        for j in range(i):
            part = L[i, j]
            for k in range(j + 1):
                out[i, k] -= part * out[j, k]
        for k in range(i):
            out[i, k] /= L[i, i]
        out[i, i] = 1.0 / L[i, i]
        for k in range(i + 1, D):
            out[i, k] = 0.0
