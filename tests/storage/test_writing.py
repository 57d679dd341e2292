"""Files are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncqn.errors import BadInput
from asyncqn.storage import write_whole


def test_a_failed_write_leaves_the_old_file_and_no_scratch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_whole(tmp_path / "a.json", "1")

    def breaks(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("asyncqn.storage.writing.os.fsync", breaks)
    with pytest.raises(BadInput, match="No space left"):
        write_whole(path, "22")
    assert path.read_text() == "1"
    assert list(tmp_path.iterdir()) == [path]
