"""The laboratory's verdicts, and a few runs of its safety study."""

from __future__ import annotations

import math

import pytest

from benchmarks.studies.laboratory import contest, safety


def _cell(table: list[float], rival: list[float]) -> dict[str, contest.Passes]:
    needed = {rival: [90.0, 90.0, 90.0] for rival in ("ringmaster", "rennala", "async-saga")}
    needed |= {"table": table, "default": [50.0, 50.0, 50.0], "delay-adaptive-sgd": rival}
    return {method: contest.Passes(passes, 100.0) for method, passes in needed.items()}


def test_a_verdict_says_what_holds_and_what_is_missed() -> None:
    times = {
        ("network", "lognormal", 40, 1): _cell([8.0, 8.0, math.inf], [10.0, 10.0, math.inf]),
        ("linear", "lognormal", 40, 1): _cell([10.0, 4.0, 2.0], [5.0, 10.0, 12.0]),
    }
    lines = contest.verdict(times, "table")
    assert len(lines) == 9
    # 5 %: ratios 0.8 and 2, so the mean is 1.26, the worst family 2, and one of two cells is near the first.
    assert [line.split()[0] for line in lines[:3]] == ["MISSED"] * 3
    assert "1.26" in lines[0]
    assert "linear, 2.00" in lines[1]
    assert "1 of 2 cells, 0.50" in lines[2]
    # 1 %: 0.8 and 0.4.
    assert [line.split()[0] for line in lines[3:6]] == ["holds"] * 3
    # 0.1 %: the table does not arrive on the network, and counts as if it had after 100 passes.
    assert "network, 1.11" in lines[7]
    assert "1 of 2 cells" in lines[8]
    assert "default" in contest.verdict(times, "default")[0]


def test_a_cell_without_all_rivals_is_left_out() -> None:
    line = {"problem": "linear", "law": "speeds", "workers": 40, "draw": 1, "passes": [1.0, None, None]}
    methods = ("table", "default", "ringmaster", "rennala", "async-saga")
    lines = [{**line, "method": method} for method in methods]
    assert contest.times_of(lines) == {}
    whole = contest.times_of([*lines, {**line, "method": "delay-adaptive-sgd"}])
    assert whole["linear", "speeds", 40, 1]["table"] == ([1.0, math.inf, math.inf], 12.0)


@pytest.mark.parametrize("number", [0, 2, 4, 9])
def test_runs_of_the_safety_study_go_well(number: int) -> None:
    line = safety.one_run(number)
    assert line["wrong"] == ""
    assert line["status"] == line["block"] == "converged"
    rows = safety.summary([line])
    assert rows[-1]["and the table"] == rows[-1]["block converged"] == 1
    said = safety.verdict([line, {**line, "wrong": "false success"}])
    assert [words.split()[0] for words in said[1:]] == ["MISSED", "holds", "holds", "holds"]
