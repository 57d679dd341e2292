"""Processes: what they compute replays to the bit; they die and join, and nothing stays behind."""

from __future__ import annotations

import gc
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
from conftest import child_environment
from engines.runs import (
    EVERY,
    Slope,
    assert_made_all_commits,
    assert_replays,
    make_problem,
)
from engines.typed_states import TypedSGD

import asyncqn as aq
from asyncqn.engines.processes.engine import why_not_fork
from asyncqn.engines.processes.packing import pack, unpack
from asyncqn.errors import WorkerFailed
from asyncqn.types import Progress

PROBLEM = make_problem()
START = np.array([3.0])
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are looked up in /proc"
)


def process_of(engine: aq.Processes, worker: int) -> int:
    """The process of a worker of the run under way."""
    return engine.under_way[-1].at[worker].process


def alive(pid: int) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found |= {child} | descendants(child)
    return found


def left_of(pids: set[int], seconds: float = 20.0) -> set[int]:
    """Those that are there so long afterwards; they are killed."""
    until = time.monotonic() + seconds
    while (left := {pid for pid in pids if alive(pid)}) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def first_to_write(flag: Path) -> bool:
    """Write this process's id there, unless another has: of several at the same moment one succeeds."""
    try:
        with flag.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


@pytest.mark.parametrize("name", list(EVERY))
def test_a_run_on_processes_equals_its_replay_bitwise(name: str) -> None:
    engine = aq.Processes(2, start_method="fork")
    run = aq.minimize(
        make_problem(name),
        EVERY[name],
        engine=engine,
        commits=80,
        seed=1,
        evaluate=37,
        tol=None,
    )
    assert_made_all_commits(name, run.status, run.schedule.commits, 80)
    assert run.manifest["engine"]["workers_lost"] == 0
    assert_replays(run)


def test_numbers_keep_their_types_on_the_way() -> None:
    run = aq.minimize(
        PROBLEM, TypedSGD(), engine=aq.Processes(2, start_method="fork"), commits=30
    )
    assert run.counters["commits_counted"] == 30
    assert_replays(run)


def fail_later(progress: Progress) -> None:
    """A callback with a mistake that shows only after some commits."""
    if progress.commit > 5:
        raise KeyError("missing")


def test_a_run_leaves_no_process_no_descriptor_no_segment_and_no_mapping_behind() -> (
    None
):
    shm = Path("/dev/shm")

    def resources() -> tuple[set[int], int, set[str], int]:
        ours = (
            {p.name for p in shm.iterdir() if "asyncqn" in p.name}
            if shm.exists()
            else set()
        )
        mappings = Path("/proc/self/maps").read_text().count("memfd:asyncqn")
        return (
            descendants(os.getpid()),
            len(os.listdir("/proc/self/fd")),
            ours,
            mappings,
        )

    aq.minimize(
        PROBLEM,
        EVERY["async-sgd"],
        engine=aq.Processes(2, start_method="fork"),
        commits=10,
    )
    gc.collect()
    gc.disable()  # what goes only with a cycle of references would stay
    try:
        before = resources()
        aq.minimize(
            PROBLEM,
            EVERY["async-sgd"],
            engine=aq.Processes(3, start_method="fork"),
            commits=10,
        )
        engine = aq.Processes(2, start_method="fork")
        with pytest.raises(WorkerFailed):
            aq.minimize(
                Slope(fail_at=30),
                EVERY["sgd"],
                engine=engine,
                commits=1000,
                theta0=START,
            )
        with pytest.raises(KeyError):
            aq.minimize(
                PROBLEM,
                EVERY["as-lbfgs"],
                engine=engine,
                commits=30,
                callback=fail_later,
            )
        assert (*before[:3], 0) == before
        assert resources() == before
    finally:
        gc.enable()


def test_twenty_runs_side_by_side_in_threads_all_return() -> None:
    runs: dict[int, aq.Run] = {}

    def one(seed: int) -> None:
        engine = aq.Processes(2, start_method="fork")
        runs[seed] = aq.minimize(
            PROBLEM, EVERY["async-sgd"], engine=engine, commits=40, seed=seed
        )

    threads = [
        threading.Thread(target=one, args=(seed,), daemon=True) for seed in range(20)
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 100.0
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    assert sorted(runs) == list(range(20)), (
        "a run that is not there waits for the end of another"
    )
    assert {run.manifest["engine"]["workers_lost"] for run in runs.values()} == {0}
    for run in runs.values():
        assert_replays(run)


def test_a_new_interpreter_computes_the_same_and_shares_the_data(
    tmp_path: Path,
) -> None:
    class Own(Slope):  # cannot be imported by name: it travels by value
        def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
            super().grad(theta, rows, out)
            maps = Path("/proc/self/maps").read_text()
            (tmp_path / f"{os.getpid()}").write_text(str("memfd:asyncqn" in maps))

    gc.collect()  # errors that earlier tests raised, and what their tracebacks hold
    problem = Own()
    problem.y = np.linspace(1.0, 3.0, 30)
    engine = aq.Processes(2, start_method="spawn")
    run = aq.minimize(
        problem, EVERY["as-lbfgs"], engine=engine, commits=30, theta0=START, check=False
    )
    said = {int(file.name): file.read_text() for file in tmp_path.iterdir()}
    assert said.pop(os.getpid()) == "False"
    assert list(said.values()) == ["True", "True"]
    assert_replays(run, Slope())


def test_arrays_in_shared_memory_are_views_that_may_be_written_to() -> None:
    x = np.arange(1000.0)
    fd = pack({"x": x, "words": "as they are"}, "it")
    first, second = unpack(fd), unpack(fd)
    os.close(fd)
    assert not first["x"].flags.owndata
    first["x"][0] = -1.0
    assert (second["x"][0], second["words"]) == (0.0, "as they are")
    assert np.array_equal(second["x"], x)


def test_what_cannot_travel_to_a_new_interpreter_is_refused_and_forked_all_the_same() -> (
    None
):
    problem = Slope()
    problem.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(
        aq.BadInput, match=r"^Slope cannot be sent to other processes \(.*\): put it"
    ):
        aq.minimize(
            problem,
            EVERY["sgd"],
            engine=aq.Processes(1, start_method="spawn"),
            commits=10,
        )
    engine = aq.Processes(1, start_method="fork")
    run = aq.minimize(problem, EVERY["sgd"], engine=engine, commits=10, theta0=START)
    assert run.status == "completed"


def test_fork_is_not_chosen_beside_what_does_not_survive_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("jax", "mpi4py.MPI", "torch", "numba.np.ufunc.parallel"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert why_not_fork() is None
    monkeypatch.setitem(sys.modules, "jax", threading)
    assert why_not_fork() == "JAX"


@pytest.mark.parametrize("name", ["as-lbfgs", "mb-lbfgs", "exact-lbfgs pieces"])
def test_a_killed_worker_is_announced_and_not_replaced_while_another_is_added(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = aq.Processes(2, start_method="fork")
    killed: list[int] = []

    def callback(progress: Any) -> None:
        if progress.commit >= 20 and not killed:
            killed.append(process_of(engine, 0))
            os.kill(killed[0], signal.SIGKILL)
        if killed and progress.workers == 1 and len(killed) == 1:
            assert progress.workers_lost == 1
            assert re.search(
                r"worker 0 was lost after commit \d+: 1 of 2 workers, 1 lost",
                caplog.text,
            )
            killed.append(0)
            engine.add()
        if progress.workers == 2 and len(killed) == 2:
            raise StopIteration

    run = aq.minimize(
        make_problem(name),
        EVERY[name],
        engine=engine,
        commits=10**6,
        evaluate=5,
        callback=callback,
        tol=None,
    )
    assert run.status == "stopped"
    about = run.manifest["engine"]
    assert (about["workers_lost"], about["workers_joined"]) == (1, 1)
    assert set(run.schedule.worker.tolist()) == {0, 1, 2}
    again = aq.replay(run)
    assert again.theta.tobytes() == run.theta.tobytes()
    with pytest.raises(aq.BadInput, match="only while a run is under way"):
        engine.add()


def test_workers_killed_at_any_moment_never_change_what_is_replayed() -> None:
    dice = np.random.default_rng(0)
    for _ in range(4):
        engine = aq.Processes(3, start_method="fork")

        def kill_two(engine: aq.Processes = engine) -> None:
            for worker in (0, 1):
                time.sleep(dice.uniform(0.0, 0.03))
                os.kill(process_of(engine, worker), signal.SIGKILL)

        killer = threading.Thread(target=kill_two)

        def begin(progress: Any, killer: threading.Thread = killer) -> None:
            if progress.commit == 1:
                killer.start()
            if progress.workers == 1:
                raise StopIteration

        run = aq.minimize(
            PROBLEM,
            EVERY["as-lbfgs"],
            engine=engine,
            commits=10**6,
            evaluate=1,
            callback=begin,
        )
        killer.join()
        assert run.manifest["engine"]["workers_lost"] == 2
        assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


def test_a_run_stops_when_every_worker_is_gone() -> None:
    engine = aq.Processes(1, start_method="fork")

    def callback(progress: Any) -> None:
        if progress.commit == 10:
            os.kill(process_of(engine, 0), signal.SIGKILL)

    run = aq.minimize(
        PROBLEM,
        EVERY["async-sgd"],
        engine=engine,
        commits=10**6,
        evaluate=10,
        callback=callback,
    )
    assert (run.status, "every worker was gone" in run.message) == ("stopped", True)
    assert 10 <= run.schedule.commits < 10**6


def test_a_silent_worker_is_given_up_and_ended(tmp_path: Path) -> None:
    flag = tmp_path / "stuck"

    class Stuck(Slope):
        def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
            super().grad(theta, rows, out)
            if self.calls == 20 and first_to_write(flag):
                time.sleep(600.0)

    engine = aq.Processes(2, give_up_after=3.0, start_method="fork")
    run = aq.minimize(
        Stuck(), EVERY["mb-lbfgs"], engine=engine, commits=40, theta0=START, check=False
    )
    assert_made_all_commits("mb-lbfgs", run.status, run.nit, 40)
    assert run.manifest["engine"]["workers_lost"] == 1
    assert not alive(int(flag.read_text()))


def test_a_run_that_is_done_returns_without_a_worker_that_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncqn.engines.coordinator.LAST_WAIT", 1.0)
    engine = aq.Processes(3, start_method="fork")
    stopped: list[int] = []

    def callback(progress: Any) -> None:
        if progress.commit == 20:
            stopped.append(process_of(engine, 1))
            os.kill(stopped[0], signal.SIGSTOP)

    with pytest.warns(
        UserWarning,
        match=r"^worker 1 did not answer at the end of the run and was given up",
    ):
        run = aq.minimize(
            PROBLEM,
            EVERY["async-sgd"],
            engine=engine,
            commits=100,
            evaluate=20,
            callback=callback,
        )
    assert_made_all_commits("async-sgd", run.status, run.nit, 100)
    about = run.manifest["engine"]
    assert (about["workers_lost"], about["workers_silent"]) == (1, [1])
    assert not alive(stopped[0])
    assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


def test_updates_are_rejected_dropped_counted_and_replayed() -> None:
    problem = Slope(poison=5)
    engine = aq.Processes(2, max_staleness=1, start_method="fork")
    run = aq.minimize(
        problem, EVERY["as-lbfgs"], engine=engine, commits=100, seed=2, theta0=START
    )
    assert run.counters["updates_rejected"] > 0
    assert run.counters["staleness_max"] <= 1
    assert_replays(run, problem)


def test_an_error_in_a_problem_ends_the_run_and_names_worker_and_step() -> None:
    words = r"^worker 0 failed in its step \d+, computing on .* \(ZeroDivisionError: the data are gone\)\.\n"
    engine = aq.Processes(1, start_method="fork")
    with pytest.raises(WorkerFailed, match=words) as raised:
        aq.minimize(
            Slope(fail_at=40),
            EVERY["mb-lbfgs"],
            engine=engine,
            commits=1000,
            theta0=START,
        )
    assert "in grad" in raised.value.__notes__[0]

    class Broken(Slope):
        def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
            raise ZeroDivisionError("the data are gone")

    with pytest.raises(
        WorkerFailed, match=r"^worker 0 failed in its step 0, computing on version 0 "
    ):
        aq.minimize(
            Broken(), EVERY["sgd"], engine=engine, commits=10, theta0=START, check=False
        )


def test_computations_last_at_least_as_long_as_the_timing_model_says() -> None:
    cluster = aq.Cluster(2, worker_mean=(2.0, 7.0), message=1.0)
    engine = aq.Processes(2, timing_model=cluster, time_unit=3e-3, start_method="fork")
    run = aq.minimize(PROBLEM, EVERY["async-sgd"], engine=engine, commits=30)
    fast, slow = run.schedule.per_worker()
    assert fast.delivered > slow.delivered > 0
    # Worker 1 takes 8 units for each, messages included; the clock can only be late.
    times = run.schedule.time[run.schedule.worker == 1]
    assert np.all(
        times
        >= 8 * np.arange(1, times.size + 1) * (1 - 1e-9)
        - (run.schedule.commit[-1] == 0) * 8
    )
    assert_replays(run)


def test_a_stopped_run_goes_on_from_its_checkpoint_and_replays_as_a_whole(
    tmp_path: Path,
) -> None:
    def callback(progress: Any) -> None:
        if progress.commit >= 40:
            raise StopIteration

    aq.minimize(
        PROBLEM, EVERY["as-lbfgs"], engine=aq.Processes(2, start_method="fork"), commits=80, evaluate=20,
        callback=callback, checkpoint=tmp_path / "c", checkpoint_every=15,
    )  # fmt: skip
    run = aq.resume(tmp_path / "c")
    assert_made_all_commits("as-lbfgs", run.status, run.schedule.commits, 80)
    about = run.manifest["engine"]
    assert (about["kind"], about["resumed_from"], about["workers_joined"]) == (
        "processes",
        40,
        0,
    )
    assert about["start_method"] == "fork"
    assert_replays(run)


JOB = (
    '[problem]\nkind = "linear-gaussian"\ndim = 12\nn_data = 60\n'
    '[algorithm]\nkind = "async-sgd"\nh = 1e-7\nbatch = 10\n'
    "[cluster]\nworkers = 2\nworker_mean = 2.0\n[run]\ncommits = {}\nevaluate = 1000\n"
)


def command(folder: Path, commits: int, *more: str) -> list[str]:
    (folder / "job.toml").write_text(JOB.format(commits))
    return [
        sys.executable,
        "-m",
        "asyncqn",
        "run",
        "job.toml",
        "--engine",
        "processes",
        "--quiet",
        *more,
    ]


def test_the_command_runs_processes_and_prints_one_json_object(tmp_path: Path) -> None:
    words = command(
        tmp_path,
        40,
        "--slow",
        "--set",
        "engine.time_unit=1e-3",
        "--save",
        "r",
        "--json",
    )
    done = subprocess.run(words, cwd=tmp_path, env=child_environment(), capture_output=True, text=True,
                          timeout=100, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    numbers = json.loads(done.stdout)
    assert (numbers["engine"], numbers["workers"], numbers["workers_lost"]) == (
        "processes",
        2,
        0,
    )
    aq.replay(tmp_path / "r")


@pytest.mark.parametrize(
    "how", ["master killed", "all but a worker killed", "interrupted"]
)
def test_no_process_outlives_its_master_and_the_run_can_go_on(
    how: str, tmp_path: Path
) -> None:
    words = command(tmp_path, 10**8, "--checkpoint", "c", "--checkpoint-every", "0.1")
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        env=child_environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as master:
        while not (tmp_path / "c" / "a" / "checkpoint.json").exists():
            assert master.poll() is None
            time.sleep(0.02)
        family = descendants(master.pid)
        assert len(family) == 3, "the fork server and two workers"
        if how == "interrupted":
            os.killpg(master.pid, signal.SIGINT)  # as a terminal does: everyone gets it
        else:
            (server,) = (pid for pid in family if descendants(pid))
            for pid in (
                (master.pid, server)
                if how == "all but a worker killed"
                else (master.pid,)
            ):
                os.kill(pid, signal.SIGKILL)
        err = master.communicate(timeout=60)[1]
    assert left_of(family) == set()
    if how == "interrupted":
        assert master.returncode == 130
        assert "continue with: asyncqn resume" in err
    assert not (tmp_path / "c" / "lock").read_text() or how != "interrupted"

    def enough(progress: Any) -> None:
        if progress.commit % 1000 == 0:
            raise StopIteration

    run = aq.resume(tmp_path / "c", callback=enough)
    assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workers": 0}, "workers must be"),
        ({"workers": 2, "start_method": "thread"}, "start_method"),
        ({"workers": 2, "start_timeout": 0.0}, "start_timeout"),
        ({"workers": 2, "timing_model": aq.Cluster(3)}, "timing_model"),
        ({"workers": 2, "timing_model": aq.Cluster(2, deaths={0: 1.0})}, "deaths"),
    ],
)
def test_impossible_parameters_are_refused(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(aq.BadInput, match=words):
        aq.Processes(**arguments)
