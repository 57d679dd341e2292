"""One rule for the axis of a metric: it survives zeros and explosions, in every picture of a run."""

from __future__ import annotations

import numpy as np
import pytest

from asyncqn.columns import Table
from asyncqn.core.schedule import Schedule
from asyncqn.view import plots
from asyncqn.view.axes import EXCESS, axis_of, curves_of
from asyncqn.view.page import page
from asyncqn.view.seen import Seen
from asyncqn.view.styles import styles_of_runs
from tests.view.test_page import seen


def test_the_axis_is_logarithmic_where_that_can_be_drawn_and_helps() -> None:
    assert axis_of([np.array([100.0, 1.0, np.nan])]) == (True, 1.0, 100.0, False)
    assert axis_of([np.array([2.0, 1.0])]) == (False, 1.0, 2.0, False)
    assert axis_of([np.array([100.0, -1.0])]) == (False, -1.0, 100.0, False)
    assert axis_of([np.array([np.nan])]) is None
    assert axis_of([]) is None


def test_zeros_and_rounding_do_not_cost_the_logarithm() -> None:
    axis = axis_of([np.array([5.0, 1e-3, 0.0, -1e-15])])
    assert axis == (True, 1e-3, 5.0, False)
    assert axis.clip(np.array([0.0, -1e-15, 5.0])).tolist() == [1e-3, 1e-3, 5.0]
    assert axis_of([np.zeros(3)]) == (False, 0.0, 0.0, False)


@pytest.mark.parametrize("explosion", [1e300, np.inf, np.nan])
def test_an_explosion_does_not_flatten_the_others(explosion: float) -> None:
    axis = axis_of([np.array([5.0, 1.0, 0.1]), np.array([5.0, 1e9, explosion])])
    assert axis == (True, 0.1, 50.0, True)
    negative = axis_of([np.array([-5.0, -9.0]), np.array([-5.0, 1e200])])
    assert negative == (False, -9.0, 0.0, True)


def run_of(kind: str, fun: list[float]) -> Seen:
    time = np.arange(float(len(fun)))
    table = Table({"commit": time, "time": time, "fun": np.array(fun)})
    return seen(Schedule.serial(len(fun) - 1), kind=kind, table=table)


RUNS = {
    "sgd": run_of("async-sgd", [9.0, 3.0, 0.5]),
    "wild": run_of("as-lbfgs", [9.0, 1e8, 1e200]),
    "exact": run_of("exact-lbfgs", [9.0, 0.01, 0.0]),
}


def test_a_run_has_one_colour_in_terminal_figure_and_page() -> None:
    kinds = {label: run.manifest["algorithm"]["kind"] for label, run in RUNS.items()}
    colors = {label: look["color"] for label, look in styles_of_runs(kinds).items()}
    assert len(set(colors.values())) == 3
    figure = plots.comparison(RUNS, "fun", None, plots.SECONDS)
    lines = figure.axes[0].lines
    assert {line.get_label(): line.get_color() for line in lines} == colors
    for color in colors.values():
        assert f'"color":"{color}"' in page(RUNS)


def test_a_comparison_has_a_logarithmic_axis_in_spite_of_zeros_and_explosions() -> None:
    axes = plots.comparison(RUNS, "fun", None, plots.SECONDS).axes[0]
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    assert 1e-3 < low < 0.01
    assert 90.0 < high < 1000.0
    assert "values above 90 are drawn at the edge" in axes.get_title(loc="left")


def test_twelve_digits_of_progress_are_seen_without_a_vertical_line() -> None:
    tables = [
        Table({"fun": -3.0 + np.array([2.0, 1e-6, 1e-12, 0.0])}),
        Table({"fun": np.array([-1.0, np.inf, -2.0])}),
    ]
    (first, second), label, axis, base = curves_of(tables)
    assert (label, base) == (EXCESS, -3.0)
    assert axis is not None
    assert axis.log
    assert axis.low == pytest.approx(1e-12, rel=1e-3)
    assert np.isnan(first[-1]), "the best value is no point of a logarithmic axis"
    np.testing.assert_allclose(second, [2.0, np.inf, 1.0])
    assert f'"metric":"{EXCESS}"' in page({"exact": RUNS["exact"]})
