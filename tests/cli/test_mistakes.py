"""Mistakes of the command line: one sentence, exit code 2, nothing written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from cli.calls import SMALL, call, files

from asyncqn.cli.program import command_modules

LONG = "x" * 5_000
BATCH = ["simulate", *SMALL, "--set"]
MISTAKES = {
    "no such command": ["paint"],
    "no such option": ["simulate", "--colour", "red"],
    "too many arguments": ["simulate", "a.toml", "b.toml"],
    "text for a count": ["simulate", "--commits", "many"],
    "no such job": ["simulate", "none.toml"],
    "no such run": ["show", "none"],
    "no such engine": ["run", "--engine", "abacus"],
    "no workers": ["run", "--workers", "0"],
    "a file as run": ["replay", "file.txt"],
    "a foreign folder": ["show", "foreign"],
    "a foreign folder to save in": ["simulate", *SMALL, "--save", "foreign"],
    "a file to save in": ["simulate", *SMALL, "--save", "file.txt"],
    "a job that is no TOML": ["simulate", "file.txt"],
    "no such law": ["simulate", "--set", 'cluster.times={kind="cauchy"}'],
    "a figure of no known kind": ["show", "run", "--plot", "a.bmp"],
    "a trace in a file": ["show", "run", "--trace", "file.txt/a.json"],
    "an address without Ray": ["run", "--set", "engine.address=auto"],
    "workers under MPI": ["run", "--engine", "mpi", "--workers", "3"],
    "cut gzip": ["recommender", "fit", "packed.csv.gz"],
    "a batch beyond memory": [*BATCH, "algorithm.batch=10000000000"],
    "a job nested too deeply": ["simulate", "deep.toml"],
    "a long path to show": ["show", LONG],
    "a long path to save": ["simulate", *SMALL, "--save", LONG],
    "a long path of a figure": ["show", "run", "--plot", LONG],
}


@pytest.mark.parametrize("arguments", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_on_stderr_with_exit_code_two_and_nothing_written(
    arguments: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("just a file [")
    ratings = gzip.compress(b"user,item,rating\n1,1,3\n")
    (tmp_path / "packed.csv.gz").write_bytes(ratings[:-9])
    nested = "[" * 20_000 + "]" * 20_000
    (tmp_path / "deep.toml").write_text(f"[problem]\nkind = {nested}")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    if "run" in arguments[1:]:
        call(capfd, "simulate", *SMALL, "--save", "run", "-q")
    before = files(tmp_path)
    quiet = ["-q"] if arguments[0] in command_modules() else []
    code, out, err = call(capfd, *arguments, *quiet)
    assert (code, out) == (2, "")
    assert err.startswith("asyncqn: ")
    assert err.count("\n") == 1, "one line"
    assert "Traceback" not in err
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("simulate --algoritm sgd", "No such option: --algoritm (Possible options: --algorithm)"),
        ("simulate --target", "Option '--target' requires an argument."),
        ("show", "Missing argument 'run'."),
        (
            "simulate --set algorithm.h",
            "--set algorithm.h cannot be read: write section.key=value, as in --set algorithm.h=1e-3; the "
            "sections are problem, algorithm, cluster, engine, run.",
        ),
        (
            "run --engine simulator --set engine.wire=exact",
            "the simulator has no section [engine]: set values of the cluster.",
        ),
        ("show none", "none is not a saved run: there is no such folder."),
        ("compare a b --target nan", "--target must be a finite number, not nan."),
        (
            "recommender fit synthetic-demo --duplicates all",
            "duplicates must be one of error, last, first, mean, sum, not 'all'.",
        ),
        ("comparre", "No such command 'comparre'. Did you mean 'compare'?"),
    ],
)  # fmt: skip
def test_a_mistyped_option_or_number_is_named_in_plain_words(
    arguments: str, sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(capfd, *arguments.split()) == (2, "", f"asyncqn: {sentence}\n")


def test_with_json_a_mistake_is_an_object_as_well(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capfd, "replai", "--json")
    assert code == 2
    assert json.loads(out) == {"error": err.removeprefix("asyncqn: ").strip()}
