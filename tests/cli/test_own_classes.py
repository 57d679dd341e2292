"""Problems and algorithms of the user's own, named as "module:Class" in job files and saved runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracles import Quadratic, one_sentence

import asyncqn as aq
from asyncqn.algorithms import ALGORITHMS
from asyncqn.cli.jobfile import job_schema, load_job
from asyncqn.cli.main import main
from asyncqn.engines.named import REAL_ENGINES
from asyncqn.errors import BadInput
from asyncqn.models import PROBLEMS
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


def command(*arguments: str) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


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
    assert command("simulate", *arguments, "--save", "run") == 0
    about = load_run("run").manifest
    assert about["algorithm"]["kind"] == f"{module}:Mine"
    assert about["problem"]["reference"] == {
        "kind": f"{module}:Ridge",
        "n_data": 30,
        "weight": 2.0,
    }
    assert load_run("run").problem is None
    capfd.readouterr()
    assert command("replay", "run") == 2
    assert (
        f"your own class {module}:Ridge: allow its import with --allow-imports"
        in capfd.readouterr().err
    )
    assert command("replay", "run", "--allow-imports") == 0
    assert command("run", *arguments, "--workers", "1", "--checkpoint", "c") == 0
    with pytest.raises(BadInput, match="allow_imports=True"):
        aq.resume("c")
    assert command("resume", "c", "--allow-imports", "--quiet") == 0


def test_a_job_of_a_factory_replays_and_resumes_from_the_command_line(
    module: str, capfd: Any
) -> None:
    with open(f"{module}.py", "a") as file:
        file.write(FACTORY)
    Path("made.toml").write_text(
        f'[problem]\nkind = "{module}:made"\nrows = 30\n'
        "[algorithm]\nkind = 'async-sgd'\nh = 1e-4\nbatch = 5\n"
        "[run]\ncommits = 40\n[engine]\nkind = 'processes'\nworkers = 1\n"
    )
    arguments = ("made.toml", "--allow-imports", "--quiet")
    assert (
        command(
            "run",
            *arguments,
            "--save",
            "run",
            "--checkpoint",
            "c",
            "--set",
            "engine.start_method=spawn",
        )
        == 0
    )
    about = load_run("run").manifest["problem"]
    assert about["reference"] == {"kind": f"{module}:made", "rows": 30}
    capfd.readouterr()
    assert command("replay", "run") == 2
    assert "--allow-imports" in capfd.readouterr().err
    assert command("replay", "run", "--allow-imports") == 0
    assert command("resume", "c", "--allow-imports", "--quiet") == 0


def test_a_law_of_one_s_own_is_a_law_of_a_job_s_cluster(
    module: str, tmp_path: Path, capfd: Any
) -> None:
    law = f"cluster.times={{kind='{module}:Pauses', every=3}}"
    simulate = ("simulate", "job.toml", "--set", law, "--save", "r", "-q")
    assert command(*simulate) == 2
    assert "use --allow-imports" in capfd.readouterr().err
    assert command(*simulate, "--allow-imports") == 0
    times = load_run(tmp_path / "r", allow_imports=True).schedule.time
    assert times[-1] > 70, "a third of the computations takes ten units"
    assert command("replay", "r", "--allow-imports", "-q") == 0


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


def test_a_class_with_arrays_is_not_written_into_the_manifest() -> None:
    run = aq.minimize(
        Quadratic.random(),
        aq.AsyncSGD(1e-3, 4),
        engine=aq.Simulator(aq.Cluster(1)),
        commits=3,
    )
    assert run.manifest["problem"]["reference"] is None


def test_the_schema_knows_every_kind_and_its_parameters() -> None:
    schema = job_schema()
    json.dumps(schema, allow_nan=False)
    definitions = schema["$defs"]
    assert set(definitions["Job"]["properties"]) == {
        "problem",
        "algorithm",
        "cluster",
        "run",
        "engine",
    }
    for kind in [*PROBLEMS, *ALGORITHMS, *REAL_ENGINES]:
        assert definitions[kind.replace("-", "_")]["properties"]["kind"] == {
            "enum": [kind]
        }
    sgd = definitions["async_sgd"]
    assert sgd["properties"]["h"]["type"] == "number"
    assert sgd["required"] == ["kind", "h", "batch"]
    assert sgd["additionalProperties"] is False
    assert definitions["Cluster"]["required"] == ["workers"]
    assert (
        definitions["ray"]["required"] == definitions["threads"]["required"] == ["kind"]
    )
    assert {"$ref": "#/$defs/Cluster"} in definitions["mpi"]["properties"][
        "timing_model"
    ]["anyOf"]
    assert definitions["RunOptions"]["properties"]["commits"]["default"] == 5_000
