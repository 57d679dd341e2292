"""Grouping: the stable sort of NumPy, and no copy where there is nothing to sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn_recommender.kernels.als import grouped


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
@pytest.mark.parametrize("n_rows", [8, 70_000])
def test_groups_are_those_of_a_stable_sort(n_rows: int, keys: list[int]) -> None:
    column = np.array(keys, np.int32)
    others = np.arange(column.size, dtype=np.int32)
    values = np.arange(column.size, dtype=np.float32)
    order = np.argsort(column, kind="stable")
    groups = grouped(column, others, values, n_rows)
    start = np.searchsorted(column[order], np.arange(n_rows + 1))
    np.testing.assert_array_equal(groups.start, start)
    np.testing.assert_array_equal(groups.others, order)
    np.testing.assert_array_equal(groups.values, values[order])
    assert (groups.others is others) == bool((np.diff(column) >= 0).all())
