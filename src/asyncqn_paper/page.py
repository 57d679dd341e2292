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
from asyncqn_paper.experiment import NAMES, Experiment
from asyncqn_paper.figures import fig2, fig4, fig5
from asyncqn_paper.page_texts import FINDINGS, HEAD, METHODS, NOTES, SAYS
from asyncqn_paper.records import Record, write_table
from asyncqn_paper.rules import (
    CLAIMS,
    FIGURES,
    UNDECIDED,
    Claim,
    Verdict,
    Word,
    word_on,
)


class Judgement(NamedTuple):
    """The word on a claim, its outcomes on the map, and the one in the stated setting."""

    word: Word
    outcomes: list[Verdict]
    stated: Verdict | None


Judged = dict[str, Judgement]


def complete(experiments: Sequence[Experiment], store: Store) -> list[Experiment]:
    """Return the experiments all of whose cells are computed."""
    return [one for one in experiments if all(cell in store for cell in one.cells())]


def judged(experiments: Sequence[Experiment], store: Store) -> Judged:
    """Return the word on every claim, and the outcomes behind it."""
    outcomes: dict[str, list[Verdict]] = {name: [] for name in CLAIMS}
    stated: dict[str, Verdict] = {}
    for experiment in complete(experiments, store):
        for outcome in experiment.outcomes(store.get):
            outcomes[outcome.claim].append(outcome)
        for outcome in experiment.stated(store.get):
            stated[outcome.claim] = outcome
    judgements = {}
    for name, mine in outcomes.items():
        word = word_on(mine, stated.get(name))
        judgements[name] = Judgement(word, mine, stated.get(name))
    return judgements


def median_outcome(outcomes: Sequence[Verdict]) -> Verdict | None:
    """Return the outcome in the middle of the decided settings, or of all where none is decided."""
    numbers = [o for o in outcomes if math.isfinite(o.value)]
    decided = [o for o in numbers if o.end != UNDECIDED]
    # The upper median: it is the outcome of a setting, where a mean of two would be of none.
    ordered = sorted(decided or numbers, key=lambda o: o.value)
    return ordered[len(ordered) // 2] if ordered else None


def heading(name: str) -> str:
    """Return the heading of an experiment: "Fig. 2", "Theory"."""
    return name.replace("fig", "Fig. ") if name.startswith("fig") else name.capitalize()


def anchor(row: str) -> str:
    """Return the address of the heading that a row links to."""
    return "fig-5" if row == "Fig. S1" else row.lower().replace(". ", "-")


def first_screen(judgements: Judged, figures: Sequence[str]) -> list[str]:
    """Return the figures of the paper, two in a line, with the claim, the word and a link to the map."""
    lines = ["| | |", "|---|---|"]
    pictures = []
    words = []
    for claim, row in FIGURES.items():
        name = "figS1" if claim == "s1" else claim
        pictures.append(f"![{row}](figures/{name}.png)" if name in figures else "")
        link = f"([map](#{anchor(row)}))"
        words.append(f"**{row}:** {SAYS[claim]} {judgements[claim].word} {link}")
    for k in range(0, len(words), 2):
        lines.append(f"| {pictures[k]} | {pictures[k + 1]} |")
        lines.append(f"| {words[k]} | {words[k + 1]} |")
    return lines


def claims_table(claims: Sequence[Claim], judgements: Judged) -> list[str]:
    """Return one line per claim: the number, the counts on the map, the word."""
    lines = ["| the paper says | measured | map | |", "|---|---|---|---|"]
    for claim in claims:
        word, outcomes, stated = judgements[claim.id]
        # The first screen has the claims that are made of others.
        if claim.parts:
            continue
        shown = stated or median_outcome(outcomes)
        reading = ""
        if shown is not None:
            finite = math.isfinite(shown.value)
            reading = claim.reading(shown) if finite else shown.because
        counts = "/".join(map(str, word.counts)) if sum(word.counts) else ""
        ruling = str(word._replace(where=word.where.replace(claim.text, "")))
        if stated is not None:
            ruling = stated.end
        where = "" if claim.where == claim.row else f" ({claim.where})"
        lines.append(f"| {claim.text}{where} | {reading} | {counts} | {ruling} |")
    return lines


def page(
    experiments: Sequence[Experiment], store: Store, figures: Sequence[str]
) -> str:
    """Return the text of the page; `figures` are the names of the pictures."""
    judgements = judged(experiments, store)
    present = complete(experiments, store)
    lines = [HEAD, *first_screen(judgements, figures), ""]
    for experiment in present:
        name = experiment.name
        lines += [f"## {heading(name)}", ""]
        for picture in figures:
            if picture.startswith(f"{name}_"):
                lines += [f"![{experiment.title}](figures/{picture}.png)", ""]
        lines += [experiment.caption, ""]
        rows = [heading(name), name, "Fig. S1" if name == "fig5" else name]
        mine = [claim for claim in CLAIMS.values() if claim.row in rows]
        lines += [*claims_table(mine, judgements), ""]
        if name in NOTES:
            lead = fig2.least_lead(store.get) if name == "fig2" else ""
            lines.append(NOTES[name].format(lead=lead))
    if len(present) == len(NAMES):
        lines.append(FINDINGS.format(**measured_numbers(store, judgements)))
    cells = {cell for one in present for cell in one.cells()}
    hours = sum(store.finished(cell).seconds for cell in cells) / 3600.0
    lines.append(METHODS.format(hours=f"{hours:.1f}", cells=f"{len(cells):,}"))
    return "\n".join(lines)


def measured_numbers(store: Store, judgements: Judged) -> dict[str, Any]:
    """Return the numbers that the findings quote."""
    half, end = fig4.still_falling(store.get)
    numbers: dict[str, Any] = {"half": half, "end": end}
    for name, claim in (("law", "law"), ("slope", "rate"), ("needs", "speedup")):
        for pairs, words in (("pairs", "on (M = 3)"), ("plain", "off (H = I)")):
            numbers[f"{name}_{pairs}"] = _span(judgements[claim].outcomes, words)
    best = fig5.best_steps(store.get)
    for W in (10, 20):
        numbers[f"tuned{W}"] = best[1][1] / best[W][1]
    return numbers


def _span(outcomes: Sequence[Verdict], words: str) -> str:
    """Return the least and the largest number of the settings that these words describe."""
    mine = [outcome for outcome in outcomes if words in outcome.choices.values()]
    values = [CLAIMS[outcome.claim].unit.of(outcome.value) for outcome in mine]
    ends = dict.fromkeys(f"{value:.2f}" for value in (min(values), max(values)))
    return " to ".join(ends).replace("-", "−")


def every_setting(judgements: Judged) -> list[Record]:
    """Return a record for every claim in every setting, with its outcome and numbers."""
    every = []
    for _, outcomes, stated in judgements.values():
        every += [("map", outcome) for outcome in outcomes]
        if stated is not None:
            every.append(("stated", stated))
    # One column per axis of any claim; a claim leaves those of others empty.
    axes = dict.fromkeys(axis for _, outcome in every for axis in outcome.choices)
    records = []
    for seeds, outcome in every:
        record: Record = {
            "claim": outcome.claim,
            "setting": seeds,
            "outcome": outcome.end,
            "estimate": outcome.value if math.isfinite(outcome.value) else None,
            "error": outcome.error if math.isfinite(outcome.error) else None,
            "margin": float(CLAIMS[outcome.claim].margin),
            "runs": outcome.runs,
            "because": outcome.because,
        }
        for axis in axes:
            record[f"axis {axis}"] = outcome.choices.get(axis, "")
        records.append(record)
    return records


def write_page(experiments: Sequence[Experiment], store: Store, path: Path) -> None:
    """Write the page, its figures, and reproduction.parquet with every setting."""
    figures: list[str] = []
    with style():
        for experiment in complete(experiments, store):
            for name, figure in experiment.draw(store.get).items():
                figures.append(name)
                save_figure(figure, path.parent / "figures" / name)
    write_whole(path, page(experiments, store, figures))
    write_table(every_setting(judged(experiments, store)), path.with_suffix(""))
