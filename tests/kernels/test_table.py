"""The kernels of the centred table against the same sums in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from asyncqn.kernels.table import replace_entry, step_from, table_means


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_replace_entry_keeps_the_sums_and_returns_what_changed(dtype: str) -> None:
    rng = np.random.default_rng(0)
    g, z = (rng.standard_normal((3, 7)).astype(dtype) for _ in range(2))
    sums = g.sum(axis=0, dtype=float), z.sum(axis=0, dtype=float), np.zeros(7), np.zeros(7)
    new_g, new_z = (rng.standard_normal(7).astype(dtype) for _ in range(2))
    y, s = new_g.astype(float) - g[1], new_z.astype(float) - z[1]
    expected = 0.5 * s @ (new_g.astype(float) + g[1]), s @ s, y @ y
    assert replace_entry(g, z, sums, 1, new_g, new_z, False) == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(g[1], new_g)
    assert np.array_equal(z[1], new_z)
    expected_sums = g.sum(axis=0, dtype=float), z.sum(axis=0, dtype=float), s, y
    for total, whole in zip(sums, expected_sums, strict=True):
        assert total == pytest.approx(whole, abs=1e-6)
    # The same point again: no way to compare.
    assert replace_entry(g, z, sums, 1, new_g, new_z, False)[1] == 0.0


def test_means_and_their_squares() -> None:
    g_sum, z_sum, g, z = np.array([2.0, 4.0]), np.array([6.0, 0.0]), np.empty(2), np.empty(2)
    assert table_means(g_sum, z_sum, 2, g, z) == (5.0, 9.0)
    assert (g.tolist(), z.tolist()) == ([1.0, 2.0], [3.0, 0.0])


def test_a_step_says_how_far_it_leads_and_a_coordinate_that_is_no_number_is_infinitely_far() -> None:
    theta, z, start = np.zeros(3), np.array([1.0, 2.0, 3.0]), np.array([0.0, -5.0, 1.0])
    assert step_from(theta, z, np.array([2.0, 4.0, 0.0]), 0.5, start) == (5.0, 5.0)
    assert theta.tolist() == [0.0, 0.0, 3.0]
    for place in range(3):
        step = np.zeros(3)
        step[place] = np.nan
        assert step_from(theta, z, step, 1.0, start)[0] == np.inf
