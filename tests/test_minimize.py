"""minimize: its arguments, its callback, its start, its metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import Quadratic, one_sentence

import asyncqn as aq
from asyncqn import AsyncSGD, Cluster, LinearGaussian, Simulator, minimize
from asyncqn.errors import BadInput

ENGINE = Simulator(Cluster(2, 1.0, 0.5))
ALGORITHM = AsyncSGD(1e-3, 4)


def call(problem=None, algorithm=ALGORITHM, **more):
    problem = Quadratic.random() if problem is None else problem
    return minimize(
        problem, algorithm, **{"engine": ENGINE, "commits": 20, "seed": 0, **more}
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"commits": 0}, "commits must be an integer"),
        ({"theta0": np.zeros(3)}, r"dim = 4 numbers, not of shape \(3,\)"),
        ({"theta0": np.zeros((4, 1))}, r"not of shape \(4, 1\)"),
        ({"theta0": [0.0, np.nan, 0.0, 0.0]}, "theta0 contains NaN or infinity"),
        ({"theta0": ["a", "b", "c", "d"]}, "real numbers"),
        ({"theta0": [[1.0], [1.0, 2.0]]}, "real numbers"),
    ],
    ids=str,
)
def test_useless_arguments_are_named_in_one_sentence(arguments, words):
    with pytest.raises(BadInput, match=words) as caught:
        call(**arguments)
    assert one_sentence(caught.value)


def test_the_start_is_not_written_to_and_is_kept_with_the_run():
    theta0 = np.ones(4)
    run = call(theta0=theta0)
    assert (theta0 == 1.0).all()
    assert run.theta0.tobytes() == theta0.tobytes()
    assert run.theta0 is not theta0
    assert run.metrics["fun"][0] == Quadratic.random().value(theta0)


def test_the_start_is_zero_or_the_problems_own_by_the_seed():
    assert (call().theta0 == 0.0).all()
    p = LinearGaussian.random(5, 20, dominant=1)
    a, b, c = (call(p, seed=s).theta0 for s in (1, 1, 2))
    assert a.tobytes() == b.tobytes() != c.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_theta_has_the_dtype_of_the_problem_or_else_of_the_start(dtype):
    assert (
        call(
            LinearGaussian.random(5, 20, dominant=1, dtype=dtype), theta0=np.zeros(5)
        ).theta.dtype
        == dtype
    )
    assert call(theta0=np.zeros(4, dtype)).theta.dtype == dtype
    assert call(theta0=[0, 0, 0, 1]).theta.dtype == np.float64


def test_metrics_stand_at_the_evaluations_and_the_ends():
    run = call(LinearGaussian.random(5, 20, dominant=1), commits=25, evaluate=10)
    assert run.metrics["commit"].tolist() == [0, 10, 20, 25]
    assert run.metrics["time"][0] == 0.0
    assert (
        run.metrics["time"][1:].tolist()
        == run.schedule.commit_times()[[9, 19, 24]].tolist()
    )
    assert run.fun == run.metrics["fun"][-1]
    optimum = run.problem.optimum
    np.testing.assert_allclose(
        run.metrics["error"], (run.metrics["fun"] - optimum) / optimum
    )


def test_about_two_hundred_rows_are_kept_by_default():
    assert call(commits=5000).metrics.rows == 201


def test_further_metrics_of_the_problem_become_columns():
    p = Quadratic.random()
    p.metrics = lambda theta: {"norm": np.linalg.norm(theta)}
    run = call(p)
    assert run.metrics["norm"][-1] == np.linalg.norm(run.theta)


def test_the_callback_sees_copies_and_cannot_disturb_the_run():
    def meddle(progress):
        progress.theta[...] = np.nan
        progress.metrics.clear()

    a, b = call(), call(callback=meddle)
    assert a.theta.tobytes() == b.theta.tobytes()
    assert b.metrics["fun"].tolist() == a.metrics["fun"].tolist()


def test_the_end_of_all_workers_is_told():
    run = call(engine=Simulator(Cluster(2, 1.0, 0.0, deaths={0: 5.5, 1: 3.5})))
    assert run.status == "stopped"
    assert run.nit == 8
    assert run.message == "every worker was gone after 8 of 20 commits."


def test_a_cluster_without_a_single_finished_computation_still_gives_a_run():
    run = call(engine=Simulator(Cluster(1, 10.0, deaths={0: 1.0})))
    assert run.status == "stopped"
    assert run.nit == 0
    assert run.theta.tobytes() == run.theta0.tobytes()
    assert run.time == 0.0


def test_a_stopping_rule_of_ones_own_ends_a_run_and_its_replay_ends_there() -> None:
    problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    seen: list[float] = []

    def rule(standing: Any) -> str | None:
        seen.append(standing.value)
        return "four looks are enough" if len(seen) == 4 else None

    engine = aq.Simulator(aq.Cluster(workers=2))
    run = aq.minimize(
        problem, aq.ExactLBFGS(blocks=2), engine=engine, commits=50, tol=None, stop=rule
    )
    assert (run.status, len(seen)) == ("converged", 4)
    assert run.message.startswith("four looks are enough, after ")
    assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


@pytest.mark.parametrize("engine", [aq.Simulator(aq.Cluster(workers=2)), aq.Threads(2)])
def test_a_stopping_rule_may_stop_a_run_and_its_failure_is_told(engine: Any) -> None:
    problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)

    def stops(standing: Any) -> None:
        raise StopIteration

    def fails(standing: Any) -> None:
        raise KeyError("no such thing")

    run = aq.minimize(problem, engine=engine, stop=stops)
    assert run.status == "stopped"
    assert "the stopping rule stopped the run" in run.message
    with pytest.raises(KeyError, match="no such thing"):
        aq.minimize(problem, engine=engine, stop=fails)


def test_without_evaluations_an_exact_method_reports_what_it_judged_last() -> None:
    problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    calls: list[int] = []
    engine = aq.Simulator(aq.Cluster(workers=2))
    run = aq.minimize(
        problem,
        engine=engine,
        evaluate=0,
        callback=lambda progress: calls.append(progress.commit),
    )
    assert (run.status, calls, run.metrics.rows) == ("converged", [0], 1)
    assert run.fun == pytest.approx(problem.value(run.theta), rel=1e-12)
    assert aq.replay(run).theta.tobytes() == run.theta.tobytes()
