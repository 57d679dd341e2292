"""Patience: a run ends when a metric no longer improves, reports its best point, and replays to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.core.schedule import DROPPED, rows_computed
from asyncqn.errors import BadInput

PROBLEM = aq.LinearGaussian.random(dim=10, n_data=120, seed=0)
NOISY = aq.AsyncSGD(h=5e-4, batch=2)
ENGINES = {
    "simulator": aq.Simulator(aq.Cluster(workers=3, worker_std=0.3)),
    "threads": aq.Threads(2),
    "processes": aq.Processes(2),
}


def noisy_run(**options) -> aq.Run:
    given = {
        "commits": 20_000,
        "evaluate": 20,
        "engine": ENGINES["simulator"],
        **options,
    }
    return aq.minimize(PROBLEM, NOISY, **given)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_ends_when_patience_runs_out_and_reports_its_best_point(
    engine: str, tmp_path: Path
) -> None:
    run = noisy_run(engine=ENGINES[engine], callback=aq.Patience("fun", 4))
    fun = run.metrics["fun"]
    best = int(np.argmin(fun))
    assert run.status == "completed"
    assert run.success
    assert len(fun) == best + 1 + 4
    assert run.fun == fun[best] == PROBLEM.value(run.theta)
    assert f"of commit {int(run.metrics['commit'][best])}," in run.message
    saved = aq.load_run(run.save(tmp_path / "run"))
    for again in (aq.replay(run), aq.replay(saved)):
        assert again.theta.tobytes() == run.theta.tobytes()
        assert (again.fun, again.status, again.nit) == (run.fun, run.status, run.nit)


def test_a_larger_metric_may_be_the_better_one() -> None:
    class Scored(aq.FiniteSum):
        def metrics(self, theta):
            return {"score": -float(theta @ theta)}

    target = np.linspace(-1.0, 1.0, 50)[:, None]
    problem = Scored(
        dim=1,
        n_data=50,
        value=lambda theta, rows: 0.5 * float(((theta - target[rows]) ** 2).sum()),
        grad=lambda theta, rows: (theta - target[rows]).sum(axis=0),
    )
    asked = {
        "engine": ENGINES["simulator"],
        "theta0": np.array([3.0]),
        "commits": 500,
        "evaluate": 5,
    }
    algorithm = aq.AsyncSGD(h=1e-3, batch=5)
    up = aq.minimize(
        problem, algorithm, callback=aq.Patience("score", 5, maximize=True), **asked
    )
    down = aq.minimize(problem, algorithm, callback=aq.Patience("score", 5), **asked)
    assert up.metrics["score"].max() == -float(up.theta @ up.theta)
    assert down.theta.tolist() == [3.0]
    assert "theta is that of commit 0" in down.message


def test_a_callback_that_stops_the_run_does_not_hide_its_row_from_the_replay() -> None:
    seen = []

    def stop(progress: aq.Progress) -> None:
        seen.append(progress.metrics["fun"])
        if progress.commit == 60:
            raise StopIteration

    run = noisy_run(callback=[stop, aq.Patience("fun", 50)], engine=aq.Threads(2))
    assert run.fun == min(seen)
    assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


def test_an_exact_method_that_loses_patience_has_not_converged() -> None:
    run = aq.minimize(
        PROBLEM,
        engine=ENGINES["simulator"],
        callback=aq.Patience("grad_norm", 1),
        tol=1e-15,
    )
    assert not run.success or run.status == "converged"
    assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


@pytest.mark.parametrize("engine", ["simulator", "threads"])
def test_a_resumed_run_remembers_its_best_row(engine: str, tmp_path: Path) -> None:
    whole = noisy_run(
        callback=aq.Patience("fun", 6), engine=aq.Simulator(aq.Cluster(workers=1))
    )

    def stop(progress: aq.Progress) -> None:
        if progress.commit >= whole.nit - 40:
            raise StopIteration

    one = (
        aq.Simulator(aq.Cluster(workers=1)) if engine == "simulator" else aq.Threads(1)
    )
    noisy_run(engine=one, callback=[stop, aq.Patience("fun", 6)], checkpoint=tmp_path)
    run = aq.resume(tmp_path)
    assert (run.nit, run.fun) == (whole.nit, whole.fun)
    assert run.theta.tobytes() == whole.theta.tobytes()
    assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(
        BadInput,
        match=r"^there is no metric 'rmse' to watch; there are commit, time, fun",
    ):
        noisy_run(callback=aq.Patience("rmse"))
    with pytest.raises(
        BadInput, match=r"^Patience needs evaluations, and evaluate = 0 turns them off"
    ):
        noisy_run(callback=aq.Patience(), evaluate=0)
    with pytest.raises(BadInput, match=r"^callback contains two Patience"):
        noisy_run(callback=[aq.Patience(), aq.Patience("error")])
    with pytest.raises(
        BadInput,
        match=r"^callback must be a function, a Patience, a list of these or None",
    ):
        noisy_run(callback=3)


@pytest.mark.parametrize(
    "algorithm", [NOISY, aq.MBLBFGS(h=0.01, memory=2, batch=6, overlap=2, timeout=1.0)]
)
@pytest.mark.parametrize("engine", ["simulator", "threads"])
def test_max_passes_alone_is_enough_for_a_stochastic_method(
    algorithm: aq.Algorithm, engine: str
) -> None:
    run = aq.minimize(PROBLEM, algorithm, engine=ENGINES[engine], max_passes=3)
    assert run.status in ("completed", "diverged")
    rows = rows_computed(algorithm, run.schedule, PROBLEM.n_data)
    used = rows[run.schedule.commit != DROPPED].sum() / PROBLEM.n_data
    assert 3.0 <= used < 3.5
    again = aq.replay(run)
    assert again.theta.tobytes() == run.theta.tobytes()
    assert again.status == run.status
