"""One random row from each stratum of consecutive rows: a sample that is spread evenly over the data."""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.jit import kernel
from asyncqn.kernels.random import SAMPLE, philox, philox_words

_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


FEW = 20_000
"""So many rows are drawn by NumPy before a loop over them would be compiled."""


def fill_strata(seed, stride, first, n_data, out):
    """out[i] = a row of stratum first + i, which begins at row (first + i) * stride; the last may be shorter.

    A function of the seed, the stride and the stratum alone: whoever asks gets the same rows, ascending.
    """
    if out.size > FEW:
        _fill(seed, stride, first, n_data, out)
        return
    key = np.uint64(seed)
    number = np.arange(first, first + out.size).astype(np.uint64)
    start = number.astype(np.int64) * stride
    length = np.minimum(stride, n_data - start).astype(np.uint64)
    x, *_ = philox_words(
        number & _LOW, np.uint64(SAMPLE), np.uint64(stride), number >> _32, key & _LOW, key >> _32
    )
    out[:] = start + ((x * length) >> _32).astype(np.int64)


@kernel
def _fill(seed, stride, first, n_data, out):
    key, step = np.uint64(seed), np.uint64(stride)
    for i in range(out.size):
        start = (first + i) * stride
        length = np.uint64(min(stride, n_data - start))
        number = np.uint64(first + i)
        x, _, _, _ = philox(number & _LOW, np.uint64(SAMPLE), step, number >> _32, key & _LOW, key >> _32)
        out[i] = start + np.int64((x * length) >> _32)
