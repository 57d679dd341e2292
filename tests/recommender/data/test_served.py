"""Ratings on the data server: the same ratings, and no more memory than what arrives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.cli.commands.share import table_in
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.models import rebuild
from asyncqn_recommender.data import Ratings, as_ratings, load, save_ratings
from asyncqn_recommender.data.served import table_of


def some_ratings(n: int = 5000) -> Ratings:
    rng = np.random.default_rng(0)
    pairs = rng.choice(200 * 90, n, replace=False)
    users = np.array([f"user {u}" for u in pairs // 90])
    return Ratings.from_arrays(
        users, pairs % 90, rng.integers(1, 6, n), times=rng.random(n), titles={3: "Tri"}
    )


@pytest.fixture(scope="module")
def served() -> Iterator[aq.DataServer]:
    with aq.DataServer({"ours": table_of(some_ratings())}, token="") as running:
        yield running


def assert_same(ours: Ratings, theirs: Ratings) -> None:
    for name in ("users", "items", "values", "user_ids", "item_ids", "titles", "times"):
        mine, read = getattr(ours, name), getattr(theirs, name)
        assert mine.dtype == read.dtype, name
        np.testing.assert_array_equal(mine, read)
    assert theirs.digest == ours.digest


def test_a_reader_gets_the_very_ratings_that_are_served(served: aq.DataServer) -> None:
    assert_same(some_ratings(), as_ratings(f"{served.address}/ours"))


def test_users_and_items_without_ratings_are_served_too() -> None:
    train = some_ratings().take(np.arange(300))
    assert len(np.unique(train.users)) < train.n_users
    with aq.DataServer({"train": table_of(train)}, token="") as running:
        assert_same(train, load(f"{running.address}/train"))


def test_a_table_of_any_names_is_read_by_naming_its_columns() -> None:
    columns = {"who": [1, 1, 2], "what": [5, 6, 5], "how": [1.0, 2.0, 3.0]}
    with aq.DataServer({"t": columns}, token="") as running:
        with pytest.raises(BadInput, match="user"):
            load(f"{running.address}/t")
        ratings = load(f"{running.address}/t", user="who", item="what", rating="how")
        assert (len(ratings), ratings.n_users, ratings.n_items) == (3, 2, 2)
        with pytest.raises(BadInput, match="not in a file"):
            load(f"{running.address}/t", skip_bad=True)


def test_a_problem_named_by_an_address_computes_the_bits_of_the_one_named_by_a_path(
    served: aq.DataServer, tmp_path: Path
) -> None:
    save_ratings(some_ratings(), tmp_path / "here")
    sources = (f"{served.address}/ours", str(tmp_path / "here"))
    problems = [
        rebuild({"kind": "matrix-factorization", "source": s, "rank": 2})
        for s in sources
    ]
    algorithm = aq.AsyncSGD(h=1e-5, batch=50)
    engine = aq.Simulator(aq.Cluster(workers=3))
    far, near = (
        aq.minimize(p, algorithm, engine=engine, commits=20, seed=1) for p in problems
    )
    assert far.theta.tobytes() == near.theta.tobytes()
    aq.replay(far)  # reads the ratings from the server again


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_ratings_that_are_not_finite_are_refused(value: float) -> None:
    ours = some_ratings(50)
    forged = replace(ours, values=np.where(np.arange(50) == 7, value, ours.values))
    with (
        aq.DataServer({"set": table_of(forged)}, token="") as running,
        pytest.raises(BadInput, match="row 7"),
    ):
        load(f"{running.address}/set")


def test_a_column_that_is_wide_for_its_texts_is_refused() -> None:
    words = [f"{i}" for i in range(40_000)]
    words[5] = "x" * 4096  # all words would be as wide: 650 MB
    columns = {"user": words, "item": np.arange(40_000), "rating": np.ones(40_000)}
    with (
        aq.DataServer({"set": columns}, token="") as running,
        pytest.raises(DamagedFile, match="far wider than its texts"),
    ):
        load(f"{running.address}/set")


def test_the_command_reads_names_of_sets_and_files_of_ratings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASYNCQN_CACHE", str(tmp_path))
    # An item that nobody has rated has a row of its own.
    assert table_in("synthetic-demo").num_rows == 12_001
    (tmp_path / "ratings.dat").write_text("1::10::3::9\n2::10::4::9\n")
    assert table_in(str(tmp_path / "ratings.dat")).column_names[:2] == ["user", "item"]
    with pytest.raises(BadInput, match="no stored set of that name"):
        table_in("nothing")
