"""Kernels of a chart: a map of R^d in which some coordinates shift and scale others, and its maximum likelihood.

A chart is an array of rows of six numbers.  Row i of the first d is (c, c', kind, centre, width, 0): two constants and
the kind of the shift of coordinate i, and the centre and the width by which it is measured as a pivot.  Every later
row is an edge (child, pivot, a, a', s, t).  The child of an unused row is -1.  No pivot is a child.  With
v = (x_pivot - centre) / width and sums over the edges of a child,

    log scale = sum s v + t (sqrt(1 + v^2) - 1),        shift = c + sum a v + second,

    second = 0 (PLAIN),  sum a' v^2 (BEND)  or  scale^2 (c' + sum a' v) (NECK).
"""

import math

from asyncqn.kernels.jit import kernel, strict_piece

PLAIN, BEND, NECK = 0.0, 1.0, 2.0
MOST_LOG_SCALE = 30.0
"""Logarithms of scales are cut off here, so that a trajectory that runs away does not overflow."""
FREEDOM = 5.0
"""Degrees of freedom of the Student-t residuals of a fit, so that a few draws do not decide it."""

SWEEPS = 15
"""Turns of least squares and scoring in a fit."""


@strict_piece
def _shifts(chart, x, work):
    """Write shifts, scales and c' + sum a' v of all coordinates; return the sum of the scales' logarithms."""
    shift = work[0]
    scale = work[1]
    inner = work[2]
    d = x.size
    for i in range(d):
        shift[i] = chart[i, 0]
        inner[i] = chart[i, 1]
        scale[i] = 0.0
    for e in range(d, chart.shape[0]):
        i, k = int(chart[e, 0]), int(chart[e, 1])
        if i < 0:
            break
        v = (x[k] - chart[k, 3]) / chart[k, 4]
        shift[i] += chart[e, 2] * v
        if chart[i, 2] == BEND:
            shift[i] += chart[e, 3] * v * v
        inner[i] += chart[e, 3] * v
        scale[i] += chart[e, 4] * v + chart[e, 5] * (math.sqrt(1.0 + v * v) - 1.0)
    total = 0.0
    for i in range(d):
        bounded = min(max(scale[i], -MOST_LOG_SCALE), MOST_LOG_SCALE)
        total += bounded
        scale[i] = math.exp(bounded)
        if chart[i, 2] == NECK:
            shift[i] += scale[i] * scale[i] * inner[i]
    return total


@kernel
def unfold(chart, z, x, work):
    """Write x(z), with its shifts and scales; return log |dx/dz|."""
    total = _shifts(chart, z, work)
    for i in range(z.size):
        x[i] = work[0, i] + work[1, i] * z[i]
    return total


@kernel
def fold(chart, x, z, work):
    """Write z(x), with its shifts and scales; return log |dx/dz|."""
    # A pivot has neither shift nor scale, so that both are functions of x as of z.
    total = _shifts(chart, x, work)
    for i in range(x.size):
        z[i] = (x[i] - work[0, i]) / work[1, i]
    return total


@kernel
def pull_back(chart, z, work, g):
    """Turn the gradient of U at x(z) into that of U(x(z)) - log |dx/dz| at z; `work` is from the map."""
    scale, inner = work[1], work[2]
    d = z.size
    for e in range(d, chart.shape[0]):
        i, k = int(chart[e, 0]), int(chart[e, 1])
        if i < 0:
            break
        v = (z[k] - chart[k, 3]) / chart[k, 4]
        slope = chart[e, 4] + chart[e, 5] * v / math.sqrt(1.0 + v * v)
        if abs(math.log(scale[i])) >= MOST_LOG_SCALE:
            slope = 0.0
        shift = chart[e, 2]
        if chart[i, 2] == BEND:
            shift += 2.0 * chart[e, 3] * v
        elif chart[i, 2] == NECK:
            shift += scale[i] * scale[i] * (chart[e, 3] + 2.0 * inner[i] * slope)
        g[k] += (g[i] * (shift + scale[i] * z[i] * slope) - slope) / chart[k, 4]
    for i in range(d):
        g[i] *= scale[i]


@strict_piece
def _solve(A, b, m):
    """Solve the positive definite system A x = b of m equations in place, by elimination."""
    for p in range(m):
        # A little ridge, for features that depend on each other.
        A[p, p] += 1e-8 * A[p, p] + 1e-12
        for q in range(p + 1, m):
            ratio = A[q, p] / A[p, p]
            for r in range(p, m):
                A[q, r] -= ratio * A[p, r]
            b[q] -= ratio * b[p]
    for p in range(m - 1, -1, -1):
        for r in range(p + 1, m):
            b[p] -= A[p, r] * b[r]
        b[p] /= A[p, p]


@strict_piece
def _features(v, m, kind, square, mean, spread):
    """Write the features of shift and log scale where the pivots are v; `square` is the square of the scale."""
    mean[0] = 1.0
    spread[0] = 1.0
    for k in range(m):
        mean[1 + k] = v[k]
        if kind == BEND:
            mean[1 + m + k] = v[k] * v[k]
        elif kind == NECK:
            mean[1 + m + k] = v[k] * square
        spread[1 + k] = v[k]
        spread[1 + m + k] = math.sqrt(1.0 + v[k] * v[k]) - 1.0
    if kind == NECK:
        mean[1 + 2 * m] = square


@strict_piece
def _dot(a, b, n):
    total = 0.0
    for k in range(n):
        total += a[k] * b[k]
    return total


@strict_piece
def _clear(A, b):
    for j in range(b.size):
        b[j] = 0.0
        for k in range(b.size):
            A[j, k] = 0.0


@strict_piece
def _add(A, b, f, m, weight, y):
    """Add a row f, with its weight, to normal equations."""
    for j in range(m):
        b[j] += weight * f[j] * y
        for k in range(m):
            A[j, k] += weight * f[j] * f[k]


@kernel
def fit_child(y, g, V, kind, work, shift, scale, out):
    """Fit the law of y = shift'f + exp(scale'h) t given pivots V (rows); return a loss of t and one of gradients.

    f and h are the features of the child's kind, and g is the derivative of U by y.  Whatever the law is, given the
    pivots E g = 0, and where t is normal y - exp(2 scale'h) g is the shift itself: regression on that has no noise.
    The scale makes (y - shift) / scale as large as scale g.  The first loss is that of Student's law for t; the
    second is the mean square of t - scale g.  out: rows t, t - scale g and log scale.
    """
    n, m = V.shape
    p, q = shift.size, scale.size
    mean = work[0]
    spread = work[1]
    b = work[2]
    A = work[3:]
    r = out[0]
    away = out[1]
    log_scale = out[2]
    for j in range(q):
        scale[j] = 0.0
    for t in range(n):
        log_scale[t] = 0.0
        r[t] = y[t]
    loss = divergence = 0.0
    for _ in range(SWEEPS):
        _clear(A, b)
        for t in range(n):
            square = math.exp(2.0 * log_scale[t])
            _features(V[t], m, kind, square * math.exp(-2.0 * scale[0]), mean, spread)
            share = 1.0 / (FREEDOM + r[t] * r[t])
            _add(A, b, mean, p, share / square, y[t] - square * g[t])
        _solve(A, b, p)
        for j in range(p):
            shift[j] = b[j]
        _clear(A, b)
        for t in range(n):
            square = math.exp(2.0 * (log_scale[t] - scale[0]))
            _features(V[t], m, kind, square, mean, spread)
            r[t] = (y[t] - _dot(shift, mean, p)) * math.exp(-log_scale[t])
            other = g[t] * math.exp(log_scale[t])
            both = r[t] * r[t] + other * other + 1e-300
            excess = 0.5 * (r[t] * r[t] - other * other) / both
            _add(A, b, spread, q, both / (2.0 * FREEDOM + both), excess)
        _solve(A, b, q)
        for j in range(q):
            scale[j] += min(max(b[j], -0.5), 0.5)
        loss = divergence = 0.0
        for t in range(n):
            _features(V[t], m, kind, 0.0, mean, spread)
            before = log_scale[t]
            after = _dot(scale, spread, q)
            log_scale[t] = min(max(after, -MOST_LOG_SCALE), MOST_LOG_SCALE)
            r[t] *= math.exp(before - log_scale[t])
            loss += 0.5 * (FREEDOM + 1.0) * math.log1p(r[t] * r[t] / FREEDOM)
            loss += log_scale[t]
            away[t] = r[t] - g[t] * math.exp(log_scale[t])
            divergence += away[t] * away[t] / (1.0 + r[t] * r[t] / FREEDOM)
    return loss / n, divergence / n
