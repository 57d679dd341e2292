"""One random row from each stratum of consecutive rows: a sample that is spread evenly over the data."""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.jit import kernel
from asyncqn.kernels.random import SAMPLE, philox

_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


@kernel
def fill_strata(seed, stride, first, n_data, out):
    """out[i] = a row of stratum first + i, which begins at row (first + i) * stride; the last may be shorter.

    A function of the seed, the stride and the stratum alone: whoever asks gets the same rows, ascending.
    """
    key, step = np.uint64(seed), np.uint64(stride)
    for i in range(out.size):
        start = (first + i) * stride
        length = np.uint64(min(stride, n_data - start))
        number = np.uint64(first + i)
        x, _, _, _ = philox(number & _LOW, np.uint64(SAMPLE), step, number >> _32, key & _LOW, key >> _32)
        out[i] = start + np.int64((x * length) >> _32)
