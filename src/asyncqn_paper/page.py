"""docs/results/reproduction.md: the verdicts in one table, then the figures, the claims and the methods.

Nothing here measures or judges: `rules` gives outcomes and verdicts,
`page_texts` holds the prose that no number enters.  A page is a function of the published tables, which
`tests/paper/test_page.py` checks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from asyncqn.storage import write_whole
from asyncqn_paper.cells import Store
from asyncqn_paper.drawing import save_figure, style
from asyncqn_paper.experiment import Experiment
from asyncqn_paper.page_texts import HEAD, METHODS, NOTES
from asyncqn_paper.records import Record, write_table
from asyncqn_paper.rules import (
    CLAIMS,
    DEPENDS,
    FAILS,
    HOLDS,
    MAIN,
    ROWS,
    UNDECIDED,
    Claim,
    Outcome,
    Verdict,
    verdict_on,
)

SHOWN = {
    "fig2": ("fig2-sgd", "fig2-best"),
    "fig3": ("fig3-time",),
    "fig4": ("fig4-mb", "fig4-gain"),
    "fig5": ("fig5-linear", "fig5-unstable"),
    "theory": ("bias", "ergodic"),
}
"""The parts of a claim whose numbers stand in the first table: those on which its verdict turns."""
SAYS = {
    "fig1": "simulations reflect real runs",
    "fig2": "as-L-BFGS best, mb-L-BFGS slowed by σ_w², a-SGD slow",
    "fig3": "iterations rise with W, time falls",
    "fig4": "faster than mb-L-BFGS, slightly than a-SGD",
    "fig5": "near-linear speedup to W = 10, unstable at 20",
    "s1": "linear speedup in iterations",
    "theory": "ergodic error O(1/(Nh) + max(1, l)h + 1/β)",
    "title": "noise finds better minima",
}
"""The claims of the first table in few words."""
ROWS_OF = {"fig5": ("Fig. 5", "Fig. S1")}
"""The rows that an experiment serves, where they are not its heading."""

Judged = dict[str, tuple[Verdict, list[Outcome]]]


def judged(experiments: Sequence[Experiment], store: Store, full: bool) -> Judged:
    """Return the verdict on every claim, and the outcomes behind it."""
    found: dict[str, list[Outcome]] = {name: [] for name in CLAIMS}
    for experiment in experiments:
        for outcome in experiment.outcomes(store.get, full):
            found[outcome.claim].append(outcome)
    return {name: (verdict_on(mine), mine) for name, mine in found.items()}


def measured(name: str, found: Judged) -> str:
    """Return what the first table says of a claim: the median setting, the runs, the counts."""
    verdict, _ = found[name]
    # The median setting and not the best: the counts say how many settings agree with it.
    middles = [
        (CLAIMS[part], median_outcome(found[part][1]))
        for part in SHOWN.get(name, (name,))
    ]
    told = [claim.reading(middle) for claim, middle in middles if middle is not None]
    if not told:
        return "not run"
    counts = "/".join(map(str, verdict.counts))
    runs = max(middle.runs for _, middle in middles if middle is not None)
    return f"{', '.join(told)}; n={runs}; {counts}"


def median_outcome(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Return the outcome in the middle: of the decided ones if they are half of all, else of all."""
    # An undecided setting may have an estimate that says nothing, as where half of the runs diverge.  But
    # where few settings are decided, they do not stand for the others.
    numbers = [o for o in outcomes if math.isfinite(o.value)]
    decided = [o for o in numbers if o.end != UNDECIDED]
    known = sorted(
        decided if 2 * len(decided) >= len(outcomes) else numbers, key=lambda o: o.value
    )
    # The upper median: it is the outcome of a setting, where a mean of two would be of none.
    return known[len(known) // 2] if known else None


def word(verdict: Verdict, outcomes: Sequence[Outcome]) -> str:
    """Return the verdict in words; one that depends on an axis says where on it the claim holds."""
    if verdict.word != DEPENDS:
        return f"**{verdict.word}**"
    decided: dict[str, Counter[str]] = {}
    for found in outcomes:
        if found.end != UNDECIDED:
            decided.setdefault(found.choices.get(verdict.axis, ""), Counter())[
                found.end
            ] += 1
    fails_at = [value for value in decided if value not in verdict.holds_at]
    if verdict.holds_at and fails_at:
        # Whichever list is shorter says the same.
        few = len(verdict.holds_at) <= len(fails_at)
        at = (
            f"holds at {', '.join(verdict.holds_at)}"
            if few
            else f"fails at {', '.join(fails_at)}"
        )
    else:
        # Most settings hold at every value, or at none: name the one that differs most from the others.
        ends = (
            (FAILS, "fails most often at")
            if verdict.holds_at
            else (HOLDS, "holds most often at")
        )
        value, counts = max(
            decided.items(), key=lambda one: one[1][ends[0]] / sum(one[1].values())
        )
        at = f"{ends[1]} {value}: {counts[ends[0]]} of {sum(counts.values())}"
    return f"**depends on** {verdict.axis} ({at})"


def heading(experiment: Experiment) -> str:
    """Return the heading of an experiment: "Fig. 2", "Theory"."""
    name = experiment.name
    return name.replace("fig", "Fig. ") if name.startswith("fig") else name.capitalize()


def anchor(row: str) -> str:
    """Return the address of the heading that a row links to."""
    return "fig-5" if row == "Fig. S1" else row.lower().replace(". ", "-")


def rows_of(experiment: Experiment) -> tuple[str, ...]:
    """Return the rows of the first table whose claims an experiment judges."""
    return ROWS_OF.get(experiment.name, (heading(experiment), experiment.name))


class Extent(NamedTuple):
    """The finished cells, all cells, and the processor hours that the finished ones took."""

    done: int
    all: int
    hours: float

    @property
    def whole(self) -> bool:
        """Return whether nothing is left to compute."""
        return self.done == self.all

    def __str__(self) -> str:
        hours = f"{self.hours:.1f}" if self.hours >= 1.0 else f"{self.hours:.2f}"
        if self.whole:
            return f"All {self.all:,} cells are finished; they took {hours} processor hours."
        took = f"{hours} processor hours"
        return f"**{self.done:,} of {self.all:,} cells are finished** ({took}); the others are not run."


def extent(experiments: Sequence[Experiment], store: Store, full: bool) -> Extent:
    """Return how much of these experiments is finished; a cell that two of them use counts once."""
    cells = {
        cell: None for one in experiments for batch in one.cells(full) for cell in batch
    }
    done = store.finished(list(cells))
    return Extent(len(done), len(cells), sum(one.seconds for one in done) / 3600.0)


def first_table(found: Judged, extents: dict[str, Extent]) -> list[str]:
    """Return one line per figure of the paper; `extents` by row. A verdict on a part of the cells says so."""
    lines = [
        "| | the paper says | we measure (median setting, n runs); settings hold/fail/undecided | verdict |",
        "|---|---|---|---|",
    ]
    for row in ROWS:
        claim = CLAIMS[MAIN[row]]
        verdict, outcomes = found[claim.id]
        # Without any outcome the verdict "not run" says it already.
        part = ", so far" if sum(verdict.counts) and not extents[row].whole else ""
        told = measured(claim.id, found)
        ruling = word(verdict, outcomes)
        lines.append(
            f"| [{row}](#{anchor(row)}) | {SAYS[claim.id]} | {told} | {ruling}{part} |"
        )
    return lines


def claims_table(claims: Sequence[Claim], found: Judged, whole: bool) -> list[str]:
    """Return one line per claim: rule, number, counts, verdict; `whole` says that all cells are finished."""
    lines = [
        "| claim | holds if | median setting | hold/fail/undecided | verdict |",
        "|---|---|---|---|---|",
    ]
    for claim in claims:
        verdict, outcomes = found[claim.id]
        middle = None if claim.parts else median_outcome(outcomes)
        told = "" if middle is None else claim.reading(middle)
        counts = "/".join(map(str, verdict.counts))
        part = (
            "" if whole or not any(outcome.runs for outcome in outcomes) else ", so far"
        )
        ruling = word(verdict, outcomes)
        lines.append(
            f"| {claim.text} ({claim.where}) | {claim.shown_rule()} | {told} | {counts} | {ruling}{part} |"
        )
    return lines


def page(
    experiments: Sequence[Experiment],
    store: Store,
    full: bool,
    figures: dict[str, list[str]],
) -> str:
    """Return the text of the page; `figures` are the names of the pictures by experiment."""
    found = judged(experiments, store, full)
    extents = {one.name: extent([one], store, full) for one in experiments}
    by_row = {row: extents[one.name] for one in experiments for row in rows_of(one)}
    head = HEAD if full else HEAD.replace("full size", "quick size, for a look only")
    lines = [
        head,
        *first_table(found, by_row),
        "",
        str(extent(experiments, store, full)),
        "",
    ]
    for experiment in experiments:
        stop = "" if experiment.title.endswith("?") else "."
        lines += [f"## {heading(experiment)}", "", f"**{experiment.title}{stop}**", ""]
        for name in figures.get(experiment.name, []):
            lines += [f"![{experiment.title}](figures/{name}.png)", ""]
        lines += [experiment.caption, ""]
        mine = [claim for claim in CLAIMS.values() if claim.row in rows_of(experiment)]
        lines += [*claims_table(mine, found, extents[experiment.name].whole), ""]
        lines += [NOTES[experiment.name]] if experiment.name in NOTES else []
        lines += [str(extents[experiment.name]), ""]
    return "\n".join([*lines, METHODS])


def every_setting(found: Judged) -> list[Record]:
    """Return a record for every claim in every setting, with its outcome and numbers."""
    # One column per axis of any claim; a claim leaves those of others empty.
    every = [outcome for _, mine in found.values() for outcome in mine]
    axes = list(dict.fromkeys(axis for outcome in every for axis in outcome.choices))
    records = []
    for name, (_, mine) in found.items():
        for outcome in mine:
            record: Record = {
                "claim": name,
                "outcome": outcome.end,
                "estimate": finite(outcome.value),
                "error": finite(outcome.error),
                "margin": float(CLAIMS[name].margin),
                "runs": outcome.runs,
                "because": outcome.because,
            }
            choices = {axis: outcome.choices.get(axis, "") for axis in axes}
            records.append(record | choices)
    return records


def finite(value: float) -> float | None:
    """Return the number, or None for one that does not exist."""
    return value if math.isfinite(value) else None


def write_page(
    experiments: Sequence[Experiment], store: Store, full: bool, path: Path
) -> None:
    """Write the page, its figures, and reproduction.parquet with every setting."""
    figures: dict[str, list[str]] = {}
    with style():
        for experiment in experiments:
            # An experiment without runs has no figure: what is computed without them, such as Gamma, is in
            # the table.
            if any(found.runs for found in experiment.outcomes(store.get, full)):
                drawn = experiment.draw(store.get, full)
                figures[experiment.name] = list(drawn)
                for name, figure in drawn.items():
                    save_figure(figure, path.parent / "figures" / name)
    write_whole(path, page(experiments, store, full, figures))
    write_table(every_setting(judged(experiments, store, full)), path.with_suffix(""))
