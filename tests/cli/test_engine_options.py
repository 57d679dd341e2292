"""The engine of `asyncqn run`: its section of the job file, and the options that go over it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli.calls import SMALL
from conftest import Mpirun

import asyncqn as aq
from asyncqn.cli.jobfile import load_job
from asyncqn.cli.options import JobOptions
from asyncqn.cli.running import job_overrides, make_engine
from asyncqn.errors import BadInput

RAY = """
[cluster]
workers = 3
[engine]
kind = "ray"
workers = 5
address = "auto"
restarts = 2
give_up_after = 60.0
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(RAY)
    return path


def engine_of(
    path: Path | None, *settings: str, kind: str | None = None, slow: bool = False
) -> Any:
    options = JobOptions(path, settings=[f"engine.{each}" for each in settings])
    job = load_job(path, job_overrides(options, {}, kind, slow))
    return make_engine(job, kind, slow)


def test_options_go_over_the_section_and_the_section_over_the_defaults(
    job: Path,
) -> None:
    assert engine_of(job) == aq.Ray(5, "auto", restarts=2, give_up_after=60.0)
    changed = engine_of(job, "workers=4", "restarts=0", "max-staleness=7")
    assert changed == aq.Ray(4, "auto", restarts=0, give_up_after=60.0, max_staleness=7)
    assert engine_of(job, "cpus=0.5", kind="ray").restarts == 2
    assert engine_of(None) == aq.Threads(2)
    assert engine_of(None, "start_method=spawn", kind="processes") == aq.Processes(
        2, start_method="spawn"
    )


def test_an_engine_imitates_the_job_s_cluster_or_one_of_its_own(job: Path) -> None:
    cluster = load_job(job).cluster
    assert engine_of(job, kind="threads", slow=True) == aq.Threads(
        3, timing_model=cluster
    )
    job.write_text(
        "[engine]\nkind = 'threads'\ntiming_model = {workers = 4, worker_mean = 2.0}"
    )
    assert engine_of(job) == aq.Threads(4, timing_model=aq.Cluster(4, worker_mean=2.0))
    assert engine_of(job, slow=True).timing_model == load_job(None).cluster


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("workers = 2", "needs a kind: one of threads, processes, mpi, ray"),
        ("kind = ['ray']", "there is no engine"),
        ("kind = 'ray'\nrestart = 3", "no parameter 'restart'; perhaps 'restarts' is meant"),
        ("kind = 'threads'\nrestarts = 3", "engine 'threads' has no parameter 'restarts'"),
        ("kind = 'mpi'\nworkers = 3", "engine 'mpi' has no parameter 'workers'"),
        (
            "kind = 'processes'\nstart_method = 'copy'",
            "start_method must be 'fork', 'spawn' or None, not 'copy'",
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_the_section_is_one_sentence_also_where_nothing_real_is_run(
    section: str, words: str, job: Path
) -> None:
    job.write_text(f"[engine]\n{section}\n")
    with pytest.raises(BadInput, match=re.escape(words)) as mistake:
        load_job(job)
    assert str(mistake.value).startswith(f"{job}: ")


def test_ranks_whose_job_file_says_mpi_speak_as_one(job: Path, mpirun: Mpirun) -> None:
    job.write_text("[engine]\nkind = 'mpi'\nwire = 'exact'\n")
    options = [word for word in SMALL if word not in ("--workers", "3")]
    done = mpirun(2, ["-m", "asyncqn", "run", str(job), *options, "--json", "--quiet"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engine"] == "mpi"
    job.write_text("[engine]\nkind = 'mpi'\nmax_staleness = 1.5\n")
    done = mpirun(2, ["-m", "asyncqn", "run", str(job), "--quiet"])
    assert "max_staleness must be an integer of at least 0 or None" in done.stderr
    assert sum("asyncqn: " in line for line in done.stderr.splitlines()) == 1
