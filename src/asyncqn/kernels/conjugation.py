"""Curvature pairs made conjugate to those in memory, where the objective is nearly quadratic."""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.jit import reducing_kernel
from asyncqn.kernels.vectors import dot


@reducing_kernel
def conjugate(memory, products, s, y, tolerance, least):
    """Take from (s, y) its part along the stored pairs, in place, if they nearly fit one quadratic.

    s <- s - sum_i s_i (y_i's)/(s_i'y_i),   y <- y - sum_i y_i (s_i'y)/(s_i'y_i)

    For a quadratic s_i'y = y_i's.  The pair stays as it is when any |s_i'y - y_i's| exceeds
    tolerance * sqrt(s_i'y_i * s'y), or when less than the share `least` of s'y would be left, which
    rounding would drown.  products: s_i'y_i of every slot, 0 where it is empty.
    Returns whether it was changed.
    """
    m = memory.shape[1]
    sy = dot(s, y)
    if not sy > 0.0:
        return False
    along_s, along_y = np.zeros(m), np.zeros(m)
    left = sy
    for i in range(m):
        own = products[i]
        if not own > 0.0:
            continue
        a, b = dot(memory[1, i], s), dot(memory[0, i], y)
        if not abs(a - b) <= tolerance * np.sqrt(own * sy):
            return False
        along_s[i], along_y[i] = a / own, b / own
        left -= a * b / own
    if not left >= least * sy:
        return False
    kind = memory.dtype.type
    for i in range(m):
        a, b = kind(along_s[i]), kind(along_y[i])
        if a != 0.0 or b != 0.0:
            for j in range(s.size):
                s[j] -= a * memory[0, i, j]
                y[j] -= b * memory[1, i, j]
    return True
