"""Verdicts follow the tables: the paper's picture makes a claim hold, the opposite one makes it fail."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn.paper.experiment import FAILS, HOLDS, PARTLY, UNTESTABLE
from asyncqn.paper.figures import fig1, fig2, fig3, fig4, fig5
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


def rmse_curves(ends: dict[str, float], jitter: dict[str, float]) -> list[dict[str, Any]]:
    """Exponential approaches to `ends`, with a gradient norm that jitters."""
    rng = np.random.default_rng(0)
    return [
        {
            "setting": setting,
            "ratings": "ml-1m",
            "algorithm": kind,
            "diverged": False,
            "commit": 10 * k,
            "time": k / 60,
            "rmse": end + (1.1 - end) * float(np.exp(-k / 6)),
            "grad_norm": float(np.exp(8 - k / 30 + jitter.get(kind, 1e-3) * rng.standard_normal())),
        }
        for setting in fig4.SETTINGS
        for kind, end in ends.items()
        for k in range(61)
    ]


def test_the_paper_s_picture_makes_every_claim_of_figure_4_hold() -> None:
    curves = rmse_curves({"async-sgd": 0.93, "mb-lbfgs": 0.99, "as-lbfgs": 0.92}, {"as-lbfgs": 0.1})
    found = fig4.claims({"curves": curves, "parameters": []})
    assert [claim.verdict for claim in found] == [HOLDS] * 8 + [UNTESTABLE]


def test_the_opposite_picture_makes_every_claim_of_figure_4_fail() -> None:
    curves = rmse_curves({"async-sgd": 0.91, "mb-lbfgs": 0.9, "as-lbfgs": 0.95}, {"async-sgd": 0.1})
    found = fig4.claims({"curves": curves, "parameters": []})
    assert [claim.verdict for claim in found] == [FAILS] * 8 + [UNTESTABLE]


def test_figure_4_says_on_which_set_its_parameters_were_tuned() -> None:
    curves = rmse_curves({"async-sgd": 0.93, "mb-lbfgs": 0.99, "as-lbfgs": 0.92}, {})
    used = [{"setting": "tuned", "ratings": "MovieLens 1M", "tuned on": "MovieLens 10M"}]
    found = fig4.claims({"curves": curves, "parameters": used})
    assert "the paper's parameters, W" in found[0].setting
    assert "tuned on MovieLens 10M, W" in found[4].setting


def test_a_run_of_figure_4_that_diverged_wins_nothing() -> None:
    curves = rmse_curves({"async-sgd": 0.93, "mb-lbfgs": 0.99, "as-lbfgs": 0.92}, {})
    for row in curves:
        row["diverged"] = row["algorithm"] == "as-lbfgs"
    faster, poorer, gains, _ = fig4.claims({"curves": curves, "parameters": []})[:4]
    assert faster.verdict == FAILS
    assert "as-L-BFGS diverged" in faster.because
    assert poorer.verdict == PARTLY
    assert gains.verdict == PARTLY


def reach(role: str, W: int, **changes: Any) -> dict[str, Any]:
    row = {"role": role, "workers": W, "h": 2e-8, "gamma": 0.1, "target": 0.95, "commits": 500,
           "time": 1.0 / W, "last rmse": 0.92, "lowest rmse": 0.92, "rises": 0.0,
           "friction limit": 0.1}  # fmt: skip
    return {**row, **changes}


def test_figure_5_s_claims_follow_its_table() -> None:
    curves = [{"ratings": "ml-1m"}]
    unstable = reach("paper", 20, rises=0.7, time=None, commits=None, **{"last rmse": 300.0})
    cured = reach("tuned", 20, h=1e-8, gamma=0.05)
    steady = [reach("paper", W) for W in (1, 10)]
    good = fig5.claims({"curves": curves, "reach": [*steady, unstable, cured]})
    assert [claim.verdict for claim in good] == [HOLDS] * 3
    larger = fig5.claims({"curves": curves, "reach": [*steady, unstable, {**cured, "h": 3e-8}]})
    assert larger[2].verdict == PARTLY
    slow = [reach("paper", 1), reach("paper", 10, time=0.5)]
    bad = fig5.claims({"curves": curves, "reach": [*slow, reach("paper", 20), {**cured, "last rmse": 1.5}]})
    assert [claim.verdict for claim in bad] == [FAILS] * 3


def test_figure_1_judges_the_worst_of_its_pairs() -> None:
    runs = [
        {"engine": engine, "seed": seed, "what": what, "x": float(x), "y": y}
        for seed in (0, 1)
        for engine, slower in (("simulated", 1.0), ("real", 1.0 + seed * 0.3))
        for what, points in (
            ("error", [(x * slower, 2.0**-x) for x in range(8)]),
            ("staleness", [(0, 0.5), (1, 0.5)]),
        )
        for x, y in points
    ]
    assert fig1.claims({"runs": [r for r in runs if r["seed"] == 0]})[0].verdict == HOLDS
    both = fig1.claims({"runs": runs})[0]
    assert both.verdict == PARTLY
    assert "1.00 to 1.30 times" in both.because


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


def test_the_reach_of_a_run_is_the_first_row_at_the_target() -> None:
    curve = [
        {
            "role": "paper",
            "workers": 2,
            "h": 1.0,
            "gamma": 0.1,
            "commit": c,
            "time": c / 2,
            "rmse": r,
            "grad_norm": g,
        }
        for c, r, g in ((0, 1.1, 9.0), (25, 0.95, 8.0), (50, 0.93, 7.0), (75, 0.94, 8.0))
    ]
    row = fig5._reach(curve)[0]
    assert (row["commits"], row["time"], row["last rmse"], row["rises"]) == (50, 25.0, 0.94, 1.0)
