"""Kernels of the linear Gaussian model; no BLAS, whose bits change with its thread count."""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.jit import reducing_kernel


@reducing_kernel
def gradient(A, y, noise_var, theta, rows, out):
    """out = theta + (n / |rows|) sum_{i in rows} a_i (a_i'theta - y_i) / noise_var.

    False, and nothing written, where sizes do not fit or a row does not exist: compiled code would
    read beyond its arrays.
    """
    kind = theta.dtype.type
    d = theta.size
    if A.shape[1] != d or out.size != d:
        return False
    for i in rows:
        if i < 0 or i >= A.shape[0]:
            return False
    weight = kind(A.shape[0] / (rows.size * noise_var))
    for j in range(d):
        out[j] = theta[j]
    for i in rows:
        a = A[i]
        residual = -y[i]
        for j in range(d):
            residual += a[j] * theta[j]
        residual *= weight
        for j in range(d):
            out[j] += residual * a[j]
    return True


@reducing_kernel
def value(A, y, noise_var, theta):
    """|theta|^2 / 2 + sum_i (y_i - a_i'theta)^2 / (2 noise_var), accumulated in float64."""
    total = 0.0
    for i in range(A.shape[0]):
        a = A[i]
        residual = -y[i]
        for j in range(theta.size):
            residual += a[j] * theta[j]
        total += np.float64(residual) * residual
    prior = 0.0
    for j in range(theta.size):
        prior += np.float64(theta[j]) * theta[j]
    return 0.5 * prior + 0.5 * total / noise_var


@reducing_kernel
def times(A, x):
    """A x."""
    out = np.zeros(A.shape[0])
    for i in range(A.shape[0]):
        total = 0.0
        for j in range(x.size):
            total += A[i, j] * x[j]
        out[i] = total
    return out


@reducing_kernel
def normal_equations(A, y, noise_var):
    """P = I + A'A / noise_var and b = A'y / noise_var, in float64."""
    d = A.shape[1]
    P = np.zeros((d, d))
    b = np.zeros(d)
    for i in range(A.shape[0]):
        a = A[i]
        for p in range(d):
            x = np.float64(a[p]) / noise_var
            b[p] += x * y[i]
            for q in range(d):
                P[p, q] += x * a[q]
    for p in range(d):
        P[p, p] += 1.0
    return P, b


@reducing_kernel
def cholesky_solve(P, b):
    """Solve P x = b for symmetric positive definite P, which is overwritten by its factor."""
    d = b.size
    x = b.copy()
    for j in range(d):
        for k in range(j):
            total = 0.0
            for q in range(k):
                total += P[j, q] * P[k, q]
            P[j, k] = (P[j, k] - total) / P[k, k]
        total = 0.0
        for q in range(j):
            total += P[j, q] * P[j, q]
        P[j, j] = np.sqrt(P[j, j] - total)
    for j in range(d):
        for q in range(j):
            x[j] -= P[j, q] * x[q]
        x[j] /= P[j, j]
    for j in range(d - 1, -1, -1):
        for q in range(j + 1, d):
            x[j] -= P[q, j] * x[q]
        x[j] /= P[j, j]
    return x


@reducing_kernel
def rotate(A, left, right):
    """A <- V A Q' with V and Q products of the Householder reflections along the rows of left and right."""
    n, d = A.shape
    w = np.empty(max(n, d))
    for v in left:
        norm = 0.0
        for i in range(n):
            norm += v[i] * v[i]
        for j in range(d):
            w[j] = 0.0
        for i in range(n):
            for j in range(d):
                w[j] += v[i] * A[i, j]
        for i in range(n):
            c = 2.0 * v[i] / norm
            for j in range(d):
                A[i, j] -= c * w[j]
    for v in right:
        norm = 0.0
        for j in range(d):
            norm += v[j] * v[j]
        for i in range(n):
            total = 0.0
            for j in range(d):
                total += A[i, j] * v[j]
            total *= 2.0 / norm
            for j in range(d):
                A[i, j] -= total * v[j]
