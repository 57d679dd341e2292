"""Fig. 3: iterations up, time down, and the same without pairs beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncqn_paper.claims import FAILS, HOLDS, UNTESTABLE, Outcome
from asyncqn_paper.consistency import consistency
from asyncqn_paper.figures import fig3


def tables(
    commits: Callable[[int], float], time: Callable[[int, float], float | None], jitter: float = 0.0
) -> dict[str, Any]:
    """Two seeds; the second takes longer in all runs, and `jitter` longer at W = 80 and a large spread."""

    def slower(W: int, v: float, seed: int) -> float | None:
        t = time(W, v)
        return None if t is None else t * (1 + 0.5 * seed) * (1 + jitter * seed * (W == 80 and v > 1.0))

    runs = [
        {"role": role, "setting": name, "variance": v, "workers": W, "h": 1.0 / W, "pairs": 0.25,
         "seed": seed, "commits": commits(W), "time": slower(W, v, seed)}
        for name in fig3.SETTINGS
        for v in (1.0, 200.0)
        for W in (1, 10, 40, 80)
        for role in ("chosen", "no pairs", "fixed")
        for seed in (0, 1)
    ]  # fmt: skip
    return {"runs": runs}


def of(found: list[Outcome], claim: str) -> set[str]:
    return {one.verdict for one in found if one.claim == claim}


def test_the_claims_follow_the_table() -> None:
    good = fig3.outcomes(tables(lambda W: 100 + W, lambda W, v: 1e4 / W ** (1.0 if v == 1.0 else 0.8)))
    bad = fig3.outcomes(tables(lambda W: 100 - W, lambda W, v: 1e2 * W if v == 1.0 else 1e2))
    for claim in ("fig3-iterations", "fig3-time", "fig3-variance"):
        assert of(good, claim) == {HOLDS}
    assert of(bad, "fig3-iterations") == {FAILS}
    assert FAILS in of(bad, "fig3-time")
    assert of(bad, "fig3-variance") == {FAILS}
    assert "25 % of its pairs are accepted; with M = 0 80.0 times faster" in good[0].because


def test_speedups_are_compared_seed_by_seed_and_left_open_where_seeds_disagree() -> None:
    def time(W: int, v: float) -> float:
        return 1e4 / W ** (1.0 if v == 1.0 else 0.99)

    assert of(fig3.outcomes(tables(lambda W: 100, time)), "fig3-variance") == {HOLDS}
    assert of(fig3.outcomes(tables(lambda W: 100, time, jitter=0.5)), "fig3-variance") == {UNTESTABLE}


def test_runs_that_miss_the_target_leave_the_claim_open() -> None:
    found = fig3.outcomes(tables(lambda W: 100 + W, lambda W, v: None if W == 80 else 1e4 / W))
    assert of(found, "fig3-time") == {UNTESTABLE}
    alone = fig3.outcomes(tables(lambda W: 100 + W, lambda W, v: 1e4 if W == 1 else None))
    assert of(alone, "fig3-variance") == {UNTESTABLE}
    # gamma = 0.03 exceeds the limit of equal delays at W = 80, not at W = 40.
    assert of(found, "friction") == {HOLDS}
    assert of(fig3.outcomes(tables(lambda W: 100, lambda W, v: 1.0)), "friction") == {FAILS}


def test_the_fastest_step_is_chosen_among_those_that_always_arrive() -> None:
    grid = [
        {"rate": 1.0, "friction": 0.3, "time": 50.0},
        {"rate": 1.0, "friction": 0.3, "time": None},
        {"rate": 2.0, "friction": 0.3, "time": 80.0},
        {"rate": 2.0, "friction": 0.3, "time": 90.0},
    ]
    assert fig3.ranked(grid) == [(2.0, 0.3)]
    assert fig3.ranked([*grid, {"rate": 3.0, "friction": 0.3, "time": 60.0}])[0] == (3.0, 0.3)


def test_a_rate_is_the_drift_of_the_stiffest_direction_per_commit() -> None:
    setting = next(iter(fig3.SETTINGS.values()))
    given = fig3.parameters(setting, 0.01, 0.4, 10)
    top = consistency(setting.problem).largest
    assert abs(given["h"] * setting.scale**2 * top / given["gamma"] - 0.01) < 1e-12
    assert given["gamma"] == 0.04
