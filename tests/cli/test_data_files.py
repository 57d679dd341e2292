"""Jobs whose rows are in a file: what is read, what is written, and that a saved run knows its data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli.calls import call
from conftest import python
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics import (
    accuracy_score,
    d2_tweedie_score,
    log_loss,
    r2_score,
    roc_auc_score,
)

import asyncqn as aq
from asyncqn.cli.jobfile import load_job

JOB = """
[problem]
kind = "{kind}"
data = "{data}"
{rest}

[run]
commits = 200
"""


def table(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.standard_normal(n), "dose": rng.integers(0, 4, n)})
    z = frame["age"] - 0.5 * frame["dose"] + 0.3
    frame["y"] = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-3.0 * z)), "yes", "no")
    frame["count"] = rng.poisson(np.exp(0.3 * z + 1.0))
    frame["log_time"] = 0.1 * rng.standard_normal(n)
    frame["size"] = z + 0.1 * rng.standard_normal(n)
    return frame


def write_job(
    folder: Path,
    data: str,
    kind: str = "logistic-regression",
    rest: str = 'label = "y"',
) -> Path:
    folder.mkdir(exist_ok=True)
    frame = table()
    if data.endswith(".parquet"):
        frame.to_parquet(folder / data)
    elif data.endswith(".svm"):
        dump_svmlight_file(
            frame[["age", "dose"]],
            frame["y"] == "yes",
            str(folder / data),
            zero_based=False,
        )
    elif data.endswith(".tsv"):
        frame.to_csv(folder / data, index=False, sep="\t")
    else:
        frame.to_csv(folder / data, index=False)
    (folder / "job.toml").write_text(JOB.format(kind=kind, data=data, rest=rest))
    return folder / "job.toml"


FEATURES = 'label = "y"\nfeatures = ["age", "dose"]'


@pytest.mark.parametrize(
    "name", ["rows.csv", "rows.csv.gz", "rows.tsv", "rows.parquet", "rows.svm"]
)
def test_every_format_gives_the_same_problem(tmp_path: Path, name: str) -> None:
    job = load_job(
        write_job(tmp_path / "a", name, rest="" if name.endswith("svm") else FEATURES)
    )
    frame = table()
    expected = aq.LogisticRegression(
        frame[["age", "dose"]], frame["y"] == "yes", intercept=True
    )
    theta = np.array([0.3, -0.2, 0.1])
    # libsvm files have 16 digits of every number.
    assert job.problem.value(theta) == pytest.approx(expected.value(theta), rel=1e-12)


def test_run_writes_theta_and_coefficients_and_scores_rows_held_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = write_job(tmp_path / "jobs", "rows.csv", rest=FEATURES + "\nholdout = 0.25")
    theta, names = tmp_path / "theta.npy", tmp_path / "names.csv"
    code, out, _ = call(
        capfd, "run", job, "--theta", theta, "--coefficients", names, "--json"
    )
    said = json.loads(out)
    assert (code, said["status"], said["held_out_rows"]) == (0, "converged", 30)
    assert said["held_out_accuracy"] > 0.7
    problem: Any = load_job(job).problem
    held = problem.held_out
    z = held.predictors(np.load(theta), 1)
    chances = 1.0 / (1.0 + np.exp(-z))
    assert said["held_out_log_loss"] == pytest.approx(log_loss(held.y > 0, chances))
    assert said["held_out_auc"] == pytest.approx(roc_auc_score(held.y > 0, z))
    assert (said["theta"], said["coefficients"]) == (str(theta), str(names))
    written = pd.read_csv(names)
    assert list(written["name"]) == ["age", "dose", "(intercept)"]
    np.testing.assert_array_equal(written["coefficient"], np.load(theta))
    errors = problem.coefficients(np.load(theta), standard_errors=True)
    np.testing.assert_array_equal(
        written["standard_error"], errors["standard_error"].to_numpy()
    )


def test_scores_are_those_of_scikit_learn(tmp_path: Path) -> None:
    frame, theta = table(), np.array([0.9, -0.4, 0.2])
    for kind, label, shift, score in (
        (
            "logistic-regression",
            "y",
            0.0,
            lambda y, z: accuracy_score(y == "yes", z > 0),
        ),
        ("least-squares", "size", 0.0, r2_score),
        (
            "poisson-regression",
            "count",
            1.0,
            lambda y, z: d2_tweedie_score(y, np.exp(z), power=1),
        ),
    ):
        rest = f'label = "{label}"\nfeatures = ["age", "dose"]\nholdout = 0.5\nseed = 3'
        rest += '\noffset = "log_time"' * (kind == "poisson-regression")
        problem: Any = load_job(
            write_job(tmp_path / kind, "rows.csv", kind, rest)
        ).problem
        held = [i for i in range(len(frame)) if frame["age"][i] not in problem.X[:, 0]]
        assert len(held) == 60
        z = (
            frame[["age", "dose"]].to_numpy() @ theta[:2]
            + theta[2]
            + shift * frame["log_time"]
        )
        expected = score(frame[label][held], z[held])
        assert problem.score(theta) == pytest.approx(expected, rel=1e-12), kind
    rest = 'label = "dose"\nfeatures = ["age"]\nholdout = 0.5'
    softmax: Any = load_job(
        write_job(tmp_path / "s", "rows.csv", "softmax-regression", rest)
    ).problem
    always = np.zeros((4, 2))
    always[2, 1] = 1.0  # the intercept of the third class
    kept = [i for i in range(len(frame)) if frame["age"][i] in softmax.X[:, 0]]
    expected = (frame["dose"].drop(index=kept) == 2).mean()
    assert softmax.score(always.ravel()) == pytest.approx(expected, rel=1e-12)


def test_a_saved_run_replays_from_the_command_line_and_knows_other_data(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, run = (
        write_job(tmp_path / "jobs", "rows.csv", rest=FEATURES + "\nholdout = 0.1"),
        tmp_path / "run",
    )
    assert call(capfd, "run", job, "--save", run)[0] == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert call(capfd, "replay", run)[0] == 0
    changed = table()
    changed.loc[0, "age"] += 1.0
    changed.to_csv(tmp_path / "jobs" / "rows.csv", index=False)
    code, _, err = call(capfd, "replay", run)
    assert code != 0
    assert "other data" in err
    (tmp_path / "jobs" / "rows.csv").unlink()
    code, _, err = call(capfd, "replay", run)
    assert code == 2
    assert "there is no file" in err


def test_sparse_rows_are_held_out_as_dense_ones_are(tmp_path: Path) -> None:
    rest = "holdout = 0.3\nseed = 5"
    dense: Any = load_job(
        write_job(tmp_path / "d", "rows.csv", rest=f"{FEATURES}\n{rest}")
    ).problem
    sparse: Any = load_job(write_job(tmp_path / "s", "rows.svm", rest=rest)).problem
    theta = np.array([0.5, -0.3, 0.1])
    assert sparse.score(theta) == dense.score(theta)
    assert sparse.value(theta) == pytest.approx(dense.value(theta), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "rest", "sentence"),
    [
        ("rows.csv", "", "label is missing: name the column to predict, one of age, dose, y"),
        ("rows.csv", 'label = "z"', "has no column 'z'"),
        ("rows.csv", 'label = "size"', "column 'y' holds texts, not numbers"),
        ("rows.csv", 'label = "y"\nholdout = 1.0', "holdout must be a number in [0, 1), not 1.0"),
        ("rows.csv", 'label = "y"\nfrm = 1', "has no parameter 'frm'; perhaps 'format' is meant"),
        ("rows.svm", 'label = "y"', "a libsvm file has no named columns"),
        ("rows.dat", 'label = "y"', "use one of the suffixes"),
        ("rows.dat", 'label = "y"\nformat = "parquet"', "cannot be read as parquet"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    name: str,
    rest: str,
    sentence: str,
) -> None:
    code, out, err = call(capfd, "run", write_job(tmp_path / "a", name, rest=rest))
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err


def test_missing_values_pipes_and_absent_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "holes.csv").write_text("a,y\n1,0\n,1\n")
    with pytest.raises(
        aq.BadInput,
        match="column 'a' has 1 missing or infinite value, first in row 2 of the data",
    ):
        aq.LogisticRegression.from_file(tmp_path / "holes.csv", "y")
    with pytest.raises(aq.BadInput, match="there is no file"):
        aq.LogisticRegression.from_file(tmp_path / "none.csv", "y")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(aq.BadInput, match="is a named pipe"):
        aq.LogisticRegression.from_file(tmp_path / "pipe.csv", "y")


def test_a_job_imports_the_one_model_that_it_names() -> None:
    program = (
        "import sys, asyncqn.cli.jobfile as jobs\n"
        "models = lambda: sorted(name for name in sys.modules if name.startswith('asyncqn.models.'))\n"
        "assert not any(name.endswith(('logistic', 'linear_gaussian')) for name in models())\n"
        "jobs.load_job(None, {'problem': {'kind': 'linear-gaussian'}, 'algorithm': {'kind': 'default'}})\n"
        "print([name for name in models() if name.endswith(('logistic', 'linear_gaussian'))])\n"
    )
    done = python("-c", program)
    assert (done.stdout, done.stderr) == ("['asyncqn.models.linear_gaussian']\n", "")
