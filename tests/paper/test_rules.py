"""The rules of the verdicts: every word can occur, censored runs count, and errors decide."""

from __future__ import annotations

import math

import numpy as np
import pytest

from asyncqn_paper.movielens import Path, race
from asyncqn_paper.rules import (
    CLAIMS,
    FAILS,
    FIGURES,
    GREY,
    HOLDS,
    UNDECIDED,
    Estimate,
    Verdict,
    above,
    all_of,
    decide,
    estimate,
    power_of,
    strongest,
    times_apart,
    trend,
    word_on,
)


def settings(
    holds: int, fails: int, undecided: int = 0, grey: int = 0
) -> list[Verdict]:
    ends = [HOLDS] * holds + [FAILS] * fails + [UNDECIDED] * undecided + [GREY] * grey
    return [
        Verdict("fig2-mb", {"payer": end, "problem": str(k % 3)}, end, because="a part")
        for k, end in enumerate(ends)
    ]


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ((9, 1), "**reproduced**"),
        ((9, 1, 0, 50), "**reproduced**"),
        ((1, 0, 5), "**reproduced where**"),
        ((2, 8), "**reproduced where** payer: holds"),
        ((0, 5, 1), "**not reproduced:** a part"),
        ((0, 1, 50), "**undecided**"),
        ((0, 0, 5), "**undecided**"),
        ((0, 0, 0, 5), "**undecided**"),
        ((0, 0), "**not run**"),
    ],
)
def test_every_word_can_occur(counts, word):
    assert str(word_on(settings(*counts))).startswith(word)


def test_a_stated_setting_decides_where_it_holds():
    at = {"payer": "a tree"}
    holds, fails, undecided = (
        Verdict("fig2-mb", at, end, because="a part")
        for end in (HOLDS, FAILS, UNDECIDED)
    )
    assert str(word_on(settings(2, 8), holds)) == "**reproduced where** a tree"
    assert str(word_on(settings(10, 0), holds)) == "**reproduced**"
    assert str(word_on(settings(0, 8, 2), fails)) == "**not reproduced:** a part"
    # "No" only if no plausible setting holds.
    assert str(word_on(settings(1, 8, 2), fails)) == "**undecided**"
    assert str(word_on(settings(5, 5), undecided)) == "**undecided**"


def test_the_strongest_setting_has_the_least_weak_part_and_is_never_grey():
    def outcomes(mb: float, best: float, end: str = HOLDS) -> list[Verdict]:
        return [
            Verdict("fig2-mb", {}, end, mb, 0.1, 9),
            Verdict("fig2-best", {}, HOLDS, best, 0.1, 9),
        ]

    found = {
        "even": outcomes(0.6, 0.6),
        "uneven": outcomes(5.0, 0.1),
        "grey": outcomes(9.0, 9.0, GREY),
        "part of it": outcomes(9.0, 9.0)[:1],
    }
    assert strongest(found, ("fig2-mb", "fig2-best")) == "even"


def test_a_falling_curve_passes_the_trend_test_and_a_flat_one_does_not():
    rng = np.random.default_rng(0)
    W = (1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 60, 80, 100)
    draws = [k % 5 for k in range(100)]

    def end(slope: float) -> str:
        noise = np.exp(0.3 * rng.standard_normal((100, len(W))))
        times = np.array(W) ** slope * noise
        found = trend(W, times, draws)
        return above("fig3-time", {}, found._replace(value=-found.value)).end

    # Twelve tests of single steps would pass such a curve with probability 0.03.
    assert [end(-0.35) for _ in range(20)] == [HOLDS] * 20
    assert [end(0.0) for _ in range(20)] == [FAILS] * 20


def test_the_power_of_a_test_is_that_of_a_normal_estimate():
    claim = CLAIMS["fig2-mb"]
    error = (claim.truth - claim.margin) / 4.0
    rng = np.random.default_rng(1)
    values = claim.truth + error * rng.standard_normal(20_000)
    ends = [decide(Estimate(v, error, 9), claim.margin) for v in values]
    share = ends.count(HOLDS) / len(ends)
    assert share == pytest.approx(power_of(claim, error), abs=0.01)


def test_two_errors_decide():
    assert decide(Estimate(1.0, 0.4, 9), 0.0) == HOLDS
    assert decide(Estimate(-1.0, 0.4, 9), 0.0) == FAILS
    assert decide(Estimate(1.0, 0.6, 9), 0.0) == UNDECIDED
    assert decide(Estimate(math.nan, 0.6, 9), 0.0) == UNDECIDED
    assert above("fig2-mb", {}, Estimate(0.2, 0.01, 100)).end == HOLDS


def test_the_error_covers_the_spread_between_draws():
    rng = np.random.default_rng(0)
    draws = np.arange(100) % 5
    luck = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])[draws]
    found = estimate(luck + 0.01 * rng.standard_normal(100), draws.tolist())
    assert found.value == pytest.approx(0.0, abs=0.02)
    assert found.error == pytest.approx(
        np.std([-1, -0.5, 0, 0.5, 1], ddof=1) / math.sqrt(5), rel=0.1
    )
    alone = estimate(rng.standard_normal(400))
    assert alone.error == pytest.approx(math.sqrt(math.pi / 2) / 20, rel=0.15)


def test_runs_that_do_not_arrive_count_as_the_limit():
    draws = [k % 5 for k in range(100)]
    some = [100.0] * 100
    late = [None if k % 10 < 6 else 50.0 for k in range(100)]
    found = times_apart(late, some, draws, 1000.0)
    assert not isinstance(found, str)
    assert found.value > math.log(2.0), (
        "most do not arrive, so the median is the limit over 100"
    )
    assert times_apart(some, late, draws, 1000.0).value == pytest.approx(-found.value)
    assert times_apart([None] * 100, [None] * 100, draws, 1000.0) == "neither arrives"
    assert times_apart([0.0] * 100, [0.0] * 100, draws, 1000.0) == "both start there"


def test_a_claim_of_several_parts_holds_where_all_do_and_fails_where_one_does():
    parts = [
        Verdict("fig2-mb", {}, end, value, 0.1, 9)
        for end, value in ((HOLDS, 1.0), (FAILS, -1.0))
    ]
    open_ = Verdict("fig2-sgd", {}, UNDECIDED, 0.0, 0.1, 9)
    assert all_of("fig2", {}, parts).end == FAILS
    assert all_of("fig2", {}, [parts[0], open_]).end == UNDECIDED
    assert all_of("fig2", {}, parts[:1]).end == HOLDS
    assert all_of("fig2", {}, parts).value == -1.0


def test_every_claim_has_a_rule_a_truth_beyond_its_margin_and_parts_that_exist():
    assert set(FIGURES) <= set(CLAIMS)
    for claim in CLAIMS.values():
        assert claim.rule
        assert set(claim.parts) <= set(CLAIMS)
        assert claim.parts or claim.truth > claim.margin
        assert len(claim.text.split()) <= 30


def path(*rmse: float, end: float = 0.0) -> Path:
    rows = [
        {"time": float(k), "commit": 20 * k, "rmse": value, "grad_norm": 1.0}
        for k, value in enumerate(rmse)
    ]
    return Path.of(rows, "time", end)


def test_a_run_that_diverges_and_is_stopped_early_does_not_win_the_race():
    """It counts as the whole run, not as the short time until its stop."""
    steady, quick = path(4.0, 3.5, 3.0, 2.5, 2.0), path(4.0, 2.0, 1.5, 1.2, 1.0)
    exploded = path(4.0, 3.8, 1e9)
    faster = race([steady] * 4, [quick] * 4)
    assert math.exp(faster.value) == pytest.approx(4.0)
    assert race([steady] * 4, [exploded] * 4).value == pytest.approx(0.0)
    assert race([exploded] * 4, [quick] * 4).value == pytest.approx(0.0)
    assert race([exploded] * 4, [exploded] * 4) == "a pair of runs diverged"
    worse = path(4.0, 4.1, 4.2, 4.3, 4.4)
    assert race([worse] * 4, [quick] * 4) == "both start there"


def test_a_run_that_ends_before_its_time_has_diverged_between_two_rows():
    short = (4.0, 3.8, 3.7)
    assert (path(*short).last, path(*short).stable) == (3.7, 1.0)
    late = path(*short, end=4.0)
    assert (late.last, late.stable) == (math.inf, 0.0)


def test_the_time_to_an_rmse_is_interpolated_between_rows():
    run = path(4.0, 3.0, 1.0)
    assert run.first_below(2.0) == pytest.approx(1.5)
    assert run.first_below(2.0, "commit") == pytest.approx(30.0)
    assert run.first_below(0.5) is None
