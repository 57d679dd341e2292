"""The settings of claims as a grid: a row and a column per value of the axes, coloured by what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncqn_paper.drawing import panels
from asyncqn_paper.rules import FAILS, HOLDS, UNDECIDED, Outcome, verdict_on

COLOURS = {HOLDS: "#2e7d4f", FAILS: "#b3402e", UNDECIDED: "#b9b9b9"}
SIGNS = {HOLDS: "+", FAILS: "−", UNDECIDED: "?"}
SHORT = {
    "√(0.8/λ) I for as-L-BFGS alone": "cI, as alone",
    "√(0.8/λ) I for both": "cI, both",
    "every exchange": "all",
    "answers only": "answers",
    "broadcasts by a tree": "tree",
    "explicit": "ex",
    "modified": "mod",
}


def verdict_grid(
    outcomes: Sequence[Outcome],
    claims: Sequence[str],
    down: Sequence[str],
    across: Sequence[str],
    columns: int = 3,
) -> Any:
    """One panel per claim; a square shows the first setting of its values, if one was run."""

    def labels(axes: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(_label(found, axes) for found in outcomes))

    rows, heads = labels(down), labels(across)
    columns = min(columns, len(claims))
    count = -(-len(claims) // columns)
    width = 1.3 + 0.3 * len(heads) + 0.075 * max(map(len, rows), default=0) / columns
    figure, axes = panels(count, columns, width=width, height=1.2 + 0.2 * len(rows), sharey=True)
    for axis, claim in zip(axes.flat, claims, strict=False):
        mine = [found for found in outcomes if found.claim == claim]
        seen = set()
        for found in mine:
            x, y = heads.index(_label(found, across)), rows.index(_label(found, down))
            if (x, y) not in seen:
                seen.add((x, y))
                axis.barh(y, 0.94, left=x - 0.47, height=0.9, color=COLOURS[found.end])
                axis.text(x, y, SIGNS[found.end], ha="center", va="center", color="white", fontsize=8)
        holds, fails, undecided = verdict_on(mine).counts
        axis.set_title(f"{claim}: +{holds} −{fails} ?{undecided}", fontsize=8)
        axis.set_xticks(range(len(heads)), heads, rotation=90, fontsize=6.5)
        axis.set_yticks(range(len(rows)), rows, fontsize=6.5)
        axis.set(xlim=(-0.5, len(heads) - 0.5), ylim=(len(rows) - 0.5, -0.5))
        axis.grid(False)
    for axis in axes.flat[len(claims) :]:
        axis.set_visible(False)
    return figure


def _label(found: Outcome, axes: Sequence[str]) -> str:
    words = (found.choices.get(axis, "") for axis in axes)
    return ", ".join(SHORT.get(word, word.replace("-", " ")) for word in words if word)
