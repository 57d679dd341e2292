"""`fit`, `evaluate`, `recommend`, `similar`, `update` and `data` as a user calls them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli.calls import call
from recommender_cases import ids
from sealed import data_file

from asyncqn_recommender.data import Ratings, load, read_ratings, synthetic_ratings
from asyncqn_recommender.estimator import Recommender

MADE = synthetic_ratings(120, 60, 2_500, seed=3)
FIT = "--rank 2 --workers 1 --passes 4"
COLUMNS = "--user who --item what --time when"
Captured = pytest.CaptureFixture[str]


def say(capfd: Captured, line: str) -> tuple[int, str, str]:
    return call(capfd, "recommender", *line.split())


def ask(capfd: Captured, line: str) -> Any:
    code, out, err = say(capfd, f"{line} --json -q")
    assert (code, err) == (0, "")
    return json.loads(out)


def write_csv(
    file: Path, ratings: Ratings, header: str = "userId,movieId,rating"
) -> None:
    columns = dict(zip(header.split(","), ids(ratings)))
    pd.DataFrame(columns).to_csv(file, index=False)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files of ratings, a small model, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASYNCQN_CACHE", str(tmp_path / "cache"))
    write_csv(tmp_path / "ratings.csv", MADE)
    # Times that fall along the rows, and one rating given twice.
    users, items, values = ids(MADE)
    hours = pd.date_range("2024-01-01", periods=len(MADE), freq="h")[::-1].astype(str)
    table = pd.DataFrame({"who": users, "what": items, "stars": values, "when": hours})
    again = table.iloc[:1].assign(stars=0.5, when="2030-01-01")
    text = pd.concat([table, again]).to_csv(index=False)
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress(text.encode()))
    Recommender(2, workers=1, passes=2).fit(MADE).save(tmp_path / "model")
    return tmp_path


def test_fit_and_evaluate_print_what_they_promise(place: Path, capfd: Captured) -> None:
    fitted = ask(capfd, f"fit ratings.csv {FIT} --test-fraction 0.1 --seed 4 --out new")
    names = (
        "train_rmse test_rmse fun seconds commits status skipped repeated test model"
    )
    assert list(fitted) == names.split()
    model = Recommender.load(place / "new")
    train, test = load(place / "ratings.csv").split(0.1, 4)
    assert fitted["test_rmse"] == model.rmse(test)
    assert fitted["train_rmse"] == model.rmse(train)
    write_csv(place / "other.csv", test)
    users, items, values = ids(test)
    numbers = ask(capfd, "evaluate new other.csv")
    assert numbers["rmse"] == pytest.approx(fitted["test_rmse"])
    mae = np.abs(model.predict(users, items) - values).mean()
    assert numbers["mae"] == pytest.approx(mae)
    assert (numbers["n"], numbers["skipped"], numbers["repeated"]) == (len(test), 0, 0)


def test_a_stored_set_is_fitted_by_name_and_its_titles_are_shown(
    place: Path, capfd: Captured
) -> None:
    assert ask(capfd, "data mine --from ratings.csv")["ratings"] == len(MADE)
    assert "mine" in say(capfd, "data list")[1]
    assert say(capfd, "data synthetic-demo -q")[0] == 0
    code, out, err = say(capfd, f"fit synthetic-demo {FIT} --out demo")
    assert code == 0
    assert "train_rmse" in out
    assert "test_rmse" not in out, "without a test split there is no test RMSE"
    assert "ratings of" in err
    model = Recommender.load("demo")
    user = str(model.user_ids_[0])
    title = model.recommend(user, 1)[0].title
    assert title
    assert title in say(capfd, f"recommend demo --user {user}")[1]


def test_bad_rows_are_named_or_skipped_on_request(place: Path, capfd: Captured) -> None:
    with (place / "ratings.csv").open("a") as lines:
        lines.write("7,8,superb\n")
    code, _, err = say(capfd, f"fit ratings.csv {FIT} -q")
    assert (code, err.count("\n")) == (2, 1)
    assert f"row {len(MADE) + 2}" in err
    code, _, err = say(capfd, f"fit ratings.csv {FIT} --skip-bad")
    assert code == 0
    assert "Skipped" in err


def test_a_packed_file_with_own_columns_is_split_by_time_and_its_test_is_judged(
    place: Path, capfd: Captured
) -> None:
    read = f"fit r.csv.gz {COLUMNS} --rating stars {FIT}"
    for test in ("test.parquet", "test.csv"):
        done = ask(
            capfd, f"{read} --split time --duplicates last --test-out {test} --out new"
        )
        assert (done["repeated"], done["test"]) == (1, test)
        held = read_ratings(test).ratings
        assert len(held) == round(0.1 * len(MADE))
    numbers = ask(capfd, "evaluate new test.csv --k 10 --threshold 3")
    expected = Recommender.load("new").evaluate(held, k=10, threshold=3.0)
    assert numbers == pytest.approx({**expected, "skipped": 0, "repeated": 0})
    assert numbers["rmse"] == pytest.approx(done["test_rmse"])
    last = ask(capfd, f"{read} --skip-bad --split last --test-out l.csv")
    assert last["skipped"] == 1
    assert len(read_ratings("l.csv").ratings) == MADE.n_users


def test_data_takes_the_options_it_advises_and_counts_what_it_drops(
    place: Path, capfd: Captured
) -> None:
    code, _, err = say(capfd, "data mine --from r.csv.gz -q")
    assert code == 2
    assert "--user" in err
    store = f"data mine --from r.csv.gz {COLUMNS} --rating stars"
    last = ask(capfd, f"{store} --duplicates last")
    assert (last["ratings"], last["repeated"], last["times"]) == (len(MADE), 1, True)
    first = ask(capfd, f"{store} --duplicates first")
    assert first["digest"] != last["digest"], "read otherwise, it is another set"
    assert "bad rows skipped: 1" in say(capfd, f"{store} --skip-bad")[2]


def test_several_users_are_listed_each_and_unknown_ones_by_the_baseline(
    place: Path, capfd: Captured
) -> None:
    model = Recommender.load("model")
    first, second = (int(user) for user in model.user_ids_[:2])
    line = f"recommend model --user {first} --user {second} --user nobody -n 3"
    lists = ask(capfd, line)["users"]
    assert [one["user"] for one in lists] == [first, second, "nobody"]
    assert [one["basis"] for one in lists] == ["factors", "factors", "baseline"]
    for one in lists:
        items = [item._asdict() for item in model.recommend(one["user"], 3)]
        assert one["items"] == items
    code, out, err = say(capfd, line)
    assert (code, out.count("user ")) == (0, 3)
    assert "has no rating of user nobody" in err
    item = int(model.item_ids_[3])
    similar = ask(capfd, f"similar model --item {item} -n 2")["similar"][0]["items"]
    assert similar == [other._asdict() for other in model.similar(item, 2)]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_lists_of_all_users_are_written_as_a_table(
    place: Path, suffix: str, capfd: Captured
) -> None:
    read = pd.read_csv if suffix == "csv" else pd.read_parquet
    summary = ask(capfd, f"recommend model --all --out new/recs.{suffix} -n 4")
    model = Recommender.load("model")
    table = model.recommend_many(n=4).to_pandas()
    counts = {"users": len(model.user_ids_), "rows": len(table), "baseline_users": 0}
    assert summary == {"file": f"new/recs.{suffix}", **counts}
    written = read(f"new/recs.{suffix}")
    pd.testing.assert_frame_equal(written, table, check_dtype=False)
    out = say(capfd, f"recommend model --user nobody --out new/recs.{suffix} -n 4")[1]
    assert "users: 1, rows: 4" in out
    assert read(f"new/recs.{suffix}")["basis"].tolist() == ["baseline"] * 4


def test_a_saved_model_learns_from_further_ratings(
    place: Path, capfd: Captured
) -> None:
    old, new = MADE.split(0.2, seed=1)
    Recommender(2, workers=1, passes=4).fit(old).save("model")
    more = pd.DataFrame(dict(zip(("user", "item", "rating"), ids(new))))
    more.loc[len(more)] = [5001, 9001, 4.0]
    more.to_csv("new.csv", index=False)
    numbers = ask(capfd, "update model new.csv --out later")
    assert (numbers["ratings"], numbers["new_users"], numbers["new_items"]) == (
        len(more),
        1,
        1,
    )
    assert numbers["rmse_after"] < numbers["rmse_before"]
    by_hand = Recommender.load("model").partial_fit(more)
    later = Recommender.load("later")
    assert later.item_factors_.tobytes() == by_hand.item_factors_.tobytes()
    ask(capfd, "update model new.csv")
    assert 5001 in Recommender.load("model").user_ids_


# Of what the library refuses, one case each: that its sentence reaches the user.
BAD = {
    "missing file": "fit none.csv",
    "a set not stored yet": "fit ml-1m",
    "bad column": "fit ratings.csv --user nobody",
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
    "no model": "update nothing ratings.csv",
    "list from a file": "data list --from ratings.csv",
    "a set that nobody knows": "data nothing",
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_mistakes_are_one_sentence_with_exit_code_two_and_nothing_written(
    line: str, place: Path, capfd: Captured
) -> None:
    (place / "foreign").mkdir()
    (place / "foreign" / "letter.txt").write_text("dear")
    Recommender.load("model").save("damaged")
    arrays = data_file(place / "damaged")
    content = arrays.read_bytes()
    arrays.write_bytes(content[:100] + b"?" + content[101:])
    before = sorted(place.rglob("*"))
    code, out, err = say(capfd, f"{line} -q")
    assert (code, out) == (2, "")
    assert err.startswith("asyncqn: ")
    assert err.count("\n") == 1, err
    assert sorted(place.rglob("*")) == before
