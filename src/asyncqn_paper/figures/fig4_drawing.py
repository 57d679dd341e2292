"""The pictures of Fig. 4: the paper's arrangement, every setting, long runs, what a step is worth."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from asyncqn_paper.drawing import ALGORITHM_STYLES, few_decades, panels, spread
from asyncqn_paper.experiment import Tables
from asyncqn_paper.figures.fig4_claims import BASE, CONTROL, SETTINGS, TUNED, break_even, longest
from asyncqn_paper.movielens import STARTS, label
from asyncqn_paper.records import Record, column, distinct, where
from asyncqn_paper.settings import NAMES


class Panel(NamedTuple):
    """The rows that a panel shows, which metric of them, and its title."""

    rows: list[Record]
    what: str
    title: str


def draw(tables: Tables) -> dict[str, Any]:
    """The paper's arrangement (a row per set: RMSE, gradient norm) from either start; then ours."""
    curves, found = tables["curves"], {}
    first = curves[0]["ratings"]
    for at, words in STARTS.items():
        every = where(curves, setting=BASE, start=at)
        sets, metrics = distinct(every, "ratings"), ("rmse", "grad_norm")
        cells = [[_of_set(every, name, words, what) for what in metrics] for name in sets]
        found["fig4" if at == "prior" else f"fig4_{at}"] = _grid(cells)
    shown = [name for name in SETTINGS if name != CONTROL and where(curves, setting=name)]
    cells = [
        [Panel(_with_base(curves, s, at), "rmse", f"{SETTINGS[s].short},\n{words}") for s in shown]
        for at, words in STARTS.items()
    ]
    found["fig4_settings"] = _grid(cells, (2.6, 2.4), "time (s)")
    tuned = where(curves, setting=TUNED)
    sets = distinct(tuned, "ratings")
    if len(sets) > 1:
        cells = [
            [_of_set(where(tuned, start=at), name, words) for at, words in STARTS.items()] for name in sets
        ]
        found["fig4_tuned"] = _grid(cells, (4.2, 2.5))
    base = where(curves, setting=BASE, ratings=first)
    long = [
        Panel(longest(where(base, start=at)), "rmse", f"{label(first)}, {words}")
        for at, words in STARTS.items()
    ]
    found["fig4_long"] = _grid([long], (4.2, 2.9), log=True)
    found["fig4_break_even"] = _draw_break_even(tables)
    return found


def _of_set(rows: list[Record], name: str, words: str, what: str = "rmse") -> Panel:
    return Panel(_shown(where(rows, ratings=name)), what, f"{label(name)}, {words}")


def _shown(rows: list[Record]) -> list[Record]:
    """The length that a panel shows: the one in which the most is seen, several seeds of it."""
    return where(rows, steps=sorted(distinct(rows, "steps"))[:2][-1])


def _grid(
    cells: list[list[Panel]],
    size: tuple[float, float] = (4.2, 2.7),
    xlabel: str = "time (s, simulated from measured steps)",
    log: bool = False,
) -> Any:
    """Panels in rows and columns; `log`: on a logarithmic axis of time, from the first commit shown."""
    figure, axes = panels(len(cells), len(cells[0]), *size)
    for axis, panel in zip(axes.flat, chain.from_iterable(cells), strict=True):
        lost = _curves(axis, panel.rows, panel.what)
        # What leaves the panel is told below the title: there it covers no line.
        axis.set_title("\n".join([panel.title, *lost]), fontsize=8)
        if log:
            axis.set(xscale="log", xlim=(min(r["time"] for r in panel.rows if r["commit"] > 0), None))
    for axis in axes[-1]:
        axis.set_xlabel(xlabel)
        if not log:
            axis.locator_params(axis="x", nbins=5)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


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
        for cost, dashes, where_ in (
            (found.step_ratio, "--", "by computation here"),
            (2.0, ":", "where the link is busy"),
            (4 / 3, "-.", "where only rows count"),
        ):
            axis.axhline(cost, color="black", linestyle=dashes, linewidth=0.9, label=f"costs, {where_}")
        axis.set(xlabel="RMSE on the way down (stars)", title=words, ylim=(0.0, None))
        axis.invert_xaxis()
    axes[0][0].set_ylabel("steps of a-SGD")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
