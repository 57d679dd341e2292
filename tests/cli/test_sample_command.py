"""`asyncqn sample`, as a person and as a script use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.calls import call

import asyncqn as aq
from asyncqn.cli.jobfile import load_job

JOB = """
[problem]
kind = "linear-gaussian"
dim = 3
n_data = 40
[cluster]
workers = 3
[run]
seed = 4
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def test_a_job_is_sampled_shown_and_saved(job: Path, tmp_path: Path, capfd) -> None:
    save, csv = tmp_path / "run", tmp_path / "draws.csv"
    sample = ("sample", job, "--draws", 3000, "--chains", 3, "--engine", "simulator")
    code, out, _ = call(capfd, *sample, "--save", save, "--csv", csv)
    assert code == 0
    with csv.open() as file:
        assert sum(1 for _ in file) == 3001
    assert out.split()[1:9] == ["mean", "mcse", "sd", "5%", "50%", "95%", "ess", "rhat"]
    assert "theta[2]" in out
    samples = aq.Samples.from_run(aq.load_run(save))
    assert sum(map(len, samples.chains)) == 3000
    engine = aq.Simulator(load_job(job).cluster)
    direct = aq.sample(samples.run.problem, chains=3, draws=3000, engine=engine, seed=4)
    assert all((a == b).all() for a, b in zip(direct.chains, samples.chains))


@pytest.mark.filterwarnings(
    "ignore::asyncqn.errors.SamplingWarning"
)  # a hundred draws per chain are few
def test_a_script_gets_one_json_object(job: Path, capfd) -> None:
    size = ("--draws", 400, "--chains", 4, "--warm-up", 300, "--workers", 2)
    code, out, _ = call(capfd, "sample", job, *size, "--json")
    numbers = json.loads(out)
    assert (code, numbers["draws"], sum(numbers["chains"])) == (0, 400, 400)
    assert len(numbers["chains"]) == 4
    assert numbers["parameters"] == ["theta[0]", "theta[1]", "theta[2]"]
    assert len(numbers["summary"]["rhat"]) == 3


def test_a_mistake_is_one_sentence(job: Path, capfd) -> None:
    code, _, err = call(capfd, "sample", job, "--draws", 0)
    assert code == 2
    assert "draws must be" in err
