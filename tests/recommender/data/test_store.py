"""The stored form: equal after opening, shared by processes, and never trusted blindly."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sealed import data_file, reseal

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile
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


def test_the_columns_are_read_only_memory_maps(stored):
    _, path = stored
    ratings = open_ratings(path)
    base = ratings.values
    while base.base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        ratings.values[0] = 1


def test_another_process_reads_the_same_set(stored):
    ratings, path = stored
    code = f"from asyncqn_recommender.data import open_ratings; print(open_ratings({str(path)!r}).digest)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ratings.digest


def test_saving_again_replaces_the_set_and_leaves_nothing_else(stored):
    _, path = stored
    other = synthetic_ratings(10, 10, 50)
    save_ratings(other, path)
    assert open_ratings(path).digest == other.digest
    assert os.listdir(path.parent) == [path.name]


def test_a_failed_save_leaves_the_old_set_and_nothing_half_written(stored, monkeypatch):
    ratings, path = stored
    calls = iter(range(10))

    def fail(*args, **kwargs):
        if next(calls) == 3:
            raise OSError(28, "No space left on device")
        return plain_save(*args, **kwargs)

    plain_save = np.save
    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(BadInput, match="No space left"):
        save_ratings(synthetic_ratings(10, 10, 50), path)
    assert open_ratings(path).digest == ratings.digest
    assert os.listdir(path.parent) == [path.name]


def test_a_foreign_directory_is_neither_opened_nor_overwritten(tmp_path):
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(DamagedFile, match="not a stored set"):
        open_ratings(tmp_path)
    with pytest.raises(BadInput, match="not a stored set"):
        save_ratings(synthetic_ratings(5, 5, 5), tmp_path)
    with pytest.raises(BadInput, match="no stored set"):
        open_ratings(tmp_path / "nothing")


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


def test_a_set_of_another_version_is_named_as_such(stored):
    _, path = stored
    reseal(path, lambda header: header.update(format=99))
    with pytest.raises(DamagedFile, match="has format 99"):
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


@given(st.data())
def test_random_headers_never_raise_anything_but_our_errors(tmp_path_factory, data):
    path = save_ratings(
        synthetic_ratings(5, 5, 9), tmp_path_factory.mktemp("fuzz") / "set"
    )
    header = bytearray((path / "header.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(
            st.integers(0, 255)
        )
    (path / "header.json").write_bytes(bytes(header))
    with contextlib.suppress(AsyncqnError):
        open_ratings(path)
