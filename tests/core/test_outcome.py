"""How a run ended: one type, one rule for success, the same on every engine, in replay and after a resume."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from oracles import one_sentence

import asyncqn as aq
from asyncqn.core.outcome import Outcome, outcome_of, risen

UNSTABLE = aq.AsyncSGD(h=0.1, batch=6)


def make_problem(dtype=np.float64):
    return aq.LinearGaussian.random(
        10, 60, 2.0, seed=1, dominant=2, top=40.0, bulk=(2.0, 9.0), dtype=dtype
    )


def simulated(workers=4):
    return aq.Simulator(aq.Cluster(workers, 2.0, 0.5))


def at_the_optimum(p):
    return aq.minimize(p, engine=simulated(1)).theta


def test_an_outcome_is_its_word_in_comparisons_json_and_text():
    for outcome in Outcome:
        assert outcome == outcome.value
        assert json.loads(json.dumps({"status": outcome})) == {"status": outcome.value}
        assert f"{outcome}" == str(outcome) == outcome.value
        assert repr(outcome) == repr(outcome.value)
        assert one_sentence(outcome.meaning)
        assert outcome_of(outcome.value) is outcome
    assert outcome_of("reached") is None


def test_only_convergence_and_all_commits_of_a_stochastic_method_are_a_success():
    assert [o for o in Outcome if o.is_success(exact=True)] == [Outcome.CONVERGED]
    assert [o for o in Outcome if o.is_success(exact=False)] == [
        Outcome.CONVERGED,
        Outcome.COMPLETED,
    ]


@pytest.mark.parametrize("eps", [2.0**-52, 2.0**-23])
def test_a_rise_within_rounding_or_noise_is_none(eps):
    assert not risen(1000.0, 1000.0 * (1 + 5 * eps), 0.0, eps)
    assert risen(1000.0, 1000.0 * (1 + 50 * eps), 0.0, eps)
    assert not risen(1000.0, 1003.0, 4.0, eps)
    assert risen(1000.0, 1005.0, 4.0, eps)
    assert risen(1000.0, math.nan, 1e9, eps)
    assert risen(1000.0, -math.inf, 1e9, eps)
    assert not risen(1000.0, -1e300, 0.0, eps)


ENGINES = {
    "simulator": simulated(),
    "threads": aq.Threads(2),
    "processes": aq.Processes(2),
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_run_that_ends_above_its_start_has_diverged_on_every_engine_and_in_replay(
    engine, tmp_path
):
    p = make_problem()
    run = aq.minimize(p, UNSTABLE, engine=engine, commits=20)
    assert run.nit == 20, "it explodes, but not beyond what numbers can hold"
    assert run.fun > 100 * p.value(run.theta0)
    assert (run.status, run.success) == (Outcome.DIVERGED, False)
    assert "U rose from" in run.message
    assert "the step h = 0.1 is above the limit" in run.message
    assert one_sentence(run.message)
    loaded = aq.load_run(run.save(tmp_path))
    again = aq.replay(loaded)
    for other in (loaded, again):
        assert (other.status, other.message, other.fun) == (
            run.status,
            run.message,
            run.fun,
        )
        assert isinstance(other.status, Outcome)


def test_a_resumed_run_is_judged_against_the_start_of_the_whole_run(tmp_path):
    def stop(progress):
        if progress.commit >= 10:
            raise StopIteration

    p = make_problem()
    first = aq.minimize(
        p,
        UNSTABLE,
        engine=aq.Threads(2),
        commits=20,
        callback=stop,
        checkpoint=tmp_path,
    )
    assert first.status == "stopped"
    run = aq.resume(tmp_path)
    assert (run.status, run.success, run.nit) == ("diverged", False, 20)
    assert f"U rose from {p.value(run.theta0):.6g}" in run.message


@pytest.mark.parametrize("d", [1, 3, 40])
def test_a_sampler_may_rise_by_a_few_times_d_over_beta(d):
    p = aq.LinearGaussian.random(d, 50, 1.0, seed=3)
    start = at_the_optimum(p)
    for seed in range(4):
        run = aq.minimize(
            p, aq.SGLD(h=1e-3, beta=0.05, batch=50),
            engine=simulated(1), theta0=start, commits=400, seed=seed,
        )  # fmt: skip
        assert run.status == "completed", run.message
        assert run.fun > p.value(start)


class WithoutTemperature(aq.SGLD):
    """A user's own sampler that does not say what noise it adds."""

    temperature = None


def test_a_sampler_that_does_not_state_its_temperature_may_not_rise():
    p = make_problem()
    start = at_the_optimum(p)
    stated, unstated = (
        aq.minimize(
            p,
            kind(h=1e-3, beta=0.05, batch=60),
            engine=simulated(1),
            theta0=start,
            commits=400,
        )
        for kind in (aq.SGLD, WithoutTemperature)
    )
    assert stated.theta.tobytes() == unstated.theta.tobytes()
    assert (stated.status, unstated.status) == ("completed", "diverged")


def test_a_target_that_is_missed_stays_a_stop_after_a_resume(tmp_path):
    p = make_problem()
    algorithm = aq.AsyncSGD(h=1e-5, batch=6)
    whole = aq.minimize(p, algorithm, engine=aq.Threads(1), commits=20, target=-1e9)

    def stop(progress):
        if progress.commit >= 10:
            raise StopIteration

    asked = {"engine": aq.Threads(1), "commits": 20, "target": -1e9}
    aq.minimize(p, algorithm, callback=stop, checkpoint=tmp_path, **asked)
    resumed = aq.resume(tmp_path)
    assert (resumed.status, resumed.message) == (whole.status, whole.message)
    assert whole.status == "stopped"
