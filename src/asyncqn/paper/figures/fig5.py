"""Figures 5 and S1: as-L-BFGS on MovieLens 1M for W = 1 ... 20: speedup, instability, and its cure.

Simulated with and without a link that messages keep, with workers alike and uneven, from both starts; then
real runs: one and two workers that nothing slows, and (full size) up to 20 whose computations are stretched
so that they fit on the processors there are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.core.request import Request
from asyncqn.core.run import Run
from asyncqn.engines.simulator import Simulator
from asyncqn.paper.bands import spread
from asyncqn.paper.controls import without_pairs
from asyncqn.paper.drawing import CONTROLS, VARIANTS, few_decades, panels
from asyncqn.paper.experiment import Context, Experiment, Tables
from asyncqn.paper.figures.fig4 import NOTHING, TimingJob, timing
from asyncqn.paper.figures.fig5_claims import (
    BASE,
    SETTINGS,
    WORKERS,
    outcomes,
    reach,
    speedups,
    steady_words,
    was_busy,
)
from asyncqn.paper.movielens import Timing, label, measured_cluster, parameters, potential, source, start
from asyncqn.paper.real_runs import RealRun, run_real
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.paper.settings import algorithm
from asyncqn.tuning.measure import accepted_share

STRETCH = 40.0
"""How many times as long everything lasts in a stretched run: 20 workers then need half a processor."""


@dataclass(frozen=True)
class Job:
    """One simulated run with W workers."""

    setting: str
    role: str
    name: str
    workers: int
    parameters: tuple[tuple[str, Any], ...]
    timing: Timing
    commits: int
    seed: int


@dataclass(frozen=True)
class RealJob:
    """Real runs with W workers; stretched or not."""

    setting: str
    name: str
    workers: int
    parameters: tuple[tuple[str, Any], ...]
    timing: Timing
    commits: int
    seeds: tuple[int, ...]


def measure(job: Job) -> list[Record]:
    """The metrics along the run."""
    model, chosen = potential(job.name), SETTINGS[job.setting]
    method = algorithm("as-lbfgs", dict(job.parameters))
    cluster = measured_cluster(job.timing, job.workers, link=chosen.link, uneven=chosen.uneven)
    run = Simulator(cluster).minimize(
        Request(
            model,
            method,
            theta0=start(model, chosen.start, job.seed),
            commits=job.commits,
            seed=job.seed,
            evaluate=20,
        )
    )
    given = dict(job.parameters)
    shared = {"setting": job.setting, "role": job.role, "ratings": job.name, "workers": job.workers}
    return _records(run, {**shared, "h": given["h"], "gamma": given["gamma"], "seed": job.seed})


def measure_real(job: RealJob) -> list[Record]:
    """The metrics along real runs, and the load of the machine before them."""
    chosen = SETTINGS[job.setting]
    stretch = measured_cluster(job.timing, job.workers, link=False) if chosen.stretched else None
    jobs = [
        RealRun(
            *(job.name, "as-lbfgs", job.parameters, job.workers, job.commits, seed),
            evaluate=20,
            start=chosen.start,
            stretch=stretch,
            time_unit=STRETCH if chosen.stretched else 1.0,
        )
        for seed in job.seeds
    ]
    load = os.getloadavg()[0]
    real = run_real(jobs)
    given = dict(job.parameters)
    shared = {"setting": job.setting, "role": "paper", "ratings": job.name, "workers": job.workers}
    shared |= {"h": given["h"], "gamma": given["gamma"], "engine": real.engine, "because": real.because}
    return [
        row
        for asked, run in zip(jobs, real.runs, strict=True)
        for row in _records(run, {**shared, "load": load, "seed": asked.seed})
    ]


def _records(run: Run, shared: Record) -> list[Record]:
    shared = {**shared, "status": run.status, "pairs": accepted_share(run)}
    rows = [run.metrics.row(i) for i in range(run.metrics.rows)]
    return [
        {**shared, "commit": int(row["commit"]), "time": float(row["time"])}
        | {name: float(row[name]) if np.isfinite(row[name]) else None for name in ("rmse", "grad_norm")}
        for row in rows
    ]


def compute(context: Context) -> Tables:
    """Tables `timings`, `curves` (simulated and real), `reach` and `parameters`."""
    name = source("1m")
    alone = context.alone
    timings = alone.jobs("Fig. 5, timings", timing, [TimingJob(name, "1m", "as-lbfgs")])
    seconds = Timing(timings[0]["worker"], timings[0]["master"], timings[0]["message"])
    printed = parameters("1m", potential(name).n_data)["as-lbfgs"]
    commits, seeds = 2000 if context.full else 800, range(context.seed, context.seed + 5)
    jobs, real = [], []
    for setting, chosen in SETTINGS.items():
        given = {**printed, **chosen.changes}
        plain = tuple(sorted(given.items()))
        some = tuple(seeds if setting == BASE or context.full else seeds[:2])
        if chosen.workers:
            if chosen.stretched <= context.full:
                real += [
                    RealJob(setting, name, W, plain, seconds, commits // 2, some[:3]) for W in chosen.workers
                ]
            continue
        jobs += [Job(setting, "paper", name, W, plain, seconds, commits, s) for W in WORKERS for s in some]
        # What the paper calls h is the step of the SDE: half of it is h'/4 and gamma'/2.
        half = tuple(sorted({**given, "h": given["h"] / 4, "gamma": given["gamma"] / 2}.items()))
        alone_ = tuple(sorted({**given, "h": given["h"] / 4}.items()))
        cures = {"half": half, "h' alone": alone_}
        jobs += [
            Job(setting, role, name, 20, p, seconds, commits, s) for role, p in cures.items() for s in some
        ]
        control = tuple(sorted({**without_pairs(given), "initial_scale": NOTHING}.items()))
        jobs += [Job(setting, "no pairs", name, W, control, seconds, commits, some[0]) for W in (1, 10)]
    curves = context.jobs("Figs. 5 and S1", measure, jobs)
    curves += alone.jobs("Figs. 5 and S1, real runs", measure_real, real)
    blank = {"engine": None, "because": None, "load": None}
    curves = [{**blank, **row} for row in curves]
    used = [{"setting": "paper", "parameters": str(printed), "found by": "the paper's table"}]
    return {"timings": timings, "curves": curves, "reach": reach(curves), "parameters": used}


def draw(tables: Tables) -> dict[str, Any]:
    """Figs. 5 and S1 as the paper arranges them, then the speedups of all settings."""
    return {"fig5": _draw_paper(tables), "fig5_settings": _draw_settings(tables)}


def _draw_paper(tables: Tables) -> Any:
    """RMSE over time, speedup in time, and RMSE over iterations (S1), with the link that messages keep."""
    figure, axes = panels(1, 3, width=3.7, height=3.0)
    mine = where(tables["curves"], setting=BASE)
    lowest, first = np.inf, float(mine[0]["rmse"])
    for role, W, look, words in [
        *(("paper", W, look, f"W = {W}") for W, look in zip(WORKERS, VARIANTS, strict=True)),
        ("half", 20, {"color": "black", "marker": "", "linestyle": "-"}, "W = 20, half the step"),
    ]:
        rows = where(mine, role=role, workers=W)
        runs = [where(rows, seed=s) for s in distinct(rows, "seed")]
        shortest = min(len(run) for run in runs)
        values = np.array([column(run[:shortest], "rmse") for run in runs])
        values = np.where(np.isfinite(values), values, 1e30)
        middle, (low, high) = np.median(values, axis=0), spread(values)
        lowest = min(lowest, float(middle.min()))
        for axis, x in ((axes[0][0], "time"), (axes[0][2], "commit")):
            along = np.median([column(run[:shortest], x) for run in runs], axis=0)
            axis.plot(along[1:], middle[1:], label=words, **{**look, "markevery": max(1, shortest // 8)})
            axis.fill_between(along[1:], low[1:], high[1:], color=look["color"], alpha=0.12, linewidth=0)
    limits = (lowest - 0.05 * (first - lowest), first + 0.05 * (first - lowest))
    axes[0][0].set(xlabel="time (s, simulated)", ylabel="RMSE (stars)", ylim=limits, xscale="log")
    axes[0][2].set(xlabel="iterations (Fig. S1)", ylabel="RMSE (stars)", ylim=limits)
    axes[0][0].set_title(f"{label(mine[0]['ratings'])}, {SETTINGS[BASE].short}", fontsize=8)
    axis = axes[0][1]
    _speedup(axis, tables, BASE, VARIANTS[3], "time", "in time")
    _speedup(axis, tables, BASE, CONTROLS[1], "per worker", "in iterations per worker")
    _linear(axis, tables)
    axis.legend(fontsize=7)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=7, fontsize=7)
    return figure


def _draw_settings(tables: Tables) -> Any:
    """The speedup in time and in iterations per worker, for every setting."""
    figure, axes = panels(1, 2, width=4.4, height=3.2)
    there = [s for s in SETTINGS if where(tables["reach"], setting=s)]
    shown = [s for s in there if not was_busy(where(tables["reach"], setting=s))]
    for axis, what, words in zip(
        axes[0], ("time", "per worker"), ("time", "iterations per worker"), strict=True
    ):
        for k, setting in enumerate(shown):
            _speedup(axis, tables, setting, VARIANTS[k % len(VARIANTS)], what, SETTINGS[setting].short)
        _linear(axis, tables)
        axis.set_title(f"speedup in {words}")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7)
    return figure


def _speedup(axis: Any, tables: Tables, setting: str, look: dict[str, Any], what: str, words: str) -> None:
    found = speedups(tables, setting, what)
    axis.plot(list(found), list(found.values()), label=words, **look)


def _linear(axis: Any, tables: Tables) -> None:
    axis.plot(WORKERS, WORKERS, color="black", linestyle=":", linewidth=0.8, label="linear")
    axis.set(xlabel="workers W", ylabel=f"speedup to RMSE {steady_words(tables)}", xscale="log", yscale="log")
    axis.set_xticks(WORKERS, [f"{w:g}" for w in WORKERS])
    axis.minorticks_off()
    few_decades(axis)


EXPERIMENT = Experiment(
    "fig5",
    "Matrix factorization: speedup and its limit (also Fig. S1)",
    "as-L-BFGS on the 1M set, the paper's parameters; medians over the seeds. Numbers are real; the time "
    "axis of the first figure is that of a simulated cluster: steps and commits as measured on this machine "
    "by processor time, a link of 10 Gbit/s at the master that each message keeps.",
    compute,
    draw,
    outcomes,
    quick="800 commits, 5 seeds (2 off the base case), real runs of W = 1, 2",
    full="2000 commits, 5 seeds, real runs of W = 1, 2, and stretched of W = 1, 10, 20",
    minutes=(1.9, 12.0),
)
