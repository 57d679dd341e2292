"""The pictures of Fig. 2: times against sigma_w^2, and which claims hold in which setting."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncqn_paper.claims import HOLDS, UNTESTABLE
from asyncqn_paper.drawing import ALGORITHM_STYLES, band, few_decades, panels
from asyncqn_paper.experiment import Tables
from asyncqn_paper.figures.fig2_after import draw_after
from asyncqn_paper.figures.fig2_cases import CASES, TUNED_CASES
from asyncqn_paper.figures.fig2_outcomes import ORDER, order_outcomes
from asyncqn_paper.figures.times import curve
from asyncqn_paper.judgement import COLOURS
from asyncqn_paper.records import Record, where
from asyncqn_paper.settings import NAMES

PANELS = {
    "base": "the table's numbers, b = 2: messages occupy the master",
    "rows-alike-8, 0, H₀ = √(0.8/λ) I, 1.2": "the same, b = 0: messages only take time",
    "tuned numbers: rows-alike-8, 2": "b = 2, all numbers tuned",
}
"""The panels of the figure: names of cases, and their titles."""
SHORT = {
    "fig2-sgd": "a-SGD slower\nat small σ_w²",
    "fig2-alike": "mb and as\nsimilar there",
    "fig2-mb": "mb slows\nwith σ_w²",
    "fig2-robust": "asynchronous\nare robust",
    "fig2-best": "as-L-BFGS\nbest",
}


def draw(tables: Tables) -> dict[str, Any]:
    """The paper's picture for three settings, what comes after, and a map of all settings."""
    return {
        "fig2": times_figure(tables["times"], PANELS),
        "fig2_after": draw_after(tables),
        "fig2_settings": _settings(tables),
    }


def times_figure(rows: list[Record], titles: Mapping[str, str]) -> Any:
    """One panel per setting: time to epsilon of the three algorithms against sigma_w^2."""
    figure, axes = panels(1, len(titles), width=3.3, height=3.0, sharey=True)
    for axis, (name, words) in zip(axes[0], titles.items(), strict=True):
        axis.set_yscale("log")
        absent = []
        for kind, title in NAMES.items():
            found = curve(where(rows, setting=name, algorithm=kind))
            if np.isfinite(found.mean).any():
                x, middle, low, high, _ = found
                band(axis, x, middle, low, high, title, ALGORITHM_STYLES[kind])
            else:
                absent.append(title)
        axis.set(title=textwrap.fill(words, 34), xlabel=r"$\sigma_w^2$ (squared time units)")
        if absent:
            note = f"{', '.join(absent)}: not reached"
            axis.text(0.98, 0.02, note, transform=axis.transAxes, ha="right", fontsize=7)
    for axis in axes[0]:
        few_decades(axis)
    axes[0][0].set_ylabel(r"time to $\varepsilon$ (units)")
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3)
    return figure


def _settings(tables: Tables) -> Any:
    """A row per setting, a column per claim; the axis that is varied heads its rows."""
    cases = {**CASES, **TUNED_CASES}
    axes_in_order = list(dict.fromkeys(case.axis for case in cases.values()))
    ordered = sorted(cases.items(), key=lambda item: axes_in_order.index(item[1].axis))
    figure, axes = panels(1, 1, width=7.0, height=0.16 * len(ordered) + 1.2)
    axis = axes[0][0]
    for y, (name, case) in enumerate(ordered):
        found = order_outcomes(where(tables["times"], setting=name), case.words, case.choices)
        for x, one in enumerate(found):
            axis.scatter(x, y, s=42, marker="s", color=COLOURS[one.verdict], linewidth=0)
            sign = "✓" if one.verdict == HOLDS else "?" if one.verdict == UNTESTABLE else "×"
            axis.text(x, y, sign, ha="center", va="center", fontsize=6, color="white")
    axis.set_xticks(range(len(ORDER)), [SHORT[name] for name in ORDER], fontsize=6.5)
    axis.xaxis.tick_top()
    axis.set_yticks(range(len(ordered)), [case.words for _, case in ordered], fontsize=6.5)
    axis.set(xlim=(-0.5, len(ORDER) - 0.5), ylim=(len(ordered) - 0.4, -0.6))
    axis.grid(False)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return figure
