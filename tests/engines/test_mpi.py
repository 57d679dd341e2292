"""The MPI engine on real ranks: bitwise replay, failures that end the job, losses that do not."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Mpirun, python
from engines.runs import EVERY, assert_made_all_commits

import asyncqn as aq
from asyncqn.engines.named import engine_from_json
from asyncqn.engines.wire import (
    Layout,
)
from asyncqn.runs.checkpoint_reading import load_checkpoint
from asyncqn.storage.serialise import to_json

JOBS = str(Path(__file__).with_name("mpi_jobs.py"))
ULFM = ("--with-ft", "ulfm")

JOB = """
[problem]
kind = "linear-gaussian"
dim = 10
n_data = 60
[algorithm]
kind = "async-sgd"
h = 1e-5
batch = 6
[run]
commits = 80
"""


def told(process: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """What rank 0 told, by name."""
    assert process.returncode == 0, process.stderr
    return {line["name"]: line for line in map(json.loads, process.stdout.splitlines())}


_several: dict[str, dict[str, Any]] = {}


@pytest.fixture
def several(mpirun: Mpirun) -> dict[str, dict[str, Any]]:
    """What the job of several cases told; it is run once."""
    if not _several:
        _several.update(told(mpirun(4, [JOBS, "several"])))
    return _several


def test_every_algorithm_on_four_ranks_replays_to_the_bit(mpirun: Mpirun) -> None:
    lines = told(mpirun(4, [JOBS, "every"]))
    assert list(lines) == list(EVERY)
    for name, line in lines.items():
        assert_made_all_commits(name, line["status"], line["commits"], 60)
        assert line["engine"]["workers"] == 3
    # One receive per worker is served per turn: with 60 commits nobody is passed over.
    assert lines["async-sgd"]["workers"] == list(range(3))


def test_a_float32_wire_replays_to_the_bit_and_its_rounding_matters(
    several: dict[str, dict[str, Any]],
) -> None:
    assert several["as-lbfgs"]["engine"]["wire"] == "float32"
    assert several["mb-lbfgs timeout"]["commits"] == 60
    assert several["without rounding"]["status"] == "differs"


def test_a_problem_defined_in_a_script_runs_is_guarded_and_stopped(
    several: dict[str, dict[str, Any]],
) -> None:
    assert several["plain"]["status"] == "completed"
    assert several["poisoned"]["rejected"] > 0
    assert several["stopped"]["status"] == "stopped"
    assert several["stopped"]["commits"] == 20


def test_an_interrupted_run_is_resumed_and_replays_as_a_whole(
    mpirun: Mpirun, tmp_path: Path
) -> None:
    lines = told(mpirun(2, [JOBS, "serial", str(tmp_path / "checkpoints")]))
    assert lines["interrupted"]["status"] == "interrupted"
    assert 40 <= lines["interrupted"]["commits"] < 100
    assert lines["resumed"]["commits"] == 100
    assert lines["resumed"]["engine"]["resumed_from"] == lines["interrupted"]["commits"]


def test_slow_workers_are_dropped_from_rounds_and_silent_ones_given_up(
    several: dict[str, dict[str, Any]],
) -> None:
    assert several["slowed"]["dropped"] > 0
    assert several["silent"]["engine"]["workers_lost"] == 3
    assert several["silent"]["status"] == "stopped"


def test_a_run_that_is_done_returns_without_a_rank_that_is_stopped(
    mpirun: Mpirun,
) -> None:
    process = mpirun(3, [JOBS, "stopped"])
    line = json.loads(process.stdout)
    assert_made_all_commits("async-sgd", line["status"], line["commits"], 40)
    assert line["engine"]["workers_silent"] == [1]
    assert (
        "worker 1 did not answer at the end of the run and was given up"
        in process.stderr
    )
    assert (
        "asyncqn: rank 2 did not answer to the end: the job is ended." in process.stderr
    )


@pytest.mark.parametrize("options", [(), ULFM], ids=["plain", "ulfm"])
def test_an_exception_on_one_rank_ends_the_job_with_rank_and_reason(
    mpirun: Mpirun, options: tuple[str, ...]
) -> None:
    process = mpirun(3, [JOBS, "faulty", "raises"], options=options)
    assert process.returncode != 0
    assert process.stdout == ""
    assert "asyncqn: rank 2 on " in process.stderr
    words = r"worker 1 failed in its step \d+, .* \(ValueError: the data of this rank are broken\)\.$"
    assert re.search(words, process.stderr, re.MULTILINE)


def test_an_exception_before_the_run_ends_the_job_too(mpirun: Mpirun) -> None:
    process = mpirun(3, [JOBS, "faulty", "before"])
    assert process.returncode != 0
    assert "LookupError: this rank has no data" in process.stderr


def test_ranks_that_were_given_unlike_problems_say_so(mpirun: Mpirun) -> None:
    process = mpirun(3, [JOBS, "faulty", "unlike"])
    assert process.returncode != 0
    assert "rank 2 was given another problem" in process.stderr


def test_a_killed_worker_is_dropped_under_ulfm_and_the_run_goes_on(
    mpirun: Mpirun,
) -> None:
    process = mpirun(3, [JOBS, "faulty", "killed"], options=ULFM)
    line = told(process)["faulty"]
    assert re.search(
        r"worker \d was lost after commit \d+: 1 of 2 workers, 1 lost", process.stderr
    )
    assert line["status"] == "completed"
    assert line["commits"] == 400
    assert line["engine"]["workers_lost"] == 1


def test_a_worker_killed_after_the_last_commit_is_dropped_and_nobody_waits_for_it(
    mpirun: Mpirun,
) -> None:
    line = told(mpirun(4, [JOBS, "faulty", "killed at the end"], options=ULFM))[
        "faulty"
    ]
    assert line["commits"] == 400
    assert line["engine"]["workers_lost"] == 1


def test_a_killed_worker_ends_the_job_without_ulfm(mpirun: Mpirun) -> None:
    process = mpirun(3, [JOBS, "faulty", "killed"])
    assert process.returncode != 0
    assert process.stdout == ""


def test_a_killed_master_is_named_in_one_sentence_that_says_how_to_go_on(
    mpirun: Mpirun, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    process = mpirun(3, [JOBS, "master", str(folder)], options=ULFM)
    assert process.returncode != 0
    said = [
        line for line in process.stderr.splitlines() if line.startswith("asyncqn: ")
    ]
    assert said == [
        f"asyncqn: the master (rank 0) is gone; continue with: mpiexec ... asyncqn resume {folder}"
    ]
    assert "Traceback" not in process.stderr
    assert load_checkpoint(folder).commit > 0


def test_the_command_line_prints_on_rank_0_alone(
    mpirun: Mpirun, tmp_path: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    command = [
        "-m",
        "asyncqn",
        "run",
        str(job),
        "--engine",
        "mpi",
        "--json",
        "--quiet",
        "--set",
        "engine.wire=float32",
    ]
    process = mpirun(3, [*command, "--save", str(tmp_path / "run")])
    assert process.returncode == 0, process.stderr
    numbers = json.loads(process.stdout)
    assert numbers["engine"] == "mpi"
    assert numbers["workers"] == 2
    assert numbers["commits"] == 80
    aq.replay(tmp_path / "run")


def test_one_process_alone_is_told_to_use_mpiexec() -> None:
    process = python("-m", "asyncqn", "run", "--engine", "mpi", "--quiet")
    assert process.returncode == 2
    assert process.stderr.count("\n") == 1
    assert "at least 2 ranks" in process.stderr


def test_parameters_are_checked_and_survive_a_manifest() -> None:
    with pytest.raises(aq.BadInput, match="wire must be 'exact' or 'float32'"):
        aq.MPI(wire="float16")
    with pytest.raises(aq.BadInput, match="cannot have deaths or joins"):
        aq.MPI(timing_model=aq.Cluster(workers=2, deaths={1: 3.0}))
    engine = aq.MPI(wire="float32", time_unit=0.5, max_staleness=4)
    recorded = {"workers_lost": 0, "workers_joined": 0, "resumed_from": None}
    manifest = {"kind": "mpi", "workers": 3, **to_json(engine), **recorded}
    assert engine_from_json(manifest) == engine


def test_a_frame_refuses_what_it_cannot_carry() -> None:
    with pytest.raises(aq.BadInput, match="holds a str"):
        Layout((np.zeros(3), "words"))
