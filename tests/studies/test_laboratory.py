"""The laboratory's verdicts, its cells and charges, and a few runs of its safety study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

import asyncqn as aq
from benchmarks.studies.laboratory import (
    cells,
    commits,
    contest,
    rivals,
    safety,
    verdict,
)
from benchmarks.studies.laboratory.problems import problem

Line = dict[str, Any]


def _lines(
    family: str, times: dict[str, Sequence[float | None]], **more: Any
) -> list[Line]:
    here = {
        "family": family,
        "workers": 40,
        "kind": "lognormal",
        "draw": 2,
        "seed": 1,
        **more,
    }
    return [
        {**here, "method": method, "passes": passes} for method, passes in times.items()
    ]


def test_a_verdict_says_what_holds_and_what_is_missed() -> None:
    lines = _lines("network", {
        "table": [8.0, 8.0, None], "ringmaster": [10.0, 10.0, None], "rennala": [20.0, 20.0, None],
        "default": [30.0, 7.0, 20.0],
    }) + _lines("linear", {
        "table": [10.0, 4.0, 2.0], "ringmaster": [5.0, 10.0, None], "async-saga": [6.0, 11.0, None],
    })  # fmt: skip
    said = verdict.verdict(verdict.times_of(lines), "table")
    assert len(said) == 12
    # 5 %: ratios 2 (linear) and 0.8 (network); one of two cells is near the first.
    assert [line.good for line in said[:4]] == [False, True, False, False]
    assert (
        str(said[0])
        == "MISSED  convex cells at 5 %: 2.00 (2.00 to 2.00, 1 cells), at most 1.0"
    )
    assert said[2].number == "2.00 (linear)"
    assert said[3].number == "0.50 (1 of 2 cells)"
    # 1 %: 0.4 and 0.8, and the default is the first on the network.
    assert [line.good for line in said[4:8]] == [True, False, True, False]
    # 0.1 %: nobody but the default arrives on the network, so the ratio to the rivals is 1, and not near.
    assert said[9].number == "1.00 (1.00 to 1.00, 1 cells)"
    assert said[11].number == "0.50 (1 of 2 cells)"
    rows = verdict.summary(verdict.times_of(lines))
    assert [row["first"] for row in rows if row["problem"] == "network"] == [
        "table 1", "default 1", "default 1",
    ]  # fmt: skip


def test_only_runs_that_all_have_are_compared_and_who_does_not_arrive_counts_as_the_length() -> (
    None
):
    lines = _lines(
        "linear", {"table": [3.0] * 3, "ringmaster": [6.0] * 3, "rennala": [9.0] * 3}
    )
    lines += _lines(
        "linear",
        {"table": [None] * 3, "ringmaster": [6.0] * 3, "rennala": [6.0] * 3},
        seed=2,
    )
    lines += _lines("linear", {"table": [1.0] * 3, "ringmaster": [6.0] * 3}, seed=3)
    (cell,) = verdict.compare(verdict.times_of(lines), "table", 0)
    assert cell.runs == 2
    # Times 3 and 12, the length of a convex run, against 6 and 6.
    assert cell.ratio == pytest.approx(1.0)
    assert cell.spread == pytest.approx(2.0)
    assert (cell.near, cell.first) == (True, "table")


def test_a_rival_counts_at_the_levels_it_was_tuned_for() -> None:
    table = _lines("linear", {"table": [1.0, 2.0, 3.0]})
    first = _lines(
        "linear",
        {"ringmaster": [1.0, 9.0, None], "rennala": [2.0, 9.0, None]},
        levels=[0],
    )
    times = verdict.times_of(table + first)
    assert [len(verdict.compare(times, "table", level)) for level in range(3)] == [
        1,
        0,
        0,
    ]


def test_the_best_two_rivals_of_a_level_are_measured_and_equal_points_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def entry(
        passes: Sequence[float | None], steps: Sequence[float]
    ) -> list[dict[str, Any]]:
        return [
            {"passes": p, "parameters": {"h": h}}
            for p, h in zip(passes, steps, strict=True)
        ]

    found = {"linear 40 lognormal": {
        "async-saga": entry([1.0, 2.0, 3.0], [0.1, 0.1, 0.2]), "rennala": entry([2.0, 9.0, 9.0], [1.0] * 3),
        "ringmaster": entry([3.0, 3.0, None], [5.0] * 3), "delay-adaptive-sgd": entry([None] * 3, [7.0] * 3),
    }}  # fmt: skip
    monkeypatch.setattr(rivals, "stored", lambda: found)
    assert rivals.chosen(cells.Cell("linear", 40, "lognormal")) == [
        ("async-saga", {"h": 0.1}, [0, 1]), ("rennala", {"h": 1.0}, [0, 2]),
        ("ringmaster", {"h": 5.0}, [1]), ("async-saga", {"h": 0.2}, [2]),
    ]  # fmt: skip


def test_commits_are_charged_by_the_numbers_and_the_updates_that_they_have() -> None:
    """The fit is positive, grows with d, and Rennala pays for every update that it collects."""
    for method, fit in commits.fits().items():
        assert min(fit) >= 0.0, method
        assert sum(fit) > 0.0, method

    def charge(collect: int, dim: int) -> float:
        return commits.commit_time(
            aq.Rennala(h=1.0, batch=1, collect=collect, scatter=True), dim
        )

    assert charge(40, 50) > charge(4, 50) > 0.0
    assert charge(4, 50_000) > charge(4, 50)
    step = aq.BlockLBFGS(2)
    seconds = commits.seconds_of_a_commit(
        aq.LinearGaussian.example(), step, None, 2, 12
    )
    assert 0.0 < seconds < 10.0


def test_the_cells_are_those_of_the_study() -> None:
    every = list(cells.cells())
    assert len(every) == len(set(every))
    assert {cell.workers for cell in every if cell.family == "movielens"} == {10, 40}
    assert {cell.workers for cell in every if cell.family == "linear"} == {
        4,
        16,
        40,
        400,
    }
    assert max(cell.workers for cell in every if cell.family == "profiled") == 40
    assert {cell.kind for cell in every} == {*cells.LAWS, "dear"}
    each_round = [contest.round_of(contest.DRAWS, k) for k in range(contest.ROUNDS)]
    rounds = [run for each in each_round for run in each]
    assert sorted(rounds) == [(draw, seed) for draw in (2, 3, 4) for seed in (1, 2, 3)]
    assert all({draw for draw, _ in each} == {2, 3, 4} for each in each_round)


def test_a_run_in_a_cell_reaches_its_levels_in_order_and_is_ended_where_asked() -> None:
    cell = cells.Cell("factorization", 40, "speeds")
    algorithm = aq.AsyncSAGA(h=1.7e-6, parts=666, order="age", scatter=True)
    told = cells.trace(cell, 0, algorithm, 0, gap=0.05)
    assert 0.0 < told.passes[0] < cells.length("factorization")
    assert told.passes[0] <= told.passes[1]
    stopped = cells.trace(
        cell, 0, algorithm, 0, hopeless=lambda passes, least: passes > 2.0
    )
    assert stopped.passes == [math.inf] * 3
    assert stopped.commits < told.commits
    assert problem("factorization").gap(
        problem("factorization").level(0.01)
    ) == pytest.approx(0.01)


@pytest.mark.parametrize("number", [0, 2, 4, 9])
def test_runs_of_the_safety_study_go_well(number: int) -> None:
    line = safety.one_run(number)
    assert line["wrong"] == ""
    assert line["status"] == line["block"] == "converged"
    rows = safety.summary([line])
    assert rows[-1]["and the table"] == rows[-1]["block converged"] == 1
    said = safety.verdict([line, {**line, "wrong": "false success"}])
    assert [words.split()[0] for words in said[1:]] == [
        "MISSED",
        "holds",
        "holds",
        "holds",
    ]
