"""`asyncqn sample`, as a person and as a script use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import asyncqn as aq
from asyncqn.cli.jobfile import load_job
from asyncqn.cli.main import main

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


def exit_code(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def test_a_job_is_sampled_shown_and_saved(job: Path, tmp_path: Path, capsys) -> None:
    save = tmp_path / "run"
    assert (
        exit_code(
            "sample",
            job,
            "--draws",
            3000,
            "--chains",
            3,
            "--engine",
            "simulator",
            "--save",
            save,
            "--csv",
            tmp_path / "draws.csv",
        )
        == 0
    )
    with (tmp_path / "draws.csv").open() as file:
        assert sum(1 for _ in file) == 3001
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].split() == [
        "mean",
        "mcse",
        "sd",
        "5%",
        "50%",
        "95%",
        "ess",
        "rhat",
    ]
    assert "theta[2]" in shown
    samples = aq.Samples.from_run(aq.load_run(save))
    assert sum(map(len, samples.chains)) == 3000
    engine = aq.Simulator(load_job(job).cluster)
    direct = aq.sample(samples.run.problem, chains=3, draws=3000, engine=engine, seed=4)
    assert all((a == b).all() for a, b in zip(direct.chains, samples.chains))


@pytest.mark.filterwarnings(
    "ignore::asyncqn.errors.SamplingWarning"
)  # a hundred draws per chain are few
def test_a_script_gets_one_json_object(job: Path, capsys) -> None:
    arguments = (
        "--draws",
        400,
        "--chains",
        4,
        "--warm-up",
        300,
        "--workers",
        2,
        "--json",
    )
    assert exit_code("sample", job, *arguments) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["draws"] == sum(said["chains"]) == 400
    assert len(said["chains"]) == 4
    assert said["parameters"] == ["theta[0]", "theta[1]", "theta[2]"]
    assert len(said["summary"]["rhat"]) == 3


def test_a_mistake_is_one_sentence(job: Path, capsys) -> None:
    assert exit_code("sample", job, "--draws", 0) == 2
    assert "draws must be" in capsys.readouterr().err
