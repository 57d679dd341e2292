"""Kernels of the Gaussian mixture with unknown centres.

Exponentials are taken relative to the nearest centre, so that they do not underflow together.
"""

import numpy as np

from asyncqn.kernels.jit import reducing_kernel, reducing_piece


@reducing_kernel
def value(X, scale, theta, rows):
    """U: -(n / |rows|) sum_{i in rows} log mean_k exp(-|x_i - theta_k|^2 / 2) + |theta|^2 / (2 scale^2).

    It is NaN where a row does not exist.
    """
    n, d = X.shape
    K = theta.size // d
    total = 0.0
    for i in rows:
        if i < 0 or i >= n:
            return np.nan
        nearest, mass = _nearest_and_mass(X[i], theta, K)
        # -log mean_k exp(-d_k) = nearest - log(mass / K): mass is at least 1, since the nearest centre adds
        # exp(0).
        total += nearest - np.log(mass / K)
    prior = 0.0
    for j in range(theta.size):
        prior += theta[j] * theta[j]
    return n / rows.size * total + 0.5 * prior / scale**2


@reducing_kernel
def gradient(X, scale, theta, rows, out):
    """out = theta / scale^2 + (n / |rows|) sum_{i in rows} r_ik (theta_k - x_i), r_ik the responsibilities.

    Returns False, and writes nothing, where sizes do not fit or a row does not exist.
    """
    n, d = X.shape
    if out.size != theta.size or theta.size % d != 0:
        return False
    for i in rows:
        if i < 0 or i >= n:
            return False
    K = theta.size // d
    for j in range(theta.size):
        out[j] = theta[j] / scale**2
    weight = n / rows.size
    for i in rows:
        x = X[i]
        nearest, mass = _nearest_and_mass(x, theta, K)
        for k in range(K):
            r = weight * np.exp(nearest - _half_square(x, theta, k * d)) / mass
            for j in range(d):
                out[k * d + j] += r * (theta[k * d + j] - x[j])
    return True


@reducing_piece
def _nearest_and_mass(x, theta, K):
    """Return the smallest |x - theta_k|^2 / 2, and the sum over k of exp(smallest - |x - theta_k|^2 / 2)."""
    # Two passes over the centres: the first finds the reference for the exponentials.
    nearest, mass = np.inf, 0.0
    for k in range(K):
        nearest = min(nearest, _half_square(x, theta, k * x.size))
    for k in range(K):
        mass += np.exp(nearest - _half_square(x, theta, k * x.size))
    return nearest, mass


@reducing_piece
def _half_square(x, theta, first):
    """Return |x - theta_k|^2 / 2 for the centre that begins at index `first`."""
    total = 0.0
    for j in range(x.size):
        difference = x[j] - theta[first + j]
        total += difference * difference
    return 0.5 * total
