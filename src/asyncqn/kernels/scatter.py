"""The scatter of answers, coordinate by coordinate or with all products, and steps in its metric."""

import numpy as np

from asyncqn.kernels.jit import kernel


@kernel
def note_difference(D, last, answer, weight):
    """D += weight ((answer - last)^2 / 2 - D), and keep the answer as the last one; returns the largest D."""
    largest = 0.0
    for j in range(D.size):
        difference = float(answer[j]) - float(last[j])
        D[j] += weight * (0.5 * difference * difference - D[j])
        last[j] = answer[j]
        largest = max(largest, D[j])
    return largest


@kernel
def add_lengthened(theta, scale, step, D, largest, most):
    """theta_j += scale * step_j / (D_j / largest + 1 / most)."""
    for j in range(theta.size):
        theta[j] += theta.dtype.type(scale * step[j] / (D[j] / largest + 1.0 / most))


@kernel
def note_products(F, last, answer, weight):
    """F += weight (x x' / 2 - F) in and below the diagonal, x = answer - last; the answer is the last."""
    d = last.size
    x = np.empty(d)
    for j in range(d):
        x[j] = float(answer[j]) - float(last[j])
        last[j] = answer[j]
    for j in range(d):
        row, half = F[j], 0.5 * x[j]
        for k in range(j + 1):
            row[k] += weight * (half * x[k] - row[k])


@kernel
def note_deviation(F, mean, answer, weight, share, rate):
    """F += weight (share x x' - F) in and below the diagonal, x = answer - mean; then mean += rate x.

    F with one row is the diagonal alone.
    """
    d = mean.size
    x = np.empty(d)
    for j in range(d):
        x[j] = float(answer[j]) - mean[j]
        mean[j] += rate * x[j]
    if F.shape[0] < d:
        for j in range(d):
            F[0, j] += weight * (share * x[j] * x[j] - F[0, j])
        return
    for j in range(d):
        row, part = F[j], share * x[j]
        for k in range(j + 1):
            row[k] += weight * (part * x[k] - row[k])


@kernel
def shrink_products(F, share, floor, out):
    """out = F with `share` taken off what is beside the diagonal, and `floor` added to that."""
    for j in range(F.shape[0]):
        for k in range(j):
            out[j, k] = (1.0 - share) * F[j, k]
        out[j, j] = F[j, j] + floor
