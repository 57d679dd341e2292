"""Readers beside a process that saves: what another process replaces meanwhile is no damage.

`python -m benchmarks.studies.storage.beside_a_writer` reads 2,000 times.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sealed import document_of

from asyncqn.errors import DamagedFile
from asyncqn.storage import read_settled, reading
from benchmarks.studies.storage.beside_a_writer import (
    RATINGS,
    READERS,
    SAVERS,
    false_alarms,
)


@pytest.mark.parametrize("kind", sorted(READERS))
def test_a_version_that_is_replaced_while_it_is_read_is_read_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, folder = SAVERS[kind](), tmp_path / kind
    save(folder)
    save(folder)
    original, left = reading.read_document, [4]

    def interrupted(place: str | Path, of: Any) -> Any:
        document = original(place, of)
        while left[0]:  # between the document and its data files a writer comes twice
            left[0] -= 1
            save(folder)
            if left[0] % 2 == 0:
                break
        return document

    for module in (
        "asyncqn.storage",
        "asyncqn_recommender.data.store",
        "asyncqn_recommender.files",
    ):
        monkeypatch.setattr(f"{module}.read_document", interrupted)
    READERS[kind](folder)
    assert left == [0]


@pytest.mark.parametrize("kind", sorted(READERS))
def test_real_damage_is_told_at_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, folder = SAVERS[kind](), tmp_path / kind
    save(folder)
    document = document_of(folder / "a" if kind == "checkpoints" else folder)
    for path in (*document.parent.glob("*.npz"), *document.parent.glob("*.npy")):
        path.write_bytes(path.read_bytes()[:-1])
    shutil.rmtree(folder / "b", ignore_errors=True)
    looks: list[int] = []
    sealed: Callable[..., Any] = reading.check_of
    monkeypatch.setattr(
        reading, "check_of", lambda plain: looks.append(1) or sealed(plain)
    )
    with pytest.raises(DamagedFile):
        READERS[kind](folder)
    assert len(looks) == 1


def test_readings_that_never_settle_end() -> None:
    count = iter(range(1000))

    def read() -> None:
        raise DamagedFile(f"reading {next(count)}")

    with pytest.raises(DamagedFile, match="reading 19"):
        read_settled(lambda: object(), read)


@pytest.mark.timeout(120)
def test_readings_beside_a_process_that_saves_raise_no_false_alarm(
    tmp_path: Path,
) -> None:
    assert false_alarms("ratings", tmp_path / "ratings", 60) == []
    assert np.array_equal(
        READERS["ratings"](tmp_path / "ratings").values, RATINGS.values
    )
