"""Figures 5 and S1: as-L-BFGS on MovieLens 1M for W = 1 ... 20: speedup, instability, and its cure.

Simulated with and without a link that messages keep, with workers alike and uneven, from both starts; then
real runs: one and two workers that nothing slows, and (full size) up to 20 whose computations are stretched
so that they fit on the processors there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from asyncqn import Run, Simulator
from asyncqn.lab import accepted_share
from asyncqn.types import Request
from asyncqn_paper.controls import without_pairs
from asyncqn_paper.drawing import CONTROLS, VARIANTS, few_decades, panels, spread
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.figures.fig4 import NOTHING, TimingJob, timing
from asyncqn_paper.figures.fig5_claims import BASE, SETTINGS, WORKERS, outcomes, reach, speedups
from asyncqn_paper.movielens import Timing, label, measured_cluster, model, parameters, source, start
from asyncqn_paper.real_runs import RealRun, processors_in_use, run_real, was_busy
from asyncqn_paper.records import Record, along, column, distinct, where
from asyncqn_paper.settings import Given, algorithm, given

EVERY = 20
"""Commits from one row of metrics to the next."""
MANY_SEEDS = (BASE, "uneven")
"""Settings with all seeds in the quick size too: with uneven workers two runs at W = 20 may disagree."""
STRETCH = 40.0
"""How many times as long everything lasts in a stretched run: 20 workers then need half a processor."""


@dataclass(frozen=True)
class Job:
    """Runs with W workers, simulated or real: one of each seed."""

    setting: str
    name: str
    timing: Timing
    role: str
    workers: int
    parameters: Given
    commits: int
    seeds: tuple[int, ...]

    def records(self, run: Run, **more: Any) -> list[Record]:
        """The metrics along one of the runs."""
        of_method = dict(self.parameters)
        shared = {"setting": self.setting, "role": self.role, "ratings": self.name, "workers": self.workers}
        shared |= {"h": of_method["h"], "gamma": of_method["gamma"], **more}
        shared |= {"status": run.status, "pairs": accepted_share(run)}
        return [{**shared, **row} for row in along(run, "rmse", "grad_norm")]


def measure(job: Job) -> list[Record]:
    """The metrics along simulated runs."""
    problem, chosen = model(job.name), SETTINGS[job.setting]
    method = algorithm("as-lbfgs", job.parameters)
    cluster = measured_cluster(job.timing, job.workers, link=chosen.link, uneven=chosen.uneven)
    found = []
    for seed in job.seeds:
        theta0 = start(problem, chosen.start, seed)
        request = Request(problem, method, theta0=theta0, commits=job.commits, seed=seed, evaluate=EVERY)
        found += job.records(Simulator(cluster).minimize(request), seed=seed)
    return found


def measure_real(job: Job) -> list[Record]:
    """The metrics along real runs, and what else the machine was doing before them."""
    chosen = SETTINGS[job.setting]
    slowly: dict[str, Any] = {}
    if chosen.stretched:
        slowly = {"stretch": measured_cluster(job.timing, job.workers, link=False), "time_unit": STRETCH}
    first = (job.name, "as-lbfgs", job.parameters, job.workers, job.commits)
    jobs = [RealRun(*first, seed, EVERY, chosen.start, **slowly) for seed in job.seeds]
    load = processors_in_use()
    real = run_real(jobs)
    on = {"engine": real.engine, "because": real.because, "load": load}
    runs = zip(job.seeds, real.runs, strict=True)
    return [row for seed, run in runs for row in job.records(run, seed=seed, **on)]


def compute(context: Context) -> Tables:
    """Tables `timings`, `curves` (simulated and real), `reach` and `parameters`."""
    name = source("1m")
    alone = context.alone
    timings = alone.jobs("Fig. 5, timings", timing, [TimingJob(name, "1m", "as-lbfgs")])
    seconds = Timing(timings[0]["worker"], timings[0]["master"], timings[0]["message"])
    printed = parameters("1m", model(name).n_data)["as-lbfgs"]
    commits, seeds = 2000 if context.full else 800, range(context.seed, context.seed + 5)
    jobs, real = [], []
    for setting, chosen in SETTINGS.items():
        own = {**printed, **chosen.changes}
        some = tuple(seeds if setting in MANY_SEEDS or context.full else seeds[:2])
        job = partial(Job, setting, name, seconds)
        if chosen.workers:
            if chosen.stretched <= context.full:
                real += [job("paper", W, given(own), commits // 2, some[:3]) for W in chosen.workers]
            continue
        # What the paper calls h is the step of the SDE: half of it is h'/4 and gamma'/2.
        quarter = own["h"] / 4
        control = given(without_pairs(own), initial_scale=NOTHING)
        tried = [
            *(("paper", W, given(own), some) for W in WORKERS),
            ("half", 20, given(own, h=quarter, gamma=own["gamma"] / 2), some),
            ("h' alone", 20, given(own, h=quarter), some),
            *(("no pairs", W, control, some[:1]) for W in (1, 10)),
        ]
        jobs += [job(role, W, of, commits, (seed,)) for role, W, of, each in tried for seed in each]
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
    target = where(tables["reach"], setting=BASE)[0]["target"]
    axis.plot(WORKERS, WORKERS, color="black", linestyle=":", linewidth=0.8, label="linear")
    axis.set(xlabel="workers W", ylabel=f"speedup to RMSE {target:g}", xscale="log", yscale="log")
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
    quick="800 commits, 5 seeds (2 off the base case and the uneven workers), real runs of W = 1, 2",
    full="2000 commits, 5 seeds, real runs of W = 1, 2, and stretched of W = 1, 10, 20",
    minutes=(2.1, 12.0),
)
