"""Figs. 1, 4, 5 and S1: outcomes follow the tables; the clusters behind their time axes are what they say."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncqn.cluster.simulate import simulate
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.lab.tuning.tuner import FORMAT
from asyncqn_paper.claims import FAILS, HOLDS, UNTESTABLE
from asyncqn_paper.experiment import Context
from asyncqn_paper.figures import fig1, fig4, fig4_claims, fig5_claims
from asyncqn_paper.movielens import BANDWIDTH, STARTS, Timing, measured_cluster, slowed
from asyncqn_paper.real_runs import GAUSSIAN, RealRun, processors_in_use, run_real
from asyncqn_paper.settings import NAMES, PAPER

DIM = 48_730
"""Of MovieLens 1M at K = 5."""


def rate(workers: int, timing: Timing, kind: str, link: bool) -> float:
    """Commits per second of a simulated asynchronous run."""
    cluster = measured_cluster(timing, workers, kind=kind, link=link)
    return 4000 / float(simulate(cluster, ASYNCHRONOUS, 4000, 0).commit_times()[-1])


def test_a_busy_link_carries_what_the_scaling_page_says() -> None:
    """16 d bytes each way at 10 Gbit/s: 1,603 updates per second, however many workers."""
    as_lbfgs = Timing(1.2e-3, 5e-5, 32 * DIM / BANDWIDTH)
    sgd = Timing(3e-4, 2e-5, 16 * DIM / BANDWIDTH)
    assert rate(40, as_lbfgs, "as-lbfgs", True) == pytest.approx(1603, rel=0.01)
    assert rate(40, sgd, "async-sgd", True) == pytest.approx(2 * 1603, rel=0.01)
    # One worker alone waits for nobody: computing, a commit or a message, and the other message.
    alone = as_lbfgs.worker + as_lbfgs.message
    assert rate(1, as_lbfgs, "as-lbfgs", True) == pytest.approx(1 / alone, rel=0.01)
    assert rate(10, as_lbfgs, "as-lbfgs", False) == pytest.approx(10 / sum(as_lbfgs), rel=0.02)


def test_uneven_workers_have_the_same_mean_and_differ_fourfold() -> None:
    means = measured_cluster(Timing(1.0, 0.1, 0.2), 8, uneven=True).means()
    assert means.mean() == pytest.approx(1.0)
    assert means.max() / means.min() == pytest.approx(4.0)


def test_slow_gradients_cost_in_proportion_to_their_rows() -> None:
    timing = Timing(1e-3, 1e-5, 1e-3)
    assert slowed("as-lbfgs", timing).worker == pytest.approx(4 / 3 * slowed("async-sgd", timing).worker)


def rmse_curves(ends: dict[str, float], jitter: dict[str, float], **changes: Any) -> list[dict[str, Any]]:
    """Exponential approaches to `ends`, with a gradient norm that jitters."""
    rng = np.random.default_rng(0)
    row = {"setting": fig4_claims.BASE, "ratings": "ml-1m", "diverged": False, "pairs": 0.9, "steps": 600}
    row |= changes
    return [
        {
            **row,
            "start": start,
            "algorithm": kind,
            "seed": seed,
            "commit": 10 * k,
            "time": k / 60,
            "rmse": end + (1.1 - end) * float(np.exp(-k / 6)),
            "grad_norm": float(np.exp(8 - k / 30 + jitter.get(kind, 1e-3) * rng.standard_normal())),
        }
        for start in STARTS
        for seed in range(3)
        for kind, end in ends.items()
        for k in range(61)
    ]


def verdicts(curves: list[dict[str, Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in fig4_claims.outcomes({"curves": curves}):
        found.setdefault(one.claim, set()).add(one.verdict)
    return found


GOOD = {"async-sgd": 0.93, "mb-lbfgs": 0.99, "as-lbfgs": 0.92}


def test_the_paper_s_picture_makes_every_claim_of_figure_4_hold() -> None:
    found = verdicts(rmse_curves(GOOD, {"as-lbfgs": 0.1}))
    assert found == {f"fig4-{name}": {HOLDS} for name in ("mb", "rmse", "gain", "fluctuates")}


def test_the_opposite_picture_makes_every_claim_of_figure_4_fail() -> None:
    curves = rmse_curves({"async-sgd": 0.91, "mb-lbfgs": 0.9, "as-lbfgs": 0.95}, {"async-sgd": 0.1})
    assert set.union(*verdicts(curves).values()) == {FAILS}


def test_a_run_of_figure_4_that_diverged_wins_nothing() -> None:
    curves = rmse_curves(GOOD, {})
    for row in curves:
        row["diverged"] = row["algorithm"] == "as-lbfgs"
    found = verdicts(curves)
    assert found["fig4-mb"] == found["fig4-gain"] == found["fig4-rmse"] == {FAILS}
    assert found["fig4-fluctuates"] == {UNTESTABLE}


@pytest.mark.parametrize("load", [None, 0.1, 1.7])
def test_real_runs_of_figure_4_on_a_busy_machine_say_nothing_about_time(load: float | None) -> None:
    on = {"setting": fig4_claims.REAL, "workers": 2, "engine": "MPI", "because": "", "load": load}
    real = [row for row in rmse_curves(GOOD, {"as-lbfgs": 0.1}, **on) if row["start"] == "mean"]
    found = fig4_claims.outcomes({"curves": rmse_curves(GOOD, {}), "real": real})
    told = {one.claim: one.verdict for one in found if "MPI with W = 2" in one.setting}
    timed = UNTESTABLE if load == 1.7 else HOLDS
    assert told == {**dict.fromkeys(("fig4-mb", "fig4-rmse", "fig4-gain"), timed), "fig4-fluctuates": HOLDS}


def test_an_mb_lbfgs_that_is_still_falling_is_late_and_not_poorer() -> None:
    curves = rmse_curves(GOOD, {})
    for row in curves:
        if row["algorithm"] == "mb-lbfgs":
            row["rmse"] = 1.1 - 0.05 * row["time"]
    assert verdicts(curves)["fig4-rmse"] == {UNTESTABLE}


def test_a_setting_that_leaves_an_algorithm_as_it_is_is_compared_with_its_base_case() -> None:
    changed = [r for r in rmse_curves(GOOD, {}, setting="epsilon") if r["algorithm"] != "async-sgd"]
    found = fig4_claims.outcomes({"curves": rmse_curves(GOOD, {}) + changed})
    mine = [o for o in found if o.choices["cautious constant"] == "ε = 30"]
    assert len(mine) == 4 * len(STARTS)
    assert "a-SGD 0.930" in mine[0].because


def test_lengths_of_runs_are_judged_apart() -> None:
    late = {"async-sgd": 0.93, "mb-lbfgs": 0.99, "as-lbfgs": 0.94}
    found = fig4_claims.outcomes({"curves": rmse_curves(GOOD, {}) + rmse_curves(late, {}, steps=4800)})
    gains = {(o.choices["length of the run"], o.verdict) for o in found if o.claim == "fig4-gain"}
    assert gains == {("for 600 steps", HOLDS), ("for 4800 steps", FAILS)}


def test_a_step_is_worth_the_ratio_of_commits_at_equal_rmse() -> None:
    def curve(kind: str, pace: float) -> list[dict[str, Any]]:
        row = {"setting": fig4_claims.BASE, "ratings": "ml-1m", "start": "mean", "algorithm": kind, "seed": 0}
        row |= {"steps": 600, "diverged": False}
        return [{**row, "commit": 10 * k, "rmse": 1.1 - 0.001 * pace * k} for k in range(101)]

    timings = [
        {"ratings": "ml-1m", "algorithm": "async-sgd", "worker": 0.3, "master": 0.1},
        {"ratings": "ml-1m", "algorithm": "as-lbfgs", "worker": 1.0, "master": 0.2},
    ]
    found = fig4_claims.break_even(
        {"curves": curve("async-sgd", 1.0) + curve("as-lbfgs", 2.0), "timings": timings}, "mean"
    )
    np.testing.assert_allclose(found.worth, 2.0, rtol=1e-9)
    assert found.step_ratio == pytest.approx(3.0)


def reached(W: int, role: str = "paper", **changes: Any) -> dict[str, Any]:
    row = {"setting": "free", "role": role, "workers": W, "h": 2e-8, "gamma": 0.1, "seed": 0, "pairs": None,
           "target": 0.95, "commits": 500, "time": 1.0 / W, "last rmse": 0.92, "lowest rmse": 0.92,
           "stable": True, "engine": None, "because": None, "load": None}  # fmt: skip
    return {**row, **changes}


def test_figure_5_s_outcomes_follow_its_table() -> None:
    curves = [{"ratings": "ml-1m"}]
    lost = {"time": None, "commits": None, "last rmse": None, "stable": False}
    good = [
        reached(1),
        reached(10),
        reached(20, **lost),
        reached(20, "half"),
        reached(20, "h' alone", **lost),
    ]
    found = [o.verdict for o in fig5_claims.outcomes({"curves": curves, "reach": good})]
    assert found == [HOLDS, HOLDS, HOLDS, HOLDS, FAILS]
    bad = [reached(1), reached(10, time=0.25, commits=900), reached(20), reached(20, "half")]
    found = [o.verdict for o in fig5_claims.outcomes({"curves": curves, "reach": bad})]
    # Where nothing is unstable there is nothing to cure.
    assert found == [FAILS, FAILS, FAILS, UNTESTABLE]


def test_the_time_of_a_real_run_on_a_busy_machine_is_no_evidence() -> None:
    rows = [reached(W, setting="real", engine="MPI", load=9.0, time=1.0 / W**2) for W in (1, 2)]
    linear, iterations = fig5_claims.outcomes({"curves": [{"ratings": "ml-1m"}], "reach": rows})
    assert (linear.verdict, iterations.verdict) == (UNTESTABLE, HOLDS)


@pytest.mark.skipif(not Path("/proc/stat").is_file(), reason="elsewhere it is the load average")
def test_processors_in_use_are_between_none_and_all_and_count_a_busy_neighbour() -> None:
    assert -0.1 <= processors_in_use(0.2) <= (os.cpu_count() or 1) + 0.1
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            pass

    neighbour = threading.Thread(target=busy)
    neighbour.start()
    try:
        # A thread that never sleeps needs a processor, or waits for one while all are taken.
        assert processors_in_use(0.5) > 0.5
    finally:
        stop.set()
        neighbour.join()


def test_the_reach_of_a_run_is_the_first_row_at_the_target_of_one_worker() -> None:
    shared = {"setting": "free", "role": "paper", "workers": 1, "h": 1.0, "gamma": 0.1, "seed": 0}
    shared |= {"status": "completed", "pairs": None}
    curve = [
        {**shared, "commit": c, "time": c / 2, "rmse": r}
        for c, r in ((0, 1.1), (25, 0.95), (50, 0.93), (75, 0.94))
    ]
    (row,) = fig5_claims.reach(curve)
    assert (row["target"], row["commits"], row["time"], row["last rmse"]) == (0.93, 50, 25.0, 0.94)
    assert not row["stable"]


def test_figure_1_judges_the_worst_of_its_pairs() -> None:
    def runs(seeds: tuple[int, ...]) -> list[dict[str, Any]]:
        shared = {"setting": fig1.STRETCHED, "memory": 3, "on": "threads", "because": ""}
        return [
            {**shared, "engine": engine, "seed": seed, "what": what, "x": float(x), "y": y}
            for seed in seeds
            for engine, slower in (("simulated", 1.0), ("real", 1.0 + seed * 0.3))
            for what, points in (
                ("error", [(x * slower, 2.0**-x) for x in range(8)]),
                ("staleness", [(0, 0.5), (1, 0.5)]),
            )
            for x, y in points
        ]

    assert fig1.outcomes({"runs": runs((0,))})[0].verdict == HOLDS
    both = fig1.outcomes({"runs": runs((0, 1))})[0]
    assert both.verdict == FAILS
    assert "1.00 to 1.30 times" in both.because


def test_figure_1_asks_no_more_of_the_simulator_than_of_a_second_real_run() -> None:
    def runs(again: float) -> list[dict[str, Any]]:
        shared = {"setting": fig1.STRETCHED, "memory": 3, "on": "threads", "because": "", "seed": 0}
        return [
            {**shared, "engine": engine, "what": what, "x": float(x), "y": y}
            for engine, factor in (("simulated", 1.4), ("real", 1.0), (fig1.AGAIN, again))
            for what, points in (
                ("error", [(x, factor * 2.0**-x) for x in range(8)]),
                ("staleness", [(0, 0.5), (1, 0.5)]),
            )
            for x, y in points
        ]

    assert fig1.outcomes({"runs": runs(1.0)})[0].verdict == FAILS
    assert fig1.outcomes({"runs": runs(1.35)})[0].verdict == HOLDS


def test_without_a_launcher_real_runs_use_threads_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncqn_paper.real_runs.find_spec", lambda name: None)
    given = tuple(sorted({**PAPER["as-lbfgs"], "initial_scale": 0.3, "epsilon": 1.2}.items()))
    real = run_real([RealRun(GAUSSIAN, "as-lbfgs", given, 2, 60, 0)])
    assert real.engine == "threads"
    assert "there is no mpi4py" in real.because
    assert real.runs[0].schedule.commits == 60


def test_a_larger_set_is_run_tuned_where_all_three_algorithms_have_a_study_of_it(
    tmp_path: Path,
) -> None:
    times = dict.fromkeys(NAMES, Timing(1e-3, 1e-5, 1e-3))
    best = {"parameters": {"h": 1e-6, "batch": 100}}
    study = {"kind": "asyncqn tuning", "format": FORMAT, "command": "asyncqn tune ...", "problem": {},
             "budget": 5, "best": best, "trials": []}  # fmt: skip
    found = []
    for kind in NAMES:
        context = Context(tmp_path, full=True, tuned_from=tmp_path)
        jobs, _ = fig4._jobs(context, "10m", "synthetic-demo", times)
        found.append({job.setting for job in jobs})
        (tmp_path / f"{fig4.study_name(kind, '10m')}.json").write_text(json.dumps(study))
    jobs, used = fig4._jobs(context, "10m", "synthetic-demo", times)
    assert found == [{fig4.BASE}] * 3
    assert {job.setting for job in jobs} == {fig4.BASE, fig4.TUNED}
    assert {row["found by"] for row in used} == {"the paper's table", "asyncqn tune ..."}
