"""One verdict of many outcomes, by a stated rule; a negative one never rests on a choice of ours alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn_paper.claim_list import CLAIMS
from asyncqn_paper.claims import (
    DEPENDS,
    FAILS,
    HOLDS,
    UNDER,
    UNTESTABLE,
    Claim,
    Outcome,
    outcome,
    verdict_on,
)
from asyncqn_paper.judgement import Row, judged, rests_on_a_choice

CLAIM = Claim("c", "it works", "Fig. 9", ("quorum", "link"))


def settings(found: dict[tuple[str, str], bool | None]) -> list[Outcome]:
    return [
        outcome("c", f"{q}, {b}", holds, "numbers", {"quorum": q, "link": b})
        for (q, b), holds in found.items()
    ]


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ({("all", "none"): True, ("half", "serial"): True}, HOLDS),
        ({("all", "none"): False, ("half", "serial"): False}, FAILS),
        ({("all", "none"): False, ("half", "none"): False}, UNTESTABLE),
        ({("all", "none"): None, ("half", "serial"): None}, UNTESTABLE),
        ({("all", "none"): True, ("all", "serial"): True, ("half", "none"): False}, UNDER),
        ({("all", "none"): True, ("all", "serial"): False, ("half", "none"): False}, DEPENDS),
        ({}, UNTESTABLE),
    ],
)
def test_the_verdict_follows_the_rule(found: dict[tuple[str, str], bool | None], word: str) -> None:
    assert verdict_on(CLAIM, settings(found)).word == word


def test_a_condition_names_the_fewest_axes_that_part_the_settings() -> None:
    found = {
        ("all", "none"): True,
        ("all", "serial"): True,
        ("half", "none"): False,
        ("half", "serial"): False,
    }
    verdict = verdict_on(CLAIM, settings(found))
    assert (verdict.condition, verdict.deciding) == ("all", ("quorum",))
    assert Row(CLAIM, verdict, []).words == "holds under all"


def test_axes_that_decide_are_those_on_which_two_settings_differ_alone() -> None:
    found = {
        ("all", "none"): True,
        ("all", "serial"): False,
        ("half", "none"): False,
        ("half", "serial"): True,
    }
    assert verdict_on(CLAIM, settings(found)).deciding == ("quorum", "link")


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), st.sampled_from([True, False, None])
    )
)
def test_no_verdict_contradicts_its_settings(found: dict[tuple[str, str], bool | None]) -> None:
    outcomes = settings(found)
    verdict = verdict_on(CLAIM, outcomes)
    if verdict.word == FAILS:
        assert True not in found.values()
        assert rests_on_a_choice(Row(CLAIM, verdict, outcomes)) == []
    if verdict.word == HOLDS:
        assert False not in found.values()
    if verdict.word in (UNDER, DEPENDS):
        assert {True, False} <= set(found.values())


def test_every_claim_of_the_paper_has_a_row_even_where_nothing_was_run() -> None:
    rows = judged([])
    assert [row.claim.id for row in rows] == [name for name, claim in CLAIMS.items() if not claim.own]
    assert {row.verdict.word for row in rows} == {UNTESTABLE}
