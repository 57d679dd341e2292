"""The scatter of updates, per coordinate or with all products."""

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
def note_deviation(F, mean, seen, update, window, least_rate):
    """Add the deviation of an update from a running mean of those before it, which then follows it.

        F += w (x x' / (1 + v) - F) in and below the diagonal,  x = update - mean;  mean += rate x

    w is 1 / k, k updates having been seen, and at least 1 / window; rate is that of a plain mean, and at
    least `least_rate`.  seen: shape (1,), k.  An F with one row holds the diagonal alone.
    """
    d, before = mean.size, seen[0]
    seen[0] += 1
    if before == 0:
        for j in range(d):
            mean[j] = update[j]
        return
    # v of a plain mean while updates are few, then of an exponential one.  Update and mean count as
    # independent, so the expectation of x x' is 1 + v times the covariance of an update.
    variance = max(1.0 / before, least_rate / (2.0 - least_rate))
    rate = max(1.0 / (before + 1), least_rate)
    weight, share = 1.0 / min(before, window), 1.0 / (1.0 + variance)
    if F.shape[0] < d:
        diagonal = F[0]
        for j in range(d):
            away = np.float64(update[j]) - mean[j]
            mean[j] += rate * away
            diagonal[j] += weight * (share * away * away - diagonal[j])
        return
    for j in range(d):
        row, part = F[j], share * (np.float64(update[j]) - mean[j])
        for k in range(j + 1):
            row[k] += weight * (part * (np.float64(update[k]) - mean[k]) - row[k])
    # Not before: every row needs the whole deviation.
    for j in range(d):
        mean[j] += rate * (np.float64(update[j]) - mean[j])


@kernel
def shrink_products(F, share, floor, out):
    """out = F with its off-diagonal entries multiplied by 1 - share, and `floor` added to the diagonal."""
    for j in range(F.shape[0]):
        for k in range(j):
            out[j, k] = (1.0 - share) * F[j, k]
        out[j, j] = F[j, j] + floor
