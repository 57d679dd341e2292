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
from asyncqn_paper.movielens import TABLE
from asyncqn_paper.real_runs import WARM_UP, RealRun, run_real
from asyncqn_paper.records import Record
from asyncqn_paper.rules import CLAIMS, Verdict, above, all_of, estimate
from asyncqn_paper.settings import PAPER, cluster, given

TIME_UNIT = 0.004
"""Seconds per unit of time of the stretched run: 8 ms between commits, far above what a commit costs."""
GIVEN = {**PAPER["as-lbfgs"], "initial_scale": 0.3, "epsilon": 1.2}
"""The table's numbers with an H0 and a cautious constant with which pairs act."""
STRETCHED = "W = 40, stretched"
PLAIN = "W = 2, not slowed"
RATINGS = "W = 2, not slowed, ratings"
COMMITS = {PLAIN: 4000, RATINGS: 600, STRETCHED: 800}
SEEDS = 10
POINTS = 60


@dataclass(frozen=True)
class Pair(Cell):
    """Real runs, in one launch, and their simulations."""

    table: ClassVar[str] = "pairs"
    setting: str

    def measure(self) -> list[Record]:
        ratings = self.setting == RATINGS
        own = given(TABLE["as-lbfgs"] if ratings else GIVEN)
        workers = 40 if self.setting == STRETCHED else 2
        commits = COMMITS[self.setting]
        every = commits // POINTS
        jobs = [
            RealRun(ratings, own, workers, commits, seed, every)
            for seed in range(SEEDS)
        ]
        if self.setting == STRETCHED:
            timing = cluster("as-lbfgs", workers, 200.0)
            engine = Threads(timing_model=timing, time_unit=TIME_UNIT)
            # A real clock would count compiling.
            engine.minimize(jobs[0].request(WARM_UP))
            real = [engine.minimize(job.request()) for job in jobs]
            name = "threads"
            timings = [timing] * SEEDS
        else:
            real, name = run_real(jobs)
            # Means, spreads and message times are those of the record; the order of messages is drawn anew.
            timings = [Cluster.from_run(run) for run in real]
        metric = "rmse" if ratings else "error"
        records: list[Record] = []
        for job, run, timing in zip(jobs, real, timings, strict=True):
            again = Simulator(timing).minimize(job.request())
            for engine_name, one in (("real", run), ("simulated", again)):
                head = {"seed": job.seed, "on": name, "engine": engine_name}
                records += [{**head, **row} for row in _curve(one, metric)]
        return records


def _curve(run: Run, metric: str) -> list[Record]:
    records = []
    for k in range(run.metrics.rows):
        row = run.metrics.row(k)
        if math.isfinite(row[metric]):
            records.append({"time": float(row["time"]), "error": float(row[metric])})
    return records


def cells() -> list[Cell]:
    """Return the cells of all settings."""
    return [Pair(setting) for setting in COMMITS]


Curve = tuple[Any, Any]
"""Times and errors."""


def curves_of(get: Get, setting: str) -> list[dict[str, Curve]]:
    """Return the curves of every seed by engine."""
    records = get(Pair(setting))
    seeds = []
    for seed in range(SEEDS):
        curves = {}
        for engine in ("simulated", "real"):
            mine = [r for r in records if (r["seed"], r["engine"]) == (seed, engine)]
            times = np.array([r["time"] for r in mine])
            curves[engine] = (times, np.array([r["error"] for r in mine]))
        seeds.append(curves)
    return seeds


def apart(curves: dict[str, Curve]) -> tuple[float, float]:
    """Return |log of the errors' ratio|, in the median of the run, and |log of the durations' ratio|."""
    (t, e), (t_, e_) = curves["real"], curves["simulated"]
    # The curves end at different times, and the last stretch of the shorter one has few rows.
    # Both curves are compared at the same times, not at the same commits.
    grid = np.linspace(0.0, 0.95 * min(t[-1], t_[-1]), 100)
    gaps = np.interp(grid, t, np.log(e)) - np.interp(grid, t_, np.log(e_))
    return float(np.median(np.abs(gaps))), abs(math.log(t[-1] / t_[-1]))


def judge(get: Get, setting: str, choices: dict[str, str]) -> list[Verdict]:
    """Return the outcomes for error and duration of one setting."""
    numbers = -np.array([apart(curves) for curves in curves_of(get, setting)])
    parts = []
    for claim, values in zip(CLAIMS["fig1"].parts, numbers.T, strict=True):
        parts.append(above(claim, choices, estimate(values)))
    return [*parts, all_of("fig1", choices, parts)]


def outcomes(get: Get) -> list[Verdict]:
    """Return the outcomes for error and duration, in every setting."""
    found = []
    for setting in COMMITS:
        found += judge(get, setting, {"setting": setting})
    return found


def stated(get: Get) -> list[Verdict]:
    """Return the outcomes of two real workers on ratings."""
    return judge(get, RATINGS, {"setting": "two processes factorize ratings"})


def draw(get: Get) -> dict[str, Any]:
    """Draw the error over time, real and simulated, of the stated setting; and of all three."""
    maps, axes = panels(1, len(COMMITS), width=2.6, height=2.4)
    for axis, setting in zip(axes[0], COMMITS, strict=True):
        _draw_setting(axis, get, setting)
        axis.set_title(setting, fontsize=8)
    handles = axes[0][0].get_legend_handles_labels()
    maps.legend(*handles, loc="outside lower center", ncols=2)
    figure, axes = panels(1, 1, width=3.6, height=2.7)
    _draw_setting(axes[0][0], get, RATINGS)
    axes[0][0].legend(fontsize=7)
    return {"fig1": figure, "fig1_map": maps}


def _draw_setting(axis: Any, get: Get, setting: str) -> None:
    looks = {"simulated": STYLES[0], "real": STYLES[4]}
    for k, curves in enumerate(curves_of(get, setting)):
        for engine, (times, errors) in curves.items():
            # The first seed stands out, the others show the spread.
            style = {**looks[engine], "alpha": 0.2 if k else 1.0, "markevery": 10}
            axis.plot(times, errors, label=None if k else engine, **style)
    unit = "units" if setting == STRETCHED else "s"
    axis.set(xlabel=f"time ({unit})", yscale="log")
    axis.set_ylabel("RMSE" if setting == RATINGS else "(U − U*)/U*")
    few_decades(axis)


EXPERIMENT = Experiment(
    "fig1",
    "Simulated against real, in three settings",
    "Ten real runs and their simulations on a cluster fitted to each. Right: threads sleep for the simulator's "
    "own draws, which tests the order of messages alone.",
    cells,
    outcomes,
    draw,
    stated,
)
