"""The published page: made of the published tables, short, and in words of the rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from asyncqn_paper.catalogue import find
from asyncqn_paper.cells import Store
from asyncqn_paper.figures.fig2 import settings
from asyncqn_paper.page import every_setting, first_table, judged, page, share, word
from asyncqn_paper.rules import CLAIMS, MAIN, ROWS
from asyncqn_paper.settings import NAMES, algorithm, cluster

DOCS = Path(__file__).resolve().parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def store() -> Store:
    return Store(DOCS / "tables", any_code=True)


@pytest.fixture(scope="module")
def text() -> str:
    return (DOCS / "reproduction.md").read_text(encoding="utf-8")


def test_the_page_and_its_settings_are_those_of_the_published_tables(store: Store, text: str) -> None:
    experiments = find([])
    shown = re.findall(r"figures/(\w+)\.png", text)
    figures = {one.name: [name for name in shown if name.split("_")[0] == one.name] for one in experiments}
    assert text == page(experiments, store, True, figures)
    assert all((DOCS / "figures" / f"{name}.png").is_file() for name in shown)
    csv = (DOCS / "reproduction.csv").read_text(encoding="utf-8")
    assert csv == every_setting(judged(experiments, store, True))


def test_the_verdicts_are_on_one_screen(text: str, store: Store) -> None:
    found = judged(find([]), store, True)
    lines = first_table(found, {one.name: share(one, store, True) for one in find([])})
    assert len(lines) == 2 + len(ROWS)
    end = text.index(lines[-1]) + len(lines[-1])
    assert len([one for one in text[:end].split() if one != "|"]) < 250
    for row, line in zip(ROWS, lines[2:], strict=True):
        assert word(found[MAIN[row]][0]) in line
    for line in text.splitlines():
        if line.startswith("|"):
            assert all(len(cell.split()) <= 30 for cell in line.split("|")), line


def test_every_claim_is_on_the_page(text: str) -> None:
    for claim in CLAIMS.values():
        assert claim.text in text, claim.id


@pytest.mark.parametrize("kind", list(NAMES))
def test_the_code_of_today_computes_the_published_times(store: Store, kind: str) -> None:
    setting = settings()[0][0]
    curve = setting.curve(kind, 200.0, 100)
    records = store.get(curve)
    if records is None:
        pytest.fail(f"the first cell of {kind} is not published")
    machines = cluster(kind, 40, 200.0, payer=curve.payer)
    run = curve.run(algorithm(kind, curve.parameters), machines, 3)
    # The same bits on the processor they were made on; elsewhere chaos may move a commit or two.
    assert run["time 0.05"] == pytest.approx(records[3]["time 0.05"], rel=0.1)
