"""Engines to whose run workers can be added: they die and join, and the run goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import python
from engines.runs import (
    EVERY,
    Slope,
    assert_made_all_commits,
    assert_replays,
    left_of,
    make_problem,
    process_of,
    run_of,
)

import asyncqn as aq
from asyncqn.errors import WorkerFailed

PROBLEM = make_problem()
START = np.array([3.0])
Start = Callable[..., Any]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are looked up in /proc"
)


@pytest.fixture(params=["processes", "ray"])
def start(request: pytest.FixtureRequest) -> Start:
    """Make an engine of each kind."""
    if request.param == "processes":
        return partial(aq.Processes, start_method="fork")
    request.getfixturevalue("ray_local")
    return aq.Ray


def assert_same_numbers(run: aq.Run, problem: Any = None) -> None:
    """Every bit of the iterates again; the counters of a lost worker went with it."""
    again = aq.replay(run, problem)
    assert again.theta.tobytes() == run.theta.tobytes()
    assert np.array_equal(again.fingerprints, run.fingerprints)


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("processes", "as-lbfgs"),
        ("processes", "mb-lbfgs"),
        ("processes", "exact-lbfgs pieces"),
        ("ray", "as-lbfgs"),
    ],
    indirect=["start"],
)
def test_a_killed_worker_is_announced_while_another_is_added(
    start: Start, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = start(2)
    # Ray replaces a lost worker, so that a third one joins.
    joins = 2 if isinstance(engine, aq.Ray) else 1
    killed: list[int] = []

    def callback(progress: Any) -> None:
        if progress.commit >= 20 and not killed:
            killed.append(process_of(engine, 0))
            os.kill(killed[0], signal.SIGKILL)
            engine.add()
        if progress.workers_lost == 1 and progress.workers == 1 + joins:
            raise StopIteration

    run = run_of(name, engine, 10**6, evaluate=5, callback=callback, tol=None)
    assert run.status == "stopped"
    about = run.manifest["engine"]
    assert (about["workers_lost"], about["workers_joined"]) == (1, joins)
    words = r"worker 0 was lost after commit \d+: [12] of 2 workers, 1 lost"
    assert re.search(words, caplog.text)
    assert {0, 1} <= set(run.schedule.worker.tolist()) <= {0, 1, 2, 3}
    assert run.schedule.read[run.schedule.worker >= 2].min(initial=10**6) > 0
    assert_same_numbers(run)


def test_a_run_stops_when_every_worker_is_gone(start: Start) -> None:
    engine = start(1)
    if isinstance(engine, aq.Ray):
        engine = replace(engine, restarts=0)

    def callback(progress: Any) -> None:
        if progress.commit == 10:
            os.kill(process_of(engine, 0), signal.SIGKILL)

    run = run_of("async-sgd", engine, 10**6, evaluate=10, callback=callback)
    assert (run.status, "every worker was gone" in run.message) == ("stopped", True)
    assert 10 <= run.schedule.commits < 10**6


def test_a_silent_worker_is_given_up_and_ended(start: Start, tmp_path: Path) -> None:
    flag = tmp_path / "stuck"

    class Stuck(Slope):
        def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
            super().grad(theta, rows, out)
            if self.calls == 20 and not flag.exists():
                with flag.open("x") as file:  # of several at once one succeeds
                    file.write(str(os.getpid()))
                time.sleep(600.0)

    engine = start(2, give_up_after=3.0)
    run = aq.minimize(
        Stuck(), EVERY["mb-lbfgs"], engine=engine, commits=40, theta0=START, check=False
    )
    assert_made_all_commits("mb-lbfgs", run.status, run.nit, 40)
    assert run.manifest["engine"]["workers_lost"] == 1
    assert left_of({int(flag.read_text())}) == set()
    assert_same_numbers(run, Slope())


def test_a_run_that_is_done_returns_without_a_worker_that_is_stopped(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncqn.engines.run_file.LAST_WAIT", 1.0)
    engine = start(2)

    def callback(progress: Any) -> None:
        if progress.commit == 20:
            os.kill(process_of(engine, 1), signal.SIGSTOP)

    words = r"^worker 1 did not answer at the end of the run and was given up"
    with pytest.warns(UserWarning, match=words):
        run = run_of("async-sgd", engine, 100, evaluate=20, callback=callback)
    assert_made_all_commits("async-sgd", run.status, run.nit, 100)
    about = run.manifest["engine"]
    assert (about["workers_lost"], about["workers_silent"]) == (1, [1])
    assert_same_numbers(run)


def test_an_error_in_a_problem_ends_the_run_and_names_worker_and_step(
    start: Start,
) -> None:
    words = r"^worker 0 failed in its step \d+, computing on .* \(ZeroDivisionError: the data are gone\)\.\n"
    with pytest.raises(WorkerFailed, match=words) as raised:
        aq.minimize(
            Slope(fail_at=40),
            EVERY["mb-lbfgs"],
            engine=start(1),
            commits=1000,
            theta0=START,
        )
    assert "in grad" in raised.value.__notes__[0]


def test_a_stopped_run_goes_on_from_its_checkpoint_and_replays_as_a_whole(
    start: Start, tmp_path: Path
) -> None:
    def callback(progress: Any) -> None:
        if progress.commit >= 40:
            raise StopIteration

    run_of(
        "as-lbfgs",
        start(2),
        80,
        evaluate=20,
        callback=callback,
        checkpoint=tmp_path / "c",
        checkpoint_every=15,
    )
    run = aq.resume(tmp_path / "c")
    assert_made_all_commits("as-lbfgs", run.status, run.schedule.commits, 80)
    about = run.manifest["engine"]
    assert (about["resumed_from"], about["workers_joined"]) == (40, 0)
    assert_replays(run)


def test_a_problem_that_cannot_travel_is_refused_in_one_sentence(
    ray_local: Any,
) -> None:
    problem = Slope()
    problem.lock = threading.Lock()  # type: ignore[attr-defined]
    words = r"^Slope cannot be sent to other processes \(.*\n?.*picklable"
    for engine in (aq.Ray(1), aq.Processes(1, start_method="spawn")):
        with pytest.raises(aq.BadInput, match=words):
            aq.minimize(problem, EVERY["sgd"], engine=engine, commits=10)


JOB = (
    '[problem]\nkind = "linear-gaussian"\ndim = 12\nn_data = 60\n'
    '[algorithm]\nkind = "async-sgd"\nh = 1e-5\nbatch = 10\n'
    "[cluster]\nworkers = 2\nworker_mean = 2.0\n[run]\ncommits = 40\n"
)


@pytest.mark.xdist_group("clusters")
@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_the_command_starts_workers_and_prints_one_json_object(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    run = ("-m", "asyncqn", "run", "job.toml", "--json", "--quiet", "--save", "r")
    slow = ("--workers", "2", "--slow", "--set", "engine.time_unit=1e-3")
    done = python(*run, "--engine", kind, *slow, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    numbers = json.loads(done.stdout)
    described = ("engine", "workers", "workers_lost", "status", "commits")
    assert [numbers[name] for name in described] == [kind, 2, 0, "completed", 40]
    # Forty computations of 2 units each on two workers last at least forty units.
    assert numbers["time"] >= 40 * (1 - 1e-9)
    aq.replay(tmp_path / "r")


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        *(
            (kind, {"workers": 2, "timing_model": aq.Cluster(3)}, "describes 3")
            for kind in (aq.Threads, aq.Processes, aq.Ray)
        ),
        *(
            (
                kind,
                {"workers": 2, "timing_model": aq.Cluster(2, deaths={0: 1.0})},
                "deaths",
            )
            for kind in (aq.Processes, aq.Ray)
        ),
        (aq.Ray, {"workers": 2, "address": "ray://somewhere:10001"}, "client"),
    ],
)
def test_impossible_parameters_are_refused(
    kind: Any, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(aq.BadInput, match=words):
        kind(**arguments)
