"""Rows of a sample without stored state: passes without replacement, and one row from each stratum.

A permutation of 0..n-1 comes from a Feistel network on the smallest power of two that holds n, whose round
keys are Philox words of the pass; results beyond n are sent through again (cycle walking).  So a worker's
k-th subsample follows from (key, worker, k) alone, on every engine.
"""

import numpy as np

from asyncqn.kernels.jit import kernel, strict_piece
from asyncqn.kernels.numba_internals import stack_array
from asyncqn.kernels.random import ORDER, SAMPLE, philox, philox_words

_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
# 2^64 divided by the golden ratio, the increment of splitmix64.
_MIX = np.uint64(0x9E3779B97F4A7C15)
ROWS_IN_NUMPY = 20_000
"""Up to this number of rows NumPy is faster than compiling a loop."""
_ROUNDS = 8
"""Rounds of the network; even, so that both halves have their original width at the end."""


@strict_piece
def _pass_keys(key, epoch, worker, keys):
    """Fill the round keys of one pass, and return 64 further random bits."""
    key = np.uint64(key)
    k0, k1 = key & _LOW, key >> _32
    for r in range(0, _ROUNDS, 2):
        x0, x1, x2, x3 = philox(
            np.uint64(r), np.uint64(ORDER), np.uint64(epoch), np.uint64(worker), k0, k1
        )
        keys[r], keys[r + 1] = (x0 << _32) | x1, (x2 << _32) | x3
    x0, x1, _, _ = philox(
        np.uint64(_ROUNDS),
        np.uint64(ORDER),
        np.uint64(epoch),
        np.uint64(worker),
        k0,
        k1,
    )
    return (x0 << _32) | x1


@strict_piece
def _width(n):
    """Return the number of bits, at least 2, that hold 0..n-1."""
    bits = 2
    while (1 << bits) < n:
        bits += 1
    return bits


@strict_piece
def _permute(x, n, bits, keys):
    """Return the image of x under the pass's permutation of 0..n-1."""
    right_bits = np.uint64(bits // 2)
    left_bits = np.uint64(bits) - right_bits
    x = np.uint64(x)
    while True:
        a, b = left_bits, right_bits
        left, right = x >> b, x & ((np.uint64(1) << b) - np.uint64(1))
        for r in range(_ROUNDS):
            # A multiply-xorshift mix, as in splitmix64; its high bits depend on all bits of the input.
            f = (right + np.uint64(1)) * _MIX + keys[r]
            f ^= f >> np.uint64(29)
            f *= np.uint64(0xBF58476D1CE4E5B9)
            f = (f >> np.uint64(20)) & ((np.uint64(1) << a) - np.uint64(1))
            left, right = right, left ^ f
            a, b = b, a
        x = (left << b) | right
        # Cycle walking: the network permutes a power of two, so numbers beyond n are sent through again.
        if x < np.uint64(n):
            return np.int64(x)


@kernel
def fill_shuffled(key, k, worker, n, out):
    """Fill `out` with the k-th batch of a worker's passes over 0..n-1, each pass in its own order."""
    keys = stack_array(_ROUNDS, np.uint64(0))
    bits = _width(n)
    epoch = -1
    for i in range(out.size):
        # Batches follow each other without a gap, so that a batch may end one pass and begin the next.
        position = k * out.size + i
        if position // n != epoch:
            epoch = position // n
            _pass_keys(key, epoch, worker, keys)
        out[i] = _permute(position % n, n, bits, keys)


@kernel
def fill_block(key, k, worker, n, out):
    """Fill `out` with the k-th of a worker's blocks of consecutive rows; a pass orders its blocks at random.

    Every pass cuts the circle of rows at another random place, so that all rows are equally likely; n mod
    |out| rows are left out of a pass.
    """
    keys = stack_array(_ROUNDS, np.uint64(0))
    blocks = max(1, n // out.size)
    cut = _pass_keys(key, k // blocks, worker, keys) % np.uint64(n)
    block = _permute(k % blocks, blocks, _width(blocks), keys)
    first = (np.int64(cut) + block * out.size) % n
    for i in range(out.size):
        out[i] = (first + i) % n


def fill_strata(seed, stride, first, n_data, out):
    """out[i] = a row of stratum first + i, which begins at row (first + i) * stride; the last may be shorter.

    The rows ascend and are a function of the seed, the stride and the stratum alone, the same for every
    caller.
    """
    if out.size > ROWS_IN_NUMPY:
        _fill_strata(seed, stride, first, n_data, out)
        return
    key = np.uint64(seed)
    number = np.arange(first, first + out.size).astype(np.uint64)
    start = number.astype(np.int64) * stride
    length = np.minimum(stride, n_data - start).astype(np.uint64)
    x, *_ = philox_words(
        number & _LOW,
        np.uint64(SAMPLE),
        np.uint64(stride),
        number >> _32,
        key & _LOW,
        key >> _32,
    )
    out[:] = start + ((x * length) >> _32).astype(np.int64)


@kernel
def _fill_strata(seed, stride, first, n_data, out):
    key, step = np.uint64(seed), np.uint64(stride)
    for i in range(out.size):
        start = (first + i) * stride
        length = np.uint64(min(stride, n_data - start))
        number = np.uint64(first + i)
        x, _, _, _ = philox(
            number & _LOW,
            np.uint64(SAMPLE),
            step,
            number >> _32,
            key & _LOW,
            key >> _32,
        )
        out[i] = start + np.int64((x * length) >> _32)
