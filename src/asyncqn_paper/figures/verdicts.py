"""Two pictures of outcomes: tiles over two axes, and single estimates beside their margins.

Both use the colours of `COLOURS`, so that a picture and the word from the same outcomes cannot be read
differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncqn_paper.drawing import few_decades, panels
from asyncqn_paper.rules import (
    CLAIMS,
    ERRORS,
    FAILS,
    GREY,
    HOLDS,
    UNDECIDED,
    Outcome,
)

COLOURS = {HOLDS: "#8cc5a2", FAILS: "#dd9a8b", UNDECIDED: "#f0e2b6", GREY: "#e4e4e4"}
STRONG = {HOLDS: "#2e7d4f", FAILS: "#b3402e", UNDECIDED: "#9a7d1c", GREY: "#8a8a8a"}
MARKERS = {HOLDS: "o", FAILS: "X", UNDECIDED: "D", GREY: "s"}


def tiles(
    rows: Sequence[str],
    columns: Sequence[str],
    outcomes: Mapping[tuple[str, str], Outcome],
    label: str,
) -> Any:
    """Draw one claim over two axes: a tile per setting, with its outcome and its number."""
    figure, axes = panels(
        1, 1, width=1.6 + 1.1 * len(columns), height=0.9 + 0.5 * len(rows)
    )
    axis = axes[0][0]
    for (row, column), found in outcomes.items():
        x, y = columns.index(column), rows.index(row)
        axis.fill_between(
            [x - 0.48, x + 0.48],
            y - 0.47,
            y + 0.47,
            color=COLOURS[found.end],
            linewidth=0,
        )
        words = found.end
        if np.isfinite(found.value):
            unit = CLAIMS[found.claim].unit
            sign = "×" if unit.form == "ratio" else ""
            words = f"{sign}{unit.of(found.value):.2f}\n{found.end}"
        axis.text(x, y, words, ha="center", va="center", fontsize=7)
    axis.set_xticks(
        range(len(columns)),
        [c.replace(" by a tree", "\nby a tree") for c in columns],
        fontsize=7,
    )
    axis.set_yticks(range(len(rows)), rows, fontsize=7)
    axis.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axis.set_xlabel("who pays for messages", fontsize=8)
    axis.set_ylabel(label, fontsize=8)
    axis.grid(False)
    return figure


def estimates(axis: Any, rows: Sequence[tuple[str, Outcome]]) -> None:
    """Draw estimates with two errors, coloured by outcome, and a mark at the margin.

    Numbers are in the units of a reader; ratios are on a logarithmic axis.
    """
    for y, (_, found) in enumerate(rows):
        claim = CLAIMS[found.claim]
        mark = claim.unit.of(claim.margin)
        if np.isfinite(found.value):
            wide = ERRORS * found.error
            ends = [claim.unit.of(found.value + side) for side in (-wide, wide)]
            colour = STRONG[found.end]
            axis.plot(ends, [y, y], color=colour, linewidth=1.5)
            axis.plot(
                claim.unit.of(found.value),
                y,
                linestyle="none",
                color=colour,
                marker=MARKERS[found.end],
                markersize=5,
            )
        else:
            axis.text(mark, y - 0.25, found.because, fontsize=6, ha="center")
        axis.plot([mark, mark], [y - 0.35, y + 0.35], color="black", linewidth=1.2)
    axis.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    if any(CLAIMS[found.claim].unit.form == "ratio" for _, found in rows):
        axis.set_xscale("log")
        few_decades(axis, "x")
