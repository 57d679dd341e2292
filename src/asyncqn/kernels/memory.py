"""L-BFGS products from inner products: H v for two vectors in one pass over the memory.

With the pairs (s_i, y_i) in order of age, R_ij = s_i'y_j for i <= j (else 0), D = diag(s_i'y_i)
and H0 diagonal, the BFGS matrix is (Byrd, Nocedal, Schnabel 1994)

    H = H0 + [S  H0 Y] N [S  H0 Y]',   N = [ R^-T (D + Y'H0 Y) R^-1   -R^-T ]
                                           [ -R^-1                      0   ]

so H v needs the 2M inner products [S  H0 Y]'v, one small product with N, and one combination.
N changes only when a pair is added: `factor` computes it then.  Pairs live in ring slots in any
order; only `factor` looks at their age.

For scalar H0 = c I the second half of the memory holds Y and c is folded into N; for a diagonal
H0 it holds H0 Y, and `diagonal` is not empty.
"""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.jit import reducing_kernel
from asyncqn.kernels.random import BLOCK, NOISE, normals_block

_TILE = 4 * BLOCK
"""Elements worked on at a time: small enough for the first-level cache, a multiple of BLOCK."""


@reducing_kernel
def inner_products(memory, u, g, p, lo, hi):
    """Add to p[0], p[1] the inner products of the memory's rows with u and g over lo..hi."""
    for j in range(memory.shape[1]):
        s, y = memory[0, j], memory[1, j]
        su = sg = yu = yg = memory.dtype.type(0)
        for i in range(lo, hi):
            su += s[i] * u[i]
            sg += s[i] * g[i]
            yu += y[i] * u[i]
            yg += y[i] * g[i]
        m = memory.shape[1] + j
        p[0, j] += su
        p[1, j] += sg
        p[0, m] += yu
        p[1, m] += yg


@reducing_kernel
def langevin_update(
    memory,
    middle,
    scale,
    diagonal,
    rho,
    u,
    g_O,
    g_S,
    w_O,
    w_S,
    h,
    gamma,
    noise,
    seed,
    k,
    worker,
    d_theta,
    d_u,
):
    """Equations (5) and (6) of the paper in two passes over the memory.

    g = w_O g_O + w_S g_S; d_theta = (H + rho I) u; d_u = -h (H + rho I) g - gamma u + noise Z.
    """
    d, m = u.size, memory.shape[1]
    kind = memory.dtype.type
    g = d_u  # the blended gradient rests where its update will be written
    p = np.zeros((2, 2 * m))
    for lo in range(0, d, _TILE):
        hi = min(lo + _TILE, d)
        for i in range(lo, hi):
            g[i] = kind(w_O) * g_O[i] + kind(w_S) * g_S[i]
        inner_products(memory, u, g, p, lo, hi)
    c = np.zeros((2, 2 * m))
    for r in range(2):
        for i in range(2 * m):
            for j in range(2 * m):
                c[r, i] += middle[i, j] * p[r, j]
    z = np.zeros(BLOCK)
    for lo in range(0, d, _TILE):
        hi = min(lo + _TILE, d)
        if diagonal.size:
            for i in range(lo, hi):
                a = diagonal[i] + kind(rho)
                d_theta[i] = a * u[i]
                d_u[i] = a * g[i]
        else:
            a = kind(scale + rho)
            for i in range(lo, hi):
                d_theta[i] = a * u[i]
                d_u[i] = a * g[i]
        for j in range(m):
            s, y = memory[0, j], memory[1, j]
            su, sg, yu, yg = kind(c[0, j]), kind(c[1, j]), kind(c[0, m + j]), kind(c[1, m + j])
            for i in range(lo, hi):
                d_theta[i] += su * s[i] + yu * y[i]
                d_u[i] += sg * s[i] + yg * y[i]
        for i in range(lo, hi):
            d_u[i] = -kind(h) * d_u[i] - kind(gamma) * u[i]
        if noise > 0.0:
            for first in range(lo, hi, BLOCK):
                normals_block(z, first, seed, k, worker, NOISE)
                for i in range(min(BLOCK, hi - first)):
                    d_u[first + i] += kind(noise * z[i])


@reducing_kernel
def product(memory, middle, scale, diagonal, v, out):
    """out = H v for one vector."""
    d, m = v.size, memory.shape[1]
    kind = memory.dtype.type
    p = np.zeros(2 * m)
    for lo in range(0, d, _TILE):
        hi = min(lo + _TILE, d)
        for j in range(m):
            s, y = memory[0, j], memory[1, j]
            sv = yv = kind(0)
            for i in range(lo, hi):
                sv += s[i] * v[i]
                yv += y[i] * v[i]
            p[j] += sv
            p[m + j] += yv
    for lo in range(0, d, _TILE):
        hi = min(lo + _TILE, d)
        if diagonal.size:
            for i in range(lo, hi):
                out[i] = diagonal[i] * v[i]
        else:
            for i in range(lo, hi):
                out[i] = kind(scale) * v[i]
        for j in range(m):
            s, y = memory[0, j], memory[1, j]
            a = b = 0.0
            for i in range(2 * m):
                a += middle[j, i] * p[i]
                b += middle[m + j, i] * p[i]
            a_, b_ = kind(a), kind(b)
            for i in range(lo, hi):
                out[i] += a_ * s[i] + b_ * y[i]


@reducing_kernel
def pair_products(theta, theta_old, g, g_old):
    """(s's, s'y, y'y) of s = theta - theta_old, y = g - g_old, without storing either."""
    ss = sy = yy = 0.0
    for lo in range(0, theta.size, _TILE):
        a = b = c = theta.dtype.type(0)
        for i in range(lo, min(lo + _TILE, theta.size)):
            s = theta[i] - theta_old[i]
            y = g[i] - g_old[i]
            a += s * s
            b += s * y
            c += y * y
        ss += a
        sy += b
        yy += c
    return ss, sy, yy


@reducing_kernel
def add_pair(memory, gram, slot, theta, theta_old, g, g_old, diagonal):
    """Write the pair into ring slot `slot` and renew its row and column of the Gram matrices.

    gram[0, i, j] = s_i'y_j for i not younger than j (the only entries that R needs);
    gram[1, i, j] = y_i'H0 y_j, with H0 = I unless a diagonal is given.
    """
    m, d = memory.shape[1], theta.size
    s, y = memory[0, slot], memory[1, slot]
    for j in range(m):
        gram[0, j, slot] = 0.0
        gram[1, j, slot] = 0.0
    for lo in range(0, d, _TILE):
        hi = min(lo + _TILE, d)
        for i in range(lo, hi):
            s[i] = theta[i] - theta_old[i]
            y[i] = g[i] - g_old[i]
        # y is still the raw difference of gradients here; the others' second halves are H0 y.
        for j in range(m):
            sj, yj = memory[0, j], memory[1, j]
            sy = yy = theta.dtype.type(0)
            for i in range(lo, hi):
                sy += sj[i] * y[i]
                yy += yj[i] * y[i]
            gram[0, j, slot] += sy
            if j != slot:
                gram[1, j, slot] += yy
        own = theta.dtype.type(0)
        if diagonal.size:
            for i in range(lo, hi):
                raw = y[i]
                y[i] = diagonal[i] * raw
                own += raw * y[i]
        else:
            for i in range(lo, hi):
                own += y[i] * y[i]
        gram[1, slot, slot] += own
    for j in range(m):
        gram[1, slot, j] = gram[1, j, slot]


@reducing_kernel
def factor(gram, count, newest, scale, middle):
    """Renew the small matrix N, in ring order, from the Gram matrices (scale: c, or 1 with a diagonal)."""
    m = gram.shape[1]
    middle[:] = 0.0
    slot = np.empty(count, np.int64)
    for a in range(count):  # a = 0 is the oldest
        slot[a] = (newest - (count - 1) + a) % m
    inverse = np.zeros((count, count))  # R^-1, upper triangular
    for j in range(count):
        diag = gram[0, slot[j], slot[j]]
        inverse[j, j] = 1.0 / diag
        for i in range(j):
            total = 0.0
            for q in range(i, j):
                total += inverse[i, q] * gram[0, slot[q], slot[j]]
            inverse[i, j] = -total / diag
    for a in range(count):
        for b in range(count):
            total = 0.0  # (R^-T (D + scale Y'Y) R^-1)_ab
            for i in range(a + 1):
                for j in range(b + 1):
                    entry = scale * gram[1, slot[i], slot[j]]
                    if i == j:
                        entry += gram[0, slot[i], slot[i]]
                    total += inverse[i, a] * entry * inverse[j, b]
            middle[slot[a], slot[b]] = total
            middle[slot[a], m + slot[b]] = -scale * inverse[b, a]
            middle[m + slot[a], slot[b]] = -scale * inverse[a, b]
