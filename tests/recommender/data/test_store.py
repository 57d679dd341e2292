"""The stored form: equal after opening, shared by processes, and never trusted blindly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sealed import data_file

from asyncqn.errors import DamagedFile
from asyncqn_recommender.data import (
    Ratings,
    open_ratings,
    save_ratings,
    synthetic_ratings,
)

COLUMNS = ("users", "items", "values", "user_ids", "item_ids", "titles")


@pytest.fixture
def stored(tmp_path):
    ratings = synthetic_ratings(30, 20, 200)
    return ratings, save_ratings(ratings, tmp_path / "set")


pairs = st.lists(
    st.tuples(st.text("abé\u2028😀", max_size=3), st.integers(-9, 9)),
    min_size=1,
    max_size=20,
    unique=True,
)


@given(pairs, st.booleans())
def test_what_is_saved_is_opened_again(tmp_path_factory, pairs, titled):
    users, items = zip(*pairs, strict=True)
    titles = {i: f"number {i}" for i in items} if titled else None
    ratings = Ratings.from_arrays(
        list(users), list(items), np.arange(len(pairs)), titles=titles
    )
    again = open_ratings(
        save_ratings(ratings, tmp_path_factory.mktemp("store") / "set")
    )
    for name in COLUMNS:
        first, second = getattr(ratings, name), getattr(again, name)
        assert (first is None) == (second is None)
        if first is not None:
            assert first.dtype == second.dtype
            assert first.tolist() == second.tolist()
    fresh = Ratings(*(getattr(again, name) for name in COLUMNS))
    assert again.digest == ratings.digest == fresh.digest


@pytest.mark.parametrize(
    "name", [*(f"{column}.npy" for column in COLUMNS), "header.json"]
)
def test_a_missing_cut_or_altered_file_is_noticed(stored, name):
    _, path = stored
    file = path / name if name == "header.json" else data_file(path, name)
    data = file.read_bytes()
    altered = bytearray(data)
    altered[len(data) // 2] ^= 1
    for content in (
        data.rstrip()[:-1],
        data[: len(data) // 2],
        b"",
        data + b"x",
        bytes(altered),
    ):
        file.write_bytes(content)
        with pytest.raises(DamagedFile) as caught:
            open_ratings(path)
        assert "\n" not in str(caught.value)
    file.unlink()
    with pytest.raises(DamagedFile):
        open_ratings(path)


def test_indices_outside_the_tables_are_noticed(tmp_path):
    wrong = Ratings(
        np.array([5], np.int32),
        np.array([0], np.int32),
        np.ones(1, np.float32),
        np.arange(2),
        np.arange(2),
    )
    path = save_ratings(wrong, tmp_path / "set")
    with pytest.raises(DamagedFile, match="outside its tables"):
        open_ratings(path)
