"""The published page: made of the published tables, short, and in words of the rules."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from asyncqn_paper.catalogue import find
from asyncqn_paper.cells import Store
from asyncqn_paper.figures.fig2 import settings
from asyncqn_paper.page import (
    Extent,
    anchor,
    claims_table,
    every_setting,
    first_table,
    judged,
    page,
    word,
)
from asyncqn_paper.records import read_table
from asyncqn_paper.rules import (
    CLAIMS,
    FAILS,
    HOLDS,
    MAIN,
    ROWS,
    UNDECIDED,
    Outcome,
    verdict_on,
)
from asyncqn_paper.settings import NAMES, algorithm, cluster

DOCS = Path(__file__).resolve().parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def store() -> Store:
    return Store(DOCS / "tables", any_code=True)


@pytest.fixture(scope="module")
def text() -> str:
    return (DOCS / "reproduction.md").read_text(encoding="utf-8")


def test_the_page_and_its_settings_are_those_of_the_published_tables(
    store: Store, text: str
) -> None:
    experiments = find([])
    shown = re.findall(r"figures/(\w+)\.png", text)
    figures = {
        one.name: [name for name in shown if name.split("_")[0] == one.name]
        for one in experiments
    }
    assert text == page(experiments, store, True, figures)
    assert all((DOCS / "figures" / f"{name}.png").is_file() for name in shown)
    rows = every_setting(judged(experiments, store, True))
    # Stored numbers keep four digits.
    assert read_table(DOCS / "reproduction") == [
        {
            name: pytest.approx(value, rel=1e-4) if isinstance(value, float) else value
            for name, value in row.items()
        }
        for row in rows
    ]


def words_of(text: str) -> list[str]:
    return [one for one in text.split() if any(letter.isalnum() for letter in one)]


def test_the_verdicts_are_on_one_screen(text: str, store: Store) -> None:
    found = judged(find([]), store, True)
    start = text.index("| [Fig. 1](")
    lines = text[start:].split("\n\n", 1)[0].splitlines()
    assert len(lines) == len(ROWS)
    assert len(words_of(text[: text.index(lines[-1]) + len(lines[-1])])) < 250
    for row, line in zip(ROWS, lines, strict=True):
        assert line.startswith(f"| [{row}](#{anchor(row)})")
        assert word(*found[MAIN[row]]) in line
    for heading in {anchor(row) for row in ROWS}:
        assert heading in [
            one[3:].lower().replace(". ", "-")
            for one in re.findall("^## .*", text, re.M)
        ]


def test_no_cell_of_a_table_has_more_than_thirty_words(text: str) -> None:
    for line in text.splitlines():
        if line.startswith("|"):
            assert all(len(words_of(cell)) <= 30 for cell in line.split("|")), line


def test_a_finished_page_says_nothing_of_what_is_not_run(store: Store) -> None:
    found = judged(find([]), store, True)
    parts, wholes = Extent(1, 5, 0.3), Extent(5000, 5000, 4.25)
    claims = [claim for claim in CLAIMS.values() if found[claim.id][1]]
    unfinished = "\n".join(
        [*first_table(found, dict.fromkeys(ROWS, parts)), str(parts)]
    )
    assert unfinished.count("so far") == len(ROWS)
    assert "not run" in unfinished
    finished = [
        *first_table(found, dict.fromkeys(ROWS, wholes)),
        *claims_table(claims, found, True),
    ]
    assert not re.search("so far|not run", "\n".join([*finished, str(wholes)]))
    assert str(wholes) == "All 5,000 cells are finished; they took 4.2 processor hours."


def test_a_verdict_that_depends_on_an_axis_always_says_where() -> None:
    def told(ends: dict[str, str]) -> str:
        signs = {"+": HOLDS, "-": FAILS, "?": UNDECIDED}
        outcomes = [
            Outcome("fig2", {"axis": at}, signs[e])
            for at, mine in ends.items()
            for e in mine
        ]
        return word(verdict_on(outcomes), outcomes)

    assert told({"a": "++", "b": "--"}) == "**depends on** axis (holds at a)"
    assert (
        told({"a": "++", "b": "++-", "c": "---"}) == "**depends on** axis (fails at c)"
    )
    assert (
        told({"a": "+--?", "b": "---"})
        == "**depends on** axis (holds most often at a: 1 of 3)"
    )
    assert (
        told({"a": "++-", "b": "++++"})
        == "**depends on** axis (fails most often at a: 1 of 3)"
    )


def test_numbers_are_in_the_units_of_a_reader() -> None:
    def told(claim: str, value: float, error: float = 0.1, runs: int = 10) -> str:
        return CLAIMS[claim].reading(Outcome(claim, {}, HOLDS, value, error, runs))

    assert told("fig1", -math.log(1.5)) == "error or duration apart by ×1.50 ± 0.15"
    assert told("fig1", -0.001, 0.0001) == "error or duration apart by ×1.00 ± <0.01"
    assert told("fig2-mb", math.log(2.0)) == "time at 900 over that at 0 ×2.00 ± 0.20"
    assert told("cost", 0.2) == "slope in M d 1.00 ± 0.10"
    assert told("temperature", 1.0) == "slope in β −1.00 ± 0.10"
    assert told("gamma", -math.log(1.02), runs=0) == "E U − U* changes by ×1.02"
    assert told("momentum-limit", 15.0) == "largest difference 1.0e-15"
    assert (
        CLAIMS["temperature"].shown_rule()
        == "slope of log(E U − U*) over log β below −0.9"
    )
    assert CLAIMS["table"].shown_rule() == "share of the runs that arrive above 0.9"
    assert CLAIMS["fig1"].shown_rule().endswith("within a factor of 1.28")
    for claim in CLAIMS.values():
        if not claim.parts:
            assert "#" not in told(claim.id, 0.5) + claim.shown_rule()


def test_every_claim_is_on_the_page(text: str) -> None:
    for claim in CLAIMS.values():
        assert claim.text in text, claim.id


@pytest.mark.parametrize("kind", list(NAMES))
def test_the_code_of_today_computes_the_published_times(
    store: Store, kind: str
) -> None:
    setting = settings()[0][0]
    curve = setting.curve(kind, 200.0, 100)
    records = store.get(curve)
    if records is None:
        pytest.fail(f"the first cell of {kind} is not published")
    machines = cluster(kind, 40, 200.0, payer=curve.payer)
    run = curve.run(algorithm(kind, curve.parameters), machines, 3)
    # The same bits on the processor they were made on; elsewhere chaos may move a commit or two.
    assert run["time 0.05"] == pytest.approx(records[3]["time 0.05"], rel=0.1)
