"""Mistakes of the command line: one sentence, exit code 2, nothing written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from cli.calls import SMALL, call, files

from asyncqn.cli.program import command_modules

BAD = {
    "no such command": ["paint"],
    "no such option": ["simulate", "--colour", "red"],
    "missing argument of show": ["show"],
    "too many arguments": ["simulate", "a.toml", "b.toml"],
    "text for a count": ["simulate", "--commits", "many"],
    "no such job": ["simulate", "none.toml"],
    "no such run": ["show", "none"],
    "a file as run": ["replay", "file.txt"],
    "a foreign folder": ["show", "foreign"],
    "a foreign folder to save in": ["simulate", *SMALL, "--save", "foreign"],
    "a file to save in": ["simulate", *SMALL, "--save", "file.txt"],
    "below a file": ["simulate", *SMALL, "--save", "file.txt/run"],
    "a job that is no TOML": ["simulate", "file.txt"],
    "no such law": ["simulate", "--set", 'cluster.times={kind="cauchy"}'],
    "a figure of no known kind": ["show", "run", "--plot", "a.bmp"],
    "a figure in a file": ["show", "run", "--plot", "file.txt/a.png"],
    "a trace in a file": ["show", "run", "--trace", "file.txt/a.json"],
    "more memory than is available": [
        "simulate",
        *SMALL,
        "--set",
        "algorithm.memory=10000000000000",
        "--algorithm",
        "as-lbfgs",
    ],
    "an address without Ray": ["run", "--set", "engine.address=auto"],
    "workers under MPI": ["run", "--engine", "mpi", "--workers", "3"],
    "no name for ratings": ["recommender", "fit", ""],
    "cut gzip": ["recommender", "fit", "packed.csv.gz"],
    "a batch beyond memory": [
        "simulate",
        *SMALL,
        "--set",
        "algorithm.batch=10000000000",
    ],
    "a batch beyond every array": [
        "simulate",
        *SMALL,
        "--set",
        "algorithm.batch=9223372036854775807",
    ],
    "a job nested too deeply": ["simulate", "deep.toml"],
    "a number of 5,000 digits": ["simulate", "digits.toml"],
    **{
        f"a path of 5,000 letters to {' '.join(before)}": [*before, "x" * 5_000, *after]
        for before, after in (
            (["show"], []),
            (["replay"], []),
            (["resume"], []),
            (["simulate"], []),
            (["run"], []),
            (["simulate", *SMALL, "--save"], []),
            (["run", "--commits", "3", "--checkpoint"], []),
            (["show", "run", "--trace"], []),
            (["show", "run", "--plot"], []),
            (["recommender", "fit"], []),
            (["recommender", "fit", "synthetic-demo", "--out"], []),
            (["recommender", "evaluate"], ["file.txt"]),
            (["recommender", "recommend"], ["--user", "1"]),
            (["recommender", "data", "mine", "--from"], []),
            (["reproduce", "theory", "--output"], []),
        )
    },
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD)
def test_bad_input_is_one_line_on_stderr_with_exit_code_two_and_nothing_written(
    arguments: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("just a file [")
    (tmp_path / "packed.csv.gz").write_bytes(
        gzip.compress(b"user,item,rating\n1,1,3\n")[:-9]
    )
    (tmp_path / "deep.toml").write_text(
        "[problem]\nkind = " + "[" * 20_000 + "]" * 20_000
    )
    (tmp_path / "digits.toml").write_text("[run]\ncommits = " + "9" * 5_000)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    if "run" in arguments:
        call(capfd, "simulate", *SMALL, "--save", "run", "-q")
    before = files(tmp_path)
    code, out, err = call(
        capfd, *arguments, *(["-q"] if arguments[0] in command_modules() else [])
    )
    assert (code, out) == (2, "")
    assert err.startswith("asyncqn: ")
    assert err.count("\n") == 1, "one line"
    assert "Traceback" not in err
    assert files(tmp_path) == before


def test_a_missing_argument_says_which_and_where_to_read_more(
    capfd: pytest.CaptureFixture[str],
) -> None:
    _, _, err = call(capfd, "show")
    assert "'run'" in err.lower()
    assert "show --help" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("simulate", "--algoritm", "sgd"),
            "no such option: --algoritm (Possible options: --algorithm); try: asyncqn simulate --help",
        ),
        (
            ("recommender", "fit", "--zz"),
            "no such option: --zz; try: asyncqn recommender fit --help",
        ),
        (
            ("simulate", "--target"),
            "option '--target' requires an argument; try: asyncqn --help",
        ),
        (
            ("simulate", "--set", "algorithm.h"),
            "--set algorithm.h cannot be read: write section.key=value, as in --set algorithm.h=1e-3; the "
            "sections are problem, algorithm, cluster, engine, run.",
        ),
        (
            ("simulate", "--set", "cluster.times=[1, 2"),
            "--set cluster.times=[1, 2 cannot be read: its value is neither TOML nor a word.",
        ),
        (
            ("run", "--engine", "simulator", "--set", "engine.wire=exact"),
            "the simulator has no section [engine]: set values of the cluster.",
        ),
        (("show", "none"), "none is not a saved run: there is no such folder."),
        (
            ("show", __file__),
            f"{__file__} is not a saved run: it is a file, not a folder.",
        ),
        (
            ("compare", "a", "b", "--target", "nan"),
            "--target must be a finite number, not nan.",
        ),
        (
            ("recommender", "fit", "synthetic-demo", "--duplicates", "all"),
            "duplicates must be one of error, last, first, mean, sum, not 'all'.",
        ),
        (("comparre",), "no such command 'comparre'. Did you mean 'compare'?"),
    ],
)
def test_a_mistyped_option_or_number_is_named_in_plain_words(
    arguments: tuple[str, ...], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(capfd, *arguments) == (2, "", f"asyncqn: {sentence}\n")


def test_with_json_a_mistake_is_an_object_as_well(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capfd, "replai", "--json")
    assert code == 2
    assert json.loads(out) == {"error": err.removeprefix("asyncqn: ").strip()}
