"""Threads: what they compute replays to the bit, and they end in good order whatever happens."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from engines.runs import (
    EVERY,
    Slope,
    assert_made_all_commits,
    assert_replays,
    make_problem,
    run_of,
)
from examples import EXAMPLES, STOCHASTIC

import asyncqn as aq
from asyncqn.engines.clock import Clock
from asyncqn.errors import WorkerFailed

PROBLEM = make_problem()


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", list(EVERY))
def test_a_run_on_threads_equals_its_replay_bitwise_repeatedly(
    name: str, workers: int
) -> None:
    for seed in range(3):
        run = run_of(name, aq.Threads(workers), 200, seed=seed, evaluate=37, tol=None)
        assert_made_all_commits(name, run.status, run.schedule.commits, 200)
        assert_replays(run)


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_one_thread_equals_the_simulator_with_one_worker(name: str) -> None:
    algorithm, problem = {**EXAMPLES, **EVERY}[name], make_problem(name)
    real = aq.minimize(problem, algorithm, engine=aq.Threads(1), commits=60, seed=4)
    simulated = aq.minimize(
        problem, algorithm, engine=aq.Simulator(aq.Cluster(1)), commits=60, seed=4
    )
    assert real.theta.tobytes() == simulated.theta.tobytes()
    assert_replays(real)


def test_a_timing_model_by_rows_is_stretched_to_the_rows_of_a_step() -> None:
    # A row takes 1, so a batch of 10 rows takes 10: two workers make a commit every 5.
    cluster = aq.Cluster(workers=2, rows=1)
    algorithm = aq.AsyncSGD(h=1e-6, batch=10)
    engine = aq.Threads(timing_model=cluster, time_unit=1e-3)
    run = aq.minimize(PROBLEM, algorithm, engine=engine, commits=6, check=False)
    assert run.time >= 30.0
    model = run.manifest["engine"]["timing_model"]
    assert model.get("worker_mean", 1.0) == 1.0, "the run describes the given model"


def test_forty_sleeping_threads_with_deaths_and_a_late_joiner_replay() -> None:
    cluster = aq.Cluster(
        40,
        worker_mean=5.0,
        worker_std=3.0,
        message=1.0,
        master=0.01,
        deaths={3: 8.0, 4: 0.5},
        joins={7: 12.0},
    )
    run = run_of(
        "async-sgd", aq.Threads(timing_model=cluster, time_unit=2e-3), 300, seed=1
    )
    assert_made_all_commits("async-sgd", run.status, run.nit, 300)
    assert run.manifest["engine"]["workers_lost"] == 2
    # On a busy machine the first commit may come after the joiner, who then reads version 0 like all.
    came_late = run.schedule.read[run.schedule.worker == 7].min() > 0
    assert run.manifest["engine"]["workers_joined"] == came_late
    assert 4 not in run.schedule.worker
    again = aq.replay(run)
    assert again.theta.tobytes() == run.theta.tobytes()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", ["as-lbfgs", "mb-lbfgs"])
def test_an_error_in_a_problem_ends_the_run_and_names_worker_and_step(
    name: str, workers: int
) -> None:
    problem = Slope(fail_at=40)
    with pytest.raises(
        WorkerFailed,
        match=r"worker \d failed in its step \d+, .*ZeroDivisionError: the data are",
    ):
        aq.minimize(problem, EVERY[name], engine=aq.Threads(workers), commits=1000)
    assert not [t for t in threading.enumerate() if t.name.startswith("asyncqn worker")]


@pytest.mark.parametrize("name", [name for name in STOCHASTIC if name in EVERY])
def test_updates_that_are_not_numbers_are_rejected_counted_and_replayed(
    name: str,
) -> None:
    problem = Slope(poison=5)
    run = aq.minimize(
        problem,
        EVERY[name],
        engine=aq.Threads(2),
        commits=200,
        seed=2,
        theta0=np.array([1.0]),
    )
    assert run.counters["updates_rejected"] > 0
    assert np.isfinite(run.theta).all()
    assert_replays(run, problem)


def test_a_diverging_run_ends_with_advice_and_replays_as_diverged() -> None:
    run = aq.minimize(
        PROBLEM, aq.AsyncSGD(h=10.0, batch=10), engine=aq.Threads(2), commits=5000
    )
    assert run.status == "diverged"
    assert "the step h" in run.message
    again = aq.replay(run)
    assert (again.status, again.theta.tobytes()) == (run.status, run.theta.tobytes())


def test_a_run_that_is_done_returns_without_a_worker_that_still_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stuck(Slope):
        computes, released = threading.Event(), threading.Event()

        def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
            super().grad(theta, rows, out)
            if threading.current_thread().name == "asyncqn worker 1":
                self.computes.set()
                self.released.wait(60.0)
            elif threading.current_thread().name == "asyncqn worker 0":
                self.computes.wait(60.0)

    monkeypatch.setattr("asyncqn.engines.run_file.LAST_WAIT", 1.0)
    problem = Stuck()
    try:
        with pytest.warns(
            UserWarning, match=r"^worker 1 did not answer at the end of the run"
        ):
            run = aq.minimize(
                problem,
                EVERY["async-sgd"],
                engine=aq.Threads(2),
                theta0=np.array([3.0]),
                commits=100,
                check=False,
            )
    finally:
        problem.released.set()
    assert_made_all_commits("async-sgd", run.status, run.nit, 100)
    assert run.manifest["engine"]["workers_silent"] == [1]
    assert aq.replay(run, Slope()).theta.tobytes() == run.theta.tobytes()


def test_the_clock_stands_still_while_it_is_paused() -> None:
    clock = Clock(unit=0.5, start=3.0)
    before = clock.now()
    with clock.paused():
        inside = clock.now()
        time.sleep(0.01)
        assert clock.now() == inside
    assert clock.now() >= inside >= before >= 3.0


def test_a_run_that_ends_by_passes_replays_though_its_passes_are_no_sum_of_binary_fractions() -> (
    None
):
    # 100 parts: a hundredth, added three hundred times, is less than three by rounding.
    problem = aq.LogisticRegression.random(n_data=600, dim=4, seed=1)
    run = aq.minimize(
        problem, aq.TableLBFGS(100, 3), engine=aq.Threads(2), max_passes=3
    )
    assert run.nit == 300
    assert aq.replay(run, problem=problem).theta.tobytes() == run.theta.tobytes()
