"""Sums over rows of a softmax model, dense or sparse: value, gradient and diagonal in one pass, and x x'.

theta is (K, D): one row for each of K classes, with D columns of X, or one more for the intercept.  `terms` is
(y, weights, prior): class numbers 0 to K - 1, the weights of rows, which may be empty, and the precision of the
prior.  With p the probabilities of the classes in a row,
class k has the curvature p_k (1 - p_k) K / (K - 1), which is exact if all classes are equally likely; the
rest of the Hessian couples the classes.  `moments` adds the mean of these over the classes times x x'.

Sparse rows are (indptr, indices, data, d); theta and the sums are transposed while they are in use, so that the
K numbers of a column are contiguous.  `room` is scratch space, which ends with z and p, of one number per class.
"""

import numpy as np

from asyncqn.kernels.gram import CHUNK, add_gram
from asyncqn.kernels.jit import reducing_kernel, reducing_piece


@reducing_piece
def _fits(n, d, y, theta, rows):
    """Return whether sizes fit and every row and class exists: compiled code would read beyond its arrays."""
    beyond = 0
    for r in range(rows.size):
        row = rows[r]
        if row < 0 or row >= n or y[row] < 0.0 or y[row] >= theta.shape[0]:
            beyond += 1
    return (
        d <= theta.shape[1] <= d + 1
        and theta.shape[0] >= 2
        and rows.size > 0
        and beyond == 0
    )


@reducing_piece
def _probabilities(z, p):
    """Write softmax(z) to p, and return the logarithm of the sum of the exponentials in two terms."""
    K = z.size
    top = z[0]
    # Subtracting the maximum keeps the exponentials from overflowing.
    for k in range(1, K):
        top = max(top, z[k])
    total = 0.0
    for k in range(K):
        p[k] = np.exp(z[k] - top)
        total += p[k]
    for k in range(K):
        p[k] /= total
    return np.log(total), top


@reducing_piece
def _loss_and_slopes(z, label, share, p):
    """Return the loss of a row, with the probabilities in p and its slopes by the scores in z."""
    log_total, top = _probabilities(z, p)
    loss = share * (log_total + (top - z[label]))
    for k in range(z.size):
        z[k] = share * (p[k] - (1.0 if k == label else 0.0))
    return loss


@reducing_piece
def _bends(p, share, z):
    """Write the curvatures of the classes to z."""
    K = p.size
    for k in range(K):
        z[k] = share * p[k] * (1.0 - p[k]) * K / (K - 1.0)


@reducing_piece
def _prior(prior, theta, d):
    """Return (prior / 2) |theta|^2 in float64, without intercepts."""
    total = 0.0
    for k in range(theta.shape[0]):
        for j in range(d):
            total += np.float64(theta[k, j]) * theta[k, j]
    return 0.5 * prior * total


@reducing_piece
def _finish(weight, prior, theta, d, g, h, out, diagonal):
    """Write the sums, scaled to all rows, with the prior."""
    # g and h are (K, D) here; the sparse kernel passes transposed views.
    K, D = theta.shape
    for k in range(K):
        for j in range(D):
            out[k, j] = weight * g[k, j] + (prior * theta[k, j] if j < d else 0.0)
    if diagonal.size:
        for k in range(K):
            for j in range(D):
                diagonal[k, j] = weight * h[k, j]


@reducing_piece
def _dense_scores(x, theta, d, z):
    """Write the scores of the classes in one row to z."""
    for k in range(z.size):
        own = theta[k]
        part = theta.dtype.type(0.0)
        for j in range(d):
            part += x[j] * own[j]
        z[k] = np.float64(part) + (np.float64(own[d]) if d < own.size else 0.0)


@reducing_kernel
def dense_sums(X, terms, theta, rows, out, diagonal, room):
    """Compute U, its gradient and, where there is room, the diagonal, as `dense_rows.sums` does.

    With an empty `out` only U is computed.  `room` is (g, h, z, p): g and h must be zeros like theta, and h may
    be empty without a diagonal.
    """
    y, weights, prior = terms
    g, h, z, p = room
    n, d = X.shape
    K, D = theta.shape
    if not _fits(n, d, y, theta, rows):
        return False, 0.0
    loss = 0.0
    for row in rows:
        x = X[row]
        share = weights[row] if weights.size else 1.0
        _dense_scores(x, theta, d, z)
        loss += _loss_and_slopes(z, int(y[row]), share, p)
        if out.size == 0:
            continue
        for k in range(K):
            own = g[k]
            for j in range(d):
                own[j] += z[k] * x[j]
            if d < D:
                own[d] += z[k]
        if diagonal.size:
            _bends(p, share, z)
            for k in range(K):
                own = h[k]
                for j in range(d):
                    own[j] += z[k] * x[j] * x[j]
                if d < D:
                    own[d] += z[k]
    if out.size:
        _finish(n / rows.size, prior, theta, d, g, h, out, diagonal)
    return True, _prior(prior, theta, d) + n / rows.size * loss


@reducing_piece
def _sparse_scores(indices, data, first, last, columns, d, z):
    """Write the scores of the classes in one row to z."""
    K = z.size
    for k in range(K):
        z[k] = columns[d, k] if d < columns.shape[0] else 0.0
    for q in range(first, last):
        entry = np.float64(data[q])
        own = columns[indices[q]]
        for k in range(K):
            z[k] += entry * own[k]


@reducing_piece
def _add_scaled(entry, z, out):
    """out += entry z, over the classes."""
    for k in range(z.size):
        out[k] += entry * z[k]


@reducing_piece
def _transpose(theta, columns):
    """Write theta to `columns` in float64, transposed."""
    for k in range(theta.shape[0]):
        for j in range(theta.shape[1]):
            columns[j, k] = theta[k, j]


@reducing_kernel
def sparse_sums(X, terms, theta, rows, out, diagonal, columns, room):
    """Compute the same as `dense_sums` over sparse rows; `columns` and g and h of `room` are transposed."""
    indptr, indices, data, d = X
    y, weights, prior = terms
    g, h, z, p = room
    n = indptr.size - 1
    D = theta.shape[1]
    if not _fits(n, d, y, theta, rows):
        return False, 0.0
    _transpose(theta, columns)
    loss = 0.0
    for row in rows:
        first, last = indptr[row], indptr[row + 1]
        share = weights[row] if weights.size else 1.0
        _sparse_scores(indices, data, first, last, columns, d, z)
        loss += _loss_and_slopes(z, int(y[row]), share, p)
        if out.size == 0:
            continue
        for q in range(first, last):
            _add_scaled(np.float64(data[q]), z, g[indices[q]])
        if d < D:
            _add_scaled(1.0, z, g[d])
        if diagonal.size:
            _bends(p, share, z)
            for q in range(first, last):
                _add_scaled(np.float64(data[q]) * data[q], z, h[indices[q]])
            if d < D:
                _add_scaled(1.0, z, h[d])
    if out.size:
        _finish(n / rows.size, prior, theta, d, g.T, h.T, out, diagonal)
    return True, _prior(prior, theta, d) + n / rows.size * loss


@reducing_piece
def _mean_bend(p):
    """Return the mean of the curvatures of the classes."""
    total = 0.0
    for k in range(p.size):
        # The mean over K classes of p (1 - p) K / (K - 1) is their sum over K - 1.
        total += p[k] * (1.0 - p[k])
    return total / (p.size - 1.0)


@reducing_kernel
def dense_moments(X, terms, theta, rows, S, x, wx, room):
    """Add the sum over rows of the mean curvature times x x' to the upper triangle of S, (D, D).

    `x` and `wx` must have room for CHUNK columns like a row of theta; `room` is (z, p).
    """
    weights = terms[1]
    z, p = room
    d = X.shape[1]
    D = theta.shape[1]
    for first in range(0, rows.size, CHUNK):
        count = min(CHUNK, rows.size - first)
        for r in range(count):
            row = rows[first + r]
            _dense_scores(X[row], theta, d, z)
            _probabilities(z, p)
            w = _mean_bend(p) * (weights[row] if weights.size else 1.0)
            for j in range(D):
                entry = X[row, j] if j < d else theta.dtype.type(1.0)
                x[j, r] = entry
                wx[j, r] = w * entry
        for j in range(D):
            # The last chunk may be short; zeros add nothing to the product.
            x[j, count:] = 0.0
            wx[j, count:] = 0.0
        add_gram(wx, x, S)


@reducing_kernel
def sparse_moments(X, terms, theta, rows, S, columns, room):
    """Compute the same as `dense_moments` over sparse rows; `columns` has room for theta, transposed."""
    indptr, indices, data, d = X
    weights = terms[1]
    z, p = room
    D = theta.shape[1]
    _transpose(theta, columns)
    for row in rows:
        first, last = indptr[row], indptr[row + 1]
        _sparse_scores(indices, data, first, last, columns, d, z)
        _probabilities(z, p)
        w = _mean_bend(p) * (weights[row] if weights.size else 1.0)
        for a in range(first, last):
            part = w * data[a]
            j = indices[a]
            for b in range(first, last):
                if indices[b] >= j:
                    S[j, indices[b]] += part * data[b]
            if d < D:
                S[j, d] += part
        if d < D:
            S[d, d] += w
