"""Kernels of phase retrieval: squares of linear measurements."""

import numpy as np

from asyncqn.kernels.jit import reducing_kernel


@reducing_kernel
def gradient(A, y, theta, rows, out):
    """out = (n / |rows|) sum_{i in rows} ((a_i'theta)^2 - y_i) (a_i'theta) a_i.

    Returns False, and writes nothing, where sizes do not fit or a row does not exist: compiled code would
    read beyond its arrays.
    """
    n, d = A.shape
    if theta.size != d or out.size != d:
        return False
    for i in rows:
        if i < 0 or i >= n:
            return False
    weight = n / rows.size
    out[:] = 0.0
    for i in rows:
        a = A[i]
        z = 0.0
        for j in range(d):
            z += a[j] * theta[j]
        # The derivative of (z^2 - y)^2 / 4 in z is (z^2 - y) z.
        z *= weight * (z * z - y[i])
        for j in range(d):
            out[j] += z * a[j]
    return True


@reducing_kernel
def value(A, y, theta, rows):
    """Return (n / |rows|) sum_{i in rows} ((a_i'theta)^2 - y_i)^2 / 4; NaN where a row does not exist."""
    n, d = A.shape
    total = 0.0
    for i in rows:
        if i < 0 or i >= n:
            return np.nan
        z = 0.0
        for j in range(d):
            z += A[i, j] * theta[j]
        residual = z * z - y[i]
        total += residual * residual
    return 0.25 * n / rows.size * total
