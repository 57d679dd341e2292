"""L-BFGS products from inner products: H v for two vectors with two passes over the memory, and draws from
N(0, H).

With the pairs (s_i, y_i) in order of age, R_ij = s_i'y_j for i <= j (else 0), D = diag(s_i'y_i)
and H0 diagonal, the BFGS matrix is (Byrd, Nocedal, Schnabel 1994)

    H = H0 + [S  H0 Y] N [S  H0 Y]',   N = [ R^-T (D + Y'H0 Y) R^-1   -R^-T ]
                                           [ -R^-1                      0   ]

so H v needs the 2M inner products [S  H0 Y]'v, one small product with N, and one combination.
N changes only when a pair is added: `kernels.pairs` computes it then.  Pairs are stored in ring slots, in any
order.

For scalar H0 = c I the second half of the memory holds Y, and N contains c.  For a diagonal H0 it holds H0 Y,
and `diagonal` is not empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.jit import reducing_kernel, reducing_piece
from asyncqn.kernels.numba_internals import stack_array
from asyncqn.kernels.random import BLOCK, NOISE, normals_block
from asyncqn.kernels.vectors import dot

TILE = 16 * BLOCK
"""Elements processed at a time: few enough for the first-level cache, and a multiple of BLOCK.

Inside a tile every loop runs over slices from 0 and over few arrays, so the compiler can prove that indices
are in range and that arrays do not overlap, and vectorises the loop.
"""


@reducing_piece
def _dots(s, y, u, g):
    """Return s'u, s'g, y'u and y'g."""
    su = sg = yu = yg = s.dtype.type(0)
    for i in range(s.size):
        su += s[i] * u[i]
        sg += s[i] * g[i]
        yu += y[i] * u[i]
        yg += y[i] * g[i]
    return su, sg, yu, yg


@reducing_piece
def two_dots(s, y, v):
    """Return s'v and y'v."""
    sv = yv = s.dtype.type(0)
    for i in range(s.size):
        sv += s[i] * v[i]
        yv += y[i] * v[i]
    return sv, yv


@reducing_piece
def combine(out, a, v, b, w):
    """out = a v + b w."""
    for i in range(out.size):
        out[i] = a * v[i] + b * w[i]


@reducing_piece
def _add_pair_of(out, a, s, b, y):
    """out += a s + b y."""
    for i in range(out.size):
        out[i] += a * s[i] + b * y[i]


@reducing_piece
def _add_memory(out, memory, c, weight, lo, hi):
    """out += weight (S c[:m] + Y c[m:]) over lo..hi."""
    m = memory.shape[1]
    kind = memory.dtype.type
    for j in range(m):
        a, b = kind(weight * c[j]), kind(weight * c[m + j])
        _add_pair_of(out, a, memory[0, j, lo:hi], b, memory[1, j, lo:hi])


@reducing_piece
def _add_dots(p, memory, u, g, lo, hi):
    """p += [S Y]'u and, in its second half, [S Y]'g over lo..hi.

    Three pairs at a time would load u and g less often, but take a second longer to compile.
    """
    m = memory.shape[1]
    for j in range(m):
        su, sg, yu, yg = _dots(
            memory[0, j, lo:hi], memory[1, j, lo:hi], u[lo:hi], g[lo:hi]
        )
        p[j] += su
        p[m + j] += yu
        p[2 * m + j] += sg
        p[3 * m + j] += yg


@reducing_piece
def _combine_in_place(out, a, b, w):
    """out = a out + b w; `combine` with out among its vectors could not be vectorised."""
    for i in range(out.size):
        out[i] = a * out[i] + b * w[i]


@reducing_piece
def _scale(out, a, v):
    """out = a v."""
    for i in range(out.size):
        out[i] = a * v[i]


@reducing_piece
def scale_by(out, diagonal, rho, v):
    """out = (diagonal + rho) v."""
    for i in range(out.size):
        out[i] = (diagonal[i] + rho) * v[i]


@reducing_piece
def _scale_in_place(out, diagonal, rho):
    """out = (diagonal + rho) out."""
    for i in range(out.size):
        out[i] *= diagonal[i] + rho


@reducing_piece
def _add_noise(out, noise, z):
    """out += noise z."""
    for i in range(out.size):
        out[i] += out.dtype.type(noise * z[i])


class Langevin(NamedTuple):
    """The numbers in the equations of `langevin_update`."""

    rho: float
    h: float
    gamma: float
    noise: float


@reducing_kernel
def langevin_update(H, numbers, u, g_O, g_S, share, stream, update, work):
    """Compute equations (6) and (7) of the paper in two passes over the memory.

    d_theta = (H + rho I) u,  d_u = -h (H + rho I) g - gamma u + noise Z,  g = share g_O + (1 - share) g_S.
    `H` is the memory, `stream` is (seed, worker, step), which determine Z, and `update` is (d_theta, d_u).
    From Python these and `numbers` are plain tuples, because numba needs longer to recognise a named tuple
    than for a small update.  `work` must have room for 8 numbers per pair.
    """
    memory, _gram, middle, scales, diagonal, _ring = H
    scale = scales[0]
    rho, h, gamma, noise = numbers
    w_O, w_S = share, 1.0 - share
    seed, worker, k = stream
    d_theta, d_u = update
    d, m = u.size, memory.shape[1]
    kind = memory.dtype.type
    g = d_u  # the blended gradient is stored where its update will be written
    for i in range(8 * m):
        work[i] = 0.0
    # p holds S'u, Y'u, S'g and Y'g, one number per ring slot, and c holds N times these.  Empty slots have
    # zero rows in N, so whatever they contain is multiplied by 0.
    p, c, z = work[: 4 * m], work[4 * m : 8 * m], stack_array(BLOCK, 0.0)
    for lo in range(0, d, TILE):
        hi = min(lo + TILE, d)
        # The gradient of the whole subsample from those of O and S (Algorithm 2 of the paper).
        combine(g[lo:hi], kind(w_O), g_O[lo:hi], kind(w_S), g_S[lo:hi])
        _add_dots(p, memory, u, g, lo, hi)
    # The small product with N, once for u and once for g.
    for r in range(2):
        first = 2 * m * r
        for i in range(2 * m):
            for j in range(2 * m):
                c[first + i] += middle[i, j] * p[first + j]
    for lo in range(0, d, TILE):
        hi = min(lo + TILE, d)
        # (H0 + rho I) first, then the pairs on top of it.
        x, v, u_ = d_theta[lo:hi], d_u[lo:hi], u[lo:hi]
        if diagonal.size:
            scale_by(x, diagonal[lo:hi], kind(rho), u_)
            _scale_in_place(v, diagonal[lo:hi], kind(rho))
            # v is still (H0 + rho I) g here.
            _combine_in_place(v, kind(-h), kind(-gamma), u_)
        else:
            _scale(x, kind(scale + rho), u_)
            _combine_in_place(v, kind(-h * (scale + rho)), kind(-gamma), u_)
        _add_memory(x, memory, c[: 2 * m], 1.0, lo, hi)
        _add_memory(v, memory, c[2 * m :], -h, lo, hi)
        if noise > 0.0:
            # sqrt(2 h gamma / beta) Z of equation (6), drawn where it is added: Z is never stored as a whole.
            # A tile begins at a multiple of BLOCK, so the bits do not depend on the size of a tile.
            for first in range(lo, hi, BLOCK):
                normals_block(
                    z, first, seed, k, worker, np.int64(NOISE)
                )  # not a literal
                part = d_u[first : min(first + BLOCK, hi)]
                _add_noise(part, noise, z)


@reducing_kernel
def product(memory, middle, scale, diagonal, v, out, work):
    """out = H v for one vector; `work` must have room for 4 numbers per pair."""
    d, m = v.size, memory.shape[1]
    kind = memory.dtype.type
    for i in range(4 * m):
        work[i] = 0.0
    # p holds S'v and Y'v, and c holds N p.
    p, c = work[: 2 * m], work[2 * m : 4 * m]
    for lo in range(0, d, TILE):
        hi = min(lo + TILE, d)
        for j in range(m):
            sv, yv = two_dots(memory[0, j, lo:hi], memory[1, j, lo:hi], v[lo:hi])
            p[j] += sv
            p[m + j] += yv
    for i in range(2 * m):
        for j in range(2 * m):
            c[i] += middle[i, j] * p[j]
    for lo in range(0, d, TILE):
        hi = min(lo + TILE, d)
        if diagonal.size:
            scale_by(out[lo:hi], diagonal[lo:hi], kind(0), v[lo:hi])
        else:
            _scale(out[lo:hi], kind(scale), v[lo:hi])
        _add_memory(out[lo:hi], memory, c, 1.0, lo, hi)


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
        # s'y of the pair, which admission made positive.
        rho = 1.0 / gram[0, slot, slot]
        c = kind(np.sqrt(rho) * zeta[slot] - rho * dot(y, x))
        for i in range(x.size):
            x[i] += c * s[i]
