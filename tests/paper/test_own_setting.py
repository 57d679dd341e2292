"""Fig. 2 in a setting of your own."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncqn.errors import BadInput
from asyncqn_paper import own_setting
from asyncqn_paper.figures.fig2 import Setting
from asyncqn_paper.own_setting import parse, run_setting


def test_values_make_a_setting_of_the_figure() -> None:
    found = parse(["lambda_max=20", "pays=tree", "share=10"]).setting()
    assert found == Setting(19.0, "broadcasts by a tree, 10 %")
    assert parse(["pays=nobody"]).setting() == Setting(1.0, "nobody")
    assert parse(["pays=every"]).setting().payer == "every exchange, 20 %"


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("lambda=20", "has no parameter 'lambda'"),
        ("lambda_max=1", "lambda_max"),
        ("pays=me", "pays"),
        ("lambda_max", "write NAME=VALUE"),
    ],
)
def test_a_mistake_is_one_sentence(pair: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse([pair])


def test_the_setting_is_run_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_setting, "VARIANCES", (0.0, 200.0, 900.0))
    lines: list[str] = []
    pairs = ["lambda_max=2", "pays=tree", "seeds=2"]
    found = run_setting(pairs, tmp_path, lines.append)
    assert set(found["claims"]) >= {"fig2", "fig2-mb"}
    assert any("as-L-BFGS" in line for line in lines)
    assert (tmp_path / "fig2.png").is_file()
