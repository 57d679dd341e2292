"""Figure 4: RMSE and gradient norm over time on MovieLens, W = 10, the paper's parameters and tuned ones.

All runs of a set last the same simulated time.  The tuned points were found on the 1M set; on others
they stand for the same shares of that set's largest curvature and of its measured steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.core.request import Request
from asyncqn.engines.simulator import Simulator
from asyncqn.minimize import starting_point
from asyncqn.paper.controls import without_pairs
from asyncqn.paper.drawing import ALGORITHM_LOOKS, few_decades, panels
from asyncqn.paper.experiment import Context, Experiment, Tables
from asyncqn.paper.figures.fig4_claims import SETTINGS, WORKERS, claims, words_of
from asyncqn.paper.movielens import (
    Timing,
    label,
    measure_timing,
    measured_cluster,
    parameters,
    potential,
    source,
    with_timeout,
)
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.paper.settings import NAMES, algorithm
from asyncqn.paper.studies import carried
from asyncqn.tuning.measure import accepted_share, commits_within
from asyncqn.types import Progress

POINTS = 60
"""Rows of metrics along a curve, about."""
STUDY = "{kind}-matrix-factorization"


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
    name: str
    kind: str
    parameters: tuple[tuple[str, Any], ...]
    timing: Timing
    duration: float
    seed: int


def timing(job: TimingJob) -> list[Record]:
    """Seconds per step, with the parameters they belong to."""
    given = parameters(job.size, potential(job.name).n_data)[job.kind]
    seconds = measure_timing(job.name, job.kind, given)
    return [{"ratings": job.name, "size": job.size, "algorithm": job.kind, **seconds._asdict()}]


def measure(job: Job) -> list[Record]:
    """The metrics along one run."""
    model, method = potential(job.name), algorithm(job.kind, dict(job.parameters))
    workers = measured_cluster(job.timing, WORKERS)
    at_once = 1 if job.kind == "mb-lbfgs" else WORKERS
    expected = at_once * job.duration / sum(job.timing)

    def stop(progress: Progress) -> None:
        if progress.time > job.duration:
            raise StopIteration

    run = Simulator(workers).minimize(
        Request(
            model,
            method,
            theta0=starting_point(model, None, job.seed),
            seed=job.seed,
            callback=stop,
            commits=commits_within(method, workers, job.duration),
            evaluate=max(1, int(expected / POINTS)),
        )
    )
    rows = [run.metrics.row(i) for i in range(run.metrics.rows)]
    return [
        {
            "setting": job.setting,
            "ratings": job.name,
            "algorithm": job.kind,
            "diverged": run.status == "diverged",
            "pairs": accepted_share(run),
            "commit": int(row["commit"]),
            "time": row["time"],
            "rmse": _number(row["rmse"]),
            "grad_norm": _number(row["grad_norm"]),
        }
        for row in rows
    ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def compute(context: Context) -> Tables:
    """Tables `timings`, `curves`, `controls` (as-L-BFGS with M = 0) and `parameters`.

    Runs last as long as `steps` of a-SGD take.
    """
    steps = {"1m": 8000, "10m": 1500, "20m": 1500} if context.full else {"1m": 3000}
    names = {size: source(size) for size in steps}
    # One at a time: a neighbour on the other core would be measured too.
    alone = Context(context.folder, context.full, 1, context.seed, context.progress)
    timings = alone.jobs(
        "Fig. 4, timings", timing, [TimingJob(names[s], s, kind) for s in steps for kind in NAMES]
    )
    jobs, controls, used = [], [], []
    for size in steps:
        rows = where(timings, size=size)
        seconds = {r["algorithm"]: Timing(r["worker"], r["master"], r["message"]) for r in rows}
        duration = steps[size] / WORKERS * sum(seconds["async-sgd"])
        for kind, times in seconds.items():
            printed = parameters(size, potential(names[size]).n_data)[kind]
            printed = with_timeout(printed, algorithm(kind, printed), times)
            found = "the paper's table"
            if "rho" in printed:
                found += "; H + 3 I for both L-BFGS methods"
            if "timeout" in printed:
                found += "; timeout from the measured times"
            study = context.tuned(STUDY.format(kind=kind))
            given = carried(study, names[size], times)
            tuned_on = label(study["problem"]["ratings"])
            how = study["command"]
            if label(names[size]) != tuned_on:
                how += f"; not tuned on this set: the point of {tuned_on} in units of this set's curvature"
            for setting, values, origin in (("paper", printed, found), ("tuned", given, how)):
                plain = tuple(sorted(values.items()))
                jobs.append(Job(setting, names[size], kind, plain, times, duration, context.seed))
                if kind == "as-lbfgs":
                    plain = tuple(sorted(without_pairs(values).items()))
                    controls.append(Job(setting, names[size], kind, plain, times, duration, context.seed))
                what: Record = {"setting": setting, "ratings": label(names[size]), "algorithm": kind}
                what["tuned on"] = tuned_on if setting == "tuned" else None
                used.append({**what, "parameters": str(values), "found by": origin})
    return {
        "timings": timings,
        "curves": context.jobs("Fig. 4, runs", measure, jobs),
        "controls": context.jobs("Fig. 4, as-L-BFGS without pairs", measure, controls),
        "parameters": used,
    }


def draw(tables: Tables) -> dict[str, Any]:
    """A row per set: RMSE and gradient norm, with the paper's parameters and with tuned ones."""
    names = distinct(tables["curves"], "ratings")
    figure, axes = panels(len(names), 4, width=3.2, height=2.7)
    for row, name in zip(axes, names, strict=True):
        start = float(column(where(tables["curves"], ratings=name), "rmse")[0])
        lowest = start
        for j, setting in enumerate(SETTINGS):
            for kind, title in NAMES.items():
                rows = where(tables["curves"], setting=setting, ratings=name, algorithm=kind)
                look = {**ALGORITHM_LOOKS[kind], "markevery": 8}
                rmse = column(rows, "rmse")
                # A run that blows up leaves the panel; it must not hide the others.
                row[j].plot(column(rows, "time"), np.minimum(rmse, 9 * start), label=title, **look)
                row[2 + j].plot(column(rows, "time"), column(rows, "grad_norm"), label=title, **look)
                lowest = min(lowest, float(np.nanmin(rmse)))
            words = words_of(tables, setting, name)
            row[j].set(title=f"{label(name)},\n{words}", ylabel="RMSE (stars)")
            row[2 + j].set(title=f"{label(name)},\n{words}", ylabel="norm of ∇U", yscale="log")
        for axis in row[:2]:
            axis.set_ylim(lowest - 0.05 * (start - lowest), start + 0.15 * (start - lowest))
        norms = column(where(tables["curves"], ratings=name), "grad_norm")
        for axis in row[2:]:
            axis.set_ylim(0.7 * float(np.nanmin(norms)), 2.0 * float(norms[0]))
            few_decades(axis)
    for axis in axes[-1]:
        axis.set_xlabel("time (s, simulated\nfrom measured steps)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return {"fig4": figure}


EXPERIMENT = Experiment(
    "fig4",
    "Matrix factorization: error over time",
    "The numbers are real; the time axis is that of a simulated cluster whose step and commit times were "
    "measured on this machine, with 10 Gbit/s messages and a spread of 30 % (our own choices).",
    compute,
    draw,
    claims,
    quick="the 1M set, as long as 3000 steps of a-SGD take",
    full="the 1M, 10M and 20M sets, as long as 8000, 1500 and 1500 steps of a-SGD take",
)
