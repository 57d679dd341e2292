"""The master's vector kernels against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn.kernels.vectors import (
    add_one,
    add_scaled,
    add_two,
    dot,
    inspect,
    sum_of_squares,
)  # fmt: skip

DTYPES = [np.float64, np.float32]


def vectors(count, d, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal((count, d)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [0, 1, 511, 512, 513, 2000])
def test_sums_agree_with_numpy(d, dtype):
    a, b = vectors(2, d, dtype)
    exact = a.astype(float) @ b.astype(float)
    # Each tile of 512 is summed in the vector's own precision: at most 512 roundings of |a||b|.
    bound = 512 * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b)).astype(float) + 1e-300
    assert abs(dot(a, b) - exact) <= bound
    assert (
        abs(sum_of_squares(a) - a.astype(float) @ a)
        <= 512 * np.finfo(dtype).eps * float(a @ a) + 1e-300
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_additions_are_numpys_to_the_bit(dtype):
    a, da, b, db = vectors(4, 777, dtype)
    expected = [(a + da).tobytes(), (b + db).tobytes(), (a + dtype(0.3) * da).tobytes()]
    x, y = a.copy(), b.copy()
    add_two(x, da, y, db)
    assert [x.tobytes(), y.tobytes()] == expected[:2]
    x = a.copy()
    add_one(x, da)
    assert x.tobytes() == expected[0]
    x = a.copy()
    add_scaled(x, 0.3, da)
    assert x.tobytes() == expected[2]


def look(a, limit=1e12):
    return inspect(a, a.view(np.uint64 if a.itemsize == 8 else np.uint32), limit)


@given(st.integers(1, 40), st.data(), st.sampled_from(DTYPES))
def test_a_fingerprint_changes_with_any_single_bit(d, data, dtype):
    a = vectors(1, d, dtype, seed=1)[0]
    b = a.copy()
    place = data.draw(st.integers(0, d - 1))
    bit = data.draw(st.integers(0, 8 * a.itemsize - 1))
    words = b.view(np.uint64 if a.itemsize == 8 else np.uint32)
    words[place] ^= words.dtype.type(1 << bit)
    assert look(a)[0] != look(b)[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2e12, -2e12])
def test_entries_beyond_the_limit_or_not_numbers_are_counted(bad):
    a = vectors(1, 10, np.float64)[0]
    assert look(a)[1] == 0
    a[3] = a[7] = bad
    assert look(a)[1] == 2
