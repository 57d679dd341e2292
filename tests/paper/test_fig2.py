"""Fig. 2: problems by a rule that looks at no time, outcomes that follow the tables, every axis varied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from asyncqn_paper.claim_list import CLAIMS
from asyncqn_paper.claims import FAILS, HOLDS, UNTESTABLE
from asyncqn_paper.consistency import CONSISTENT, Consistency, candidates, consistency
from asyncqn_paper.figures import fig2_cases
from asyncqn_paper.figures.fig2_after import METHODS
from asyncqn_paper.figures.fig2_cases import BASE_PROBLEM, CASES, TUNED_CASES, scale_below_limit
from asyncqn_paper.figures.fig2_headline import headline
from asyncqn_paper.figures.fig2_outcomes import ORDER, order_outcomes, outcomes, staying
from asyncqn_paper.figures.times import Job, curve, measure_staying
from asyncqn_paper.settings import NAMES, PAPER

VARIANCES = (1.0, 200.0, 900.0)


def rows(sgd: Sequence[float | None], mb: Sequence[float | None], best: Sequence[float | None]) -> Any:
    return [
        {"algorithm": kind, "variance": v, "time": t, "pairs": 0.5}
        for kind, times in zip(NAMES, (sgd, mb, best), strict=True)
        for v, t in zip(VARIANCES, times, strict=True)
        for _ in range(2)
    ]


def verdicts(found: Any) -> dict[str, str]:
    return {one.claim: one.verdict for one in order_outcomes(found, "here", {})}


def test_the_paper_s_picture_makes_every_claim_hold_and_the_opposite_makes_all_fail() -> None:
    paper = rows([300, 300, 300], [110, 160, 200], [100, 100, 100])
    assert verdicts(paper) == dict.fromkeys(ORDER, HOLDS)
    opposite = rows([50, 80, 90], [400, 390, 380], [100, 140, 160])
    assert verdicts(opposite) == dict.fromkeys(ORDER, FAILS)


def test_a_method_that_never_arrives_is_slow_but_no_winner() -> None:
    lost: list[float | None] = [None] * 3
    no_sgd = verdicts(rows(lost, [110, 160, 200], [100, 100, 100]))
    assert (no_sgd["fig2-sgd"], no_sgd["fig2-robust"], no_sgd["fig2-best"]) == (HOLDS, UNTESTABLE, HOLDS)
    no_best = verdicts(rows([300, 300, 300], [110, 160, 200], lost))
    assert (no_best["fig2-best"], no_best["fig2-alike"]) == (FAILS, FAILS)
    assert set(verdicts(rows(lost, lost, lost)).values()) == {UNTESTABLE}
    there = verdicts(rows([0, 0, 0], [0, 0, 0], [0, 0, 0]))
    assert set(there.values()) == {UNTESTABLE}


def test_means_leave_out_runs_that_miss_the_target_unless_they_are_most() -> None:
    found = curve([{"variance": 1.0, "time": t} for t in (10.0, 30.0, None)])
    assert (found.mean[0], found.share[0]) == (20.0, 2 / 3)
    assert not curve([{"variance": 1.0, "time": t} for t in (10.0, None, None)]).arrives


def test_the_listed_problems_are_those_to_which_the_rule_has_no_objection() -> None:
    rows = candidates()
    assert {row["problem"] for row in rows if not row["objections"]} == set(CONSISTENT)
    assert len(rows) > len(CONSISTENT)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (Consistency(60.0, 0.0, 0.9), "a-SGD's step"),
        (Consistency(9.0, 0.2, 0.9), "a-SGD's noise"),
        (Consistency(9.0, 0.0, 0.1), "correlation"),
        (Consistency(3000.0, 0.0, 0.9), "as-L-BFGS's step"),
    ],
)
def test_each_part_of_the_rule_can_object(found: Consistency, word: str) -> None:
    assert any(word in objection for objection in found.objections)


def test_the_scale_of_every_case_is_below_the_limit_of_stability_and_near_it() -> None:
    for problem in CONSISTENT:
        limit = consistency(problem).scale
        assert 0.8 * limit < scale_below_limit(problem) < limit


def test_every_axis_that_the_paper_leaves_open_is_varied_around_the_base_case() -> None:
    base = CASES["base"].choices
    cases = {**CASES, **TUNED_CASES}.values()
    for claim in (CLAIMS[name] for name in ORDER):
        for axis in claim.open:
            assert len({case.choices[axis] for case in cases if axis in case.choices}) > 1, axis
    changes = [
        {axis for axis in base if case.choices.get(axis, base[axis]) != base[axis]} for case in CASES.values()
    ]
    alone = {next(iter(changed)) for changed in changes if len(changed) == 1}
    assert alone == set(base) - {fig2_cases.NUMBERS}


def test_a_timeout_of_computation_alone_is_longer_by_the_messages() -> None:
    timeouts = {
        case.choices[fig2_cases.TIMEOUT]: case.parameters["mb-lbfgs"]["timeout"] for case in CASES.values()
    }
    assert timeouts == {"timeout of computation and messages": 10.0, "timeout of computation alone": 20.0}


def stays(name: str, kind: str, later: float | None, control: bool = False) -> list[dict[str, Any]]:
    shared = {"setting": name, "algorithm": kind, "control": control, "variance": 200.0}
    return [{**shared, "seed": seed, "later": later} for seed in range(2)]


def test_a_run_that_leaves_epsilon_again_does_not_stay_and_one_that_never_arrives_says_nothing() -> None:
    rows = stays("here", "as-lbfgs", 1.9) + stays("here", "as-lbfgs", 2.1) + stays("here", "as-lbfgs", None)
    found = staying({"staying": rows}, "here", "as-lbfgs")
    assert (found.arrived, found.share) == (4, 0.5)
    assert staying({"staying": rows}, "here", "async-sgd").arrived == 0


def test_what_comes_after_epsilon_is_measured_from_twice_to_three_times_the_time_to_it() -> None:
    given = tuple(sorted(PAPER["async-sgd"].items()))
    job = Job("rows-alike-8", "async-sgd", given, 1.0, (0,), workers=4, epsilon=0.15)
    (row,) = measure_staying(job)
    assert row["later"] < 1.0
    (lost,) = measure_staying(replace(job, limit=1.0))
    assert lost["later"] is None


def test_the_headline_tells_where_the_order_appears_and_that_tuning_breaks_it() -> None:
    paper = rows([300, 300, 300], [110, 160, 200], [100, 100, 100])
    broken = rows([50, 80, 90], [400, 390, 380], [100, 140, 160])
    tables: dict[str, Any] = {"times": [], "controls": [], "staying": [], "after": []}
    for name, case in {**CASES, **TUNED_CASES}.items():
        good = case.problem == BASE_PROBLEM and case.serial == 2.0 and name not in TUNED_CASES
        tables["times"] += [{"setting": name, **row} for row in (paper if good else broken)]
        tables["controls"] += [{"setting": name, **row} for row in (broken if good else paper)
                               if row["algorithm"] == "as-lbfgs"]  # fmt: skip
        tables["staying"] += stays(name, "as-lbfgs", 9.0 if good else 0.5) + stays(name, "mb-lbfgs", 0.5)
        tables["staying"] += stays(name, "async-sgd", 3.0 if name in TUNED_CASES else 0.5)
        tables["staying"] += stays(name, "as-lbfgs", 0.5, control=True)
    for method in METHODS:
        errors = (0.2, 0.04, 7.0 if method == "as-lbfgs" else 0.04)
        tables["after"] += [
            {"method": method, "seed": 0, "time": float(k), "error": error} for k, error in enumerate(errors)
        ]
    appears, passing, around, after = headline(tables)
    assert f"three times that time in 0; with M = 0 in {passing.split('In the ')[1].split()[0]}" in passing
    assert "as-L-BFGS: 1 of 1; as-L-BFGS, M = 0: 0 of 1" in passing
    assert "a-SGD 50 in passing" in after
    assert "in 0 of the 27 in which it does not" in appears
    assert "rows alike 8" in appears
    assert "breaks with: b = 1; b = 5; b = 0." in around
    assert f"breaks in {len(TUNED_CASES)} of {len(TUNED_CASES)} settings" in after
    found = outcomes(tables)
    keys = [(o.claim, *(o.choices.get(axis) for axis in CLAIMS[o.claim].open)) for o in found]
    assert len(keys) == len(set(keys))
    assert found[-1].claim == "pairs-act"
