"""Files that a forger altered and sealed again: refused in a sentence or used, and never a crash."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import python
from engines.runs import EVERY, make_problem
from recommender_cases import TRAIN
from sealed import data_file, document_of, reseal
from storage.altered import USES

import asyncqn as aq
from asyncqn_recommender.data import Ratings, save_ratings
from asyncqn_recommender.estimator import Recommender


@pytest.fixture(scope="module")
def sealed_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("sealed")
    problem = aq.LinearGaussian.random(4, 20, seed=1)
    sgd = aq.AsyncSGD(1e-4, 5)
    aq.minimize(
        problem, sgd, engine=aq.Simulator(aq.Cluster(2)), commits=12, seed=1
    ).save(place / "run")
    Recommender(2, workers=1, seed=0).fit(TRAIN).save(place / "model")
    few = Ratings.from_arrays(
        [1, 2, 3], [7, 8, 7], [1.0, 2.0, 3.0], titles={7: "seven", 8: "eight"}
    )
    save_ratings(few, place / "ratings")
    keep: dict[str, Any] = {"seed": 5, "checkpoint": place / "checkpoint"}
    threads = aq.Threads(1)
    aq.minimize(make_problem(), EVERY["as-lbfgs"], engine=threads, commits=30, **keep)
    kinds = {kind: place / kind for kind in ("run", "model", "ratings")}
    return {**kinds, "checkpoint": next((place / "checkpoint").glob("?"))}


@pytest.mark.parametrize("kind", USES)
def test_altered_and_resealed_files_are_refused_as_damaged_or_used(
    kind: str, sealed_folders: dict[str, Path], tmp_path: Path
) -> None:
    tests = Path(__file__).parents[1]
    words = (kind, str(sealed_folders[kind]), str(tmp_path), "130")
    ended = python("-m", "storage.altered", *words, cwd=tests)
    assert ended.returncode == 0, (ended.stdout.splitlines()[-1:], ended.stderr[-2000:])
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["wrong"] == []
    assert told["refused"] > 40


@pytest.mark.parametrize("kind", USES)
@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a":' * 200_000, "9" * 5000, "", "nul\0l", '{"kind": {}}'],
    ids=["lists", "objects", "number", "empty", "nul", "kind"],
)
def test_documents_that_are_none_are_refused(
    kind: str, text: str, sealed_folders: dict[str, Path], tmp_path: Path
) -> None:
    source = sealed_folders[kind]
    whole = source.parent if kind == "checkpoint" else source
    shutil.copytree(whole, tmp_path / "altered")
    folder = (
        tmp_path / "altered" / source.name
        if kind == "checkpoint"
        else tmp_path / "altered"
    )
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
    header = {
        "descr": array.dtype.str,
        "fortran_order": False,
        "shape": (10**12, *array.shape[1:]),
    }
    with (
        zipfile.ZipFile(path, "a") as archive,
        archive.open(f"{name}.npy", "w") as member,
    ):
        np.lib.format.write_array_header_1_0(member, header)
        member.write(array.tobytes())
    reseal(tmp_path / "altered")
    with pytest.raises(aq.DamagedFile, match="does not fill its file exactly"):
        USES[kind](tmp_path / "altered")
    np.savez_compressed(path, **{**arrays, name: np.zeros(2_000_000)})
    reseal(tmp_path / "altered")
    with pytest.raises(aq.DamagedFile, match="was not written by asyncqn"):
        USES[kind](tmp_path / "altered")


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,",  # which Python's tokenizer rejects
        b"'''",
        b"(" * 9000,
        b"\xff" * 100,
        b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,), }",
    ],
    ids=["open", "quotes", "deep", "bytes", "record"],
)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", USES)
def test_headers_of_arrays_that_cannot_be_parsed_are_damage(
    kind: str,
    version: int,
    header: bytes,
    sealed_folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    source = sealed_folders[kind]
    shutil.copytree(
        source.parent if kind == "checkpoint" else source, tmp_path / "copy"
    )
    folder = tmp_path / "copy" / (source.name if kind == "checkpoint" else "")
    length = len(header).to_bytes(2 * version, "little")
    content = b"\x93NUMPY" + bytes([version, 0]) + length + header + bytes(24)
    if kind == "ratings":
        data_file(folder, "values.npy").write_bytes(content)
    else:
        path = data_file(folder)
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, member in members.items():
                archive.writestr(name, content if name == min(members) else member)
    reseal(folder)
    with pytest.raises(aq.DamagedFile):
        USES[kind](folder)
