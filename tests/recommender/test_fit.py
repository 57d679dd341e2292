"""`fit`, `evaluate`, `recommend` and `data` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sealed import data_file

from asyncqn.cli.main import main
from asyncqn_recommender.data import Ratings, load, synthetic_ratings
from asyncqn_recommender.estimator import Recommender

MADE = synthetic_ratings(120, 60, 2_500, seed=3)
FIT = ["--rank", "2", "--workers", "1", "--passes", "4"]


def call(
    capfd: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["recommender", *map(str, arguments)])
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out, err


def write_csv(
    path: Path, ratings: Ratings, header: str = "userId,movieId,rating"
) -> Path:
    columns = (
        ratings.user_ids[ratings.users],
        ratings.item_ids[ratings.items],
        ratings.values,
    )
    rows = [
        ",".join(map(str, row))
        for row in zip(*(c.tolist() for c in columns), strict=True)
    ]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a file of ratings and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASYNCQN_CACHE", str(tmp_path / "cache"))
    write_csv(tmp_path / "ratings.csv", MADE)
    return tmp_path


def test_fit_evaluate_and_recommend_print_what_they_promise(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(
        capfd,
        "fit",
        "ratings.csv",
        *FIT,
        "--test-fraction",
        "0.1",
        "--seed",
        "4",
        "--out",
        "model",
        "--json",
        "-q",
    )
    assert (code, err) == (0, "")
    fitted = json.loads(out)
    names = (
        "train_rmse test_rmse fun seconds commits status skipped repeated test model"
    )
    assert list(fitted) == names.split()
    model = Recommender.load(place / "model")
    train, test = load(place / "ratings.csv").split(0.1, 4)
    assert fitted["test_rmse"] == model.rmse(test)
    assert fitted["train_rmse"] == model.rmse(train)

    users = test.user_ids[test.users], test.item_ids[test.items]
    write_csv(place / "other.csv", test)
    code, out, _ = call(capfd, "evaluate", "model", "other.csv", "--json", "-q")
    mae = np.abs(model.predict(*users) - test.values).mean()
    rmse = pytest.approx(fitted["test_rmse"])
    counts = {"n": len(test), "skipped": 0, "repeated": 0}
    assert json.loads(out) == {"rmse": rmse, "mae": pytest.approx(mae), **counts}
    assert "rmse" in call(capfd, "evaluate", "model", "other.csv")[1]

    user = int(train.user_ids[train.users[0]])
    code, out, _ = call(
        capfd, "recommend", "model", "--user", user, "-n", "3", "--json", "-q"
    )
    found = json.loads(out)
    assert (code, found["user"]) == (0, user)
    assert found["items"] == [item._asdict() for item in model.recommend(user, 3)]
    assert call(capfd, "recommend", "model", "--user", user)[1].count("\n") >= 10


def test_a_stored_set_is_fitted_by_name_and_its_titles_are_shown(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capfd, "data", "mine", "--from", "ratings.csv", "--json", "-q")
    assert (code, json.loads(out)["ratings"]) == (0, len(MADE))
    code, out, _ = call(capfd, "data", "list")
    assert "mine" in out
    assert call(capfd, "data", "synthetic-demo", "-q")[0] == 0
    for name in ("mine", "synthetic-demo"):
        code, out, err = call(capfd, "fit", name, *FIT, "--out", name)
        assert code == 0
        assert "train_rmse" in out
        assert "test_rmse" not in out, "without a test split there is no test RMSE"
        assert "ratings of" in err
    model = Recommender.load("synthetic-demo")
    user = str(model.user_ids_[0])
    best = model.recommend(user, 1)[0]
    assert best.title
    assert best.title in call(capfd, "recommend", "synthetic-demo", "--user", user)[1]


def test_columns_are_named_and_bad_rows_skipped_on_request(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write_csv(place / "odd.csv", MADE, "who,what,how")
    named = ["--user", "who", "--item", "what", "--rating", "how"]
    assert call(capfd, "fit", file, *FIT, "-q", *named)[0] == 0
    with file.open("a") as lines:
        lines.write("7,8,superb\n")
    code, _, err = call(capfd, "fit", file, *FIT, "-q", *named)
    assert (code, err.count("\n")) == (2, 1)
    assert str(len(MADE) + 2) in err, "the line is named"
    code, _, err = call(capfd, "fit", file, *FIT, *named, "--skip-bad")
    assert code == 0
    assert "Skipped" in err


# Of what the library refuses, one case each: that its sentence reaches the user.
BAD = {
    "missing file": "fit none.csv",
    "a set not stored yet": "fit ml-1m",
    "bad column": "fit ratings.csv --user nobody",
    "columns of a stored set": "fit mine --user user",
    "rank zero": "fit ratings.csv --rank 0",
    "fraction of one": "fit ratings.csv --test-fraction 1",
    "a folder of something else": "fit ratings.csv --out foreign",
    "no user": "recommend model",
    "a user and all": "recommend model --user 1 --all --out r.csv",
    "all without a file": "recommend model --all",
    "a table of no kind": "recommend model --all --out recs.xls",
    "a table in a file": "recommend model --all --out ratings.csv/recs.csv",
    "no item": "similar model",
    "an unknown split": "fit ratings.csv --split by-time --test-fraction 0.1",
    "a split without times": "fit ratings.csv --split time --test-fraction 0.1",
    "a test without a split": "fit ratings.csv --test-out test.csv",
    "a test of no kind": "fit ratings.csv --split last --test-out test.xls",
    "a column for no file": "data mine --user user",
    "damaged model": "recommend damaged --user 1",
    "list from a file": "data list --from ratings.csv",
    "a set that nobody knows": "data nothing",
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD)
def test_mistakes_are_one_sentence_with_exit_code_two_and_nothing_written(
    arguments: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (place / "wrong.csv").write_text("a,b\n1,2\n")
    (place / "foreign").mkdir()
    (place / "foreign" / "letter.txt").write_text("dear")
    if {"model", "damaged"} & set(arguments.split()):
        Recommender(1, workers=1, passes=2).fit(MADE).save(place / "model")
        Recommender.load(place / "model").save(place / "damaged")
        arrays = data_file(place / "damaged")
        content = arrays.read_bytes()
        arrays.write_bytes(content[:100] + b"?" + content[101:])
    before = sorted(place.rglob("*"))
    code, out, err = call(capfd, *arguments.split(), "-q")
    assert (code, out) == (2, "")
    assert err.startswith("asyncqn: ")
    assert err.count("\n") == 1, err
    assert sorted(place.rglob("*")) == before
