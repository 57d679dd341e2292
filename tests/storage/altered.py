"""Files that a forger altered and sealed again, a batch of them: load, use, replay and resume each.

    python -m storage.altered KIND SOURCE SCRATCH COUNT       with the folder of the tests in the path

A process of its own, so that a crash in compiled code is seen by whoever started it.  The last line is
JSON: how many were refused as damaged, and what else was raised.
"""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from sealed import reseal

import asyncqn as aq
from asyncqn.runs.archive import load_run
from asyncqn_recommender.data import open_ratings
from asyncqn_recommender.estimator import Recommender

NUMBERS = (-1, 0, 3, 2**40, 10**30, -(10**400), 0.5, 1e300)
TEXTS = ("", "x", "inf", "../../x", "\x1b[31m", "9" * 400)
VALUES: tuple[Any, ...] = (None, True, *NUMBERS, *TEXTS, [], [1], {}, {"a": 1}, [[[]]])


def places(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, by its keys."""
    inner = (
        plain.items()
        if isinstance(plain, dict)
        else enumerate(plain)
        if isinstance(plain, list)
        else ()
    )
    return [
        path,
        *(place for key, value in inner for place in places(value, (*path, key))),
    ]


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
            return array.astype(
                [np.float32, np.int8, np.uint64, "U3", ">f8", bool][rng.integers(6)]
            )
        case 4:
            return (
                np.full_like(array, [0, -1, 10**9][rng.integers(3)])
                if array.dtype.kind in "if"
                else array
            )
        case 5:
            return (
                np.full_like(array, np.nan)
                if array.dtype.kind == "f"
                else np.full_like(array, 99)
            )
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
    """Load it and compute it again; that a whole file tells of other numbers is for the replay to say."""
    run = load_run(folder)
    with suppress(aq.ReplayMismatch):
        aq.replay(run)


def use_model(folder: Path) -> None:
    model = Recommender.load(folder)
    user, item = model.user_ids_[0].item(), model.item_ids_[-1].item()
    model.predict([user], [item])
    new = 10**6 if model.user_ids_.dtype.kind == "i" else "new"
    try:
        model.recommend(user, 3)
        model.fold_in(([new], [item], [3.0]))
    except aq.BadInput as answer:  # of a whole model in which nobody rated this
        if "unknown to the model" not in str(answer):
            raise


def use_ratings(folder: Path) -> None:
    ratings = open_ratings(folder)
    assert np.isfinite(ratings.values).all()
    ratings.user_ids[ratings.users]
    ratings.item_ids[ratings.items]


def use_checkpoint(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        aq.resume(folder.parent, engine=aq.Threads(1), callback=stop_soon)


def stop_soon(progress: Any) -> None:
    """A forged number of commits may be any."""
    if progress.commit > 100:
        raise StopIteration


USES: dict[str, Callable[[Path], None]] = {
    "run": use_run,
    "model": use_model,
    "ratings": use_ratings,
    "checkpoint": use_checkpoint,
}


def alter(source: Path, place: Path, kind: str, seed: int) -> Path:
    """An altered copy of the folder `source` at `place`, sealed again."""
    rng = np.random.default_rng(seed)
    shutil.copytree(source.parent if kind == "checkpoint" else source, place)
    folder = place / source.name if kind == "checkpoint" else place
    if seed % 2:
        files = sorted(p for p in folder.iterdir() if p.suffix in (".npz", ".npy"))
        alter_arrays(rng, files[rng.integers(len(files))])
        reseal(folder)
    else:
        reseal(folder, lambda document: alter_document(rng, document))
    return folder


def main(kind: str, source: str, scratch: str, count: str) -> None:
    refused, wrong = 0, []
    for seed in range(int(count)):
        place = Path(scratch) / str(seed)
        folder = alter(Path(source), place, kind, seed)
        print(seed, flush=True)
        try:
            USES[kind](folder)
        except aq.DamagedFile as error:
            refused += 1
            if "\n" in str(error) or len(str(error)) > 1500:
                wrong.append(f"{seed}: not one sentence: {error}")
        except Exception as error:
            wrong.append(f"{seed}: {type(error).__name__}: {error}")
        shutil.rmtree(place)
    print(json.dumps({"refused": refused, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
