"""The pictures of Fig. 4: the paper's arrangement, every setting, long runs, what a step is worth."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn.paper.bands import spread
from asyncqn.paper.drawing import ALGORITHM_STYLES, few_decades, panels
from asyncqn.paper.experiment import Tables
from asyncqn.paper.figures.fig4_claims import BASE, CONTROL, SETTINGS, TUNED, break_even, longest
from asyncqn.paper.movielens import STARTS, label
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.paper.settings import NAMES


def draw(tables: Tables) -> dict[str, Any]:
    """The paper's arrangement (a row per set: RMSE, gradient norm) from either start; then ours."""
    found = {}
    for at, words in STARTS.items():
        every = where(tables["curves"], setting=BASE, start=at)
        names = distinct(every, "ratings")
        figure, axes = panels(len(names), 2, width=4.2, height=2.7)
        for pair, name in zip(axes, names, strict=True):
            for axis, what in zip(pair, ("rmse", "grad_norm"), strict=True):
                lost = _curves(axis, _shown(where(every, ratings=name)), what)
                _title(axis, f"{label(name)}, {words}", lost)
        _finish(figure, axes)
        found["fig4" if at == "prior" else f"fig4_{at}"] = figure
    found["fig4_settings"] = _draw_settings(tables)
    if any(distinct(where(tables["curves"], setting=TUNED), "ratings")[1:]):
        found["fig4_tuned"] = _draw_tuned(tables)
    found["fig4_long"] = _draw_long(tables)
    found["fig4_break_even"] = _draw_break_even(tables)
    return found


def _shown(rows: list[Record]) -> list[Record]:
    """The length that a panel shows: the one in which the most is seen, several seeds of it."""
    return where(rows, steps=sorted(distinct(rows, "steps"))[:2][-1])


def _finish(figure: Any, axes: Any, words: str = "time (s, simulated from measured steps)") -> None:
    for axis in axes[-1]:
        axis.set_xlabel(words)
        if axis.get_xscale() == "linear":
            axis.locator_params(axis="x", nbins=5)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def _title(axis: Any, words: str, lost: list[str]) -> None:
    """A title, and below it what leaves the panel: there it covers no line."""
    axis.set_title("\n".join([words, *lost]), fontsize=8)


def _curves(axis: Any, rows: list[Record], what: str) -> list[str]:
    """Median over seeds, with a band, or each of fewer than three runs; what blows up leaves the panel, and
    words say so."""
    levels = []
    left = []
    for kind, title in NAMES.items():
        mine = where(rows, algorithm=kind)
        runs = [where(mine, seed=seed) for seed in distinct(mine, "seed")]
        if not runs:
            continue
        grid = np.linspace(0.0, max(float(run[-1]["time"]) for run in runs), 50)
        values = np.array([_on_grid(run, what, grid) for run in runs])
        look = ALGORITHM_STYLES[kind]
        lines = [np.median(values, axis=0)] if len(runs) > 2 else list(values)
        for k, line in enumerate(lines):
            axis.plot(grid, line, label=None if k else title, **{**look, "markevery": 6})
        if len(runs) > 2:
            axis.fill_between(grid, *spread(values), color=look["color"], alpha=0.15, linewidth=0)
        levels += lines
        lost = sum(bool(run[-1]["diverged"]) for run in runs)
        if lost:
            left.append(f"{title}: {lost} of {len(runs)} runs diverge")
    first = float(levels[0][0])
    lowest = min(float(values.min()) for values in levels)
    if what == "rmse":
        axis.set(
            ylabel="RMSE (stars)", ylim=(lowest - 0.05 * (first - lowest), first + 0.1 * (first - lowest))
        )
    else:
        axis.set(ylabel="norm of ∇U", yscale="log", ylim=(0.7 * lowest, 2.0 * first))
        few_decades(axis)
    return left


def _on_grid(run: list[Record], what: str, grid: Any) -> Any:
    """A run's values at some times; where it has blown up they are larger than any."""
    values = column(run, what)
    values = np.where(np.isfinite(values), values, 1e30)
    return np.interp(grid, column(run, "time"), values, right=1e30 if run[-1]["diverged"] else values[-1])


def _draw_settings(tables: Tables) -> Any:
    """RMSE in every setting: a row per start."""
    shown = [name for name in SETTINGS if name != CONTROL and where(tables["curves"], setting=name)]
    figure, axes = panels(len(STARTS), len(shown), width=2.6, height=2.4)
    for row, (at, words) in zip(axes, STARTS.items(), strict=True):
        for axis, setting in zip(row, shown, strict=True):
            lost = _curves(axis, _with_base(tables["curves"], setting, at), "rmse")
            _title(axis, f"{SETTINGS[setting].short},\n{words}", lost)
    _finish(figure, axes, "time (s)")
    return figure


def _draw_tuned(tables: Tables) -> Any:
    """RMSE with parameters tuned on each set itself: a row per set, a column per start."""
    tuned = where(tables["curves"], setting=TUNED)
    names = distinct(tuned, "ratings")
    figure, axes = panels(len(names), len(STARTS), width=4.2, height=2.5)
    for row, name in zip(axes, names, strict=True):
        for axis, (at, words) in zip(row, STARTS.items(), strict=True):
            lost = _curves(axis, _shown(where(tuned, ratings=name, start=at)), "rmse")
            _title(axis, f"{label(name)}, {words}", lost)
    _finish(figure, axes)
    return figure


def _draw_long(tables: Tables) -> Any:
    """The longest runs with the paper's parameters, on a logarithmic axis of time."""
    figure, axes = panels(1, len(STARTS), width=4.2, height=2.9)
    name = tables["curves"][0]["ratings"]
    for axis, (at, words) in zip(axes[0], STARTS.items(), strict=True):
        rows = longest(where(tables["curves"], setting=BASE, start=at, ratings=name))
        _title(axis, f"{label(name)}, {words}", _curves(axis, rows, "rmse"))
        start = min(row["time"] for row in rows if row["commit"] > 0)
        axis.set(xscale="log", xlim=(start, None))
    _finish(figure, axes)
    return figure


def _with_base(curves: list[Record], setting: str, at: str) -> list[Record]:
    """The runs of a setting, and of the base case for algorithms that it does not change."""
    first = curves[0]["ratings"]
    rows = _shown(where(curves, setting=setting, start=at, ratings=first))
    base = _shown(where(curves, setting=BASE, start=at, ratings=first))
    there = set(distinct(rows, "algorithm"))
    return rows + [r for r in base if r["algorithm"] not in there]


def _draw_break_even(tables: Tables) -> Any:
    """How many steps of a-SGD one of as-L-BFGS is worth, along the way down, beside what it costs."""
    figure, axes = panels(1, 2, width=4.2, height=2.9)
    for axis, (at, words) in zip(axes[0], STARTS.items(), strict=True):
        found = break_even(tables, at)
        axis.plot(found.levels, found.worth, color=ALGORITHM_STYLES["as-lbfgs"]["color"], label="is worth")
        axis.axhline(
            found.step_ratio, color="black", linestyle="--", linewidth=0.9, label="costs, by computation here"
        )
        axis.axhline(2.0, color="black", linestyle=":", linewidth=0.9, label="costs, where the link is busy")
        axis.axhline(
            4 / 3, color="black", linestyle="-.", linewidth=0.9, label="costs, where only rows count"
        )
        axis.set(xlabel="RMSE on the way down (stars)", title=words, ylim=(0.0, None))
        axis.invert_xaxis()
    axes[0][0].set_ylabel("steps of a-SGD")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
