"""What is told of a run while it lasts: by `logging`, on stderr and in a log file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from cli.calls import SMALL, asyncqn, call

import asyncqn as aq

MODULE = """
import os, signal
import numpy as np

class Fragile:
    \"\"\"A problem whose first worker to see a theta that has moved is killed.\"\"\"

    dim, n_data = 2, 40

    def __init__(self):
        self.made_by = os.getpid()

    def value(self, theta):
        return 20.0 * float(theta @ theta)

    def grad(self, theta, rows, out):
        if os.getpid() != self.made_by and abs(theta[0] - 1.0) > 1e-3:
            try:
                os.close(os.open("killed", os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        np.multiply(theta, 40.0, out=out)

    def initial(self, rng):
        return np.ones(2)
"""
JOB = """
[problem]
kind = "fragile:Fragile"
[algorithm]
kind = "async-sgd"
h = 1e-4
batch = 4
[run]
commits = 2000
[engine]
kind = "processes"
workers = 2
"""


def test_a_lost_worker_is_announced_on_stderr_and_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "fragile.py").write_text(MODULE)
    (tmp_path / "job.toml").write_text(JOB)
    options = ("--allow-imports", "--checkpoint", "c", "--log", "run.log")
    done = asyncqn("run", "job.toml", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "was lost" in line]
    assert len(said) == 1
    assert said[0].startswith("asyncqn: worker ")
    assert said[0].endswith(": 1 of 2 workers, 1 lost.")
    log = (tmp_path / "run.log").read_text().splitlines()
    assert [line for line in log if " WARNING asyncqn.engines: worker " in line]
    assert (
        "INFO    asyncqn.minimize: AsyncSGD on Processes begins: at most 2000 commits"
        in log[0]
    )
    assert "AsyncSGD on Processes ends, completed: 2000 commits were made." in log[-1]
    assert any(" asyncqn.runs: checkpoint of commit " in line for line in log)


def test_mistakes_with_logs_are_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, _, err = call(capfd, "simulate", *SMALL, "--log", tmp_path / "pipe")
    assert (code, err.count("\n")) == (2, 1)
    assert "is a named pipe: name a regular file to write to." in err


def test_a_user_hears_a_run_by_the_means_of_logging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problem = aq.LinearGaussian.random(dim=5, n_data=60, seed=0)
    with caplog.at_level(logging.INFO, "asyncqn"):
        aq.minimize(problem, engine=aq.Threads(1))
    assert {record.name for record in caplog.records} == {"asyncqn.minimize"}
    assert "ends, converged" in caplog.records[-1].getMessage()
