"""`asyncqn run` and `asyncqn resume`, as a person and as a script use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import asyncqn as aq
from asyncqn.cli.main import main

JOB = """
[problem]
kind = "linear-gaussian"
dim = 12
n_data = 60
[algorithm]
kind = "async-sgd"
h = 1e-5
batch = 10
[cluster]
workers = 3
worker_mean = 2.0
[run]
commits = 60
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return int(ended.value.code or 0)


def test_run_prints_one_json_object_with_what_only_a_real_run_has(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        call(
            "run",
            job,
            "--engine",
            "threads",
            "--workers",
            2,
            "--save",
            tmp_path / "r",
            "--json",
        )
        == 0
    )
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["engine"] == "threads"
    assert numbers["workers"] == 2
    assert numbers["commits"] == 60
    assert (
        numbers["workers_lost"]
        == numbers["workers_joined"]
        == numbers["updates_rejected"]
        == 0
    )
    assert numbers["seconds"] > 0
    assert numbers["commits_per_second"] == pytest.approx(60 / numbers["seconds"])
    assert numbers["resumed_from"] is None
    assert {"status", "fun", "error", "staleness_mean", "staleness_max"} <= set(numbers)
    aq.replay(tmp_path / "r")
    assert call("run", job, "--quiet") == 0


def test_run_slows_workers_by_the_cluster_of_the_job(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        call(
            "run", job, "--slow", "--set", "engine.time_unit=1e-3", "--json", "--quiet"
        )
        == 0
    )
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["workers"] == 3
    # Sixty computations of 2 units each on three workers last at least forty units of a millisecond.
    assert numbers["time"] >= 40 * (1 - 1e-9)
    assert numbers["seconds"] == pytest.approx(numbers["time"] * 1e-3)


def test_resume_finds_a_finished_run_finished(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        call("run", job, "--workers", 1, "--checkpoint", tmp_path / "c", "--quiet") == 0
    )
    capsys.readouterr()
    assert call("resume", tmp_path / "c", "--json", "--quiet") == 0
    numbers = json.loads(capsys.readouterr().out)
    assert (numbers["status"], numbers["commits"], numbers["resumed_from"]) == (
        "completed",
        60,
        60,
    )


def test_a_second_ctrl_c_while_the_interpreter_ends_prints_no_traceback() -> None:
    program = (
        "import atexit, os, signal, time\n"
        "atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(0.01)))\n"
        "from asyncqn.cli.main import main\n"
        "main(['run', 'nowhere.toml'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "JOB", "--engine", "abacus"], "there is no engine 'abacus'"),
        (["run", "JOB", "--workers", "0"], "at least one worker"),
        (["run", "nowhere.toml"], "there is no job file"),
        (["resume", "nowhere"], "holds no checkpoint"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str], words: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*(str(job) if a == "JOB" else a for a in arguments)) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert words in error[0]


def test_ctrl_c_writes_a_checkpoint_says_how_to_resume_and_exits_with_130(
    job: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    job.write_text(
        JOB.replace("commits = 60", "commits = 10_000_000\nevaluate = 1_000_000")
    )
    command = [sys.executable, "-m", "asyncqn", "run", str(job), "--workers", "2"]
    command += ["--checkpoint", str(folder), "--checkpoint-every", "0.05"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        while not (folder / "a" / "checkpoint.json").exists():
            assert child.poll() is None
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert f"continue with: asyncqn resume {folder}" in err
    assert err.count("asyncqn: ") == 1, "it is said once"
    document = json.loads((folder / "a" / "checkpoint.json").read_text())
    assert document["manifest"]["commits"] == 10_000_000
