"""Kernels of the linear Gaussian model, without BLAS, whose bits change with its number of threads.

Work that happens once per problem is done in NumPy; `np.einsum` calls no BLAS.
"""

import numpy as np

from asyncqn.kernels.jit import reducing_kernel


@reducing_kernel
def gradient(A, y, noise_var, theta, rows, out):
    """out = theta + (n / |rows|) sum_{i in rows} a_i (a_i'theta - y_i) / noise_var.

    Returns False, and writes nothing, where sizes do not fit or a row does not exist: compiled code would
    read beyond its arrays.
    """
    kind = theta.dtype.type
    d = theta.size
    if A.shape[1] != d or out.size != d:
        return False
    for i in rows:
        if i < 0 or i >= A.shape[0]:
            return False
    # In the precision of theta, so that float32 is not promoted in the loop.
    weight = kind(A.shape[0] / (rows.size * noise_var))
    for j in range(d):
        out[j] = theta[j]
    for i in rows:
        a = A[i]
        # a_i'theta - y_i; then both loops run over one contiguous row of A.
        residual = -y[i]
        for j in range(d):
            residual += a[j] * theta[j]
        residual *= weight
        for j in range(d):
            out[j] += residual * a[j]
    return True


def value(A, y, noise_var, theta):
    """Return |theta|^2 / 2 + sum_i (y_i - a_i'theta)^2 / (2 noise_var), accumulated in float64."""
    residuals = (np.einsum("ij,j->i", A, theta) - y).astype(np.float64)
    prior = np.add.reduce(np.square(theta, dtype=np.float64))
    return 0.5 * prior + 0.5 * np.add.reduce(residuals * residuals) / noise_var


def normal_equations(A, y, noise_var):
    """Return P = I + A'A / noise_var and b = A'y / noise_var, in float64."""
    x = A.astype(np.float64) / noise_var
    P = np.einsum("ip,iq->pq", x, A.astype(np.float64))
    P[np.diag_indices_from(P)] += 1.0
    return P, np.einsum("ip,i->p", x, y)


def cholesky_solve(P, b):
    """Solve P x = b for symmetric positive definite P, which is overwritten by its factor.

    It uses NumPy, column by column, without BLAS: a single call ends before it would be compiled.
    """
    d = b.size
    x = b.copy()
    for j in range(d):
        # The right-looking form, with the forward substitution in the same sweep: only the lower triangle is
        # used.
        P[j:, j] /= np.sqrt(P[j, j])
        below = P[j + 1 :, j]
        P[j + 1 :, j + 1 :] -= below[:, None] * below
        x[j] /= P[j, j]
        x[j + 1 :] -= below * x[j]
    for j in range(d - 1, -1, -1):
        x[j] /= P[j, j]
        x[:j] -= P[j, :j] * x[j]
    return x


def _reflect(A, along):
    """Replace A by V A, with V the product of the Householder reflections along the rows of `along`."""
    for v in along:
        # (I - 2 v v' / v'v) A without forming the matrix.
        w = np.einsum("i,ij->j", v, A)
        A -= (2.0 / np.add.reduce(v * v) * v)[:, None] * w


def rotate(A, left, right):
    """Return V A Q', with V and Q products of Householder reflections along the rows of left and right."""
    turned = A.copy()
    _reflect(turned, left)
    # A product from the right is one of the transpose from the left; the copy makes its rows contiguous.
    across = np.ascontiguousarray(turned.T)
    _reflect(across, right)
    return np.ascontiguousarray(across.T)
