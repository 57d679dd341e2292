"""Draws from N(0, H) for the L-BFGS matrix H, in O(M d)."""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.jit import reducing_kernel
from asyncqn.kernels.vectors import dot


@reducing_kernel
def correlate(memory, gram, count, newest, scale, zeta, x):
    """Turn x ~ N(0, I) into a draw from N(0, H), H0 = scale I, with zeta ~ N(0, I) of one entry per slot.

    x <- sqrt(scale) x; then, oldest pair first, with rho = 1/(s'y),

        x <- x - rho s (y'x) + sqrt(rho) zeta s

    which takes a covariance C to (I - rho s y') C (I - rho y s') + rho s s', the BFGS recursion.
    """
    kind = memory.dtype.type
    root = kind(np.sqrt(scale))
    for i in range(x.size):
        x[i] *= root
    m = memory.shape[1]
    for a in range(count):
        slot = (newest - (count - 1) + a) % m
        s, y = memory[0, slot], memory[1, slot]
        rho = 1.0 / gram[0, slot, slot]
        c = kind(np.sqrt(rho) * zeta[slot] - rho * dot(y, x))
        for i in range(x.size):
            x[i] += c * s[i]
