from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from asyncqn.view.axes import axis_of
from asyncqn.view.terminal import bar_chart, histogram_bins, line_chart

numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(y=arrays(np.float64, st.integers(0, 30), elements=numbers))
def test_any_values_give_a_chart_of_even_width(y: np.ndarray) -> None:
    x = np.arange(float(y.size))
    lines = line_chart(x, y, width=20, height=6, axis=axis_of([y]))
    if not np.isfinite(y).any():
        assert lines == ["(nothing to draw)"]
    else:
        assert len(lines) == 7
        assert len({len(line) for line in lines}) == 1


def test_a_falling_line_goes_from_the_upper_left_to_the_lower_right() -> None:
    x = np.arange(17.0)
    lines = line_chart(x, 10.0**-x, width=10, height=5, axis=axis_of([10.0**-x]))
    filled = [[cell != "\u2800" for cell in line.split("┤")[1]] for line in lines[:5]]
    assert (filled[0][0], filled[4][9]) == (True, True)
    assert (filled[0][9], filled[4][0]) == (False, False)
    labels = [line.split("┤")[0].strip() for line in lines[:5]]
    assert labels == ["1", "", "1e-08", "", "1e-16"]


def test_the_largest_value_fills_the_width_and_values_stand_behind() -> None:
    assert bar_chart(["a", "bb"], [2, 1], width=4) == [" a │████ 2", "bb │██ 1"]
    assert bar_chart([], []) == []
    assert bar_chart(["a", "b"], [200_100, 0.5], width=2) == [
        "a │██ 200,100",
        "b │ 0.5",
    ]


@given(
    counts=arrays(np.int64, st.integers(0, 200), elements=st.integers(0, 1000)),
    most=st.integers(1, 20),
)
def test_bins_lose_no_count_and_are_not_too_many(counts: np.ndarray, most: int) -> None:
    labels, sums = histogram_bins(counts, most)
    assert len(labels) == len(sums) <= most
    assert sum(sums) == counts.sum()
