"""A writer killed at any file-system call leaves the old version or the new one, which loads."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recommender_cases import TRAIN
from sealed import DOCUMENTS, document_of
from storage.disk import Disk, Killed, on

import asyncqn as aq
from asyncqn.runs.archive import load_run
from asyncqn.runs.run import Run
from asyncqn.storage import write_whole
from asyncqn_recommender.data import Ratings, open_ratings, save_ratings
from asyncqn_recommender.estimator import Recommender


def run_of(seed: int) -> Run:
    problem = aq.LinearGaussian.random(4, 20, seed=1)
    return aq.minimize(
        problem,
        aq.AsyncSGD(1e-4, 5),
        engine=aq.Simulator(aq.Cluster(2)),
        commits=12,
        seed=seed,
    )


def ratings_of(seed: int) -> Ratings:
    rng = np.random.default_rng(seed)
    titles = {i: f"item {i}" for i in range(5)}
    return Ratings.from_arrays(np.arange(5), np.arange(5), rng.random(5), titles=titles)


@pytest.fixture(scope="module")
def kinds() -> dict[
    str, tuple[Callable[[Path], Any], Callable[[Path], Any], Callable[[Path], bytes]]
]:
    """Per kind: how to write the old version and the new one, and what a reader sees of a version."""
    runs = run_of(1), run_of(2)
    ratings = ratings_of(1), ratings_of(2)
    models = tuple(Recommender(rank, workers=1, seed=0).fit(TRAIN) for rank in (1, 2))
    return {
        "run": (runs[0].save, runs[1].save, lambda p: load_run(p).theta.tobytes()),
        "model": (
            models[0].save,
            models[1].save,
            lambda p: np.asarray(Recommender.load(p).item_factors_).tobytes(),
        ),
        "ratings": (
            lambda p: save_ratings(ratings[0], p),
            lambda p: save_ratings(ratings[1], p),
            lambda p: np.array(open_ratings(p).values).tobytes(),
        ),
        "file": (
            lambda p: write_whole(p, "old" * 100),
            lambda p: write_whole(p, "new" * 100),
            lambda p: p.read_bytes(),
        ),
    }


@pytest.mark.parametrize("start", ["over an older version", "over debris", "anew"])
@pytest.mark.parametrize("kind", ["run", "model", "ratings", "file"])
def test_killed_at_any_call_the_old_version_or_the_new_one_is_there_and_loads(
    kinds: Any, kind: str, start: str, tmp_path: Path
) -> None:
    write_old, write_new, seen = kinds[kind]
    write_old(tmp_path / "old")
    write_new(tmp_path / "new")
    old, new = seen(tmp_path / "old"), seen(tmp_path / "new")
    assert old != new
    outcomes = set()
    for last in range(1, 500):
        place = tmp_path / "place"
        if start != "anew":
            (shutil.copytree if (tmp_path / "old").is_dir() else shutil.copy)(
                tmp_path / "old", place
            )
        if start == "over debris" and place.is_dir():
            (place / "my notes").write_text("stay")
            with on(Disk(max(last // 2, 2))), pytest.raises(Killed):
                write_new(place)
        try:
            with on(Disk(last)):
                write_new(place)
            finished = True
        except Killed:
            finished = False
        loadable = place.is_file() or any((place / name).exists() for name in DOCUMENTS)
        outcomes.add(seen(place) if loadable else None)
        assert outcomes <= ({old, new} if start != "anew" else {None, new})
        if start == "over debris" and place.is_dir():
            assert (place / "my notes").read_text() == "stay"
        with on(Disk(math.inf)):
            write_new(place)
        assert seen(place) == new, "what a killed writer left is in nobody's way"
        if place.is_dir():
            notes = {"my notes"} if start == "over debris" else set()
            assert {p.name for p in place.iterdir()} - notes == named(place), (
                "and the next one clears it"
            )
        (shutil.rmtree if place.is_dir() else os.unlink)(place)
        for scratch in tmp_path.glob(".*"):
            scratch.unlink()
        if finished:
            break
    assert finished
    assert outcomes == ({old, new} if start != "anew" else {None, new})


def named(folder: Path) -> set[str]:
    """The document of a folder and the files it names."""
    document = document_of(folder)
    entries = json.loads(document.read_text())["files"].values()
    return {document.name} | {entry["name"] for entry in entries}


@pytest.mark.parametrize("kind", ["run", "model", "ratings", "file"])
def test_an_ordinary_error_at_any_call_leaves_a_whole_version_and_no_debris(
    kinds: Any, kind: str, tmp_path: Path
) -> None:
    write_old, write_new, seen = kinds[kind]
    write_old(tmp_path / "old")
    write_new(tmp_path / "new")
    old, new = seen(tmp_path / "old"), seen(tmp_path / "new")
    for last in range(1, 500):
        place = tmp_path / "place"
        (shutil.copytree if (tmp_path / "old").is_dir() else shutil.copy)(
            tmp_path / "old", place
        )
        try:
            with on(Disk(last, OSError(28, "No space left on device"))) as disk:
                write_new(place)
            said, expected = "", new
        except aq.BadInput as error:
            said, expected = str(error), old
        assert seen(place) == expected
        assert said == "" or "No space left on device" in said
        with on(Disk(math.inf)):
            write_new(place)
        if place.is_dir():
            assert {p.name for p in place.iterdir()} == named(place)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "old", "place"]
        (shutil.rmtree if place.is_dir() else os.unlink)(place)
        if disk.calls < last:
            break
    assert disk.calls < last


@pytest.mark.parametrize("kind", ["run", "model", "ratings", "file"])
def test_a_link_stays_a_link_and_what_it_points_to_is_replaced(
    kinds: Any, kind: str, tmp_path: Path
) -> None:
    write_old, write_new, seen = kinds[kind]
    write_old(tmp_path / "elsewhere" / "target")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "target")
    write_new(tmp_path / "link")
    write_new(tmp_path / "plain")
    assert (tmp_path / "link").is_symlink()
    assert seen(tmp_path / "elsewhere" / "target") == seen(tmp_path / "plain")
