"""Figure 4: RMSE and gradient norm over time on MovieLens, W = 10, three algorithms.

The paper's parameters, from both starts; then, one at a time, what it leaves open: the cautious constant, H0,
whether messages keep the master's link; and tuned parameters.  All runs of a set last the same simulated
time.  The sets of the 10M and 20M shapes are synthetic, and no claim is judged on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.core.request import Request
from asyncqn.core.run import Run
from asyncqn.engines.simulator import Simulator
from asyncqn.paper.bands import spread
from asyncqn.paper.controls import without_pairs
from asyncqn.paper.drawing import ALGORITHM_STYLES, few_decades, panels
from asyncqn.paper.experiment import Context, Experiment, Tables
from asyncqn.paper.figures.fig4_claims import (
    BASE,
    CONTROL,
    LENGTHS,
    REAL,
    SETTINGS,
    WORKERS,
    break_even,
    headline,
    longest,
    outcomes,
)
from asyncqn.paper.movielens import (
    PRINTED_TIMEOUT,
    STARTS,
    Timing,
    label,
    measure_timing,
    measured_cluster,
    parameters,
    potential,
    slowed,
    source,
    start,
    with_timeout,
)
from asyncqn.paper.real_runs import RealRun, run_real
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.paper.settings import NAMES, algorithm
from asyncqn.paper.studies import carried
from asyncqn.tuning.measure import accepted_share, commits_within
from asyncqn.types import Progress

POINTS = 40
"""Rows of metrics along a curve, about."""
SETTLING = ("epsilon", "fixed")
"""Settings that are also run until mb-L-BFGS has settled: what bears on where it ends."""
STUDY = "{kind}-matrix-factorization"
NOTHING = 1e-9
"""c of H0 = c I where rho I shall act alone."""


@dataclass(frozen=True)
class TimingJob:
    """Measure an algorithm's steps on a set of ratings."""

    name: str
    size: str
    kind: str


@dataclass(frozen=True)
class Job:
    """One run for some simulated time, on the measured times."""

    setting: str
    start: str
    name: str
    kind: str
    parameters: tuple[tuple[str, Any], ...]
    timing: Timing
    link: bool
    steps: int
    """Steps of a-SGD in whose time the run ends, each lasting `step` seconds."""
    step: float
    seed: int

    @property
    def duration(self) -> float:
        return self.steps * self.step


@dataclass(frozen=True)
class RealJob:
    """All algorithms on W real workers, not slowed."""

    name: str
    workers: int
    commits: int
    start: str
    seeds: tuple[int, ...]


def timing(job: TimingJob) -> list[Record]:
    """Seconds per step, with the parameters they belong to."""
    given = parameters(job.size, potential(job.name).n_data)[job.kind]
    seconds = measure_timing(job.name, job.kind, given)
    return [{"ratings": job.name, "size": job.size, "algorithm": job.kind, **seconds._asdict()}]


def measure(job: Job) -> list[Record]:
    """The metrics along one run."""
    model, method = potential(job.name), algorithm(job.kind, dict(job.parameters))
    workers = measured_cluster(job.timing, WORKERS, kind=job.kind, link=job.link)

    def stop(progress: Progress) -> None:
        if progress.time > job.duration:
            raise StopIteration

    pace = _interval(job.timing, job.kind, job.link)
    run = Simulator(workers).minimize(
        Request(
            model,
            method,
            theta0=start(model, job.start, job.seed),
            seed=job.seed,
            callback=stop,
            commits=commits_within(method, workers, job.duration),
            evaluate=max(1, int(job.duration / pace / POINTS)),
        )
    )
    shared = {"setting": job.setting, "start": job.start, "ratings": job.name, "algorithm": job.kind}
    return _records(run, {**shared, "steps": job.steps, "seed": job.seed})


def _interval(timing: Timing, kind: str, link: bool) -> float:
    """About the time from one commit to the next."""
    if kind == "mb-lbfgs":
        return timing.worker + timing.master + timing.message * (WORKERS if link else 1)
    return max(sum(timing) / WORKERS, timing.master, timing.message / 2.0 if link else 0.0)


def _records(run: Run, shared: Record) -> list[Record]:
    shared = {**shared, "diverged": run.status == "diverged", "pairs": accepted_share(run)}
    rows = [run.metrics.row(i) for i in range(run.metrics.rows)]
    return [
        {**shared, "commit": int(row["commit"]), "time": float(row["time"])}
        | {name: _number(row[name]) for name in ("rmse", "grad_norm")}
        for row in rows
    ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def measure_real(job: RealJob) -> list[Record]:
    """The metrics along real runs of the three algorithms with the paper's parameters."""
    given = parameters("1m", potential(job.name).n_data)
    rounds = {"async-sgd": job.commits, "as-lbfgs": job.commits, "mb-lbfgs": job.commits // job.workers}
    jobs = [
        RealRun(
            *(job.name, kind, tuple(sorted(given[kind].items())), job.workers, rounds[kind], seed),
            evaluate=max(1, rounds[kind] // POINTS),
            start=job.start,
        )
        for kind in NAMES
        for seed in job.seeds
    ]
    real = run_real(jobs)
    shared = {"setting": REAL, "start": job.start, "ratings": job.name, "workers": job.workers}
    shared |= {"engine": real.engine, "because": real.because}
    return [
        row
        for asked, run in zip(jobs, real.runs, strict=True)
        for row in _records(run, {**shared, "algorithm": asked.kind, "seed": asked.seed})
    ]


def compute(context: Context) -> Tables:
    """Tables `timings`, `curves` (with the control M = 0), `real` and `parameters`."""
    sizes = ("1m", "10m", "20m") if context.full else ("1m",)
    names = {size: source(size) for size in sizes}
    # One at a time: a neighbour on the other core would be measured too.
    alone = Context(context.folder, context.full, 1, context.seed, context.progress)
    timings = alone.jobs(
        "Fig. 4, timings", timing, [TimingJob(names[s], s, kind) for s in sizes for kind in NAMES]
    )
    jobs, used = [], []
    for size in sizes:
        rows = where(timings, size=size)
        times = {r["algorithm"]: Timing(r["worker"], r["master"], r["message"]) for r in rows}
        own, words = _jobs(context, size, names[size], times)
        jobs += own
        used += words
    seeds = tuple(range(context.seed, context.seed + (5 if context.full else 2)))
    real = [RealJob(names["1m"], W, 800 if context.full else 300, "mean", seeds) for W in (1, 2)]
    return {
        "timings": timings,
        "curves": context.jobs("Fig. 4, runs", measure, jobs),
        "real": alone.jobs("Fig. 4, real runs", measure_real, real),
        "parameters": used,
    }


def _jobs(context: Context, size: str, name: str, times: dict[str, Timing]) -> tuple[list[Job], list[Record]]:
    """The runs on one set, and the parameters they have: on the larger ones the paper's alone."""
    jobs, used = [], []
    slow = {kind: slowed(kind, seconds) for kind, seconds in times.items()}
    for kind, quick in times.items():
        printed = parameters(size, potential(name).n_data)[kind]
        printed = with_timeout(printed, algorithm(kind, printed), quick)
        for setting, chosen in SETTINGS.items():
            if setting != BASE and (size != "1m" or kind not in chosen.algorithms):
                continue
            values, origin = {**printed, **chosen.changes}, "the paper's table"
            if chosen.slow and "timeout" in values:
                values["timeout"] = PRINTED_TIMEOUT
            if setting == "tuned":
                study = context.tuned(STUDY.format(kind=kind))
                values, origin = carried(study, name, quick), study["command"]
            if setting == CONTROL:
                values = {**without_pairs(values), "initial_scale": NOTHING}
            seconds, of_sgd = (slow[kind], slow) if chosen.slow else (quick, times)
            step = _interval(of_sgd["async-sgd"], "async-sgd", True)
            plain = tuple(sorted(values.items()))
            jobs += [
                Job(setting, at, name, kind, plain, seconds, chosen.link, steps, step, context.seed + k)
                for steps, seeds in _lengths(context.full, size, setting).items()
                for at in STARTS
                for k in range(seeds)
            ]
            words = {"setting": chosen.words, "ratings": label(name), "algorithm": kind}
            used.append({**words, "parameters": str(values), "found by": origin})
    return jobs, used


def _lengths(full: bool, size: str, setting: str) -> dict[int, int]:
    """How long runs are, in steps of a-SGD, and how many seeds each length has."""
    short, middle, long = LENGTHS
    if size != "1m":
        return {short: 1}
    if not full:
        return dict.fromkeys((short, middle), 5 if setting == BASE else 2)
    longest_too = {long: 2} if setting in (BASE, CONTROL) else {long: 1} if setting in SETTLING else {}
    return {short: 5, middle: 5, **longest_too}


def draw(tables: Tables) -> dict[str, Any]:
    """The paper's arrangement (a row per set: RMSE, gradient norm) from either start; then ours."""
    found = {}
    for at, words in STARTS.items():
        every = where(tables["curves"], setting=BASE, start=at)
        names = distinct(every, "ratings")
        figure, axes = panels(len(names), 2, width=4.2, height=2.7)
        for pair, name in zip(axes, names, strict=True):
            for axis, what in zip(pair, ("rmse", "grad_norm"), strict=True):
                _curves(axis, _shown(where(every, ratings=name)), what)
                axis.set_title(f"{label(name)}, {words}", fontsize=8)
        _finish(figure, axes)
        found["fig4" if at == "prior" else f"fig4_{at}"] = figure
    found["fig4_settings"] = _draw_settings(tables)
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


def _curves(axis: Any, rows: list[Record], what: str) -> None:
    """Median over seeds, with a band, or each of fewer than three runs; what blows up leaves the panel."""
    levels = []
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
            words = f"{title}: {lost} of {len(runs)} runs diverge"
            axis.text(0.98, 0.97, words, transform=axis.transAxes, ha="right", va="top", fontsize=7)
    first = float(levels[0][0])
    lowest = min(float(values.min()) for values in levels)
    if what == "rmse":
        axis.set(
            ylabel="RMSE (stars)", ylim=(lowest - 0.05 * (first - lowest), first + 0.1 * (first - lowest))
        )
    else:
        axis.set(ylabel="norm of ∇U", yscale="log", ylim=(0.7 * lowest, 2.0 * first))
        few_decades(axis)


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
            mine = _with_base(tables["curves"], setting, at)
            _curves(axis, mine, "rmse")
            axis.set_title(f"{SETTINGS[setting].short},\n{words}", fontsize=8)
    _finish(figure, axes, "time (s)")
    return figure


def _draw_long(tables: Tables) -> Any:
    """The longest runs with the paper's parameters, on a logarithmic axis of time."""
    figure, axes = panels(1, len(STARTS), width=4.2, height=2.9)
    name = tables["curves"][0]["ratings"]
    for axis, (at, words) in zip(axes[0], STARTS.items(), strict=True):
        rows = longest(where(tables["curves"], setting=BASE, start=at, ratings=name))
        _curves(axis, rows, "rmse")
        start = min(row["time"] for row in rows if row["commit"] > 0)
        axis.set(title=f"{label(name)}, {words}", xscale="log", xlim=(start, None))
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


EXPERIMENT = Experiment(
    "fig4",
    "Matrix factorization: error over time",
    "Lines are medians over the seeds, bands go from the 10th to the 90th percentile. The numbers are real; "
    "the time axis is that of a simulated cluster of 10 workers: steps and commits as measured on this "
    "machine by processor time, a link of 10 Gbit/s at the master that each message keeps, a spread "
    "of 30 % (our own choices). Sets of the 10M and 20M shapes are synthetic and judge no claim.",
    compute,
    draw,
    outcomes,
    quick="the 1M set, as long as 600 and 4800 steps of a-SGD take, 5 seeds (2 off the base case)",
    full="the 1M set, as long as 600 and 4800 steps of a-SGD take (5 seeds) and 48,000 (2; 1); the shapes of "
    "10M and 20M for 600 steps",
    minutes=(2.5, 25.0),
    headline=headline,
)
