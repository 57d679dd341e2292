"""Grouping: the stable sort of NumPy, and no copy where there is nothing to sort."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncqn_recommender.kernels import als
from asyncqn_recommender.kernels.als import grouped


@settings(deadline=None)
@given(keys=st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_groups_are_those_of_a_stable_sort(keys: list[int]) -> None:
    column = np.array(keys, np.int32)
    others, values = (
        np.arange(column.size, dtype=np.int32),
        np.arange(column.size, dtype=np.float32),
    )
    order = np.argsort(column, kind="stable")
    for few in (0, als.COMPILE_FROM):  # compiled, and not
        with mock.patch.object(als, "COMPILE_FROM", few):
            found = grouped(column, others, values, 8)
        np.testing.assert_array_equal(
            found.start, np.searchsorted(column[order], np.arange(9))
        )
        np.testing.assert_array_equal(found.others, order)
        np.testing.assert_array_equal(found.values, values[order])
    assert (found.others is others) == bool((np.diff(column) >= 0).all())


def test_sorted_columns_are_used_where_they_lie() -> None:
    keys = np.array([0, 0, 2, 3], np.int32)
    others, values = np.arange(4, dtype=np.int32), np.ones(4, np.float32)
    found = grouped(keys, others, values, 4)
    assert found.others is others
    assert found.values is values
