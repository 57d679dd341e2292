"""Counter-based random numbers: Philox4x32-10, rows of a subsample, and vectorised normals.

Philox (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") maps a key and a 128-bit counter to
128 random bits.  The key is the seed and the counter is (block, purpose, step, worker), so a stream needs no
setup and no two streams overlap.

Normals are Box-Muller pairs from two 32-bit uniforms each, with our own polynomials for the logarithm and the
angle: without calls to libm the loop vectorises and gives the same bits on every machine.  The radius comes
from (x + 1/2)/2^32, so |z| never exceeds 6.77; a true normal does that once in 10^11 draws.
"""

import math

import numpy as np

from asyncqn.kernels.jit import kernel, strict_piece
from asyncqn.kernels.numba_internals import stack_array

ROWS, NOISE, DELAYS, ORDER, SAMPLE, HAND_OUT = 1, 2, 3, 4, 5, 6
"""The purpose of a block of random bits: the second word of the counter."""

# The multipliers and key increments of Philox4x32, from the paper.
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
# Normals are made in blocks of this size: 32 Philox calls, whose four words fill four quarters.
BLOCK = 128
_QUARTER = BLOCK // 4


def philox_words(c0, c1, c2, c3, k0, k1):
    """Do ten rounds of Philox4x32 on 32-bit words held in uint64, on NumPy's numbers or arrays."""
    for _ in range(10):
        p0 = c0 * _M0
        p1 = c2 * _M1
        c0, c1, c2, c3 = (
            (p1 >> _32) ^ c1 ^ k0,
            p1 & _LOW,
            (p0 >> _32) ^ c3 ^ k1,
            p0 & _LOW,
        )
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return c0, c1, c2, c3


philox = strict_piece(philox_words)
"""The same for kernels."""


@strict_piece
def _minus_two_log(x):
    """Return -2 ln((x + 1/2) / 2^32) for 32 bits x, by ln m = 2 atanh((m-1)/(m+1)) on [sqrt(1/2), sqrt 2)."""
    bits = np.float64(np.int64(x) + 0.5).view(np.uint64)
    # Carries into the exponent from mantissa sqrt(2) on.
    shifted = bits + np.uint64(0x95F6198B5E6C6)
    exponent = np.int64(shifted >> np.uint64(52)) - np.int64(1023 + 32)
    scale = np.uint64(exponent + np.int64(32)) << np.uint64(52)
    mantissa = np.uint64(bits - scale).view(np.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    t = s * s
    # On that interval s^2 is below 0.03, so eight terms leave a relative error below 4e-14.
    series = 1 / 13 + t * (1 / 15)
    series = 1 / 9 + t * (1 / 11 + t * series)
    series = 1 / 5 + t * (1 / 7 + t * series)
    series = 1.0 + t * (1 / 3 + t * series)
    return -2.0 * (np.float64(exponent) * 0.6931471805599453 + 2.0 * s * series)


@strict_piece
def _cos_sin(x):
    """Return cosine and sine of an angle uniform on the circle: two bits of quadrant, thirty of angle."""
    quadrant = x & np.uint64(3)
    # An angle in (-pi/4, pi/4), where Taylor polynomials of degree 11 and 12 err by less than 1e-11; the
    # quadrant turns it to the whole circle.
    a = (np.float64(np.int64(x >> np.uint64(2))) + (0.5 - 536870912.0)) * (
        0.7853981633974483 / 536870912.0
    )
    t = a * a
    sine = -1 / 5040 + t * (1 / 362880 + t * (-1 / 39916800))
    sine = a * (1.0 + t * (-1 / 6 + t * (1 / 120 + t * sine)))
    cosine = 1 / 40320 + t * (-1 / 3628800 + t * (1 / 479001600))
    cosine = 1.0 + t * (-1 / 2 + t * (1 / 24 + t * (-1 / 720 + t * cosine)))
    c = cosine if quadrant & np.uint64(1) else sine
    s = sine if quadrant & np.uint64(1) else cosine
    sign = 1.0 - np.float64(np.int64(quadrant & np.uint64(2)))
    return sign * c, sign * s


@kernel
def normals_block(z, first, key, k, worker, purpose):
    """Write normals `first` to `first` + BLOCK - 1 of a stream into z; `first` is a multiple of BLOCK.

    The four words of a Philox block go to the four quarters of z, so that stores are contiguous and the loop
    vectorises.
    """
    key = np.uint64(key)
    k0, k1 = key & _LOW, key >> _32
    # A Philox call has four words, from which four normals are made.
    base = np.uint64(first // 4)
    for j in range(_QUARTER):
        x0, x1, x2, x3 = philox(
            base + np.uint64(j),
            np.uint64(purpose),
            np.uint64(k),
            np.uint64(worker),
            k0,
            k1,
        )
        r = np.sqrt(_minus_two_log(x0))
        c, s = _cos_sin(x1)
        z[j] = r * c
        z[j + _QUARTER] = r * s
        r = np.sqrt(_minus_two_log(x2))
        c, s = _cos_sin(x3)
        z[j + 2 * _QUARTER] = r * c
        z[j + 3 * _QUARTER] = r * s


@kernel
def fill_normals(key, k, worker, purpose, out):
    """Fill `out` with standard normals of stream (key, worker, k) for `purpose`."""
    z = stack_array(BLOCK, 0.0)
    for first in range(0, out.size, BLOCK):
        normals_block(z, first, key, k, worker, purpose)
        for i in range(min(BLOCK, out.size - first)):
            out[first + i] = z[i]


@kernel
def fill_upper_tails(z, out):
    """Write the probability of a standard normal beyond each z; erfc keeps its precision in the tail."""
    for i in range(z.size):
        out[i] = 0.5 * math.erfc(z[i] / math.sqrt(2.0))


@strict_piece
def _two_rows(i, key, k, worker, n):
    """Return rows 2i and 2i + 1 of a stream."""
    k0, k1 = key & _LOW, key >> _32
    x0, x1, x2, x3 = philox(
        np.uint64(i), np.uint64(ROWS), np.uint64(k), np.uint64(worker), k0, k1
    )
    # The high word of (x0 2^32 + x1) n / 2^32; n must be below 2^32, so that each product fits 64 bits.
    return (x0 * n + ((x1 * n) >> _32)) >> _32, (x2 * n + ((x3 * n) >> _32)) >> _32


@kernel
def fill_rows(key, k, worker, n, out):
    """Draw rows from 0..n-1 with replacement, as the high word of a product; the bias is below n/2^64."""
    key, n = np.uint64(key), np.uint64(n)
    even, odd = stack_array(BLOCK, np.int64(0)), stack_array(BLOCK, np.int64(0))
    for first in range(0, out.size, 2 * BLOCK):
        rows = out[first : min(first + 2 * BLOCK, out.size)]
        pairs = (rows.size + 1) // 2
        for i in range(pairs):
            even[i], odd[i] = _two_rows(first // 2 + i, key, k, worker, n)
        for i in range(rows.size // 2):
            rows[2 * i] = even[i]
            rows[2 * i + 1] = odd[i]
        if rows.size % 2:
            rows[rows.size - 1] = even[pairs - 1]
