"""The laboratory's verdicts, its problems and cells, and a few runs of its safety study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.studies.laboratory import cells, safety, verdict
from benchmarks.studies.laboratory.problems import (
    APART,
    CONVEX,
    LOOK,
    NETWORKS,
    problem,
)

Line = dict[str, Any]


def _lines(method: str, workers: int, ends: Sequence[float], **more: Any) -> list[Line]:
    """Runs from 100 that are at their end after the second half pass."""
    return [
        {
            "problem": "relu",
            "workers": workers,
            "method": method,
            "seed": seed,
            "start": 100.0,
            "values": [0.5 * (100.0 + end), end, end],
            "highest": 100.0,
            "end": end,
            **more,
        }
        for seed, end in enumerate(ends)
    ]


def _said(lines: list[Line]) -> dict[str, verdict.Verdict]:
    return {line.what.split(",")[0]: line for line in verdict.verdict(lines)}


def test_a_verdict_says_what_holds_and_what_is_missed() -> None:
    lines = [
        *_lines("table", 2, [1.0, 2.0, 4.0]),
        *_lines("rmsprop 0.01", 2, [3.0, 0.0]),
        *_lines("serial 0.01", 2, [3.0, 3.0]),
    ]
    said = _said(lines)
    # Gaps 1, 2 and 4 %: the worst is twice the median.
    assert not said["one group"].good
    assert "2.00" in said["one group"].number
    assert said["no harm"].good
    # All are below 5 % within the first pass, the table a little sooner than the serial rival.
    assert said["two workers"].good
    above = _said([*lines, *_lines("table", 16, [101.0]), *_lines("sgd 1", 16, [1.0])])
    assert not above["no harm"].good
    assert above["delays"].number == f"{verdict.NEVER / (0.5 + 0.5 * 45.5 / 49.5):.2f}"


def test_a_rival_counts_at_its_best_rate() -> None:
    lines = [*_lines("adam 0.1", 2, [9.0]), *_lines("adam 0.01", 2, [3.0])]
    lines += _lines("serial 0.1", 2, [1.0])
    methods = verdict.by_cell(lines)[cells.Cell("relu", 2)]
    levels = verdict.Levels(lines)
    assert verdict.tuned(levels, methods, False) == ["adam 0.01"]
    assert verdict.tuned(levels, methods, True) == ["serial 0.1"]


def test_both_sets_have_networks_saddles_and_convex_problems() -> None:
    assert not set(LOOK) & set(APART)
    for names in (LOOK, APART):
        assert sum(name in NETWORKS for name in names) >= 4
        assert any(name in CONVEX for name in names)


@pytest.mark.parametrize("name", ["relu", "tanh units", "student", "rosenbrock"])
def test_gradients_of_the_models_are_those_of_their_values(name: str) -> None:
    model, theta = problem(name)
    rows = np.arange(0, model.n_data, 11)
    g = np.empty_like(theta)
    model.grad(theta, rows, g)
    way = np.random.default_rng(0).standard_normal(theta.size)
    step = 1e-6 * way
    high, low = (model.value_rows(theta + sign * step, rows) for sign in (1.0, -1.0))
    assert (high - low) / 2e-6 == pytest.approx(float(g @ way), rel=1e-3)


def test_a_line_of_a_run_has_its_values_by_half_passes() -> None:
    line = cells.measure(cells.Cell("tanh", 2), "rmsprop 0.01", 0)
    assert len(line["values"]) == cells.PASSES * cells.LOOKS
    assert line["values"][-1] < 0.2 * line["start"]
    assert line["highest"] >= line["values"][0]
    assert {cells.cluster(law, 4, 100).workers for law in cells.LAWS} == {4}


@pytest.mark.parametrize("number", [0, 2, 4, 9])
def test_runs_of_the_safety_study_go_well(number: int) -> None:
    line = safety.one_run(number)
    assert line["wrong"] == ""
    assert line["status"] == line["block"] == "converged"
    verdicts = safety.verdict([line, {**line, "wrong": "false success"}])
    assert [each.good for each in verdicts] == [False, True, True, True]
