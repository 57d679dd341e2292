"""Passes without replacement: permutations, blocks, and their uniformity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn.core.streams import Stream


def draw(n: int, batch: int, steps: int, sampling: str, worker: int = 0) -> np.ndarray:
    out = np.empty(batch, np.int64)
    return np.concatenate(
        [Stream(5, worker, k).rows(n, out, sampling).copy() for k in range(steps)]
    )


@given(n=st.integers(1, 3000), batch=st.integers(1, 200))
def test_every_shuffled_pass_visits_every_row_once(n: int, batch: int) -> None:
    rows = draw(n, batch, 2 * n // batch + 2, "shuffled")
    for start in range(0, rows.size - n + 1, n):
        assert np.array_equal(np.sort(rows[start : start + n]), np.arange(n))


@given(n=st.integers(1, 3000), batch=st.integers(1, 200))
def test_blocks_are_consecutive_rows_of_the_circle_and_disjoint_within_a_pass(
    n: int, batch: int
) -> None:
    blocks = max(1, n // batch)
    rows = draw(n, batch, blocks, "blocks").reshape(blocks, batch)
    assert np.all(np.diff(rows, axis=1) % n == 1 % n)
    if batch <= n:
        assert np.unique(rows).size == rows.size


@pytest.mark.parametrize("sampling", ["shuffled", "blocks"])
def test_each_row_is_as_likely_at_each_place(sampling: str) -> None:
    # 4000 passes of 20 rows: each (place, row) is expected 200 times.  The chi-square of a random
    # permutation has mean 361 and standard deviation 27, that of a random cut of the circle 380 and
    # (rows of one place) sqrt(2 * 19) a column, summed over 20 dependent columns at most 20 * 6.2.
    n, passes = 20, 4000
    count = np.zeros((n, n))
    out = np.empty(n, np.int64)
    for k in range(passes):
        count[np.arange(n), Stream(7, 0, k).rows(n, out, sampling)] += 1
    chi_square = float(((count - passes / n) ** 2 / (passes / n)).sum())
    assert chi_square < 380 + 5 * 124
