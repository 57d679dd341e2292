"""Ray: what actors compute replays to the bit, and a Ray that fails is one sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from engines.runs import (
    EVERY,
    LONG,
    PATTERNS,
    assert_made_all_commits,
    assert_replays,
    children,
    command,
    left_of,
    make_problem,
)

import asyncqn as aq


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


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no raylet"),
        TimeoutError("timed out"),
        AssertionError(),
        "RaySystemError",
        "GetTimeoutError",
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
    words = r"^a local Ray cannot be started \(.+\): try again when .*\.$"
    with pytest.raises(aq.BadInput, match=words):
        aq.minimize(make_problem(), EVERY["async-sgd"], engine=aq.Ray(1), commits=10)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.xdist_group("clusters")
def test_a_run_whose_ray_died_says_so_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    options = ["--checkpoint", str(folder), "--checkpoint-every", "0.2"]
    words = command(tmp_path, LONG, "--engine", "ray", "--workers", "1", *options)
    with subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as driver:
        while not (folder / "a" / "checkpoint.json").exists():
            assert driver.poll() is None
            time.sleep(0.05)
        family = children(driver.pid)
        names = {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in family}
        os.kill(names["raylet"], signal.SIGKILL)
        err = driver.communicate(timeout=60)[1]
    sentence = f"asyncqn: the Ray cluster died (its raylet has ended); continue with: asyncqn resume {folder}\n"
    assert (driver.returncode, err) == (2, sentence)
    assert left_of(family, 25.0) == set()
