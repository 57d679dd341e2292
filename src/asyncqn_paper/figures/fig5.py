"""Figures 5 and S1: as-L-BFGS on MovieLens 1M for W = 1 ... 20: speedup, instability, and its cure.

The table's step serves every W in the figure.  On the map stands beside it the step that is the best for each
W, of the same five shares of the table's h on the same tuning seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from asyncqn import Cluster, Simulator
from asyncqn.types import Request
from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import VARIANTS, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.fig2 import INTEGRATOR, PAYS, START
from asyncqn_paper.figures.fig4 import (
    MEASURED,
    PACE,
    SLOW,
    along,
    closed,
    first_below,
    race,
)
from asyncqn_paper.figures.fig4 import STATED as FIG4
from asyncqn_paper.movielens import (
    TIMINGS,
    measured_cluster,
    model,
    parameters,
    set_of,
    slowed,
    start,
)
from asyncqn_paper.records import Record
from asyncqn_paper.rules import CLAIMS, GREY, Estimate, Outcome, above, all_of, share_of
from asyncqn_paper.settings import (
    EVERYONE,
    NOBODY,
    UPDATES_ONLY,
    Given,
    algorithm,
    given,
)

WORKERS = (1, 2, 5, 10, 15, 20)
TUNED_WORKERS = (1, 5, 10, 20)
COMMITS = 1000
SEEDS = 10
FRESH_SEEDS = 16
FEW = 3
EVERY = 20
DECIDING = [(1, 1.0), (10, 1.0), (20, 1.0), (20, 0.5)]
"""W and the share of the step, of the runs that decide the claims."""
SHARED = DECIDING[1:]
"""Those whose shares of stable runs do."""
SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Shares of the table's step h that are tried for every W."""
PAID = {NOBODY: "no message paid", EVERYONE: "all paid", UPDATES_ONLY: "answers paid"}
GOAL = 0.95
"""RMSE to which the speedup of tuned steps is measured."""


@dataclass(frozen=True)
class Speedup(Cell):
    """One run with W workers."""

    table: ClassVar[str] = "speedup"
    ratings: str
    start: str
    payer: str
    parameters: Given
    workers: int
    commits: int
    seed: int

    def machines(self) -> Cluster:
        """Return the cluster, with gradients as fast as measured."""
        return measured_cluster(TIMINGS["as-lbfgs"], self.workers, self.payer)

    def measure(self) -> list[Record]:
        problem = model(self.ratings)
        method = algorithm("as-lbfgs", self.parameters)
        request = Request(
            problem,
            method,
            theta0=start(problem, self.start, self.seed),
            commits=self.commits,
            seed=self.seed,
            evaluate=EVERY,
        )
        return along(Simulator(self.machines()).minimize(request), self.seed)


@dataclass(frozen=True)
class SlowSpeedup(Speedup):
    """One run with gradients as slow as the printed timeout suggests."""

    def machines(self) -> Cluster:
        timing = slowed("as-lbfgs", TIMINGS["as-lbfgs"])
        return measured_cluster(timing, self.workers, self.payer)


Choices = dict[str, str]


def settings() -> list[Choices]:
    """Return the settings of the map."""
    # A tree of broadcasts changes nothing where replies go to one worker.
    return [
        {PACE: MEASURED, START: at, PAYS: payer, INTEGRATOR: integrator}
        for integrator in ("explicit", "modified")
        for payer in (NOBODY, EVERYONE, UPDATES_ONLY)
        for at in ("mean", "prior")
    ]


STATED = {PACE: MEASURED, START: "mean", PAYS: NOBODY, INTEGRATOR: "explicit"}
"""The setting that `rules.strongest` finds on the seeds of the map."""
OF_FIG4 = {axis: FIG4[axis] for axis in (PACE, START, PAYS, INTEGRATOR)}
"""The cluster of Fig. 4, measured on the fresh seeds."""


def run_of(
    choices: Choices, workers: int, seed: int, full: bool, share: float = 1.0
) -> Speedup:
    """Return the cell of one run with a `share` of the SDE's step h: h' falls by its square, gamma' by it."""
    name, n_data = set_of(full)
    own = parameters("1m", n_data)["as-lbfgs"]
    # Half the step of the SDE, not half of h': the friction has to fall with it, or the scheme is another
    # one.
    own |= {
        "h": share**2 * own["h"],
        "gamma": share * own["gamma"],
        "integrator": choices[INTEGRATOR],
    }
    place = (name, choices[START], choices[PAYS], given(own), workers)
    kind = SlowSpeedup if choices[PACE] == SLOW else Speedup
    return kind(*place, COMMITS if full else 200, seed)


def _size(full: bool) -> tuple[list[Choices], range, range, tuple[int, ...]]:
    """Return the settings of the map, its seeds, the fresh seeds and the numbers of workers."""
    if full:
        return settings(), range(SEEDS), range(SEEDS, SEEDS + FRESH_SEEDS), WORKERS
    return [STATED], range(2), range(2, 4), (1, 10, 20)


def cells(full: bool) -> list[list[Cell]]:
    """Return the runs of the map, those of the stated setting, and those of tuned steps."""
    every, seeds, fresh, workers = _size(full)
    points = sorted({*DECIDING, *((W, 1.0) for W in workers)})

    def runs(choices: Choices, seeds: range) -> list[Cell]:
        return [
            run_of(choices, W, s, full, share)
            for W, share in points
            for s in _fresh(W, share, seeds)
        ]

    tuning = [cell for choices in every for cell in runs(choices, seeds)]
    main = runs(STATED, fresh) + (runs(OF_FIG4, fresh) if full else [])
    tuned = [
        run_of(STATED, W, s, full, share)
        for W in TUNED_WORKERS
        for share in SHARES
        for s in _tuning(full)
    ]
    return [tuning, main, [*tuned]]


def _fresh(W: int, share: float, fresh: range) -> range:
    """Return the seeds of one W: all where shares are compared, few where times are, which hardly vary."""
    return fresh if (W, share) in SHARED else fresh[:FEW]


def _tuning(full: bool) -> range:
    """Return the tuning seeds of the step."""
    return range(2000, 2003 if full else 2001)


Runs = dict[tuple[int, float], list[list[Record]]]


def _rows(get: Get, full: bool, choices: Choices, seeds: range) -> Runs | None:
    """Return the finished runs by W and share of the step, or None where a deciding one is missing."""
    found = {}
    for W, share in sorted({*DECIDING, *((W, 1.0) for W in _size(full)[3])}):
        cells = [run_of(choices, W, s, full, share) for s in _fresh(W, share, seeds)]
        runs = [get(cell) for cell in cells]
        if all(run is not None for run in runs):
            found[W, share] = [
                closed(run or [], "commit", cells[0].commits) for run in runs
            ]
        # The other W are only drawn.
        elif (W, share) in DECIDING:
            return None
    return found


def stable(run: Sequence[Record]) -> float:
    """Return 1 if the last RMSE is below the first and near the least, else 0."""
    values = [math.inf if row["rmse"] is None else row["rmse"] for row in run]
    return float(values[-1] < values[0] and values[-1] <= min(values) + 0.1)


def _speedup(runs: Runs, W: int, name: str = "time") -> Estimate | str:
    """Estimate log(time of one worker / time of W), seed by seed."""
    slow = runs[1, 1.0]
    quick = runs[W, 1.0]
    count = min(len(slow), len(quick))
    return race(slow[:count], quick[:count], name)


def judge(runs: Runs, choices: Choices) -> list[Outcome]:
    """Return the outcomes of the claims of Figs. 5 and S1 in one setting."""
    parts = CLAIMS["fig5"].parts
    steady = [stable(run) for W in (1, 10) for run in runs[W, 1.0]]
    if np.mean(steady) < 0.9:
        because = "the table's parameters diverge up to W = 10"
        return [
            Outcome(claim, choices, GREY, because=because)
            for claim in (*parts, "fig5", "s1")
        ]
    # Seed by seed, as all comparisons.
    lost = [
        stable(a) - stable(b) for a, b in zip(runs[10, 1.0], runs[20, 1.0], strict=True)
    ]
    cured = share_of([stable(run) for run in runs[20, 0.5]])
    found = [
        above("fig5-linear", choices, _speedup(runs, 10)),
        above("fig5-unstable", choices, share_of(lost)),
        above("fig5-step", choices, cured),
    ]
    iterations = above("s1", choices, _speedup(runs, 10, "commit"))
    return [*found, all_of("fig5", choices, found), iterations]


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcome of every claim in every finished setting of the map."""
    every, seeds, fresh, _ = _size(full)
    found: list[Outcome] = []
    for choices in (*every, OF_FIG4):
        runs = _rows(get, full, choices, fresh if choices is OF_FIG4 else seeds)
        if runs is not None:
            found += judge(runs, choices)
    return found


def stated(get: Get, full: bool) -> list[Outcome]:
    """Return the outcomes in the stated setting, on fresh seeds."""
    runs = _rows(get, full, STATED, _size(full)[2])
    words = {PAYS: "nobody pays for messages", START: "runs start near the mean"}
    return (
        [] if runs is None else [o._replace(choices=words) for o in judge(runs, STATED)]
    )


def best_steps(get: Get, full: bool) -> dict[int, tuple[float, float]]:
    """Return, by W, the share of the table's step with the least mean time to `GOAL`, and this time."""
    found = {}
    for W in TUNED_WORKERS:
        times = {}
        for share in SHARES:
            runs = [get(run_of(STATED, W, s, full, share)) for s in _tuning(full)]
            reached = [first_below(run, GOAL) if run else None for run in runs]
            if all(
                time is not None and stable(run or [])
                for time, run in zip(reached, runs, strict=True)
            ):
                times[share] = float(np.mean([time or 0.0 for time in reached]))
        if times:
            share = min(times, key=lambda one: times[one])
            found[W] = (share, times[share])
    return found


def draw(get: Get, full: bool) -> dict[str, Any]:
    """Draw Fig. 5 and Fig. S1 in the stated setting, and the map."""
    figures: dict[str, Any] = {}
    every, seeds, fresh, _ = _size(full)
    best = best_steps(get, full)
    figure, axes = panels(1, 2 if 1 in best else 1, width=3.4, height=2.8)
    shown = [c for c in every if (c[START], c[INTEGRATOR]) == ("mean", "explicit")]
    for choices, look in zip((OF_FIG4, *shown), VARIANTS[1:], strict=False):
        runs = _rows(get, full, choices, fresh if choices is OF_FIG4 else seeds)
        if runs is None:
            continue
        pace = "slow" if choices[PACE] == SLOW else "fast"
        label = f"{pace} gradients, {PAID[choices[PAYS]]}"
        _speedups(axes[0][0], runs, label, look)
    axes[0][0].set_title("the table's step", fontsize=8)
    if 1 in best:
        axes[0][1].set_title(f"the best step of each W, to RMSE {GOAL:g}", fontsize=8)
        speed = [best[1][1] / time for _, time in best.values()]
        axes[0][1].plot(list(best), speed, **VARIANTS[3])
        for (W, (share, _)), y in zip(best.items(), speed, strict=True):
            axes[0][1].annotate(
                f"h × {share:g}",
                (W, y),
                fontsize=6.5,
                xytext=(4, -9),
                textcoords="offset points",
            )
    for axis in axes[0]:
        axis.plot(WORKERS, WORKERS, color="black", linestyle=":", linewidth=0.8)
        axis.set(
            xlabel="workers W", ylabel="speedup in time", xscale="log", yscale="log"
        )
        axis.set_xticks(WORKERS, [f"{W:g}" for W in WORKERS])
        axis.minorticks_off()
        few_decades(axis)
    axes[0][0].legend(fontsize=6.5)
    figures["fig5_map"] = figure
    runs = _rows(get, full, STATED, fresh)
    if runs is None:
        return figures
    whole, axes = panels(1, 2, width=2.5, height=2.5)
    _along_time(axes[0][0], runs, "time")
    axes[0][0].set_xscale("log")
    _speedups(axes[0][1], runs, "as-L-BFGS", VARIANTS[3])
    stable_at = [W for W, share in runs if share == 1.0]
    axes[0][1].plot(stable_at, stable_at, color="black", linestyle=":", linewidth=0.8)
    axes[0][1].set(xlabel="workers W", ylabel="time speedup")
    axes[0][1].text(20, 1.5, "W = 20:\nunstable", fontsize=7, ha="right")
    single, axes = panels(1, 1, width=3.6, height=2.7)
    _along_time(axes[0][0], runs, "commit")
    return {"fig5": whole, "figS1": single, **figures}


def _along_time(axis: Any, runs: Runs, name: str) -> None:
    """Draw the median RMSE over time or iterations, for every W."""
    looks = (*VARIANTS[: len(runs) - 1], {"color": "black", "linestyle": "--"})
    order = sorted(runs, key=lambda one: (-one[1], one[0]))
    for (W, share), look in zip(order, looks, strict=False):
        mine = runs[W, share]
        length = max(map(len, mine))
        x = np.median(
            [[r[name] for r in run] for run in mine if len(run) == length], axis=0
        )
        label = f"W = {W}" + (", half the step" if share < 1.0 else "")
        style = {**look, "markevery": 8}
        axis.plot(x[1:], np.median(_padded(mine), axis=0)[1:], label=label, **style)
    top = runs[1, 1.0][0][0]["rmse"]
    words = "time (s, simulated)" if name == "time" else "iterations"
    axis.set(xlabel=words, ylabel="RMSE (stars)", ylim=(0.82, 1.05 * top))
    axis.legend(fontsize=5.5, ncols=2, loc="lower left")


def _padded(runs: list[list[Record]]) -> Any:
    """Return the RMSE by run and row; missing ones, as after a divergence, lie far above the axis."""
    values = np.full((len(runs), max(map(len, runs))), 10.0)
    for line, run in zip(values, runs, strict=True):
        line[: len(run)] = [10.0 if row["rmse"] is None else row["rmse"] for row in run]
    return values


def _speedups(axis: Any, runs: Runs, label: str, look: dict[str, Any]) -> None:
    """Draw the time of W = 1 over that of W workers, with two errors, where runs are stable."""
    points = [(1, 1.0, 0.0)]
    for W in sorted(W for W, share in runs if share == 1.0 and W > 1):
        found = _speedup(runs, W)
        steady = np.mean([stable(run) for run in runs[W, 1.0]])
        if not isinstance(found, str) and steady > 0.5:
            points.append((W, math.exp(found.value), 2.0 * found.error))
    x, y, wide = np.array(points).T
    bars = np.minimum(y * wide, 0.9 * y)
    axis.errorbar(x, y, yerr=bars, label=label, capsize=2, **look)


EXPERIMENT = Experiment(
    "fig5",
    "Speedup on MovieLens 1M, by who pays and how slow gradients are",
    "Left: the table's step; where gradients are slow and uneven, W = 20 oscillates and does not diverge.",
    cells,
    outcomes,
    draw,
    stated,
)
