"""Readers beside a process that saves: what another process replaces meanwhile is no damage.

`python -m benchmarks.studies.storage.beside_a_writer` reads 2,000 times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncqn.storage import reading
from asyncqn.storage.reading import ATTEMPTS
from asyncqn.storage.writing import check_of
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
    left = [ATTEMPTS - 1]

    def interrupted(plain: dict[str, Any]) -> str:
        # A writer comes between the document and its data files, in all attempts but the last.
        if left[0]:
            left[0] -= 1
            save(folder)
            save(folder)
        return check_of(plain)

    monkeypatch.setattr(reading, "check_of", interrupted)
    READERS[kind](folder)
    assert left == [0]


@pytest.mark.timeout(120)
def test_readings_beside_a_process_that_saves_raise_no_false_alarm(
    tmp_path: Path,
) -> None:
    assert false_alarms("ratings", tmp_path / "ratings", 60) == []
    assert np.array_equal(
        READERS["ratings"](tmp_path / "ratings").values, RATINGS.values
    )
