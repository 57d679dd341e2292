"""Processes: what they compute replays to the bit, and nothing of them stays behind."""

from __future__ import annotations

import gc
import os
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
    LONG,
    Slope,
    assert_made_all_commits,
    assert_replays,
    children,
    command,
    left_of,
    make_problem,
    process_of,
    run_of,
)

import asyncqn as aq
from asyncqn.engines.processes.engine import why_not_fork
from asyncqn.errors import WorkerFailed

PROBLEM = make_problem()
START = np.array([3.0])
SGD = EVERY["async-sgd"]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are looked up in /proc"
)


def forked(workers: int, **options: Any) -> aq.Processes:
    return aq.Processes(workers, start_method="fork", **options)


@pytest.mark.parametrize("name", list(EVERY))
def test_a_run_on_processes_equals_its_replay_bitwise(name: str) -> None:
    run = run_of(name, forked(2), 80, seed=1, evaluate=37, tol=None)
    assert_made_all_commits(name, run.status, run.schedule.commits, 80)
    assert run.manifest["engine"]["workers_lost"] == 0
    assert_replays(run)


def resources() -> tuple[set[int], int, int, int]:
    """Processes, descriptors, named segments and mappings of this process."""
    shm = Path("/dev/shm")
    segments = shm.glob("*asyncqn*") if shm.exists() else ()
    mappings = Path("/proc/self/maps").read_text().count("memfd:asyncqn")
    handles = len(os.listdir("/proc/self/fd"))
    return children(os.getpid()), handles, len(list(segments)), mappings


def test_a_run_leaves_no_process_no_descriptor_no_segment_and_no_mapping_behind() -> (
    None
):
    def fail_later(progress: Any) -> None:
        if progress.commit > 5:
            raise KeyError("missing")

    def run(problem: Any, workers: int, **options: Any) -> None:
        aq.minimize(problem, SGD, engine=forked(workers), **options)

    run(PROBLEM, 2, commits=10)
    gc.collect()
    gc.disable()  # what goes only with a cycle of references would stay
    try:
        before = resources()
        run(PROBLEM, 3, commits=10)
        with pytest.raises(WorkerFailed):
            run(Slope(fail_at=30), 2, commits=1000, theta0=START)
        with pytest.raises(KeyError):
            run(PROBLEM, 2, commits=30, callback=fail_later)
        assert before[3] == 0
        assert resources() == before
    finally:
        gc.enable()


def test_twenty_runs_side_by_side_in_threads_all_return() -> None:
    runs: dict[int, aq.Run] = {}

    def one(seed: int) -> None:
        runs[seed] = aq.minimize(PROBLEM, SGD, engine=forked(2), commits=40, seed=seed)

    threads = [
        threading.Thread(target=one, args=(seed,), daemon=True) for seed in range(20)
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 100.0
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    # A run that is not there waits for the end of another.
    assert sorted(runs) == list(range(20))
    for run in runs.values():
        assert run.manifest["engine"]["workers_lost"] == 0
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
    engine = aq.Processes(2, start_method="spawn")
    run = aq.minimize(
        Own(), EVERY["as-lbfgs"], engine=engine, commits=30, theta0=START, check=False
    )
    shares = {int(file.name): file.read_text() for file in tmp_path.iterdir()}
    assert shares.pop(os.getpid()) == "False"
    assert list(shares.values()) == ["True", "True"]
    assert_replays(run, Slope())


def test_fork_is_not_chosen_beside_what_does_not_survive_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (
        *("jax", "mpi4py.MPI", "torch", "pyarrow.flight"),
        "numba.np.ufunc.parallel",
    ):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert why_not_fork() is None
    monkeypatch.setitem(sys.modules, "jax", threading)
    assert why_not_fork() == "JAX"


def test_workers_killed_at_any_moment_never_change_what_is_replayed() -> None:
    dice = np.random.default_rng(0)
    for _ in range(4):
        engine = forked(3)

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

        run = run_of("as-lbfgs", engine, 10**6, evaluate=1, callback=begin)
        killer.join()
        assert run.manifest["engine"]["workers_lost"] == 2
        assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


@pytest.mark.parametrize(
    "how", ["master killed", "all but a worker killed", "interrupted"]
)
def test_no_process_outlives_its_master_and_the_run_can_go_on(
    how: str, tmp_path: Path
) -> None:
    words = command(
        tmp_path,
        LONG,
        *["--engine", "processes", "--checkpoint", "c", "--checkpoint-every", "0.1"],
    )
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
        family = children(master.pid)
        assert len(family) == 3, "the fork server and two workers"
        if how == "interrupted":
            os.killpg(master.pid, signal.SIGINT)  # as a terminal does: everyone gets it
        else:
            os.kill(master.pid, signal.SIGKILL)
        if how == "all but a worker killed":
            (server,) = (pid for pid in family if children(pid))
            os.kill(server, signal.SIGKILL)
        err = master.communicate(timeout=60)[1]
    assert left_of(family) == set()
    if how == "interrupted":
        assert master.returncode == 130
        assert "continue with: asyncqn resume" in err
        assert not (tmp_path / "c" / "lock").read_text()

    def enough(progress: Any) -> None:
        if progress.commit % 1000 == 0:
            raise StopIteration

    run = aq.resume(tmp_path / "c", callback=enough)
    assert aq.replay(run).theta.tobytes() == run.theta.tobytes()
