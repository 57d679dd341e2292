"""The kernels of the centred table against the same sums in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from asyncqn.algorithms.table.state import Tally
from asyncqn.kernels import table as table_kernels
from asyncqn.kernels.table import RISE, SEEN, VALUE, replace_entry, table_means


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_replace_entry_keeps_sums_and_tally(dtype: str) -> None:
    rng = np.random.default_rng(0)
    entries = rng.standard_normal((2, 3, 7)).astype(dtype)
    sums = np.zeros((4, 7))
    sums[:2] = entries.sum(axis=1, dtype=float)
    new_g, new_z = (rng.standard_normal(7).astype(dtype) for _ in range(2))
    old_g, old_z = entries[:, 1].astype(float)
    y, s = new_g - old_g, new_z - old_z
    # Without a value, the slopes tell the rise.
    for value, rise in ((5.5, 1.5), (np.nan, 0.5 * s @ (new_g + old_g))):
        table, versions, values = entries.copy(), np.zeros(3, np.int64), np.full(3, 4.0)
        totals, tally = sums.copy(), np.zeros(len(Tally._fields))
        tally[SEEN], tally[VALUE] = 3.0, 12.0
        to = (table, values, versions, totals, tally, 1, new_g, new_z, value)
        replace_entry(*to, 9)
        assert tally[RISE:] == pytest.approx([rise, rise**2, s @ old_g], rel=1e-12)
        assert tally[VALUE] == pytest.approx(12.0 + value - 4.0, nan_ok=True)
        assert (versions.tolist(), values[0]) == ([0, 9, 0], 4.0)
        assert np.array_equal(table[:, 1], [new_g, new_z])
        assert totals[:2] == pytest.approx(table.sum(axis=1, dtype=float), abs=1e-6)
        assert totals[2:] == pytest.approx(np.array([s, y]))
        # The same point again: no way to compare.
        before = tally.tolist()
        replace_entry(*to, 10)
        assert tally.tolist() == pytest.approx(before, nan_ok=True)


def test_a_first_entry_is_seen_and_has_not_moved() -> None:
    entries, values = np.ones((2, 3, 2)), np.full(3, np.nan)
    versions = np.full(3, -1, np.int64)
    sums, tally = np.zeros((4, 2)), np.zeros(len(Tally._fields))
    g, z = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    replace_entry(entries, values, versions, sums, tally, 2, g, z, 7.0, 0)
    assert sums.tolist() == [[1.0, 2.0], [3.0, 4.0], [0.0, 0.0], [0.0, 0.0]]
    assert tally.tolist() == [1.0, 7.0, 0.0, 0.0, 0.0, 0.0]


def test_the_tally_has_a_place_for_every_field() -> None:
    for place, name in enumerate(Tally._fields):
        assert getattr(table_kernels, name.upper()) == place


def test_means_and_their_squares() -> None:
    g_sum, z_sum = np.array([2.0, 4.0]), np.array([6.0, 0.0])
    g, z = np.empty(2), np.empty(2)
    assert table_means(g_sum, z_sum, 2.0, g, z) == (5.0, 9.0)
    assert (g.tolist(), z.tolist()) == ([1.0, 2.0], [3.0, 0.0])
