"""`recommend`, `similar`, `evaluate --k` and files as users have them, on the command line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from recommender.test_fit import FIT, MADE, call

from asyncqn_recommender.data import read_ratings
from asyncqn_recommender.estimator import Recommender


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of MADE."""
    place = tmp_path_factory.mktemp("lists") / "model"
    Recommender(2, workers=1, passes=2).fit(MADE).save(place)
    return place


def frame() -> pd.DataFrame:
    """MADE as a table with times that fall along the rows, and one rating given twice."""
    table = pd.DataFrame(
        {
            "who": MADE.user_ids[MADE.users],
            "what": MADE.item_ids[MADE.items],
            "stars": MADE.values,
            "when": pd.date_range("2024-01-01", periods=len(MADE), freq="h")[
                ::-1
            ].astype(str),
        }
    )
    again = table.iloc[:1].assign(stars=0.5, when="2030-01-01")
    return pd.concat([table, again])


COLUMNS = ["--user", "who", "--item", "what", "--time", "when"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASYNCQN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "r.csv.gz").write_bytes(
        gzip.compress(frame().to_csv(index=False).encode())
    )
    return tmp_path


def spoken(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    code, out, err = call(capfd, *arguments, "--json", "-q")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_several_users_are_listed_each_and_unknown_ones_by_the_baseline(
    fitted: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = Recommender.load(fitted)
    first, second = (int(user) for user in model.user_ids_[:2])
    wanted = [
        "--user",
        str(first),
        "--user",
        str(second),
        "--user",
        "nobody",
        "-n",
        "3",
    ]
    found = spoken(capfd, "recommend", fitted, *wanted)
    assert [one["user"] for one in found["users"]] == [first, second, "nobody"]
    assert [one["basis"] for one in found["users"]] == [
        "factors",
        "factors",
        "baseline",
    ]
    for one, user in zip(found["users"], (first, second, "nobody")):
        assert one["items"] == [item._asdict() for item in model.recommend(user, 3)]
    code, out, err = call(capfd, "recommend", fitted, *wanted)
    assert code == 0
    assert all(f"user {name}" in out for name in (first, second, "nobody"))
    assert "has no rating of user nobody" in err


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_lists_of_all_users_are_written_as_a_table(
    fitted: Path, tmp_path: Path, suffix: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / f"recs.{suffix}"
    found = spoken(capfd, "recommend", fitted, "--all", "--out", file, "-n", "4")
    model = Recommender.load(fitted)
    table = model.recommend_many(n=4).to_pandas()
    expected = {
        "file": str(file),
        "users": len(model.user_ids_),
        "rows": len(table),
        "baseline_users": 0,
    }
    assert found == expected
    read = pd.read_csv(file) if suffix == "csv" else pd.read_parquet(file)
    pd.testing.assert_frame_equal(read, table, check_dtype=False)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    spoken(capfd, "recommend", fitted, "--user", "nobody", "--out", file, "-n", "4")
    read = pd.read_csv(file) if suffix == "csv" else pd.read_parquet(file)
    assert read["basis"].tolist() == ["baseline"] * 4
    assert (
        "users: 1, rows: 4"
        in call(capfd, "recommend", fitted, "--user", "x", "--out", file, "-n", "4")[1]
    )


def test_a_packed_file_with_own_columns_is_split_by_time_and_its_test_is_judged(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    split = [
        "--split",
        "time",
        "--duplicates",
        "last",
        "--out",
        "model",
    ]
    for test in ("test.csv", "test.parquet"):
        done = spoken(
            capfd, "fit", "r.csv.gz", *COLUMNS, *FIT, *split, "--test-out", test
        )
        assert (done["repeated"], done["test"]) == (1, test)
    held = read_ratings("test.csv").ratings
    assert len(held) == round(0.1 * len(MADE))
    assert held.times.max() == pd.Timestamp("2030-01-01").timestamp(), (
        "the newer of the two ratings counts"
    )
    numbers = spoken(
        capfd, "evaluate", "model", "test.csv", "--k", "10", "--threshold", "3"
    )
    model = Recommender.load("model")
    told = model.evaluate(held, k=10, threshold=3.0)
    assert numbers == pytest.approx({**told, "skipped": 0, "repeated": 0})
    assert numbers["rmse"] == pytest.approx(done["test_rmse"])
    assert spoken(capfd, "evaluate", "model", "test.parquet", "--k", "10")["n"] == len(
        held
    )
    assert "ndcg" in call(capfd, "evaluate", "model", "test.csv", "--k", "10")[1]
    last = spoken(
        capfd,
        "fit",
        "r.csv.gz",
        *COLUMNS,
        *FIT,
        "--skip-bad",
        "--split",
        "last",
        "--test-out",
        "l.csv",
    )
    assert last["skipped"] == 1
    assert len(read_ratings("l.csv").ratings) == MADE.n_users


def test_data_takes_the_options_it_advises_and_counts_what_it_drops(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(capfd, "data", "mine", "--from", "r.csv.gz", "-q")
    assert code == 2
    assert "--user" in err
    told = spoken(
        capfd, "data", "mine", "--from", "r.csv.gz", *COLUMNS, "--duplicates", "last"
    )
    assert (told["ratings"], told["repeated"], told["times"]) == (len(MADE), 1, True)
    assert "repeated" in call(capfd, "data", "mine")[1]
    first = spoken(
        capfd, "data", "mine", "--from", "r.csv.gz", *COLUMNS, "--duplicates", "first"
    )
    assert first["digest"] != told["digest"], (
        "the same file read otherwise is another set"
    )
    code, _, err = call(
        capfd, "data", "mine", "--from", "r.csv.gz", *COLUMNS, "--skip-bad"
    )
    assert "bad rows skipped: 1" in err
