"""The admission of curvature pairs to a memory, and the small matrix N of `kernels.memory` that follows.

Pairs are stored in ring slots, in any order; only `factor` needs their age.
"""

import numpy as np

from asyncqn.kernels.jit import reducing_kernel, reducing_piece
from asyncqn.kernels.memory import TILE, combine, two_dots
from asyncqn.kernels.ring import COUNT, REJECTED, next_slot_piece


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
def _scale_and_dot(y, diagonal):
    """Replace y by H0 y, and return y'H0 y of the old y."""
    own = y.dtype.type(0)
    for i in range(y.size):
        scaled = diagonal[i] * y[i]
        own += scaled * y[i]
        y[i] = scaled
    return own


@reducing_piece
def add_pair(memory, gram, slot, theta, theta_old, g, g_old, diagonal):
    """Write the pair into ring slot `slot`, and update its row and column of the Gram matrices.

    gram[0, i, j] = s_i'y_j for i not younger than j (the only entries that R needs);
    gram[1, i, j] = y_i'H0 y_j, with H0 = I unless a diagonal is given.
    """
    m, d = memory.shape[1], theta.size
    one = memory.dtype.type(1)
    for j in range(m):
        # The column still has the products of the pair that this one overwrites.
        gram[0, j, slot] = 0.0
        gram[1, j, slot] = 0.0
    for lo in range(0, d, TILE):
        hi = min(lo + TILE, d)
        s, y = memory[0, slot, lo:hi], memory[1, slot, lo:hi]
        combine(s, one, theta[lo:hi], -one, theta_old[lo:hi])
        combine(y, one, g[lo:hi], -one, g_old[lo:hi])
        # y is still the raw difference of gradients here; the others' second halves are H0 y.
        for j in range(m):
            sy, yy = two_dots(memory[0, j, lo:hi], memory[1, j, lo:hi], y)
            gram[0, j, slot] += sy
            if j != slot or not diagonal.size:
                gram[1, j, slot] += yy
        if diagonal.size:
            gram[1, slot, slot] += _scale_and_dot(y, diagonal[lo:hi])
    # Only column `slot` was computed; y'H0 y is symmetric.
    for j in range(m):
        gram[1, slot, j] = gram[1, j, slot]


def room(gram):
    """Return the scratch space of `factor`: two matrices, and the slots by age."""
    return np.empty_like(gram), np.empty(len(gram[0]), np.int64)


@reducing_piece
def factor(gram, count, newest, scale, middle, work, slot):
    """Compute the small matrix N, in ring order, from the Gram matrices (scale: c, or 1 with a diagonal).

    The corner R^-T (D + scale Y'Y) R^-1 is computed with two products, at a cost of M^3.  `work` (2 x M x M)
    and `slot` (M integers) are scratch space.
    """
    m = gram.shape[1]
    middle[:] = 0.0
    for a in range(count):  # a = 0 is the oldest
        slot[a] = (newest - (count - 1) + a) % m
    for i in range(count):
        for j in range(count):
            work[0, i, j] = work[1, i, j] = 0.0
    inverse, right = work[0], work[1]  # R^-1, upper triangular; (D + scale Y'Y) R^-1
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


def admissible(ss, sy, yy, epsilon, cosine):
    """Return whether a pair fulfils `algorithms.pair_memory.PairRule`, from its inner products."""
    # NaN fails every comparison, so it needs no separate test.
    usable = ss > 0.0 and ss < np.inf and yy < np.inf and sy > 0.0
    return usable and sy >= epsilon * ss and sy >= cosine * np.sqrt(ss * yy)


_admissible_piece = reducing_piece(admissible)
"""The same for kernels; Python calls the function above, which needs no compilation."""


@reducing_kernel
def consider(H, rule, scaled, theta, theta_old, g, g_old, work, slots):
    """Admit the pair s = theta - theta_old, y = g - g_old if the rule allows, and update all that follows.

    The oldest pair makes room.  With `scaled`, H0 follows the newest pair: scale = s'y / y'y.  `work` and
    `slots` are scratch space; see `factor`.
    """
    memory, gram, middle, scale, diagonal, ring = H
    epsilon, cosine = rule
    size = memory.shape[1]
    ss, sy, yy = pair_products(theta, theta_old, g, g_old)
    # A memory of no pairs rejects every pair, and H stays H0.
    if size == 0 or not _admissible_piece(ss, sy, yy, epsilon, cosine):
        ring[REJECTED] += 1
        return False
    slot = next_slot_piece(ring, size)
    add_pair(memory, gram, slot, theta, theta_old, g, g_old, diagonal)
    if scaled:
        # The usual scaling: an estimate of the inverse curvature along the newest step.
        scale[0] = sy / yy
    factor(
        gram, ring[COUNT], slot, 1.0 if diagonal.size else scale[0], middle, work, slots
    )
    return True
