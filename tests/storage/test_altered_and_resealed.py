"""Files that a forger altered and sealed again: refused in a sentence or used, and never a crash."""

from __future__ import annotations

import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines.runs import EVERY, problem
from recommender_cases import TRAIN
from sealed import data_file, document_of, reseal

import asyncqn as aq
from asyncqn.core.run import load_run
from asyncqn.data import Ratings, open_ratings, save_ratings
from asyncqn.recommender.estimator import Recommender

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 3, 2**40, 10**30, -(10**400), 0.5, 1e300, "", "x", "inf", "../../x", [], [1], {},
    {"a": 1}, [[[]]], "\x1b[31m", "9" * 400,
)  # fmt: skip


def places(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, by its keys."""
    inner = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def alter_document(rng: np.random.Generator, document: dict[str, Any]) -> Any:
    """Put a strange value somewhere, remove an entry, or add one."""
    chosen = places(document)[1:]
    *way, last = chosen[rng.integers(len(chosen))]
    inside = document
    for key in way:
        inside = inside[key]
    match rng.integers(4):
        case 0:
            del inside[last]
        case _:
            inside[last] = VALUES[rng.integers(len(VALUES))]
    return document


def alter_array(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """The same array of another length, rank, type or content."""
    match rng.integers(7):
        case 0:
            return array.ravel()[: rng.integers(0, 3)]
        case 1:
            return np.concatenate([array.ravel(), array.ravel()])
        case 2:
            return array[None]
        case 3:
            if array.dtype.kind == "U":
                return array.astype("U3")
            return array.astype([np.float32, np.int8, np.uint64, "U3", ">f8", bool][rng.integers(6)])
        case 4:
            return np.full_like(array, [0, -1, 10**9][rng.integers(3)]) if array.dtype.kind in "if" else array
        case 5:
            return np.full_like(array, np.nan) if array.dtype.kind == "f" else np.full_like(array, 99)
        case _:
            return np.array("text")


def alter_arrays(rng: np.random.Generator, path: Path) -> None:
    """Alter one array of an archive (or a single one): its content, its name, or whether it is there."""
    if path.suffix == ".npy":
        np.save(path, alter_array(rng, np.load(path)))
        return
    with np.load(path) as stored:
        arrays = dict(stored)
    name = sorted(arrays)[rng.integers(len(arrays))]
    array = arrays.pop(name)
    if rng.integers(8):
        arrays[name] = alter_array(rng, array)
    elif rng.integers(2):
        arrays["stranger"] = array
    np.savez(path, **arrays)


def use_run(folder: Path) -> None:
    load_run(folder)


def use_model(folder: Path) -> None:
    model = Recommender.load(folder)
    user, item = model.user_ids_[0].item(), model.item_ids_[0].item()
    model.recommend(user, 3)
    model.predict([user], [item])
    model.fold_in(([10**6 if model.user_ids_.dtype.kind == "i" else "new"], [item], [3.0]))


def use_ratings(folder: Path) -> None:
    ratings = open_ratings(folder)
    assert np.isfinite(ratings.values).all()
    ratings.user_ids[ratings.users]
    ratings.item_ids[ratings.items]


def use_checkpoint(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        aq.resume(folder.parent, problem(), engine=aq.Threads(1), callback=stop_soon)


def stop_soon(progress: Any) -> None:
    """A forged number of commits may be any."""
    if progress.commit > 100:
        raise StopIteration


@pytest.fixture(scope="module")
def sealed_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("sealed")
    potential = aq.LinearGaussian.random(4, 20, seed=1)
    sgd = aq.AsyncSGD(1e-4, 5)
    aq.minimize(potential, sgd, engine=aq.Simulator(aq.Cluster(2)), commits=12, seed=1).save(place / "run")
    Recommender(2, workers=1, seed=0).fit(TRAIN).save(place / "model")
    few = Ratings.from_arrays([1, 2, 3], [7, 8, 7], [1.0, 2.0, 3.0], titles={7: "seven", 8: "eight"})
    save_ratings(few, place / "ratings")
    options: dict[str, Any] = {"commits": 30, "seed": 5, "checkpoint": place / "checkpoint"}
    aq.minimize(problem(), EVERY["as-lbfgs"], engine=aq.Threads(1), **options)
    kinds = {kind: place / kind for kind in ("run", "model", "ratings")}
    return {**kinds, "checkpoint": next((place / "checkpoint").glob("?"))}


USES: dict[str, Callable[[Path], None]] = {
    "run": use_run,
    "model": use_model,
    "ratings": use_ratings,
    "checkpoint": use_checkpoint,
}


@pytest.mark.parametrize("kind", USES)
def test_altered_and_resealed_files_are_refused_in_a_sentence_or_used(
    kind: str, sealed_folders: dict[str, Path], tmp_path: Path
) -> None:
    source = sealed_folders[kind]
    whole = source.parent if kind == "checkpoint" else source
    refused = 0
    for seed in range(130):
        rng = np.random.default_rng(seed)
        place = tmp_path / "altered"
        shutil.copytree(whole, place)
        folder = place / source.name if kind == "checkpoint" else place
        if seed % 2:
            files = sorted(p for p in folder.iterdir() if p.suffix in (".npz", ".npy"))
            alter_arrays(rng, files[rng.integers(len(files))])
            reseal(folder)
        else:
            reseal(folder, lambda document, rng=rng: alter_document(rng, document))
        said = ""
        try:
            USES[kind](folder)
        except (aq.DamagedFile, aq.BadInput) as error:
            said = str(error)
        assert "\n" not in said, seed
        assert len(said) < 1500, seed
        refused += said != ""
        shutil.rmtree(place)
    assert refused > 40


@pytest.mark.parametrize("kind", USES)
@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a":' * 200_000, "9" * 5000, "", "nul\0l", '{"kind": {}}'],
    ids=["lists", "objects", "number", "empty", "nul", "kind"],
)  # fmt: skip
def test_documents_that_are_none_are_refused(
    kind: str, text: str, sealed_folders: dict[str, Path], tmp_path: Path
) -> None:
    source = sealed_folders[kind]
    whole = source.parent if kind == "checkpoint" else source
    shutil.copytree(whole, tmp_path / "altered")
    folder = tmp_path / "altered" / source.name if kind == "checkpoint" else tmp_path / "altered"
    document_of(folder).write_text(text)
    with pytest.raises((aq.DamagedFile, aq.BadInput)):
        USES[kind](folder)


@pytest.mark.parametrize("kind", ["run", "model"])
def test_an_archive_that_claims_more_than_it_holds_is_refused_before_room_is_made(
    kind: str, sealed_folders: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(sealed_folders[kind], tmp_path / "altered")
    path = data_file(tmp_path / "altered")
    name = "theta" if kind == "run" else "item_factors"
    with np.load(path) as stored:
        arrays = dict(stored)
    array = arrays.pop(name)
    np.savez(path, **arrays)
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": (10**12, *array.shape[1:])}
    with zipfile.ZipFile(path, "a") as archive, archive.open(f"{name}.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, header)
        member.write(array.tobytes())
    reseal(tmp_path / "altered")
    with pytest.raises(aq.DamagedFile, match="another length than its file"):
        USES[kind](tmp_path / "altered")
    np.savez_compressed(path, **{**arrays, name: np.zeros(2_000_000)})
    reseal(tmp_path / "altered")
    with pytest.raises(aq.DamagedFile, match="was not written by asyncqn"):
        USES[kind](tmp_path / "altered")
