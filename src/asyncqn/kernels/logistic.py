"""Kernels of logistic regression: value and gradient in one pass over the rows; no BLAS.

Rows go four at a time, so that theta and the sums are loaded once for all four.
"""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.jit import reducing_kernel, reducing_piece

_FLUSH = 256
"""Rows whose gradients are added in the data's own precision, before they go into a sum in float64."""


@reducing_piece
def _loss_and_slope(label, z):
    """log(1 + exp(-label z)) and its derivative in z, without overflow."""
    margin = label * z
    small = np.exp(-abs(margin))
    loss = np.log1p(small) + max(-margin, 0.0)
    return loss, -label * (1.0 if margin < 0.0 else small) / (1.0 + small)


@reducing_piece
def _four_dots(a, b, c, e, theta, z):
    """z = (a'theta, b'theta, c'theta, e'theta)."""
    kind = theta.dtype.type
    za, zb, zc, ze = kind(0.0), kind(0.0), kind(0.0), kind(0.0)
    for j in range(theta.size):
        za += a[j] * theta[j]
        zb += b[j] * theta[j]
        zc += c[j] * theta[j]
        ze += e[j] * theta[j]
    z[0], z[1], z[2], z[3] = za, zb, zc, ze


@reducing_piece
def _fits(X, theta, rows):
    """Whether sizes fit and every row exists: compiled code would read beyond its arrays."""
    beyond = 0
    for r in range(rows.size):
        beyond += rows[r] < 0 or rows[r] >= X.shape[0]
    return X.shape[1] == theta.size and rows.size > 0 and beyond == 0


@reducing_piece
def _half_square(theta):
    """|theta|^2 / 2 in float64."""
    total = 0.0
    for j in range(theta.size):
        total += np.float64(theta[j]) * theta[j]
    return 0.5 * total


@reducing_kernel
def value_and_gradient(X, y, prior, theta, rows, out):
    """U and its gradient, estimated from `rows`: the prior once, the data n / |rows| times.

    Returns (fits, U); nothing is written where sizes do not fit or a row does not exist.
    """
    d, m = theta.size, rows.size
    if out.size != d or not _fits(X, theta, rows):
        return False, 0.0
    total, g = np.zeros(d), np.zeros(d, theta.dtype)
    z, slopes = np.zeros(4), np.zeros(4, theta.dtype)
    loss = 0.0
    for r in range(0, m, 4):
        a, b = X[rows[r]], X[rows[min(r + 1, m - 1)]]
        c, e = X[rows[min(r + 2, m - 1)]], X[rows[min(r + 3, m - 1)]]
        _four_dots(a, b, c, e, theta, z)
        for i in range(4):
            slopes[i] = 0.0
            if r + i < m:
                one, slope = _loss_and_slope(y[rows[r + i]], z[i])
                loss += one
                slopes[i] = slope
        sa, sb, sc, se = slopes[0], slopes[1], slopes[2], slopes[3]
        for j in range(d):
            g[j] += sa * a[j] + sb * b[j] + sc * c[j] + se * e[j]
        if (r + 4) % _FLUSH == 0:
            for j in range(d):
                total[j] += g[j]
                g[j] = 0.0
    weight = X.shape[0] / m
    for j in range(d):
        out[j] = prior * theta[j] + weight * (total[j] + g[j])
    return True, prior * _half_square(theta) + weight * loss


@reducing_kernel
def value(X, y, prior, theta, rows):
    """(fits, U), estimated from `rows` as above."""
    m = rows.size
    if not _fits(X, theta, rows):
        return False, 0.0
    z = np.zeros(4)
    loss = 0.0
    for r in range(0, m, 4):
        a, b = X[rows[r]], X[rows[min(r + 1, m - 1)]]
        c, e = X[rows[min(r + 2, m - 1)]], X[rows[min(r + 3, m - 1)]]
        _four_dots(a, b, c, e, theta, z)
        for i in range(min(4, m - r)):
            one, _ = _loss_and_slope(y[rows[r + i]], z[i])
            loss += one
    return True, prior * _half_square(theta) + X.shape[0] / m * loss
