"""Kernels of a chart: a map of R^d in which some coordinates shift and scale others.

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
        i = int(chart[e, 0])
        if i < 0:
            break
        k = int(chart[e, 1])
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
    scale = work[1]
    inner = work[2]
    d = z.size
    for e in range(d, chart.shape[0]):
        i = int(chart[e, 0])
        if i < 0:
            break
        k = int(chart[e, 1])
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
