"""Two pictures of outcomes: all settings axis by axis, and single estimates beside their margins.

Both use the three colours of `COLOURS`, so that a figure and the verdict drawn from the same outcomes cannot
be read differently.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncqn_paper.drawing import few_decades, panels
from asyncqn_paper.rules import (
    CLAIMS,
    ENDS,
    ERRORS,
    FAILS,
    HOLDS,
    UNDECIDED,
    Outcome,
    verdict_on,
)

COLOURS = {HOLDS: "#2e7d4f", FAILS: "#b3402e", UNDECIDED: "#c4c4c4"}
HATCHES = {HOLDS: "", FAILS: "////", UNDECIDED: ""}
"""Failures are hatched: red and green look alike in greyscale and to many eyes."""
MARKERS = {HOLDS: "o", FAILS: "X", UNDECIDED: "D"}
TITLES = {
    "fig1": "simulated as real",
    "fig2-sgd": "a-SGD slowest at σ_w² = 0",
    "fig2-alike": "as and mb alike at σ_w² = 0",
    "fig2-mb": "mb slowed by σ_w²",
    "fig2-robust": "asynchronous ones robust",
    "fig2-best": "as-L-BFGS best",
    "fig2": "all of Fig. 2",
    "table": "table's numbers arrive",
    "pairs": "pairs make it faster",
    "fig3-iterations": "iterations rise with W",
    "fig3-time": "time falls with W",
    "fig3": "both",
    "fig3-variance": "speedup larger at σ_w² = 0",
    "fig4-mb": "as faster than mb",
    "fig4-gain": "as faster than a-SGD",
    "fig4": "both",
    "fig4-rmse": "mb ends with poorer RMSE",
    "fig4-fluctuates": "as fluctuates more than a-SGD",
    "fig5-linear": "near linear to W = 10",
    "fig5-unstable": "W = 20 unstable",
    "fig5": "both",
    "fig5-step": "half the step cures it",
    "s1": "linear in iterations (S1)",
    "law": "law is exp(−βU)",
    "bias": "bias O(h)",
    "ergodic": "error O(1/(Nh))",
    "temperature": "error O(1/β)",
    "staleness": "bias at most × l",
    "theory": "whole bound",
    "gamma": "Γ negligible",
    "momentum-limit": "SGD with momentum",
    "title": "noise helps",
}
"""Claims in a few words, for the heads of panels."""


def verdict_bars(outcomes: Sequence[Outcome], claims: Sequence[str]) -> Any:
    """Draw a panel per claim and a bar per value of every axis: the shares that hold, fail and are undecided.

    The first bar counts all settings, as the verdict does; the others count those with one value of an axis,
    so an axis that decides a claim has bars of different colours.
    """
    shown = [found for found in outcomes if found.claim in claims]
    lines = _lines(shown)
    places = []
    y = 0.0
    for axis, value in lines:
        y += (
            1.0 if value or not axis else 1.5
        )  # a head stands apart from the axis before it
        places.append(y)
    figure, axes = panels(
        1, len(claims), width=1.5, height=1.4 + 0.155 * y, sharey=True
    )
    for panel, claim in zip(axes[0], claims, strict=True):
        mine = [found for found in shown if found.claim == claim]
        for (axis, value), place in zip(lines, places, strict=True):
            if value or not axis:
                _bar(
                    panel,
                    place,
                    [o for o in mine if not axis or o.choices.get(axis) == value],
                )
        # The word of the rules stands above the bars that it was counted from.
        word = verdict_on(mine).word
        panel.set_title(
            f"{textwrap.fill(TITLES[claim], 16)}\n{word.upper()}", fontsize=7.5
        )
        panel.set(xlim=(0.0, 1.0), ylim=(y + 0.6, 0.4))
        panel.set_xticks([0.0, 0.5, 1.0], ["0", "½", "1"], fontsize=6.5)
        panel.grid(False)
        panel.tick_params(axis="y", length=0)
    words = [
        "all settings" if not axis else value or f"{axis}:" for axis, value in lines
    ]
    axes[0][0].set_yticks(
        places, [word.replace("-", " ") for word in words], fontsize=6.5
    )
    for (_, value), tick in zip(lines, axes[0][0].get_yticklabels(), strict=True):
        tick.set_fontweight("bold" if not value else "normal")
    _legend(figure)
    return figure


def _lines(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """("", "") for all settings; then (axis, "") heads each axis and (axis, value) is one of its values."""
    lines = [("", "")]
    for axis in dict.fromkeys(axis for found in outcomes for axis in found.choices):
        values = list(
            dict.fromkeys(o.choices[axis] for o in outcomes if axis in o.choices)
        )
        if len(values) > 1:  # an axis of one value separates nothing
            lines += [(axis, ""), *((axis, value) for value in values)]
    return lines


def _bar(panel: Any, place: float, outcomes: Sequence[Outcome]) -> None:
    counts = Counter(found.end for found in outcomes)
    left = 0.0
    for end in ENDS:
        width = counts[end] / len(outcomes) if outcomes else 0.0
        if width:
            look = {
                "color": COLOURS[end],
                "hatch": HATCHES[end],
                "edgecolor": "white",
                "linewidth": 0.3,
            }
            panel.barh(place, width, left=left, height=0.85, **look)
            # Narrower pieces have no room for a number.
            if width > 0.13:
                colour = "black" if end == UNDECIDED else "white"
                plate = {"facecolor": COLOURS[end], "edgecolor": "none", "pad": 0.6}
                middle = {"ha": "center", "va": "center", "fontsize": 6}
                panel.text(
                    left + width / 2.0,
                    place,
                    counts[end],
                    color=colour,
                    bbox=plate,
                    **middle,
                )
        left += width


def _legend(figure: Any) -> None:
    from matplotlib.patches import Patch

    words = {HOLDS: "holds", FAILS: "fails", UNDECIDED: "undecided"}
    patches = [
        Patch(facecolor=COLOURS[e], hatch=HATCHES[e], edgecolor="white", label=words[e])
        for e in ENDS
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=3, fontsize=7)


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
            colour = COLOURS[found.end]
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
    if any(CLAIMS[found.claim].unit.ratio for _, found in rows):
        axis.set_xscale("log")
        few_decades(axis, "x")
