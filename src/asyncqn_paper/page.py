"""docs/results/reproduction.md: the verdicts in one table, then the figures, the claims and the methods."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from asyncqn.storage import write_whole
from asyncqn_paper.cells import Store
from asyncqn_paper.drawing import save_figure, style
from asyncqn_paper.experiment import Experiment
from asyncqn_paper.page_texts import HEAD, METHODS
from asyncqn_paper.rules import CLAIMS, DEPENDS, MAIN, ROWS, Claim, Outcome, Verdict, verdict_on

SHOWN = {"fig2": "fig2-best", "fig3": "fig3-time", "fig4": "fig4-mb", "fig5": "fig5-linear", "theory": "bias"}
"""The part of a claim whose number stands in the first table."""
WHAT = {
    "fig1": "largest gap",
    "fig2-best": "least lead",
    "fig3-time": "least fall",
    "fig4-mb": "lead over mb",
    "fig5-linear": "speedup",
    "s1": "iterations",
    "bias": "slope in h",
    "title": "successes",
}
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
"""The claims of the first table in few words; what its numbers are, the sections below say."""
EXPERIMENT_OF = {"Fig. S1": "fig5", "theory": "theory", "title": "title", "remarks": "remarks"}

Judged = dict[str, tuple[Verdict, list[Outcome]]]


def judged(experiments: Sequence[Experiment], store: Store, full: bool) -> Judged:
    """The verdict on every claim, and the outcomes behind it."""
    found: dict[str, list[Outcome]] = {name: [] for name in CLAIMS}
    for experiment in experiments:
        for outcome in experiment.outcomes(store.get, full):
            found[outcome.claim].append(outcome)
    return {name: (verdict_on(mine), mine) for name, mine in found.items()}


def number(claim: Claim, outcome: Outcome) -> str:
    """The estimate and its error, in the claim's unit."""
    if claim.ratio:
        ratio = math.exp(outcome.value)
        return f"×{ratio:.2f} ± {ratio * outcome.error:.2f}"
    return f"{outcome.value:.2f} ± {outcome.error:.2f}"


def median_outcome(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The outcome in the middle of those that have a number."""
    known = sorted((o for o in outcomes if math.isfinite(o.value)), key=lambda o: o.value)
    return known[len(known) // 2] if known else None


def measured(name: str, found: Judged) -> str:
    """Return what the first table says of a claim: a number of the median setting, the counts, the runs."""
    shown = SHOWN.get(name, name)
    verdict, _ = found[name]
    middle = median_outcome(found[shown][1])
    if middle is None:
        return "not run"
    counts = "/".join(map(str, verdict.counts))
    runs = f", {middle.runs} runs" if middle.runs else ""
    return f"{WHAT[shown]} {number(CLAIMS[shown], middle)}{runs}; {counts}"


def word(verdict: Verdict) -> str:
    """The verdict in words."""
    if verdict.word != DEPENDS:
        return f"**{verdict.word}**"
    at = (
        f" (holds at {', '.join(verdict.holds_at)})" if verdict.holds_at and len(verdict.holds_at) < 3 else ""
    )
    return f"**depends on** {verdict.axis}{at}"


def anchor(row: str) -> str:
    """The heading that a row links to."""
    return EXPERIMENT_OF.get(row, row.lower().replace(". ", ""))


def share(experiment: Experiment, store: Store, full: bool) -> tuple[int, int]:
    """The finished cells of an experiment, and all of them."""
    cells = list(dict.fromkeys(cell for batch in experiment.cells(full) for cell in batch))
    return len(store.finished(cells)), len(cells)


def first_table(found: Judged, shares: dict[str, tuple[int, int]]) -> list[str]:
    """One line per figure of the paper; a verdict on a part of the cells says so."""
    lines = [
        "| | the paper says | we measure; settings hold/fail/undecided | verdict |",
        "|---|---|---|---|",
    ]
    for row in ROWS:
        claim = CLAIMS[MAIN[row]]
        done, of = shares[anchor(row)]
        verdict = found[claim.id][0]
        part = f" so far ({100 * done / of:.1f} % run)" if sum(verdict.counts) and done < of else ""
        told = measured(claim.id, found)
        lines.append(f"| [{row}](#{anchor(row)}) | {SAYS[claim.id]} | {told} | {word(verdict)}{part} |")
    return lines


def claims_table(claims: Sequence[Claim], found: Judged, whole: bool) -> list[str]:
    """One line per claim: what is measured, the counts, the verdict; `whole`: all cells are finished."""
    lines = [
        "| claim | holds if | median setting | holds/fails/undecided | verdict |",
        "|---|---|---|---|---|",
    ]
    for claim in claims:
        verdict, outcomes = found[claim.id]
        middle = None if claim.parts else median_outcome(outcomes)
        told = "" if middle is None else number(claim, middle)
        counts = "/".join(map(str, verdict.counts))
        part = "" if whole or not any(outcome.runs for outcome in outcomes) else " so far"
        rule = re.sub(r" \([^)]{40,}\)", "", claim.rule).replace("|", "\\|")
        lines.append(f"| {claim.text} ({claim.where}) | {rule} | {told} | {counts} | {word(verdict)}{part} |")
    return lines


def extent(experiment: Experiment, store: Store, full: bool) -> str:
    """Return how much of an experiment is finished, and what it took."""
    cells = list(dict.fromkeys(cell for batch in experiment.cells(full) for cell in batch))
    done = store.finished(cells)
    hours = sum(one.seconds for one in done) / 3600.0
    if len(done) == len(cells):
        return f"All {len(cells)} cells, {hours:.2f} processor hours."
    took = f"{hours:.2f} processor hours"
    return f"**{len(done)} of {len(cells)} cells are finished** ({took}); the others are not run."


def page(experiments: Sequence[Experiment], store: Store, full: bool, figures: dict[str, list[str]]) -> str:
    """The text."""
    found = judged(experiments, store, full)
    shares = {one.name: share(one, store, full) for one in experiments}
    head = HEAD if full else HEAD.replace("full size", "quick size, for a look only")
    lines = [head, *first_table(found, shares), ""]
    for experiment in experiments:
        lines += [f"## {experiment.name}", "", f"**{experiment.title}.**", ""]
        for name in figures.get(experiment.name, []):
            lines += [f"![{experiment.title}](figures/{name}.png)", ""]
        lines += [f"{experiment.caption}", ""]
        rows = {"fig5": ("Fig. 5", "Fig. S1"), "fig1": ("Fig. 1",), "fig2": ("Fig. 2",), "fig3": ("Fig. 3",)}
        rows |= {"fig4": ("Fig. 4",), "theory": ("theory",), "title": ("title",), "remarks": ("remarks",)}
        mine = [claim for claim in CLAIMS.values() if claim.row in rows[experiment.name]]
        done, of = shares[experiment.name]
        lines += [*claims_table(mine, found, done == of), "", extent(experiment, store, full), ""]
    return "\n".join([*lines, METHODS])


def every_setting(found: Judged) -> str:
    """Every setting with its outcome and numbers, as CSV."""
    axes = list(dict.fromkeys(axis for _, mine in found.values() for o in mine for axis in o.choices))
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["claim", "outcome", "estimate", "error", "margin", "runs", "because", *axes])
    for name, (_, mine) in found.items():
        for o in mine:
            numbers = [f"{v:.4g}" if math.isfinite(v) else "" for v in (o.value, o.error)]
            chosen = [o.choices.get(axis, "") for axis in axes]
            table.writerow([name, o.end, *numbers, f"{CLAIMS[name].margin:.4g}", o.runs, o.because, *chosen])
    return text.getvalue()


def write_page(experiments: Sequence[Experiment], store: Store, full: bool, path: Path) -> None:
    """The page, its figures, and reproduction.csv with every setting."""
    figures: dict[str, list[str]] = {}
    with style():
        for experiment in experiments:
            if any(found.runs for found in experiment.outcomes(store.get, full)):
                drawn = experiment.draw(store.get, full)
                figures[experiment.name] = list(drawn)
                for name, figure in drawn.items():
                    save_figure(figure, path.parent / "figures" / name)
    write_whole(path, page(experiments, store, full, figures))
    write_whole(path.with_suffix(".csv"), every_setting(judged(experiments, store, full)))
