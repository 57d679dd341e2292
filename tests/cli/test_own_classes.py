"""Problems and algorithms of the user's own, named as "module:Class" in job files and saved runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.calls import call
from oracles import one_sentence

import asyncqn as aq
from asyncqn.cli.jobfile import load_job
from asyncqn.errors import BadInput
from asyncqn.runs.archive import load_run

MODULE = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from asyncqn import AsyncSGD

print("imported", flush=True)


@dataclass(frozen=True)
class Ridge:
    n_data: int = 20
    weight: float = 1.0
    dim: ClassVar[int] = 3

    def _rows(self, rows):
        return np.cos(np.outer(rows + 1.0, np.arange(1.0, 4.0))), np.sin(rows + 0.5)

    def value(self, theta):
        A, y = self._rows(np.arange(self.n_data))
        return float(0.5 * ((A @ theta - y) ** 2).sum() + 0.5 * self.weight * theta @ theta)

    def grad(self, theta, rows, out):
        A, y = self._rows(np.asarray(rows))
        out[...] = self.weight * theta + self.n_data / len(rows) * (A.T @ (A @ theta - y))


@dataclass(frozen=True)
class Mine(AsyncSGD):
    boost: float = 1.0


@dataclass(frozen=True)
class Pauses:
    every: int

    def times(self, z):
        return 1.0 + 9.0 * (np.arange(1, z.size + 1) % self.every == 0)
"""

JOB = """
[problem]
kind = "{module}:Ridge"
n_data = 30
weight = 2
[algorithm]
kind = "{module}:Mine"
h = 1e-3
batch = 5
[cluster]
workers = 2
[run]
commits = 40
"""


FACTORY = """

def made(rows: int = 50):
    import asyncqn as aq
    X = np.random.default_rng(0).standard_normal((rows, 3))
    return aq.LeastSquares(X, X @ np.ones(3))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of its own for every test, in the current folder."""
    name = "own_" + "".join(c if c.isalnum() else "_" for c in tmp_path.name)
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "job.toml").write_text(JOB.format(module=name))
    monkeypatch.chdir(tmp_path)
    return name


def test_without_leave_nothing_is_imported_and_a_sentence_tells_of_the_option(
    module: str, capfd: Any
) -> None:
    with pytest.raises(BadInput, match="--allow-imports") as caught:
        load_job("job.toml")
    assert one_sentence(caught.value)
    assert "imported" not in capfd.readouterr().out


def test_a_job_of_own_classes_runs_is_saved_replayed_and_resumed(
    module: str, capfd: Any
) -> None:
    job: Any = load_job("job.toml", allow_imports=True)
    assert (job.problem.n_data, job.problem.weight) == (30, 2.0)
    assert isinstance(job.problem.weight, float)
    assert type(job.algorithm).__name__ == "Mine"
    arguments = ("job.toml", "--allow-imports", "--quiet")
    assert call(capfd, "simulate", *arguments, "--save", "run")[0] == 0
    about = load_run("run").manifest
    assert about["algorithm"]["kind"] == f"{module}:Mine"
    reference = {"kind": f"{module}:Ridge", "n_data": 30, "weight": 2.0}
    assert about["problem"]["reference"] == reference
    assert load_run("run").problem is None
    code, _, err = call(capfd, "replay", "run")
    assert code == 2
    assert f"class {module}:Ridge: allow its import with --allow-imports" in err
    assert call(capfd, "replay", "run", "--allow-imports")[0] == 0
    run = ("run", *arguments, "--workers", 1, "--checkpoint", "c")
    assert call(capfd, *run)[0] == 0
    with pytest.raises(BadInput, match="allow_imports=True"):
        aq.resume("c")
    assert call(capfd, "resume", "c", "--allow-imports", "-q")[0] == 0


def test_a_job_of_a_factory_replays_from_the_command_line(
    module: str, capfd: Any
) -> None:
    with open(f"{module}.py", "a") as file:
        file.write(FACTORY)
    Path("made.toml").write_text(
        f'[problem]\nkind = "{module}:made"\nrows = 30\n'
        "[algorithm]\nkind = 'async-sgd'\nh = 1e-4\nbatch = 5\n[run]\ncommits = 40\n"
    )
    spawn = ("--engine", "processes", "--workers", 1, "--set", "engine.start_method=spawn")  # fmt: skip
    run = ("run", "made.toml", "--allow-imports", "--save", "run", "-q")
    assert call(capfd, *run, *spawn)[0] == 0
    about = load_run("run").manifest["problem"]
    assert about["reference"] == {"kind": f"{module}:made", "rows": 30}
    assert "--allow-imports" in call(capfd, "replay", "run")[2]
    assert call(capfd, "replay", "run", "--allow-imports")[0] == 0


def test_a_law_of_one_s_own_is_a_law_of_a_job_s_cluster(
    module: str, tmp_path: Path, capfd: Any
) -> None:
    law = f"cluster.times={{kind='{module}:Pauses', every=3}}"
    simulate = ("simulate", "job.toml", "--set", law, "--save", "r", "-q")
    code, _, err = call(capfd, *simulate)
    assert code == 2
    assert "use --allow-imports" in err
    assert call(capfd, *simulate, "--allow-imports")[0] == 0
    times = load_run(tmp_path / "r", allow_imports=True).schedule.time
    assert times[-1] > 70, "a third of the computations takes ten units"
    assert call(capfd, "replay", "r", "--allow-imports", "-q")[0] == 0


@pytest.mark.parametrize(
    ("kind", "keys", "words"),
    [
        ("Ridge", "weigth = 1.0", "perhaps 'weight' is meant"),
        ("Ridge", "weight = 'much'", "weight must be a number, not 'much'"),
        ("Nobody", "", "cannot be imported"),
        ("np", "", "is not a class"),
    ],
)
def test_mistakes_in_an_own_section_are_named(
    module: str, kind: str, keys: str, words: str
) -> None:
    Path("bad.toml").write_text(f'[problem]\nkind = "{module}:{kind}"\n{keys}\n')
    with pytest.raises(BadInput, match=words) as caught:
        load_job("bad.toml", allow_imports=True)
    assert str(caught.value).startswith("bad.toml: ")
