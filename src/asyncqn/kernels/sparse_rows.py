"""Sums over sparse rows of a linear model: value, gradient and diagonal in one pass, and x x'.

X is (indptr, indices, data, d): row i has the entries data[indptr[i] : indptr[i + 1]] in the columns `indices`
at the same positions, and there are d columns.  theta may have one entry more: the intercept.  `terms` is that
of `dense_rows`.
"""

import numpy as np

from asyncqn.kernels.dense_rows import fits, half_square
from asyncqn.kernels.jit import reducing_kernel, reducing_piece
from asyncqn.kernels.losses import loss_and_slope, weight_of


@reducing_piece
def _dot(indices, data, first, last, theta, shift):
    """Return x'theta of one row, plus the intercept."""
    z = shift
    for p in range(first, last):
        z += np.float64(data[p]) * theta[indices[p]]
    return z


@reducing_kernel
def sums(X, terms, theta, rows, out, diagonal, fine):
    """Compute U, its gradient and, where there is room, the diagonal, as `dense_rows.sums` does."""
    indptr, indices, data, d = X
    kind, width, y, weights, prior = terms
    n, D = indptr.size - 1, theta.size
    if out.size != D or not fits(n, d, theta, rows):
        return False, 0.0
    shift = np.float64(theta[d]) if d < D else 0.0
    # float64 sums: entries of a column arrive one by one, in no tile that could be summed in float32.
    g, h = fine[:D], fine[D:]
    loss = 0.0
    for row in rows:
        first, last = indptr[row], indptr[row + 1]
        share = weights[row] if weights.size else 1.0
        z = _dot(indices, data, first, last, theta, shift)
        one, two, slope = loss_and_slope(kind, width, y[row], z)
        loss += share * (one + two)
        slope *= share
        for p in range(first, last):
            g[indices[p]] += slope * data[p]
        if d < D:
            g[d] += slope
        if diagonal.size:
            # The second derivative, which weighs x x' in the Hessian.
            bend = share * weight_of(kind, width, y[row], z)
            for p in range(first, last):
                h[indices[p]] += bend * data[p] * data[p]
            if d < D:
                h[d] += bend
    weight = n / rows.size
    for j in range(D):
        out[j] = (prior * theta[j] if j < d else 0.0) + weight * g[j]
    for j in range(diagonal.size):
        diagonal[j] = weight * h[j]
    return True, prior * half_square(theta[:d]) + weight * loss


@reducing_kernel
def value(X, terms, theta, rows):
    """Return (fits, U), estimated from `rows` as in `sums`."""
    indptr, indices, data, d = X
    kind, width, y, weights, prior = terms
    n = indptr.size - 1
    if not fits(n, d, theta, rows):
        return False, 0.0
    shift = np.float64(theta[d]) if d < theta.size else 0.0
    loss = 0.0
    for row in rows:
        z = _dot(indices, data, indptr[row], indptr[row + 1], theta, shift)
        one, two, _ = loss_and_slope(kind, width, y[row], z)
        loss += (weights[row] if weights.size else 1.0) * (one + two)
    return True, prior * half_square(theta[:d]) + n / rows.size * loss


@reducing_kernel
def second_moments(X, terms, theta, rows, places, S, at, x):
    """Add the sum over rows of weight x x' to the upper triangle of S, with ones for an intercept at the end.

    Column j of the data is column places[j] of S, and is left out if that is negative.  `at` and `x` must
    have room for d + 1 entries.
    """
    indptr, indices, data, d = X
    kind, width, y, weights, _ = terms
    shift = np.float64(theta[d]) if theta.size > d else 0.0
    for row in rows:
        first, last = indptr[row], indptr[row + 1]
        z = _dot(indices, data, first, last, theta, shift)
        w = weight_of(kind, width, y[row], z) * (weights[row] if weights.size else 1.0)
        count = 0
        for p in range(first, last):
            place = places[indices[p]]
            if place >= 0:
                at[count], x[count] = place, data[p]
                count += 1
        if theta.size > d:
            at[count], x[count] = S.shape[0] - 1, 1.0
            count += 1
        # All pairs of nonzero entries: the cost is the square of their number, not of d.
        for p in range(count):
            part, j = w * x[p], at[p]
            for q in range(count):
                k = at[q]
                if k >= j:
                    S[j, k] += part * x[q]


@reducing_kernel
def column_squares(X, weights, out, counts):
    """Compute sums over all rows of weight x_j^2, and counts of x_j != 0."""
    indptr, indices, data, _ = X
    out[:] = 0.0
    counts[:] = 0.0
    for i in range(indptr.size - 1):
        share = weights[i] if weights.size else 1.0
        for p in range(indptr[i], indptr[i + 1]):
            out[indices[p]] += share * data[p] * data[p]
            counts[indices[p]] += data[p] != 0.0
