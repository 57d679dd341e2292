"""Ray: what actors compute replays to the bit; actors die and join, and the run goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines.runs import (
    EVERY,
    PATTERNS,
    Slope,
    assert_made_all_commits,
    assert_replays,
    make_problem,
)

import asyncqn as aq
from asyncqn.errors import WorkerFailed

PROBLEM = make_problem()
START = np.array([3.0])


def process_of(ray: Any, engine: aq.Ray, worker: int) -> int:
    """The process of a worker of the run under way."""
    actor = engine.under_way[-1].at[worker].actor
    return int(ray.get(actor.__ray_call__.remote(lambda self: os.getpid())))


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_a_run_on_actors_equals_its_replay_bitwise(ray_local: Any, name: str) -> None:
    run = aq.minimize(
        make_problem(name),
        EVERY[name],
        engine=aq.Ray(2),
        commits=80,
        seed=1,
        evaluate=37,
        tol=None,
    )
    assert_made_all_commits(name, run.status, run.schedule.commits, 80)
    assert run.manifest["engine"]["workers_lost"] == 0
    assert_replays(run)


@pytest.mark.parametrize("name", ["as-lbfgs", "mb-lbfgs"])
def test_a_killed_worker_is_replaced_by_a_new_one_while_another_joins(
    ray_local: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = aq.Ray(2)
    killed: list[int] = []

    def callback(progress: Any) -> None:
        if progress.commit >= 20 and not killed:
            killed.append(process_of(ray_local, engine, 0))
            os.kill(killed[0], signal.SIGKILL)
            engine.add()
        if progress.workers == 3:
            raise StopIteration

    run = aq.minimize(
        PROBLEM,
        EVERY[name],
        engine=engine,
        commits=10**6,
        evaluate=5,
        callback=callback,
    )
    assert run.status == "stopped"
    about = run.manifest["engine"]
    assert (about["workers_lost"], about["workers_joined"]) == (1, 2)
    assert re.search(
        r"worker 0 was lost after commit \d+: [12] of 2 workers, 1 lost", caplog.text
    )
    assert {0, 1} <= set(run.schedule.worker.tolist()) <= {0, 1, 2, 3}
    assert run.schedule.read[run.schedule.worker >= 2].min(initial=10**6) > 0
    # The counters of a lost worker went with it; all else comes again.
    again = aq.replay(run)
    assert again.theta.tobytes() == run.theta.tobytes()
    assert np.array_equal(again.fingerprints, run.fingerprints)
    with pytest.raises(aq.BadInput, match="only while a run is under way"):
        engine.add()


def test_a_run_without_restarts_stops_when_every_worker_is_gone(ray_local: Any) -> None:
    engine = aq.Ray(1, restarts=0)

    def callback(progress: Any) -> None:
        if progress.commit == 10:
            os.kill(process_of(ray_local, engine, 0), signal.SIGKILL)

    run = aq.minimize(
        PROBLEM,
        EVERY["async-sgd"],
        engine=engine,
        commits=10**6,
        evaluate=10,
        callback=callback,
    )
    assert run.status == "stopped"
    assert "every worker was gone" in run.message
    assert 10 <= run.schedule.commits < 10**6


def test_a_silent_worker_is_given_up_and_replaced(
    ray_local: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "stuck"

    class Stuck(Slope):
        def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
            super().grad(theta, rows, out)
            if self.calls == 7 and not flag.exists():
                flag.touch()
                time.sleep(600.0)

    engine = aq.Ray(1, give_up_after=4.0)
    run = aq.minimize(
        Stuck(), EVERY["sgld"], engine=engine, commits=30, theta0=START, check=False
    )
    assert_made_all_commits("sgld", run.status, run.nit, 30)
    assert (
        run.manifest["engine"]["workers_lost"]
        == run.manifest["engine"]["workers_joined"]
        == 1
    )
    assert aq.replay(run, Slope()).theta.tobytes() == run.theta.tobytes()


def test_a_run_that_is_done_returns_without_an_actor_that_is_stopped(
    ray_local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncqn.engines.coordinator.LAST_WAIT", 1.0)
    engine = aq.Ray(2)

    def callback(progress: Any) -> None:
        if progress.commit == 20:
            os.kill(process_of(ray_local, engine, 1), signal.SIGSTOP)

    with pytest.warns(
        UserWarning,
        match=r"^worker 1 did not answer at the end of the run and was given up",
    ):
        run = aq.minimize(
            Slope(),
            EVERY["sgld"],
            engine=engine,
            commits=60,
            theta0=START,
            evaluate=20,
            callback=callback,
        )
    assert_made_all_commits("sgld", run.status, run.nit, 60)
    assert run.manifest["engine"]["workers_silent"] == [1]
    assert aq.replay(run, Slope()).theta.tobytes() == run.theta.tobytes()


def test_updates_of_a_users_problem_are_rejected_counted_and_replayed(
    ray_local: Any,
) -> None:
    problem = Slope(poison=5)
    run = aq.minimize(
        problem,
        EVERY["as-lbfgs"],
        engine=aq.Ray(2, max_staleness=1),
        commits=100,
        seed=2,
        theta0=START,
    )
    assert run.counters["updates_rejected"] > 0
    assert run.counters["staleness_max"] <= 1
    assert_replays(run, problem)


def test_an_error_in_a_problem_ends_the_run_and_names_worker_and_step(
    ray_local: Any,
) -> None:
    words = r"^worker 0 failed in its step \d+, computing on .* \(ZeroDivisionError: the data are gone\)\.\n"
    with pytest.raises(WorkerFailed, match=words) as raised:
        aq.minimize(
            Slope(fail_at=15),
            EVERY["mb-lbfgs"],
            engine=aq.Ray(1),
            commits=1000,
            theta0=START,
        )
    assert "in grad" in raised.value.__notes__[0]


def test_a_problem_that_cannot_travel_is_refused_in_one_sentence(
    ray_local: Any,
) -> None:
    problem = Slope()
    problem.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(
        aq.BadInput,
        match=r"^Slope cannot be sent to other processes \(.*\n?.*picklable\.$",
    ):
        aq.minimize(problem, EVERY["sgd"], engine=aq.Ray(1), commits=10)


def test_a_stopped_run_goes_on_from_its_checkpoint_and_replays_as_a_whole(
    ray_local: Any, tmp_path: Path
) -> None:
    def callback(progress: Any) -> None:
        if progress.commit >= 40:
            raise StopIteration

    aq.minimize(
        PROBLEM, EVERY["as-lbfgs"], engine=aq.Ray(2), commits=80, evaluate=20, callback=callback,
        checkpoint=tmp_path / "c", checkpoint_every=15,
    )  # fmt: skip
    run = aq.resume(tmp_path / "c")
    assert_made_all_commits("as-lbfgs", run.status, run.schedule.commits, 80)
    assert run.manifest["engine"]["resumed_from"] == 40
    assert run.manifest["engine"]["workers_joined"] == 0
    assert_replays(run)


@pytest.mark.xdist_group("clusters")
def test_the_command_starts_a_ray_of_its_own_and_prints_one_json_object(
    tmp_path: Path,
) -> None:
    (tmp_path / "job.toml").write_text(
        '[problem]\nkind = "linear-gaussian"\ndim = 12\nn_data = 60\n'
        '[algorithm]\nkind = "async-sgd"\nh = 1e-5\nbatch = 10\n'
        "[cluster]\nworkers = 2\nworker_mean = 2.0\n[run]\ncommits = 40\n"
    )
    command = [
        sys.executable,
        "-m",
        "asyncqn",
        "run",
        "job.toml",
        "--engine",
        "ray",
        "--workers",
        "2",
    ]
    command += [
        "--slow",
        "--set",
        "engine.time_unit=1e-3",
        "--save",
        "r",
        "--json",
        "--quiet",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    numbers = json.loads(done.stdout)
    assert (numbers["engine"], numbers["workers"], numbers["workers_lost"]) == (
        "ray",
        2,
        0,
    )
    assert (numbers["status"], numbers["commits"]) == ("completed", 40)
    # Forty computations of 2 units each on two workers last at least forty units.
    assert numbers["time"] >= 40 * (1 - 1e-9)
    aq.replay(tmp_path / "r")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no raylet"),
        TimeoutError("timed out"),
        ValueError("no resources"),
        OSError("no port"),
        AssertionError(),
        KeyError("node"),
        pytest.param("RaySystemError", id="RaySystemError"),
        pytest.param("GetTimeoutError", id="GetTimeoutError"),
    ],
    ids=repr,
)
def test_a_ray_that_cannot_start_is_one_sentence_whatever_it_raises(
    error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    raised = getattr(ray.exceptions, error)("busy") if isinstance(error, str) else error

    def init(**options: Any) -> None:
        raise raised

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(
        aq.BadInput,
        match=r"^a local Ray cannot be started \(.+\): try again when .*\.$",
    ):
        aq.minimize(PROBLEM, EVERY["async-sgd"], engine=aq.Ray(1), commits=10)


def descendants(pid: int) -> dict[int, str]:
    """The names of a process's children, theirs, and so on."""
    found: dict[int, str] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found |= {
                child: Path(f"/proc/{child}/comm").read_text().strip(),
                **descendants(child),
            }
    return found


LONG = (
    '[problem]\nkind = "linear-gaussian"\ndim = 12\nn_data = 60\n'
    '[algorithm]\nkind = "async-sgd"\nh = 1e-7\nbatch = 10\n[run]\ncommits = 100000000\nevaluate = 1000\n'
)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.xdist_group("clusters")
def test_a_run_whose_ray_died_says_so_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    (tmp_path / "job.toml").write_text(LONG)
    folder = tmp_path / "c"
    command = [
        sys.executable,
        "-m",
        "asyncqn",
        "run",
        "job.toml",
        "--engine",
        "ray",
        "--workers",
        "1",
    ]
    command += ["--quiet", "--checkpoint", str(folder), "--checkpoint-every", "0.2"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as driver:
        while not (folder / "a" / "checkpoint.json").exists():
            assert driver.poll() is None
            time.sleep(0.05)
        family = descendants(driver.pid)
        os.kill(
            next(p for p, name in family.items() if name == "raylet"), signal.SIGKILL
        )
        err = driver.communicate(timeout=60)[1]
    sentence = f"asyncqn: the Ray cluster died (its raylet has ended); continue with: asyncqn resume {folder}\n"
    assert (driver.returncode, err) == (2, sentence)
    for _ in range(250):
        alive = {
            pid: name for pid, name in family.items() if Path(f"/proc/{pid}").exists()
        }
        if not alive:
            break
        time.sleep(0.1)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    assert alive == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workers": 0}, "workers must be"),
        ({"workers": 2, "restarts": -1}, "restarts"),
        ({"workers": 2, "cpus": 1.5}, "cpus"),
        ({"workers": 2, "start_timeout": 0.0}, "start_timeout"),
        ({"workers": 2, "address": "ray://somewhere:10001"}, "client"),
        ({"workers": 2, "timing_model": aq.Cluster(3)}, "timing_model"),
        ({"workers": 2, "timing_model": aq.Cluster(2, deaths={0: 1.0})}, "deaths"),
        ({"workers": 2, "time_unit": 0.0}, "time_unit"),
        ({"workers": 2, "max_staleness": -1}, "max_staleness"),
        ({"workers": 2, "give_up_after": 0.0}, "give_up_after"),
    ],
)
def test_impossible_parameters_are_refused(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(aq.BadInput, match=words):
        aq.Ray(**arguments)
