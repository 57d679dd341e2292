"""docs/results/reproduction.md: the paper's figures with a word each, the maps, what was found, the methods.

Nothing here measures or judges: `rules` gives outcomes and words, `page_texts` holds the prose.  A page is a
function of the published tables, which `tests/paper/test_page.py` checks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from asyncqn.storage import write_whole
from asyncqn_paper.cells import Store
from asyncqn_paper.drawing import save_figure, style
from asyncqn_paper.experiment import Experiment
from asyncqn_paper.page_texts import FINDINGS, HEAD, METHODS, NOTES, SAYS
from asyncqn_paper.records import Record, write_table
from asyncqn_paper.rules import (
    CLAIMS,
    FIGURES,
    UNDECIDED,
    Claim,
    Outcome,
    Word,
    word_on,
)


class Judgement(NamedTuple):
    """The word on a claim, its outcomes on the map, and the one in the stated setting."""

    word: Word
    outcomes: list[Outcome]
    stated: Outcome | None


Judged = dict[str, Judgement]


def judged(experiments: Sequence[Experiment], store: Store, full: bool) -> Judged:
    """Return the word on every claim, and the outcomes behind it."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in CLAIMS}
    stated: dict[str, Outcome] = {}
    for experiment in experiments:
        for outcome in experiment.outcomes(store.get, full):
            outcomes[outcome.claim].append(outcome)
        if experiment.stated is not None:
            for outcome in experiment.stated(store.get, full):
                stated[outcome.claim] = outcome
    return {
        name: Judgement(word_on(mine, stated.get(name)), mine, stated.get(name))
        for name, mine in outcomes.items()
    }


def median_outcome(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Return the outcome in the middle of the decided settings, or of all where none is decided."""
    numbers = [o for o in outcomes if math.isfinite(o.value)]
    decided = [o for o in numbers if o.end != UNDECIDED]
    # The upper median: it is the outcome of a setting, where a mean of two would be of none.
    ordered = sorted(decided or numbers, key=lambda o: o.value)
    return ordered[len(ordered) // 2] if ordered else None


def heading(experiment: Experiment) -> str:
    """Return the heading of an experiment: "Fig. 2", "Theory"."""
    name = experiment.name
    return name.replace("fig", "Fig. ") if name.startswith("fig") else name.capitalize()


def anchor(row: str) -> str:
    """Return the address of the heading that a row links to."""
    return "fig-5" if row == "Fig. S1" else row.lower().replace(". ", "-")


def rows_of(experiment: Experiment) -> tuple[str, ...]:
    """Return the rows whose claims an experiment judges."""
    if experiment.name == "fig5":
        return ("Fig. 5", "Fig. S1")
    return (heading(experiment), experiment.name)


def first_screen(found: Judged, figures: Sequence[str]) -> list[str]:
    """Return the figures of the paper, two in a line, with the claim, the word and a link to the map."""
    lines = ["| | |", "|---|---|"]
    cells = []
    for claim, row in FIGURES.items():
        picture = "figS1" if claim == "s1" else claim
        shown = f"![{row}](figures/{picture}.png)" if picture in figures else ""
        words = f"**{row}:** {SAYS[claim]} {found[claim].word} ([map](#{anchor(row)}))"
        cells.append((shown, words))
    for left, right in zip(cells[::2], cells[1::2], strict=True):
        lines += [f"| {a} | {b} |" for a, b in zip(left, right, strict=True)]
    return lines


def _reading(claim: Claim, outcome: Outcome) -> str:
    """Return what was measured, or why nothing was."""
    return claim.reading(outcome) if math.isfinite(outcome.value) else outcome.because


def claims_table(claims: Sequence[Claim], found: Judged) -> list[str]:
    """Return one line per claim: the number, the counts on the map, the word."""
    lines = ["| the paper says | measured | map | |", "|---|---|---|---|"]
    for claim in claims:
        word, outcomes, stated = found[claim.id]
        # The first screen has the claims that are made of others.
        if claim.parts:
            continue
        shown = stated or median_outcome(outcomes)
        reading = "" if shown is None else _reading(claim, shown)
        counts = "/".join(map(str, word.counts)) if sum(word.counts) else ""
        ruling = str(word._replace(where=word.where.replace(claim.text, "")))
        if stated is not None:
            ruling = stated.end
        where = "" if claim.where == claim.row else f" ({claim.where})"
        lines.append(f"| {claim.text}{where} | {reading} | {counts} | {ruling} |")
    return lines


def page(
    experiments: Sequence[Experiment], store: Store, full: bool, figures: Sequence[str]
) -> str:
    """Return the text of the page; `figures` are the names of the pictures."""
    found = judged(experiments, store, full)
    head = HEAD if full else HEAD.replace("# The", "# A quick look at the")
    lines = [head, *first_screen(found, figures), ""]
    for experiment in experiments:
        lines += [f"## {heading(experiment)}", ""]
        for name in figures:
            if name.startswith(f"{experiment.name}_"):
                lines += [f"![{experiment.title}](figures/{name}.png)", ""]
        lines += [experiment.caption, ""]
        mine = [claim for claim in CLAIMS.values() if claim.row in rows_of(experiment)]
        lines += [*claims_table(mine, found), ""]
        lines += [NOTES[experiment.name]] if experiment.name in NOTES else []
    numbers = measured_numbers(store, found, full)
    lines.append(FINDINGS.format(**numbers) if numbers else "")
    hours, count = effort(experiments, store, full)
    return "\n".join([*lines, METHODS.format(hours=f"{hours:.1f}", cells=f"{count:,}")])


def effort(
    experiments: Sequence[Experiment], store: Store, full: bool
) -> tuple[float, int]:
    """Return the processor hours of the finished cells, and their number."""
    cells = dict.fromkeys(
        cell for one in experiments for batch in one.cells(full) for cell in batch
    )
    done = store.finished(list(cells))
    return sum(one.seconds for one in done) / 3600.0, len(done)


def measured_numbers(store: Store, found: Judged, full: bool) -> dict[str, Any]:
    """Return the numbers that the findings quote; none where their runs are missing."""
    from asyncqn_paper.figures import fig4, fig5

    def span(claim: str, words: str) -> str:
        unit = CLAIMS[claim].unit
        values = [
            unit.of(o.value)
            for o in found[claim].outcomes
            if words in o.choices.values() and math.isfinite(o.value)
        ]
        if not values:
            return "(not run)"
        ends = sorted(
            {f"{value:.2f}" for value in (min(values), max(values))}, key=float
        )
        return " to ".join(ends).replace("-", "−")

    best = fig5.best_steps(store.get, full)
    half, end = fig4.still_falling(store.get, full)
    if not full or math.isnan(half):
        return {}
    numbers: dict[str, Any] = {"half": half, "end": end}
    for name, claim in (("law", "law"), ("slope", "rate"), ("needs", "speedup")):
        numbers[f"{name}_pairs"] = span(claim, "on (M = 3)")
        numbers[f"{name}_plain"] = span(claim, "off (H = I)")
    numbers["tuned"] = ""
    if {1, 10, 20} <= set(best):
        few, many = (f"×{best[1][1] / best[W][1]:.1f}" for W in (10, 20))
        words = "With the best step of each W the speedup is at most"
        numbers["tuned"] = f"{words} {few} at W = 10, {many} at 20."
    return numbers


def every_setting(found: Judged) -> list[Record]:
    """Return a record for every claim in every setting, with its outcome and numbers."""
    # One column per axis of any claim; a claim leaves those of others empty.
    every = [
        (seeds, outcome)
        for _, mine, stated in found.values()
        for seeds, outcome in (
            *(("map", one) for one in mine),
            *((("stated", stated),) if stated else ()),
        )
    ]
    axes = list(dict.fromkeys(axis for _, one in every for axis in one.choices))
    records = []
    for seeds, outcome in every:
        record: Record = {
            "claim": outcome.claim,
            "setting": seeds,
            "outcome": outcome.end,
            "estimate": finite(outcome.value),
            "error": finite(outcome.error),
            "margin": float(CLAIMS[outcome.claim].margin),
            "runs": outcome.runs,
            "because": outcome.because,
        }
        choices = {f"axis {axis}": outcome.choices.get(axis, "") for axis in axes}
        records.append(record | choices)
    return records


def finite(value: float) -> float | None:
    """Return the number, or None for one that does not exist."""
    return value if math.isfinite(value) else None


def write_page(
    experiments: Sequence[Experiment], store: Store, full: bool, path: Path
) -> None:
    """Write the page, its figures, and reproduction.parquet with every setting."""
    figures: list[str] = []
    with style():
        for experiment in experiments:
            for name, figure in experiment.draw(store.get, full).items():
                figures.append(name)
                save_figure(figure, path.parent / "figures" / name)
    write_whole(path, page(experiments, store, full, figures))
    write_table(every_setting(judged(experiments, store, full)), path.with_suffix(""))
