"""Sums over dense rows of a linear model, without BLAS: value, gradient and diagonal in one pass, and x x'.

Four rows are processed at a time, so that theta and the sums are loaded once for all four.  theta may have
one entry more than a row: the intercept.

`terms` is (loss, width, y, weights, prior): the number of a loss in `kernels.losses` and its width, the targets,
the weights of rows (empty: each row counts once), and the precision of the prior.
"""

import math

import numpy as np

from asyncqn.kernels.gram import CHUNK, add_gram
from asyncqn.kernels.jit import reducing_kernel, reducing_piece
from asyncqn.kernels.losses import loss_and_slope, weight_of
from asyncqn.kernels.numba_internals import stack_array

_FLUSH = 256
"""Rows whose gradients are added in the precision of the data, before they are added to a float64 sum."""
_ROWS_PER_COUNT = 255
"""Number of rows whose nonzero entries can be counted in a byte."""


@reducing_piece
def _four_dots(a, b, c, e, theta, z):
    """z = (a'theta, b'theta, c'theta, e'theta)."""
    kind = theta.dtype.type
    za = zb = zc = ze = kind(0.0)
    # theta is loaded once for four rows; each row has its own sum, so the loop vectorises.
    for j in range(theta.size):
        za += a[j] * theta[j]
        zb += b[j] * theta[j]
        zc += c[j] * theta[j]
        ze += e[j] * theta[j]
    z[0] = za
    z[1] = zb
    z[2] = zc
    z[3] = ze


@reducing_piece
def fits(n, d, theta, rows):
    """Return whether sizes fit and every row exists: compiled code would read beyond its arrays."""
    beyond = 0
    for r in range(rows.size):
        beyond += rows[r] < 0 or rows[r] >= n
    return d <= theta.size <= d + 1 and rows.size > 0 and beyond == 0


@reducing_piece
def half_square(theta):
    """Return |theta|^2 / 2 in float64."""
    total = 0.0
    for j in range(theta.size):
        total += np.float64(theta[j]) * theta[j]
    return 0.5 * total


@reducing_kernel
def sums(X, terms, theta, rows, out, diagonal, work, fine):
    """Compute U and its gradient, estimated from `rows`: the prior once, the data n / |rows| times.

    If `diagonal` is not empty, it becomes the data's part of the diagonal of the Hessian, scaled in the same
    way.  `fine` (float64) and `work` (of theta's type) must be zeros, with room for out and diagonal
    together. Returns (fits, U); nothing is written where sizes do not fit or a row does not exist.
    """
    kind, width, y, weights, prior = terms
    D = theta.size
    d = X.shape[1]
    m = rows.size
    if out.size != D or not fits(X.shape[0], d, theta, rows):
        return False, 0.0
    slopes_of = theta[:d]
    shift = np.float64(theta[d]) if d < D else 0.0
    # Sums in the precision of the data, and in float64.
    g, h = work[:D], work[D:]
    total, squares = fine[:D], fine[D:]
    zero = theta.dtype.type(0.0)
    z = stack_array(4, 0.0)
    slopes = stack_array(4, zero)
    bends = stack_array(4, zero)
    loss = all_slopes = all_bends = 0.0
    for r in range(0, m, 4):
        # The last group may have fewer than four rows: it repeats the last row, with slope 0.
        a, b = X[rows[r]], X[rows[min(r + 1, m - 1)]]
        c, e = X[rows[min(r + 2, m - 1)]], X[rows[min(r + 3, m - 1)]]
        _four_dots(a, b, c, e, slopes_of, z)
        for i in range(4):
            slopes[i] = bends[i] = 0.0
            if r + i < m:
                row = rows[r + i]
                one, two, slope = loss_and_slope(kind, width, y[row], z[i] + shift)
                share = 1.0
                if weights.size:
                    share = weights[row]
                    one *= share
                    two *= share
                    slope *= share
                # Two terms, because adding them first could lose a small one or overflow.
                loss += one
                loss += two
                slopes[i] = slope
                all_slopes += slope
                if diagonal.size:
                    bends[i] = share * weight_of(kind, width, y[row], z[i] + shift)
                    all_bends += bends[i]
        sa, sb = slopes[0], slopes[1]
        sc, se = slopes[2], slopes[3]
        for j in range(d):
            g[j] += sa * a[j] + sb * b[j] + sc * c[j] + se * e[j]
        if diagonal.size:
            ha, hb = bends[0], bends[1]
            hc, he = bends[2], bends[3]
            for j in range(d):
                h[j] += (
                    ha * a[j] * a[j]
                    + hb * b[j] * b[j]
                    + hc * c[j] * c[j]
                    + he * e[j] * e[j]
                )
        # _FLUSH is a multiple of the four rows of a group.
        if (r + 4) % _FLUSH == 0:
            for j in range(d):
                total[j] += g[j]
                g[j] = 0.0
            if diagonal.size:
                for j in range(d):
                    squares[j] += h[j]
                    h[j] = 0.0
    # n / |rows| makes the estimate from a subsample unbiased, as in section 2 of the paper.
    weight = X.shape[0] / m
    for j in range(d):
        out[j] = prior * theta[j] + weight * (total[j] + g[j])
    if d < D:
        out[d] = weight * all_slopes
    if diagonal.size:
        for j in range(d):
            diagonal[j] = weight * (squares[j] + h[j])
        if d < D:
            diagonal[d] = weight * all_bends
    return True, prior * half_square(slopes_of) + weight * loss


@reducing_kernel
def second_moments(X, terms, theta, rows, S, x):
    """Add the sum over rows of weight x x' to the upper triangle of S, with ones for an intercept.

    `x` must have room for CHUNK columns like theta.
    """
    kind, width, y, weights, _ = terms
    D = theta.size
    d = X.shape[1]
    m = rows.size
    slopes_of = theta[:d]
    shift = np.float64(theta[d]) if d < D else 0.0
    z, roots = stack_array(4, 0.0), stack_array(4, theta.dtype.type(0.0))
    for first in range(0, m, CHUNK):
        for r in range(0, CHUNK, 4):
            at = min(first + r, m - 1)
            a, b = X[rows[at]], X[rows[min(at + 1, m - 1)]]
            c, e = X[rows[min(at + 2, m - 1)]], X[rows[min(at + 3, m - 1)]]
            _four_dots(a, b, c, e, slopes_of, z)
            # Rows beyond the last have the root 0, so that every product has CHUNK rows and one compiled
            # shape.
            for i in range(4):
                roots[i] = 0.0
                if first + r + i < m:
                    row = rows[first + r + i]
                    w = weight_of(kind, width, y[row], z[i] + shift)
                    # The root of the weight on both factors keeps the product symmetric in every bit.
                    roots[i] = math.sqrt(w * (weights[row] if weights.size else 1.0))
            ra, rb = roots[0], roots[1]
            rc, re = roots[2], roots[3]
            for j in range(d):
                x[j, r] = ra * a[j]
                x[j, r + 1] = rb * b[j]
                x[j, r + 2] = rc * c[j]
                x[j, r + 3] = re * e[j]
            if d < D:
                for i in range(4):
                    x[d, r + i] = roots[i]
        add_gram(x, x, S)


def column_squares(X, weights, columns, stride, out, counts):
    """Compute sums of weight x_j^2 and counts of x_j != 0, for these columns and every `stride`-th row.

    It is called once per problem, so it is not compiled.
    """
    total, nonzero = np.zeros((2, len(columns)))
    for first in range(0, len(X), _ROWS_PER_COUNT * stride):
        some = slice(first, first + _ROWS_PER_COUNT * stride, stride)
        x = X[some] if len(columns) == X.shape[1] else X[some][:, columns]
        weighted = x * weights[some, None] if weights.size else x
        total += np.einsum("ij,ij->j", x, weighted, dtype=np.float64)
        nonzero += np.add.reduce((x != 0.0).view(np.uint8), axis=0, dtype=np.uint8)
    out[columns] = total
    counts[columns] = nonzero
