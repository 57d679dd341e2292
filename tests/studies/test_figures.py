"""The figures of results pages are drawn from the saved tables, with every method that the tables have."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.studies import figures


@pytest.mark.parametrize(
    ("name", "groups", "ours"),
    [("blocks", 10, "Block L-BFGS"), ("models", 9, "asyncqn"), ("growing", 5, "growing L-BFGS, W = 1")],
)
def test_a_figure_has_ours_first_in_every_group_of_its_table(
    name: str, groups: int, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(figures, "bars", lambda *arguments: drawn.append(arguments))
    getattr(figures, name)()
    ((file, _, _, shown),) = drawn
    assert file == name
    assert len(shown) == groups
    assert {bars[0][0] for bars in shown.values()} == {ours}
    assert all(value > 0 for bars in shown.values() for _, value, _ in bars)


def test_bars_are_written_as_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    (tmp_path / "figures").mkdir()
    figures.bars(
        "small", "title", "seconds", {"a": [("ours", 1.0, figures.OURS), ("theirs", 2.0, figures.THEIRS)]}
    )
    assert (tmp_path / "figures" / "small.png").read_bytes().startswith(b"\x89PNG")
