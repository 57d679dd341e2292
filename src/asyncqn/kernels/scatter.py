"""The scatter of updates, per coordinate or with all products, and steps in its metric."""

import numpy as np

from asyncqn.kernels.jit import kernel


@kernel
def note_difference(D, last, update, weight):
    """D += weight ((update - last)^2 / 2 - D); store the update as `last`; return the largest D."""
    largest = 0.0
    for j in range(D.size):
        # Half the square of a difference of two independent draws has the variance as its mean.
        difference = float(update[j]) - float(last[j])
        D[j] += weight * (0.5 * difference * difference - D[j])
        last[j] = update[j]
        largest = max(largest, D[j])
    return largest


@kernel
def add_lengthened(theta, scale, step, D, largest, most):
    """theta_j += scale * step_j / (D_j / largest + 1 / most)."""
    for j in range(theta.size):
        theta[j] += theta.dtype.type(scale * step[j] / (D[j] / largest + 1.0 / most))


@kernel
def note_products(F, last, update, weight):
    """F += weight (x x' / 2 - F) in and below the diagonal, with x = update - last; last = update."""
    d = last.size
    x = np.empty(d)
    for j in range(d):
        x[j] = float(update[j]) - float(last[j])
        last[j] = update[j]
    for j in range(d):
        # Only the lower triangle, row by row: `gram.cholesky` reads no other part.
        row, half = F[j], 0.5 * x[j]
        for k in range(j + 1):
            row[k] += weight * (half * x[k] - row[k])


@kernel
def note_deviation(F, mean, update, weight, share, rate):
    """F += weight (share x x' - F) in and below the diagonal, with x = update - mean; then mean += rate x.

    An F with one row holds the diagonal alone.
    """
    d = mean.size
    if F.shape[0] < d:
        diagonal = F[0]
        for j in range(d):
            away = float(update[j]) - mean[j]
            mean[j] += rate * away
            diagonal[j] += weight * (share * away * away - diagonal[j])
        return
    x = np.empty(d)
    for j in range(d):
        x[j] = float(update[j]) - mean[j]
        mean[j] += rate * x[j]
    for j in range(d):
        row, part = F[j], share * x[j]
        for k in range(j + 1):
            row[k] += weight * (part * x[k] - row[k])


@kernel
def shrink_products(F, share, floor, out):
    """out = F with its off-diagonal entries multiplied by 1 - share, and `floor` added to the diagonal."""
    for j in range(F.shape[0]):
        for k in range(j):
            out[j, k] = (1.0 - share) * F[j, k]
        out[j, j] = F[j, j] + floor
