"""Verdicts follow the tables: the paper's picture makes a claim hold, the opposite one makes it fail."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn.paper.experiment import FAILS, HOLDS, PARTLY, UNTESTABLE
from asyncqn.paper.figures import fig2, fig3
from asyncqn.paper.settings import PAPER


def times(setting: str, kind: str, values: list[float | None]) -> list[dict[str, Any]]:
    return [
        {"setting": setting, "algorithm": kind, "variance": v, "time": t}
        for v, t in zip(fig2.VARIANCES, values, strict=True)
        for _ in range(2)
    ]


def test_the_paper_s_picture_makes_every_claim_of_figure_2_hold() -> None:
    flat, rising = [100.0] * 8, list(np.linspace(110.0, 200.0, 8))
    tables = {
        "times": [
            row
            for setting in fig2.SETTINGS
            for kind, curve in (("async-sgd", [300.0] * 8), ("mb-lbfgs", rising), ("as-lbfgs", flat))
            for row in times(setting, kind, curve)
        ],
        "quorum": [
            {"setting": "printed", "quorum": 1.0, "variance": v, "time": t}
            for v, t in zip(fig2.VARIANCES, rising, strict=True)
        ],
    }
    assert {claim.verdict for claim in fig2.claims(tables)} == {HOLDS}


def test_a_curve_that_was_never_reached_is_not_testable_and_no_winner() -> None:
    tables = {
        "times": [
            row
            for setting in fig2.SETTINGS
            for kind, curve in (
                ("async-sgd", [None] * 8),
                ("mb-lbfgs", [50.0] * 8),
                ("as-lbfgs", [100.0] * 8),
            )
            for row in times(setting, kind, curve)
        ],
        "quorum": [
            {"setting": "printed", "quorum": 1.0, "variance": v, "time": None} for v in fig2.VARIANCES
        ],
    }
    found = fig2.claims(tables)
    verdicts = {claim.claim.split(" (")[0]: claim.verdict for claim in found}
    assert verdicts["a-SGD is slower than both quasi-Newton methods when the workers are alike"] == UNTESTABLE
    assert verdicts["as-L-BFGS is the fastest of the three"] == FAILS
    assert verdicts["both asynchronous methods are robust against σ_w²"] == PARTLY


def test_the_quorum_is_looked_at_in_both_readings_of_the_timeout() -> None:
    jobs = fig2._quorum_jobs("paper", "linear-gaussian", PAPER["mb-lbfgs"], range(2))
    timeouts = {job.setting: dict(job.parameters)["timeout"] for job in jobs}
    assert timeouts == {"printed": 10.0, "computation": 20.0}
    assert {dict(job.parameters)["quorum"] for job in jobs} == set(fig2.QUORUMS)


def test_a_rival_that_never_arrives_does_not_make_a_sgd_slower_nor_a_claim_vanish() -> None:
    tables = {
        "times": [
            row
            for setting in fig2.SETTINGS
            for kind, curve in (
                ("async-sgd", [300.0] * 8),
                ("mb-lbfgs", [None] * 8),
                ("as-lbfgs", [None] * 8),
            )
            for row in times(setting, kind, curve)
        ],
        "quorum": [
            {"setting": "printed", "quorum": 1.0, "variance": v, "time": None} for v in fig2.VARIANCES
        ],
    }
    found = [claim for claim in fig2.claims(tables) if claim.setting == fig2.SETTINGS["paper"][1]]
    assert [claim.verdict for claim in found] == [FAILS, UNTESTABLE, PARTLY, FAILS]


def test_figure_3_compares_where_most_runs_fail_with_the_friction_limit() -> None:
    def runs(lost: tuple[int, ...], workers: tuple[int, ...]) -> dict[str, Any]:
        rows = [
            {"role": "fixed", "variance": 200.0, "workers": W, "h": 1.0, "commits": 9,
             "time": None if W in lost or k == 0 else 9.0}
            for W in workers
            for k in range(10)
        ]  # fmt: skip
        return {"runs": rows}

    # gamma = 0.03 exceeds the limit of equal delays at W = 80, not at W = 40; one lost run in ten is luck.
    assert fig3.claims(runs((80,), (1, 40, 80)))[-1].verdict == HOLDS
    assert fig3.claims(runs((40, 80), (1, 40, 80)))[-1].verdict == PARTLY
    assert fig3.claims(runs((), (1, 40, 80)))[-1].verdict == FAILS
    assert fig3.claims(runs((), (1, 40)))[-1].verdict == UNTESTABLE


def test_figure_3_s_claims_follow_its_table() -> None:
    def tables(commits: Any, time: Any) -> dict[str, Any]:
        rows = [
            {
                "role": "chosen",
                "variance": v,
                "workers": W,
                "h": 1.0 / W,
                "commits": commits(W),
                "time": time(W, v),
            }
            for v in (25.0, 200.0)
            for W in (1, 2, 5, 10, 20)
        ]
        fixed = [{"role": "fixed", "variance": 200.0, "workers": 1, "commits": 1, "time": 1.0, "h": 1.0}]
        return {"runs": rows + fixed}

    good = fig3.claims(tables(lambda W: 100 + W, lambda W, v: 1e4 / W ** (1.0 if v == 25.0 else 0.8)))
    assert [claim.verdict for claim in good[:5]] == [HOLDS] * 5
    bad = fig3.claims(tables(lambda W: 100 - W, lambda W, v: 1e2 * W))
    assert [claim.verdict for claim in bad[:4]] == [FAILS] * 4


def test_the_fastest_step_is_chosen_among_those_that_always_arrive() -> None:
    grid = [
        {"rate": 1.0, "friction": 0.3, "time": 50.0},
        {"rate": 1.0, "friction": 0.3, "time": None},
        {"rate": 2.0, "friction": 0.3, "time": 80.0},
        {"rate": 2.0, "friction": 0.3, "time": 90.0},
    ]
    assert fig3._fastest(grid) == (2.0, 0.3)
    assert fig3._fastest(grid[:2]) is None
