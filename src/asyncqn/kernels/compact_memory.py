"""The compact form of an L-BFGS memory: H v for two vectors with two passes over the pairs.

With the pairs (s_i, y_i) in order of age, R_ij = s_i'y_j for i <= j (else 0), D = diag(s_i'y_i)
and H0 diagonal, the BFGS matrix is (Byrd, Nocedal, Schnabel 1994)

    H = H0 + [S  H0 Y] N [S  H0 Y]',   N = [ R^-T (D + Y'H0 Y) R^-1   -R^-T ]
                                           [ -R^-1                      0   ]

so H v needs the 2M inner products [S  H0 Y]'v, one small product with N, and one combination.  N changes only
when a pair is added.  Pairs are stored in the slots of a ring, in any order; only `factor` needs their age.

For scalar H0 = c I the second half of the memory holds Y, and N contains c.  For a diagonal H0 it holds H0 Y,
and `diagonal` is not empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.jit import reducing_kernel, reducing_piece, strict_piece
from asyncqn.kernels.numba_internals import stack_array
from asyncqn.kernels.random import BLOCK, NOISE, normals_block

COUNT, NEWEST, ACCEPTED, REJECTED = range(4)
"""Entries of a ring: pairs stored, the slot of the newest, and the totals of admitted and rejected pairs."""
TILE = 16 * BLOCK
"""Elements processed at a time: few enough for the first-level cache, and a multiple of BLOCK.

Inside a tile every loop runs over slices from 0 and over few arrays, so the compiler can prove that indices
are in range and that arrays do not overlap, and vectorises the loop.
"""


# Pieces: loops over one tile.


@reducing_piece
def _four_dots(s, y, u, g):
    """Return s'u, s'g, y'u and y'g."""
    su = sg = yu = yg = s.dtype.type(0)
    for i in range(s.size):
        su += s[i] * u[i]
        sg += s[i] * g[i]
        yu += y[i] * u[i]
        yg += y[i] * g[i]
    return su, sg, yu, yg


@reducing_piece
def _two_dots(s, y, v):
    """Return s'v and y'v."""
    sv = yv = s.dtype.type(0)
    for i in range(s.size):
        sv += s[i] * v[i]
        yv += y[i] * v[i]
    return sv, yv


@reducing_piece
def _combine(out, a, v, b, w):
    """out = a v + b w."""
    for i in range(out.size):
        out[i] = a * v[i] + b * w[i]


@reducing_piece
def _combine_in_place(out, a, b, w):
    """out = a out + b w; `_combine` with out among its vectors could not be vectorised."""
    for i in range(out.size):
        out[i] = a * out[i] + b * w[i]


@reducing_piece
def _scale(out, a, v):
    """out = a v."""
    for i in range(out.size):
        out[i] = a * v[i]


@reducing_piece
def _scale_by(out, diagonal, rho, v):
    """out = (diagonal + rho) v."""
    for i in range(out.size):
        out[i] = (diagonal[i] + rho) * v[i]


@reducing_piece
def _scale_in_place(out, diagonal, rho):
    """out = (diagonal + rho) out."""
    for i in range(out.size):
        out[i] *= diagonal[i] + rho


@reducing_piece
def _scale_and_dot(y, diagonal):
    """Replace y by H0 y, and return y'H0 y of the old y."""
    own = y.dtype.type(0)
    for i in range(y.size):
        scaled = diagonal[i] * y[i]
        own += scaled * y[i]
        y[i] = scaled
    return own


@reducing_piece
def _add_noise(out, noise, z):
    """out += noise z."""
    for i in range(out.size):
        out[i] += out.dtype.type(noise * z[i])


@reducing_piece
def _add_pair_of(out, a, s, b, y):
    """out += a s + b y."""
    for i in range(out.size):
        out[i] += a * s[i] + b * y[i]


@reducing_piece
def _difference_products(theta, theta_old, g, g_old):
    """Return (s's, s'y, y'y) of one tile."""
    ss = sy = yy = theta.dtype.type(0)
    for i in range(theta.size):
        s = theta[i] - theta_old[i]
        y = g[i] - g_old[i]
        ss += s * s
        sy += s * y
        yy += y * y
    return ss, sy, yy


# Products with H


@reducing_piece
def _add_memory(out, memory, c, weight, lo, hi):
    """out += weight (S c[:m] + Y c[m:]) over lo..hi."""
    m = memory.shape[1]
    kind = memory.dtype.type
    for j in range(m):
        a = kind(weight * c[j])
        b = kind(weight * c[m + j])
        _add_pair_of(out, a, memory[0, j, lo:hi], b, memory[1, j, lo:hi])


@reducing_piece
def _add_dots(p, memory, u, g, lo, hi):
    """p += [S Y]'u and, in its second half, [S Y]'g over lo..hi.

    Three pairs at a time would load u and g less often, but take a second longer to compile.
    """
    m = memory.shape[1]
    for j in range(m):
        s = memory[0, j, lo:hi]
        y = memory[1, j, lo:hi]
        su, sg, yu, yg = _four_dots(s, y, u[lo:hi], g[lo:hi])
        p[j] += su
        p[m + j] += yu
        p[2 * m + j] += sg
        p[3 * m + j] += yg


class Langevin(NamedTuple):
    """The numbers in the equations of `langevin_update`."""

    rho: float
    h: float
    gamma: float
    noise: float
    share: float
    """The share of the rows O in Omega, N_O / N_Omega."""


@reducing_kernel
def langevin_update(H, numbers, u, g_O, g_S, stream, update, work):
    """Compute equations (6) and (7) of the paper in two passes over the memory.

    d_theta = (H + rho I) u,  d_u = -h (H + rho I) g - gamma u + noise Z,  g = share g_O + (1 - share) g_S.
    `H` is the memory, `stream` is (seed, worker, step), which determine Z, and `update` is (d_theta, d_u).
    From Python these and `numbers` are plain tuples, because numba needs longer to recognise a named tuple
    than for a small update.  `work` must have room for 8 numbers per pair.
    """
    memory, _gram, middle, scales, diagonal, _ring = H
    rho, h, gamma, noise, share = numbers
    seed, worker, k = stream
    d_theta, d_u = update
    scale = scales[0]
    d = u.size
    m = memory.shape[1]
    kind = memory.dtype.type
    g = d_u  # the blended gradient is stored where its update will be written
    for i in range(8 * m):
        work[i] = 0.0
    # p holds S'u, Y'u, S'g and Y'g, one number per ring slot, and c holds N times these.  Empty slots have
    # zero rows in N, so whatever they contain is multiplied by 0.
    p = work[: 4 * m]
    c = work[4 * m : 8 * m]
    z = stack_array(BLOCK, 0.0)
    for lo in range(0, d, TILE):
        hi = min(lo + TILE, d)
        # The gradient of the whole subsample from those of O and S (Algorithm 2 of the paper).
        _combine(g[lo:hi], kind(share), g_O[lo:hi], kind(1.0 - share), g_S[lo:hi])
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
        x = d_theta[lo:hi]
        v = d_u[lo:hi]
        u_ = u[lo:hi]
        if diagonal.size:
            _scale_by(x, diagonal[lo:hi], kind(rho), u_)
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
                # The purpose is no literal, so that one compiled copy serves all.
                normals_block(z, first, seed, k, worker, np.int64(NOISE))
                _add_noise(d_u[first : min(first + BLOCK, hi)], noise, z)


@reducing_kernel
def product(memory, middle, scale, diagonal, v, out, work):
    """out = H v for one vector; `work` must have room for 4 numbers per pair."""
    d = v.size
    m = memory.shape[1]
    kind = memory.dtype.type
    for i in range(4 * m):
        work[i] = 0.0
    # p holds S'v and Y'v, and c holds N p.
    p = work[: 2 * m]
    c = work[2 * m : 4 * m]
    for lo in range(0, d, TILE):
        hi = min(lo + TILE, d)
        for j in range(m):
            sv, yv = _two_dots(memory[0, j, lo:hi], memory[1, j, lo:hi], v[lo:hi])
            p[j] += sv
            p[m + j] += yv
    for i in range(2 * m):
        for j in range(2 * m):
            c[i] += middle[i, j] * p[j]
    for lo in range(0, d, TILE):
        hi = min(lo + TILE, d)
        if diagonal.size:
            _scale_by(out[lo:hi], diagonal[lo:hi], kind(0), v[lo:hi])
        else:
            _scale(out[lo:hi], kind(scale), v[lo:hi])
        _add_memory(out[lo:hi], memory, c, 1.0, lo, hi)


# Admission of pairs


@reducing_piece
def pair_products(theta, theta_old, g, g_old):
    """Return (s's, s'y, y'y) of s = theta - theta_old, y = g - g_old, without storing either."""
    # float64 totals of tiles that are summed in the precision of theta.
    ss = sy = yy = 0.0
    for lo in range(0, theta.size, TILE):
        hi = min(lo + TILE, theta.size)
        a, b, c = _difference_products(
            theta[lo:hi], theta_old[lo:hi], g[lo:hi], g_old[lo:hi]
        )
        ss += a
        sy += b
        yy += c
    return ss, sy, yy


@reducing_piece
def add_pair(memory, gram, slot, theta, theta_old, g, g_old, diagonal):
    """Write the pair into ring slot `slot`, and update its row and column of the Gram matrices.

    gram[0, i, j] = s_i'y_j for i not younger than j (the only entries that R needs);
    gram[1, i, j] = y_i'H0 y_j, with H0 = I unless a diagonal is given.
    """
    m = memory.shape[1]
    d = theta.size
    one = memory.dtype.type(1)
    for j in range(m):
        # The column still has the products of the pair that this one overwrites.
        gram[0, j, slot] = 0.0
        gram[1, j, slot] = 0.0
    for lo in range(0, d, TILE):
        hi = min(lo + TILE, d)
        s = memory[0, slot, lo:hi]
        y = memory[1, slot, lo:hi]
        _combine(s, one, theta[lo:hi], -one, theta_old[lo:hi])
        _combine(y, one, g[lo:hi], -one, g_old[lo:hi])
        # y is still the raw difference of gradients here; the others' second halves are H0 y.
        for j in range(m):
            sy, yy = _two_dots(memory[0, j, lo:hi], memory[1, j, lo:hi], y)
            gram[0, j, slot] += sy
            if j != slot or not diagonal.size:
                gram[1, j, slot] += yy
        if diagonal.size:
            gram[1, slot, slot] += _scale_and_dot(y, diagonal[lo:hi])
    # Only column `slot` was computed; y'H0 y is symmetric.
    for j in range(m):
        gram[1, slot, j] = gram[1, j, slot]


@reducing_piece
def factor(gram, count, newest, scale, middle, room):
    """Compute the small matrix N, in ring order, from the Gram matrices (scale: c, or 1 with a diagonal).

    The corner R^-T (D + scale Y'Y) R^-1 is computed with two products, at a cost of M^3.  `room` is scratch
    space, as `room_for` makes it.
    """
    work, slot = room
    m = gram.shape[1]
    middle[:] = 0.0
    for a in range(count):  # a = 0 is the oldest
        slot[a] = (newest - (count - 1) + a) % m
    for i in range(count):
        for j in range(count):
            work[0, i, j] = 0.0
            work[1, i, j] = 0.0
    inverse = work[0]  # R^-1, upper triangular
    right = work[1]  # (D + scale Y'Y) R^-1
    for j in range(count):
        diag = gram[0, slot[j], slot[j]]
        # R is upper triangular, so its inverse is built column by column.
        inverse[j, j] = 1.0 / diag
        for i in range(j):
            total = 0.0
            for q in range(i, j):
                # From R^-1 R = I: entry (i, j) of the product is 0 for i < j.
                total += inverse[i, q] * gram[0, slot[q], slot[j]]
            inverse[i, j] = -total / diag
    for i in range(count):
        for q in range(count):
            entry = scale * gram[1, slot[i], slot[q]]
            if i == q:
                entry += gram[0, slot[i], slot[i]]
            for b in range(count):
                right[i, b] += entry * inverse[q, b]
    for a in range(count):
        for b in range(count):
            total = 0.0
            for i in range(a + 1):
                total += inverse[i, a] * right[i, b]
            middle[slot[a], slot[b]] = total
            # With a scalar H0 the memory holds Y and not H0 Y, so the factor c of H0 Y stands here.
            middle[slot[a], m + slot[b]] = -scale * inverse[b, a]
            middle[m + slot[a], slot[b]] = -scale * inverse[a, b]


def room_for(gram):
    """Return the scratch space of `factor`: two matrices, and the slots by age."""
    return np.empty_like(gram), np.empty(len(gram[0]), np.int64)


def next_slot(ring, size):
    """Count a pair as admitted and return its slot; a full ring overwrites the oldest pair."""
    slot = (ring[NEWEST] + 1) % size
    ring[COUNT] = min(ring[COUNT] + 1, size)
    ring[NEWEST] = slot
    ring[ACCEPTED] += 1
    return slot


def admissible(ss, sy, yy, epsilon, cosine):
    """Return whether a pair fulfils `algorithms.pair_memory.PairRule`, from its inner products."""
    # NaN fails every comparison, so it needs no separate test.
    usable = ss > 0.0 and ss < np.inf and yy < np.inf and sy > 0.0
    return usable and sy >= epsilon * ss and sy >= cosine * np.sqrt(ss * yy)


# The same for kernels; Python calls the functions above, which need no compilation.
_next_slot = strict_piece(next_slot)
_admissible = reducing_piece(admissible)


@reducing_kernel
def consider(H, rule, scaled, theta, theta_old, g, g_old, room):
    """Admit the pair s = theta - theta_old, y = g - g_old if the rule allows, and update all that follows.

    The oldest pair makes room.  With `scaled`, H0 follows the newest pair: scale = s'y / y'y.  `room` is
    scratch space; see `factor`.
    """
    memory, gram, middle, scale, diagonal, ring = H
    epsilon, cosine = rule
    size = memory.shape[1]
    ss, sy, yy = pair_products(theta, theta_old, g, g_old)
    # A memory of no pairs rejects every pair, and H stays H0.
    if size == 0 or not _admissible(ss, sy, yy, epsilon, cosine):
        ring[REJECTED] += 1
        return False
    slot = _next_slot(ring, size)
    add_pair(memory, gram, slot, theta, theta_old, g, g_old, diagonal)
    if scaled:
        # The usual scaling: an estimate of the inverse curvature along the newest step.
        scale[0] = sy / yy
    factor(gram, ring[COUNT], slot, 1.0 if diagonal.size else scale[0], middle, room)
    return True
