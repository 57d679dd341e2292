"""The tempering experiment: equal trials and budgets, intervals, verdicts, one small run of every arm."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from asyncqn_paper.catalogue import find
from asyncqn_paper.figures import tempering
from asyncqn_paper.figures.tempering_figure import compare, score, sign_test, wilson

ARMS = ("none", "constant", "annealed", "restarts")


def test_every_arm_has_the_same_number_of_different_trials():
    for method, workers in tempering.STEPS:
        for arm in ARMS:
            jobs = tempering.trials("mixture", method, workers, arm)
            assert len(set(jobs)) == tempering.TRIALS
            assert all((job.beta == math.inf) == (arm in ("none", "restarts")) for job in jobs)


def test_both_methods_compute_gradients_of_equally_many_rows():
    jobs = [tempering.trials("mixture", method, 1, "none")[0] for method in ("sgld", "as-lbfgs")]
    first, second = (tempering.algorithm(job, 50.0, 100) for job in jobs)
    assert first.batch == second.batch + second.overlap == tempering.ROWS


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_yields_one_record_per_start_and_the_same_again(arm, monkeypatch):
    monkeypatch.setitem(tempering.COMMITS, "phase-retrieval", 60)
    job = replace(tempering.trials("phase-retrieval", "as-lbfgs", 10, arm)[0], count=2)
    records = tempering.measure(job)
    assert [r["start"] for r in records] == [job.first, job.first + 1]
    assert tempering.measure(job) == records


def test_exact_restarts_stay_within_the_budget(monkeypatch):
    used = []
    original = tempering.descend

    def counting(problem, theta0, gradients):
        used.append(original(problem, theta0, gradients))
        return used[-1]

    monkeypatch.setattr(tempering, "descend", counting)
    job = tempering.Job("phase-retrieval", "block-lbfgs", 1, "restarts", 0.0, math.inf, 1, 0, 1)
    points = tempering.last_points(job, 0)
    budget = tempering.COMMITS["phase-retrieval"] * tempering.ROWS // 40
    assert len(points) == len(used) > 1
    assert sum(descent.gradients for descent in used) == budget


def test_the_interval_of_half_the_starts_is_the_textbooks():
    # Wilson for 10 of 20: centre 1/2, half width z / (1 + z^2/20) sqrt(1/80 + z^2/1600) = 0.2007.
    low, high = wilson(10, 20)
    assert low == pytest.approx(0.2993, abs=1e-4)
    assert high == pytest.approx(0.7007, abs=1e-4)
    assert wilson(0, 20)[0] == 0.0
    assert wilson(20, 20)[1] == 1.0


def test_the_sign_test_is_exact():
    assert sign_test(0, 0) == 1.0
    assert sign_test(5, 0) == 2 / 32
    assert sign_test(1, 3) == sign_test(3, 1) == 2 * 5 / 16


def test_arms_are_compared_start_by_start():
    def rows(*successes):
        return [{"start": i, "success": s} for i, s in enumerate(successes)]

    assert compare(rows(True, True, False, True), rows(False, True, True, False))[:2] == (2, 1)


def test_tuning_prefers_successes_then_a_smaller_excess_and_punishes_divergence():
    good, near, far = ({"success": s, "excess": e} for s, e in ((True, 0.0), (False, 5.0), (False, None)))
    assert score([good, far]) > score([near, near])
    assert score([good, near]) > score([good, far])


def test_the_experiment_is_found_by_name_but_is_none_of_the_papers():
    assert find(["tempering"])[0].name == "tempering"
    assert "tempering" not in [experiment.name for experiment in find(["all"])]
