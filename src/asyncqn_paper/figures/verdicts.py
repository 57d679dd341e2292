"""Two pictures of outcomes: tiles over two axes, and single estimates beside their margins.

Both use the colours of `COLOURS`, so that a picture and the word from the same outcomes cannot be read
differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncqn_paper.drawing import panels
from asyncqn_paper.rules import CLAIMS, ERRORS, FAILS, GREY, HOLDS, UNDECIDED, Verdict

COLOURS = {HOLDS: "#8cc5a2", FAILS: "#dd9a8b", UNDECIDED: "#f0e2b6", GREY: "#e4e4e4"}
STRONG = {HOLDS: "#2e7d4f", FAILS: "#b3402e", UNDECIDED: "#9a7d1c", GREY: "#8a8a8a"}
MARKERS = {HOLDS: "o", FAILS: "X", UNDECIDED: "D", GREY: "s"}


def tiles(outcomes: Mapping[tuple[str, str], Verdict], label: str) -> Any:
    """Draw one claim by row and by who pays: a tile per setting, with its outcome and its number."""
    from matplotlib.patches import Rectangle

    rows = list(dict.fromkeys(row for row, _ in outcomes))
    columns = list(dict.fromkeys(column for _, column in outcomes))
    size = (1.6 + 1.1 * len(columns), 0.9 + 0.5 * len(rows))
    figure, axes = panels(1, 1, *size)
    axis = axes[0][0]
    for (row, column), outcome in outcomes.items():
        x = columns.index(column)
        y = rows.index(row)
        colour = COLOURS[outcome.end]
        axis.add_patch(Rectangle((x - 0.48, y - 0.47), 0.96, 0.94, color=colour))
        words = outcome.end
        if np.isfinite(outcome.value):
            unit = CLAIMS[outcome.claim].unit
            sign = "×" if unit.form == "ratio" else ""
            words = f"{sign}{unit.of(outcome.value):.2f}\n{outcome.end}"
        axis.text(x, y, words, ha="center", va="center", fontsize=7)
    heads = [column.replace(" by a tree", "\nby a tree") for column in columns]
    axis.set_xticks(range(len(columns)), heads, fontsize=7)
    axis.set_yticks(range(len(rows)), rows, fontsize=7)
    axis.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axis.set_xlabel("who pays for messages", fontsize=8)
    axis.set_ylabel(label, fontsize=8)
    axis.grid(False)
    return figure


def estimates(axis: Any, rows: Sequence[tuple[str, Verdict]]) -> None:
    """Draw estimates with two errors, coloured by outcome, and a mark at the margin, in units of a reader."""
    for y, (_, outcome) in enumerate(rows):
        claim = CLAIMS[outcome.claim]
        wide = ERRORS * outcome.error
        ends = [claim.unit.of(outcome.value + side) for side in (-wide, wide)]
        colour = STRONG[outcome.end]
        axis.plot(ends, [y, y], color=colour, linewidth=1.5)
        middle = claim.unit.of(outcome.value)
        axis.plot(middle, y, color=colour, marker=MARKERS[outcome.end], markersize=5)
        mark = claim.unit.of(claim.margin)
        axis.plot([mark, mark], [y - 0.35, y + 0.35], color="black", linewidth=1.2)
    axis.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
    axis.set_ylim(len(rows) - 0.4, -0.6)
