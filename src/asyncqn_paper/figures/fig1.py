"""Figure 1: simulated against real as-L-BFGS, error over time.

Not slowed: a real run on two workers (MPI, or threads where there is none), a cluster fitted to its record
(`Cluster.from_run`), and the same run simulated on it.  Stretched: the paper's W = 40 on threads that
sleep for what is missing of the simulator's own draws: there the times are no evidence, only the order of
messages is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from asyncqn import Cluster, Run, Simulator, Threads
from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import STYLES, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.movielens import model, parameters, set_of
from asyncqn_paper.real_runs import GAUSSIAN, WARM_UP, RealRun, run_real
from asyncqn_paper.records import Record
from asyncqn_paper.rules import CLAIMS, Outcome, above, all_of, estimate
from asyncqn_paper.settings import PAPER, cluster, given

TIME_UNIT = 0.004
"""Seconds per unit of time of the stretched run: 8 ms between commits, far above what a commit costs."""
GIVEN = {**PAPER["as-lbfgs"], "initial_scale": 0.3, "epsilon": 1.2}
"""The table's numbers with an H0 and a cautious constant with which pairs act."""
STRETCHED = "W = 40, stretched"
PLAIN = "W = 2, not slowed"
RATINGS = "W = 2, not slowed, ratings"
POINTS = 60


@dataclass(frozen=True)
class Pair(Cell):
    """Real runs, in one launch, and their simulations."""

    table: ClassVar[str] = "pairs"
    setting: str
    ratings: str
    commits: int
    seeds: int

    def measure(self) -> list[Record]:
        metric = "rmse" if self.setting == RATINGS else "error"
        if self.setting == RATINGS:
            # The numbers of the table for this set of ratings.
            own: dict[str, Any] = parameters("1m", model(self.ratings).n_data)[
                "as-lbfgs"
            ]
        else:
            own = GIVEN
        name = self.ratings if self.setting == RATINGS else GAUSSIAN
        workers = 40 if self.setting == STRETCHED else 2
        every = max(1, self.commits // POINTS)
        asked = [
            RealRun(name, "as-lbfgs", given(own), workers, self.commits, seed, every)
            for seed in range(self.seeds)
        ]
        if self.setting == STRETCHED:
            timing = cluster("as-lbfgs", workers, 200.0)
            engine = Threads(timing_model=timing, time_unit=TIME_UNIT)
            engine.minimize(
                asked[0].request(WARM_UP)
            )  # a real clock would count compiling
            real = [engine.minimize(one.request()) for one in asked]
            on = "threads"
            timings = [timing] * self.seeds
        else:
            real, on, _ = run_real(asked)
            # Means, spreads and message times are those of the record; the order of messages is drawn anew.
            timings = [Cluster.from_run(run) for run in real]
        found: list[Record] = []
        for one, run, timing in zip(asked, real, timings, strict=True):
            both = (
                ("real", run),
                ("simulated", Simulator(timing).minimize(one.request())),
            )
            told = {"seed": one.seed, "on": on}
            found += [
                {**told, "engine": e, **row}
                for e, each in both
                for row in _curve(each, metric)
            ]
        return found


def _curve(run: Run, metric: str) -> list[Record]:
    rows = (run.metrics.row(i) for i in range(run.metrics.rows))
    return [
        {"time": float(r["time"]), "error": float(r[metric])}
        for r in rows
        if math.isfinite(r[metric])
    ]


def pairs(setting: str, full: bool) -> Pair:
    """Return the cell of a setting."""
    ratings, _ = set_of(full)
    commits = {STRETCHED: 800, PLAIN: 4000, RATINGS: 600}[setting]
    if not full:
        return Pair(setting, ratings if setting == RATINGS else "", commits // 4, 2)
    return Pair(setting, ratings if setting == RATINGS else "", commits, 10)


SETTINGS = (PLAIN, RATINGS, STRETCHED)


def cells(full: bool) -> list[list[Cell]]:
    """Return the cells of all settings, in the second batch, because they take time by the clock."""
    # An empty first batch puts these cells into the second round of all experiments.
    return (
        [[], [pairs(setting, full) for setting in SETTINGS]]
        if full
        else [[pairs(PLAIN, full)]]
    )


def _pairs(get: Get, setting: str, full: bool) -> list[list[Record]]:
    """Return the records of every seed."""
    found = get(pairs(setting, full)) or []
    return [
        [r for r in found if r["seed"] == seed]
        for seed in dict.fromkeys(r["seed"] for r in found)
    ]


def apart(records: list[Record]) -> tuple[float, float]:
    """Return |log of the errors' ratio|, in the median of the run, and |log of the durations' ratio|."""
    curves = []
    for engine in ("real", "simulated"):
        mine = [r for r in records if r["engine"] == engine]
        curves.append(
            (np.array([r["time"] for r in mine]), np.log([r["error"] for r in mine]))
        )
    (t, e), (t_, e_) = curves
    # The curves end at different times, and the last stretch of the shorter one has few rows.
    # Both curves are compared at the same times, not at the same commits.
    grid = np.linspace(0.0, 0.95 * min(t[-1], t_[-1]), 100)
    gap = float(np.median(np.abs(np.interp(grid, t, e) - np.interp(grid, t_, e_))))
    return gap, abs(math.log(t[-1] / t_[-1]))


def _parts(get: Get, setting: str, full: bool) -> list[Outcome]:
    """Return the outcomes for error and duration of one setting; none where runs are missing."""
    runs = _pairs(get, setting, full)
    # A single run has no standard error.
    if len(runs) < 2:
        return []
    numbers = zip(*(apart(records) for records in runs), strict=True)
    found = [
        above(claim, {"setting": setting}, estimate([-v for v in values]))
        for claim, values in zip(CLAIMS["fig1"].parts, numbers, strict=True)
    ]
    return [*found, all_of("fig1", {"setting": setting}, found)]


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcomes for error and duration, in every setting."""
    return [found for setting in SETTINGS for found in _parts(get, setting, full)]


def stated(get: Get, full: bool) -> list[Outcome]:
    """Return the outcomes of two real workers on ratings."""
    words = {"setting": "two processes factorize ratings"}
    return [found._replace(choices=words) for found in _parts(get, RATINGS, full)]


def draw(get: Get, full: bool) -> dict[str, Any]:
    """Draw the error over time, real and simulated, of the stated setting; and of all three."""
    maps, axes = panels(1, len(SETTINGS), width=2.6, height=2.4)
    figure, single = panels(1, 1, width=3.6, height=2.7)
    places = list(zip(SETTINGS, axes[0], strict=True))
    for setting, axis in [(RATINGS, single[0][0]), *places]:
        for k, records in enumerate(_pairs(get, setting, full)):
            for engine, look in (("simulated", STYLES[0]), ("real", STYLES[4])):
                mine = [r for r in records if r["engine"] == engine]
                style = {**look, "alpha": 1.0 if k == 0 else 0.2, "markevery": 10}
                label = engine if k == 0 else None
                axis.plot(
                    [r["time"] for r in mine],
                    [r["error"] for r in mine],
                    label=label,
                    **style,
                )
        unit = "units" if setting == STRETCHED else "s"
        axis.set(
            xlabel=f"time ({unit})",
            yscale="log",
            ylabel="RMSE" if setting == RATINGS else "(U − U*)/U*",
        )
        few_decades(axis)
    for axis, setting in zip(axes[0], SETTINGS, strict=True):
        axis.set_title(setting, fontsize=8)
    single[0][0].legend(fontsize=7)
    maps.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2
    )
    return {"fig1": figure, "fig1_map": maps}


EXPERIMENT = Experiment(
    "fig1",
    "Simulated against real, in three settings",
    "Ten real runs and their simulations on a cluster fitted to each. On the right "
    "threads sleep for the simulator's own draws, so only the order of messages is tested.",
    cells,
    outcomes,
    draw,
    stated,
)
