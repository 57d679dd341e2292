"""Checkpoints of real engines: one at a time is taken and written, and a lost worker holds none up."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engines.runs import make_problem

import asyncqn as aq
from asyncqn.engines.run_file import RunFile
from asyncqn.runs.checkpoint import Checkpoints, Saved
from asyncqn.runs.checkpoint_reading import load_checkpoint

PROBLEM = make_problem()
SGD = aq.AsyncSGD(h=1e-5, batch=10)


@pytest.mark.parametrize(
    "engine", [aq.Threads(2), aq.Processes(2)], ids=["threads", "processes"]
)
def test_on_a_slow_disk_no_checkpoint_begins_before_the_one_before_is_written(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    take, write = RunFile.take_if_due, Checkpoints.write
    later = threading.Event()

    def begun(self: RunFile) -> None:
        before = self._saved
        take(self)
        if self._saved is not before:
            log.append("begun")

    def written_slowly(self: Checkpoints, saved: Saved) -> None:
        later.clear()
        later.wait(0.5)  # until the run is ten commits on, if it goes on
        write(self, saved)
        log.append("written")

    monkeypatch.setattr(RunFile, "take_if_due", begun)
    monkeypatch.setattr(Checkpoints, "write", written_slowly)

    def progressed(progress: Any) -> None:
        later.set()
        if log.count("written") >= 3:
            raise StopIteration

    run = aq.minimize(
        PROBLEM,
        SGD,
        engine=engine,
        commits=1_000_000,
        evaluate=10,
        tol=None,
        callback=progressed,
        checkpoint=tmp_path / "c",
        checkpoint_every=1,
    )
    assert ("begun", "begun") not in pairwise(log)
    assert load_checkpoint(tmp_path / "c").commit == run.nit


def test_a_worker_that_dies_owing_its_state_does_not_end_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []
    write = Checkpoints.write

    def noted(self: Checkpoints, saved: Saved) -> None:
        commits.append(saved.commit)
        write(self, saved)

    monkeypatch.setattr(Checkpoints, "write", noted)
    # Worker 1 dies in its first computation: every checkpoint that began before waits for its state.
    cluster = aq.Cluster(2, worker_mean=[1.0, 500.0], deaths={1: 50.0})
    run = aq.minimize(
        PROBLEM,
        SGD,
        engine=aq.Threads(timing_model=cluster, time_unit=2e-3),
        commits=400,
        evaluate=50,
        checkpoint=tmp_path / "c",
        checkpoint_every=1,
        tol=None,
    )
    assert run.manifest["engine"]["workers_lost"] == 1
    assert any(50 < commit < run.nit for commit in commits), (
        "those after the death are written, too"
    )
