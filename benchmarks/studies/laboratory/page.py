"""The page docs/results/laboratory.md: its text from page.md, its tables and its figure from saved lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from asyncqn.storage import write_whole
from benchmarks.studies.laboratory.cells import Cell, cells
from benchmarks.studies.laboratory.problems import CONVEX, FAMILIES, GAPS
from benchmarks.studies.laboratory.verdict import (
    JUDGED,
    Line,
    Times,
    compare,
    geometric,
)
from benchmarks.studies.tables import RESULTS

TEXT = Path(__file__).with_suffix(".md")
WORKERS = (4, 10, 16, 40, 400)


def _markdown(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "(not measured yet)"
    head = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    return "\n".join(
        head + ["| " + " | ".join(str(v) for v in row.values()) + " |" for row in rows]
    )


def _verdicts(lines: dict[str, list[Line]]) -> str:
    """Return a row of the table's lines for each level; what is missed is in bold."""
    rows = []
    judged = lines[JUDGED[0]]
    for level in dict.fromkeys(line.level for line in judged):
        row = {"level": level}
        for line in judged:
            if line.level == level:
                number = line.number if line.good else f"**{line.number}**"
                row[line.what] = f"{number}; {line.limit}"
        rows.append(row)
    return _markdown(rows)


def _clusters(times: Times) -> str:
    """Return the table by cluster: mean ratios at each level, where U is convex and elsewhere."""
    compared = [compare(times, JUDGED[0], level) for level in range(len(GAPS))]
    rows = []
    for kind, workers in dict.fromkeys((c.kind, c.workers) for c in cells()):
        row: dict[str, Any] = {"cluster": f"{kind}, W = {workers}"}
        for word, convex in (("convex", True), ("other", False)):
            for level, gap in enumerate(GAPS):
                each = [
                    c.ratio
                    for c in compared[level]
                    if (c.cell.kind, c.cell.workers) == (kind, workers)
                    and (c.cell.family in CONVEX) == convex
                ]
                row[f"{word}, {100 * gap:g} %"] = (
                    f"{geometric(each):.2f}" if each else "–"
                )
        if set(row.values()) - {row["cluster"], "–"}:
            rows.append(row)
    return _markdown(rows)


def _coverage(times: Times) -> str:
    """Return a sentence on how much of the study there is."""
    compared = compare(times, JUDGED[0], 0)
    runs = sorted(c.runs for c in compared)
    ends = list(dict.fromkeys((runs[0], runs[-1]))) if runs else ["no"]
    many = " to ".join(map(str, ends)) + " runs"
    return f"{len(compared)} of {len(list(cells()))} cells are compared below, with {many} of each method."


def draw_figure(times: Times) -> None:
    """Draw a grid of families by W for each level, coloured by the table's time over the best rival's."""
    figure, panes = plt.subplots(
        1, len(GAPS), figsize=(9, 3.6), layout="constrained", sharey=True
    )
    names = list(FAMILIES)
    for level, pane in enumerate(panes):
        found: dict[tuple[int, int], list[float]] = {}
        for c in compare(times, "table", level):
            found.setdefault(_place(c.cell, names), []).append(c.ratio)
        grid = np.full((len(names), len(WORKERS)), math.nan)
        for place, ratios in found.items():
            grid[place] = math.log2(geometric(ratios))
            pane.annotate(
                f"{2 ** grid[place]:.2f}",
                place[::-1],
                ha="center",
                va="center",
                fontsize=7,
            )
        image = pane.imshow(grid, cmap="RdYlBu_r", vmin=-2, vmax=2, aspect="auto")
        pane.set_title(f"{100 * GAPS[level]:g} % of the gap", fontsize=9)
        pane.set_xticks(range(len(WORKERS)), WORKERS, fontsize=8)
        pane.set_xlabel("W", fontsize=8)
    panes[0].set_yticks(
        range(len(names)), [f"{n}*" if n in CONVEX else n for n in names], fontsize=8
    )
    bar = figure.colorbar(image, ax=list(panes), ticks=[-2, -1, 0, 1, 2])
    bar.ax.set_yticklabels(["1/4", "1/2", "1", "2", "4"], fontsize=8)
    figure.savefig(
        RESULTS / "figures" / "laboratory.png", dpi=110, metadata={"Software": None}
    )
    plt.close(figure)


def _place(cell: Cell, names: list[str]) -> tuple[int, int]:
    return names.index(cell.family), WORKERS.index(cell.workers)


def write_page(times: Times, contest: dict[str, list[Line]], safety: list[str]) -> None:
    """Draw the figure, and fill the places of page.md with the lines that must hold and the tables.

    Parameters
    ----------
    times : Times
        All times of the contest.
    contest : dict of lists of Line
        The lines that must hold, by method.
    safety : list of str
        Those of the safety study, as it prints them.
    """
    draw_figure(times)
    places = {
        "COVERAGE": _coverage(times),
        "LINES": _verdicts(contest),
        "CLUSTERS": _clusters(times),
        "SAFETY LINES": "\n".join(f"- {line}" for line in safety),
    }
    text = TEXT.read_text(encoding="utf-8")
    for name, table in places.items():
        text = text.replace(f"<!-- {name} -->", table)
    write_whole(RESULTS / "laboratory.md", text)
