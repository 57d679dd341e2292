"""A folder of checkpoints: one writer at a time, one run, and a cost that follows what is new."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engines.runs import EVERY, make_problem
from sealed import reseal
from storage.disk import Disk, Killed, on

import asyncqn as aq
from asyncqn.runs.checkpoint import Checkpoints, CheckpointWarning
from asyncqn.runs.checkpoint_reading import load_checkpoint
from asyncqn.storage.locks import FolderLock

PROBLEM = make_problem()
SGD = EVERY["async-sgd"]

HOLDER = """
import sys, time
from asyncqn.runs.checkpoint import Checkpoints
checkpoints = Checkpoints(sys.argv[1])
checkpoints.prepare()
print("held", flush=True)
time.sleep(60)
"""


def begun(folder: Path, engine: Any, algorithm: Any = SGD, commits: int = 60) -> Any:
    options: dict[str, Any] = {
        "seed": 5,
        "evaluate": 20,
        "tol": None,
        "checkpoint_every": 20,
    }
    return aq.minimize(
        PROBLEM, algorithm, engine=engine, commits=commits, checkpoint=folder, **options
    )


def hold(folder: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_second_writer_is_refused_by_name_and_a_dead_ones_lock_is_taken_over(
    tmp_path: Path,
) -> None:
    child = hold(tmp_path / "c")
    try:
        for _ in range(20):
            with pytest.raises(
                aq.BadInput, match=f"is being written by process {child.pid} on "
            ) as caught:
                begun(tmp_path / "c", aq.Threads(1))
            assert "\n" not in str(caught.value)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    assert json.loads((tmp_path / "c" / "lock").read_text())["pid"] == child.pid
    assert begun(tmp_path / "c", aq.Threads(1)).status == "completed"


def test_a_run_that_another_process_has_gone_on_with_is_not_overwritten(
    tmp_path: Path,
) -> None:
    begun(tmp_path / "c", aq.Simulator(aq.Cluster(2)))
    stale = Checkpoints(tmp_path / "c", 20, load_checkpoint(tmp_path / "c"))
    before = load_checkpoint(tmp_path / "c").document
    reseal(tmp_path / "c" / "a", lambda document: document.update(serial=99))
    with pytest.raises(aq.BadInput, match="another process has continued"):
        stale.prepare()
    assert load_checkpoint(tmp_path / "c").document["run"] == before["run"] != ""
    Checkpoints(tmp_path / "c", 20, load_checkpoint(tmp_path / "c")).prepare()


def test_a_file_system_without_locks_is_told_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("asyncqn.storage.locks.fcntl.flock", without_locks)
    with pytest.warns(CheckpointWarning, match="cannot be locked"):
        assert begun(tmp_path / "c", aq.Threads(1)).status == "completed"


@pytest.mark.parametrize("name", ["async-sgd", "exact-lbfgs"])
def test_killed_at_any_call_of_a_checkpoint_the_run_resumes_to_the_same_bits(
    name: str, tmp_path: Path
) -> None:
    algorithm = EVERY[name]
    engine = aq.Simulator(aq.Cluster(2))
    whole = begun(tmp_path / "whole", engine, algorithm)
    total = on_disk(tmp_path / "w", engine, algorithm, Disk(1e9)).calls
    kept = False
    for last in range(1, total, max(1, total // 14)):
        folder = tmp_path / f"c{last}"
        with pytest.raises(Killed):
            on_disk(folder, engine, algorithm, Disk(last))
        before, kept = (
            kept,
            any((folder / g / "checkpoint.json").exists() for g in "ab"),
        )
        assert before <= kept
        with on(Disk(1e9)):
            again = aq.resume(folder) if kept else begun(folder, engine, algorithm)
        assert again.theta.tobytes() == whole.theta.tobytes()
        shutil.rmtree(folder)
    assert kept, "with the first checkpoint there is one for ever"


def on_disk(folder: Path, engine: Any, algorithm: Any, disk: Disk) -> Disk:
    with on(disk):
        begun(folder, engine, algorithm)
    return disk


def test_the_bytes_a_checkpoint_writes_do_not_grow_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = Checkpoints.write

    def counted(self: Checkpoints, saved: Any) -> None:
        before = {p: p.stat().st_size for p in self.folder.glob("*.log")}
        write(self, saved)
        new = sum(
            p.stat().st_size - before.get(p, 0) for p in self.folder.glob("*.log")
        )
        newest = self.folder / self._previous
        written.append(new + sum(p.stat().st_size for p in newest.iterdir()))

    monkeypatch.setattr(Checkpoints, "write", counted)
    options: dict[str, Any] = {
        "commits": 4000,
        "seed": 5,
        "evaluate": 100,
        "checkpoint_every": 100,
    }
    aq.minimize(
        PROBLEM,
        SGD,
        engine=aq.Simulator(aq.Cluster(2)),
        checkpoint=tmp_path / "s",
        **options,
    )
    assert len(written) == 40
    # The numbers in the document have more digits as the run goes on: eight numbers, four digits each.
    assert max(written) - written[1] <= 32
    written.clear()
    run = aq.minimize(
        PROBLEM, SGD, engine=aq.Threads(1), checkpoint=tmp_path / "c", **options
    )
    total = sum(p.stat().st_size for p in (tmp_path / "c").glob("*.log"))
    state = max(p.stat().st_size for p in (tmp_path / "c").glob("?/*.npz")) + 4096
    assert total == (24 + 4) * 4000 + 8 * len(run.metrics.columns) * run.metrics.rows
    assert sum(written) <= total + len(written) * state, "every row is written once"


def test_a_lock_is_released_though_a_forked_process_has_a_copy_of_its_handle(
    tmp_path: Path,
) -> None:
    lock = FolderLock(tmp_path, "first")
    lock.take()
    copy = os.dup(lock._handle)  # what a fork of another run's workers does
    try:
        lock.release()
        FolderLock(tmp_path, "second").take()
    finally:
        os.close(copy)
