"""Logs of other systems, and predictions of saved runs, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli.calls import call
from cli.test_data_files import FEATURES, table, write_job

import asyncqn as aq

LOG = """node,begin,done
a,0,1
b,0,1.5
a,1,2
slow,0,3
"""
NAMES = ["--worker", "node", "--start", "begin", "--end", "done"]


def test_a_log_is_shown_drawn_and_made_a_cluster(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log, job, figure = (tmp_path / name for name in ("log.csv", "job.toml", "log.svg"))
    log.write_text(LOG)
    code, out, _ = call(capfd, "import", log, *NAMES, "--job", job, "--plot", figure)
    assert code == 0
    assert "Schedule(4 computations by 3 workers" in out
    assert figure.read_bytes().startswith(b"<?xml")
    numbers = json.loads(call(capfd, "import", log, *NAMES, "--json")[1])
    assert (numbers["commits"], numbers["staleness_histogram"]) == (4, [1, 2, 0, 1])
    assert [one["delivered"] for one in numbers["workers"]] == [2, 1, 1]
    code, out, _ = call(capfd, "simulate", job, "--commits", "9", "--json", "-q")
    assert (code, json.loads(out)["commits"]) == (0, 9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "the log has no column 'begin'"),
        (LOG + "b,5,4\n", "row 5 of the log ends before it starts"),
        ("", "log.csv"),
    ],
)
def test_a_bad_log_is_one_sentence(
    text: str, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_text(text)
    code, out, err = call(capfd, "import", tmp_path / "log.csv", *NAMES)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("logistic-regression", "y"),
        ("softmax-regression", "dose"),
        ("least-squares", "size"),
        ("poisson-regression", "count"),
    ],
)
def test_predictions_are_those_of_the_formula(
    kind: str, label: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ["age"] if label == "dose" else ["age", "dose"]
    rest = f'label = "{label}"\nfeatures = {json.dumps(names)}'
    shift = kind == "poisson-regression"
    rest += '\noffset = "log_time"' * shift
    job, run, new = (tmp_path / name for name in ("jobs", "run", "new.csv"))
    job = write_job(job, "rows.csv", kind, rest)
    assert call(capfd, "run", job, "--save", run, "-q")[0] == 0
    frame = table(40)
    frame.to_csv(new, index=False)
    assert call(capfd, "predict", run, new, "--save", tmp_path / "p.csv")[0] == 0
    made = pd.read_csv(tmp_path / "p.csv")
    problem, theta = aq.load_run(run).problem, aq.load_run(run).theta
    by_class = theta.reshape(-1, len(names) + 1)
    z = frame[names].to_numpy() @ by_class[:, :-1].T + by_class[:, -1]
    z = z + frame[["log_time"]].to_numpy() * shift
    if kind == "least-squares":
        expected = z[:, 0]
    elif shift:
        expected = np.exp(z[:, 0])
    else:
        if kind == "logistic-regression":
            z = np.column_stack([np.zeros(40), z])
        chances = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        classes = problem.classes
        expected = chances.max(axis=1)
        assert (made["prediction"] == classes[chances.argmax(axis=1)]).all()
        columns = [f"probability of {c}" for c in classes]
        np.testing.assert_allclose(made[columns], chances, rtol=1e-9)
        return
    np.testing.assert_allclose(made["prediction"], expected, rtol=1e-9)


def test_predictions_need_the_columns_and_a_linear_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = write_job(tmp_path / "jobs", "rows.csv", rest=FEATURES)
    assert call(capfd, "run", job, "--save", tmp_path / "a", "-q")[0] == 0
    (tmp_path / "new.csv").write_text("age,y\n1,no\n")
    code, _, err = call(capfd, "predict", tmp_path / "a", tmp_path / "new.csv")
    assert code == 2
    assert "has no column 'dose'" in err
    (tmp_path / "new.csv").write_text("age,dose,weight\n")
    code, _, err = call(capfd, "predict", tmp_path / "a", tmp_path / "new.csv")
    assert code == 2
    assert "has no rows" in err
    assert call(capfd, "simulate", "--commits", "9", "--save", tmp_path / "b")[0] == 0
    code, _, err = call(capfd, "predict", tmp_path / "b", tmp_path / "new.csv")
    assert code == 2
    assert "needs a run of a linear model" in err
