"""The fast reader: Arrow's threads are through with a file when it returns."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from asyncqn_recommender.data import text
from asyncqn_recommender.data.dialect import Dialect
from asyncqn_recommender.data.sources import Source

COMMAS = Dialect(",", True, 1, 3, 0, 1, 2, False)
COLONS = Dialect("::", False, 0, 3, 0, 1, 2, True)


@pytest.mark.parametrize(
    ("dialect", "content"),
    [(COMMAS, "user,item,rating\n1,2,3\n,2,3\n"), (COLONS, "1::2::3\n1::x::3\n")],
    ids=["commas", "colons"],
)
def test_nothing_holds_the_file_after_a_bad_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: Dialect, content: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    streams: list[weakref.ref[text._Bytes]] = []
    parse = text._parse

    def noted(*arguments: object) -> object:
        waiting = arguments[-1]
        assert isinstance(waiting, list)
        try:
            return parse(*arguments)  # type: ignore[arg-type]
        finally:
            streams.extend(waiting)

    monkeypatch.setattr(text, "_parse", noted)
    assert text.read_clean(Source(path), dialect) is None
    assert streams
    assert all(stream() is None for stream in streams)


def test_a_program_that_ends_after_a_bad_row_ends_in_good_order(tmp_path: Path) -> None:
    # A thread of Arrow that outlives the interpreter aborts the process: one of ten programs did so.
    path = tmp_path / "bad.csv"
    path.write_text("user,item,rating\n" + "".join(f"{k},{k},3\n" for k in range(400)) + ",1,3\n")
    code = (
        "import sys\nfrom asyncqn_recommender.data import read_ratings\nfrom asyncqn.errors import BadInput\n"
        f"try:\n    read_ratings({str(path)!r})\nexcept BadInput:\n    sys.exit(7)\n"
    )
    for _ in range(4):
        assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 7
