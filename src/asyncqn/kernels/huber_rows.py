"""Sums over the rows of Huber regression with an estimated scale: value, gradient and diagonal in one pass.

theta is (w, [intercept], v), with the scale sigma = least + v^2, which is positive for any v.  With the
residual r = x'w + intercept - y, one row of weight 1 adds

    sigma + r^2 / sigma                                 where |r| <= epsilon sigma
    sigma + 2 epsilon |r| - epsilon^2 sigma             elsewhere (outliers)

`weights` of rows may be empty; then each row counts once.
"""

import numpy as np

from asyncqn.kernels.dense_rows import fits, half_square
from asyncqn.kernels.jit import reducing_kernel, reducing_piece


@reducing_piece
def _row(residual, sigma, v, epsilon):
    """Return loss, derivative in the residual, derivative in v, curvature in the residual, curvature in v.

    Curvatures are made positive: an outlier has that of the parabola that touches its loss from above, and
    derivatives in sigma enter with their absolute value.
    """
    size = abs(residual)
    # The quadratic part; beyond it the row is an outlier.
    if size <= epsilon * sigma:
        # dU/dsigma = 1 - (r / sigma)^2 and dsigma/dv = 2 v, so d2U/dv2 = 2 dU/dsigma + 4 v^2 d2U/dsigma2.
        share = (size / sigma) * (size / sigma)
        rise = 1.0 - share
        bend = 2.0 * abs(rise) + 8.0 * v * v * share / sigma
        return sigma * (1.0 + share), 2.0 * residual / sigma, 2.0 * v * rise, 2.0 / sigma, bend
    rise = 1.0 - epsilon * epsilon
    slope = 2.0 * epsilon if residual > 0.0 else -2.0 * epsilon
    # epsilon > 1, so `rise` is negative and -2 rise is its absolute value; slope / residual is the curvature
    # of the parabola that touches the loss from above.
    return rise * sigma + 2.0 * epsilon * size, slope, 2.0 * v * rise, 2.0 * epsilon / size, -2.0 * rise


@reducing_piece
def _finish(weight, prior, theta, d, fine, out, diagonal):
    """Write the sums, scaled to all rows, with the prior on the first d numbers."""
    D = theta.size
    # The intercept and v have no prior.
    for j in range(D):
        out[j] = (prior * theta[j] if j < d else 0.0) + weight * fine[j]
    for j in range(diagonal.size):
        diagonal[j] = weight * fine[D + j]


@reducing_kernel
def dense_sums(epsilon, least, X, y, weights, prior, theta, rows, out, diagonal, bends, fine):
    """Compute U and its gradient, estimated from `rows`: the prior once, the data n / |rows| times.

    If `diagonal` is not empty, it becomes the data's part of the diagonal of the Hessian.  If `bends` is not
    empty, it receives the curvature of each row in its residual, at the index of that row.  `fine` must be
    zeros, with room for out and diagonal together.  Returns (fits, U).
    """
    D, d, m = theta.size, X.shape[1], rows.size
    if out.size != D or not fits(X.shape[0], d, theta[: D - 1], rows):
        return False, 0.0
    # theta is (w, [intercept], v): v is always last.
    slopes_of, shift = theta[:d], np.float64(theta[d]) if d < D - 1 else 0.0
    v = np.float64(theta[D - 1])
    sigma = least + v * v
    loss = 0.0
    for r in range(m):
        row = rows[r]
        x = X[row]
        part = theta.dtype.type(0.0)
        for j in range(d):
            part += x[j] * slopes_of[j]
        share = weights[row] if weights.size else 1.0
        one, slope, moment, bend, bend_v = _row(np.float64(part) + shift - y[row], sigma, v, epsilon)
        loss += share * one
        slope *= share
        for j in range(d):
            fine[j] += slope * x[j]
        if d < D - 1:
            fine[d] += slope
        fine[D - 1] += share * moment
        if bends.size:
            bends[row] = share * bend
        if diagonal.size:
            for j in range(d):
                fine[D + j] += share * bend * x[j] * x[j]
            if d < D - 1:
                fine[D + d] += share * bend
            fine[2 * D - 1] += share * bend_v
    _finish(X.shape[0] / m, prior, theta, d, fine, out, diagonal)
    return True, prior * half_square(slopes_of) + X.shape[0] / m * loss


@reducing_kernel
def sparse_sums(
    epsilon, least, indptr, indices, data, d, y, weights, prior, theta, rows, out, diagonal, bends, fine
):
    """Compute the same as `dense_sums` over sparse rows."""
    n, D, m = indptr.size - 1, theta.size, rows.size
    if out.size != D or not fits(n, d, theta[: D - 1], rows):
        return False, 0.0
    shift = np.float64(theta[d]) if d < D - 1 else 0.0
    v = np.float64(theta[D - 1])
    sigma = least + v * v
    loss = 0.0
    for r in range(m):
        row = rows[r]
        first, last = indptr[row], indptr[row + 1]
        z = shift
        for p in range(first, last):
            z += np.float64(data[p]) * theta[indices[p]]
        share = weights[row] if weights.size else 1.0
        one, slope, moment, bend, bend_v = _row(z - y[row], sigma, v, epsilon)
        loss += share * one
        slope *= share
        for p in range(first, last):
            fine[indices[p]] += slope * data[p]
        if d < D - 1:
            fine[d] += slope
        fine[D - 1] += share * moment
        if bends.size:
            bends[row] = share * bend
        if diagonal.size:
            for p in range(first, last):
                fine[D + indices[p]] += share * bend * data[p] * data[p]
            if d < D - 1:
                fine[D + d] += share * bend
            fine[2 * D - 1] += share * bend_v
    _finish(n / m, prior, theta, d, fine, out, diagonal)
    return True, prior * half_square(theta[:d]) + n / m * loss
