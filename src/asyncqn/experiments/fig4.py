"""Figure 4: RMSE and gradient norm over time on MovieLens, W = 10, the paper's parameters and tuned ones.

All runs of a set last the same simulated time.  The tuned points were found on the 1M set; on others
they stand for the same shares of that set's largest curvature and of its measured steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.engines.simulator import Simulator
from asyncqn.experiments.drawing import ALGORITHM_LOOKS, panels
from asyncqn.experiments.experiment import UNTESTABLE, Claim, Context, Experiment, Tables, judge
from asyncqn.experiments.measure import commits_within
from asyncqn.experiments.movielens import (
    Timing,
    label,
    measure_timing,
    measured_cluster,
    parameters,
    potential,
    source,
    with_timeout,
)
from asyncqn.experiments.questions import carried
from asyncqn.experiments.records import Record, column, distinct, where
from asyncqn.experiments.settings import NAMES, algorithm
from asyncqn.minimize import starting_point
from asyncqn.types import Progress

WORKERS = 10
POINTS = 60
"""Rows of metrics along a curve, about."""
SETTINGS = {"paper": "the paper's parameters", "tuned": "tuned"}
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
        model, method, theta0=starting_point(model, None, job.seed), seed=job.seed, callback=stop,
        commits=commits_within(method, workers, job.duration), evaluate=max(1, int(expected / POINTS)),
    )  # fmt: skip
    rows = [run.metrics.row(i) for i in range(run.metrics.rows)]
    return [
        {
            "setting": job.setting, "ratings": job.name, "algorithm": job.kind,
            "diverged": run.status == "diverged", "commit": int(row["commit"]), "time": row["time"],
            "rmse": _number(row["rmse"]), "grad_norm": _number(row["grad_norm"]),
        }
        for row in rows
    ]  # fmt: skip


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def compute(context: Context) -> Tables:
    """Tables `timings`, `curves` and `parameters`; runs last as long as `steps` of a-SGD take."""
    steps = {"1m": 8000, "10m": 1500, "20m": 1500} if context.full else {"1m": 3000}
    names = {size: source(size) for size in steps}
    # One at a time: a neighbour on the other core would be measured too.
    alone = Context(context.folder, context.full, 1, context.seed, context.progress)
    timings = alone.jobs(
        "Fig. 4, timings", timing, [TimingJob(names[s], s, kind) for s in steps for kind in NAMES]
    )
    jobs, used = [], []
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
            tuned_on = study["question"]["ratings"]
            how = study["command"]
            if names[size] != tuned_on:
                how += f"; not tuned on this set: the point of {tuned_on} in units of this set's curvature"
            for setting, values, origin in (("paper", printed, found), ("tuned", given, how)):
                plain = tuple(sorted(values.items()))
                jobs.append(Job(setting, names[size], kind, plain, times, duration, context.seed))
                what = {"setting": setting, "ratings": label(names[size]), "algorithm": kind}
                used.append({**what, "parameters": str(values), "found by": origin})
    return {"timings": timings, "curves": context.jobs("Fig. 4, runs", measure, jobs), "parameters": used}


def draw(tables: Tables) -> dict[str, Any]:
    """A row per set: RMSE and gradient norm, with the paper's parameters and with tuned ones."""
    names = distinct(tables["curves"], "ratings")
    figure, axes = panels(len(names), 4, width=3.2, height=2.7)
    for row, name in zip(axes, names, strict=True):
        start = float(column(where(tables["curves"], ratings=name), "rmse")[0])
        lowest = start
        for j, (setting, words) in enumerate(SETTINGS.items()):
            for kind, title in NAMES.items():
                rows = where(tables["curves"], setting=setting, ratings=name, algorithm=kind)
                look = {**ALGORITHM_LOOKS[kind], "markevery": 8}
                rmse = column(rows, "rmse")
                # A run that blows up leaves the panel; it must not hide the others.
                row[j].plot(column(rows, "time"), np.minimum(rmse, 9 * start), label=title, **look)
                row[2 + j].plot(column(rows, "time"), column(rows, "grad_norm"), label=title, **look)
                lowest = min(lowest, float(np.nanmin(rmse)))
            row[j].set(title=f"{label(name)},\n{words}", ylabel="RMSE (stars)")
            row[2 + j].set(title=f"{label(name)},\n{words}", ylabel="norm of ∇U", yscale="log")
        for axis in row[:2]:
            axis.set_ylim(lowest - 0.05 * (start - lowest), start + 0.15 * (start - lowest))
        norms = column(where(tables["curves"], ratings=name), "grad_norm")
        for axis in row[2:]:
            axis.set_ylim(0.7 * float(np.nanmin(norms)), 3.0 * float(norms[0]))
    for axis in axes[-1]:
        axis.set_xlabel("time (s, simulated\nfrom measured steps)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return {"fig4": figure}


def claims(tables: Tables) -> list[Claim]:
    """Four statements for every set of ratings and setting."""
    found = []
    for name in distinct(tables["curves"], "ratings"):
        for setting, words in SETTINGS.items():
            rows = where(tables["curves"], ratings=name, setting=setting)
            found += _four(rows, f"{label(name)}, {words}, W = {WORKERS}, time from measured steps")
    names = distinct(tables["curves"], "ratings")
    missing = ", ".join(s for s in ("1m", "10m", "20m") if not any(n.endswith(f"-{s}") for n in names))
    if missing:
        because = "run with --full, which takes the larger sets too"
        found.append(Claim("the same holds on the larger sets", missing, UNTESTABLE, because))
    return found


def _four(rows: list[Record], words: str) -> list[Claim]:
    curves = {kind: where(rows, algorithm=kind) for kind in NAMES}
    end = max(column(curve, "time")[-1] for curve in curves.values())
    final = {kind: _final(curve) for kind, curve in curves.items()}
    sgd, mb, as_ = (final[kind] for kind in ("async-sgd", "mb-lbfgs", "as-lbfgs"))
    at = f"RMSE after {end:.2f} s: " + ", ".join(
        f"{NAMES[kind]} {final[kind]:.3f}" if math.isfinite(final[kind]) else f"{NAMES[kind]} diverged"
        for kind in ("as-lbfgs", "mb-lbfgs", "async-sgd")
    )
    text = "as-L-BFGS is clearly faster than mb-L-BFGS"
    if math.isfinite(mb):
        share = _first(curves["as-lbfgs"], mb) / end
        sooner = f"as-L-BFGS gets to mb-L-BFGS's last RMSE in {share:.2f} of its time"
        because = f"{at}; {sooner if math.isfinite(share) else 'it never gets to that of mb-L-BFGS'}"
        first = Claim(text, words, judge(share < 0.67 and as_ < mb, as_ < mb), because)
    else:
        first = Claim(text, words, UNTESTABLE, at)
    tail = column(curves["mb-lbfgs"], "rmse")
    falling = float(tail[-1 - len(tail) // 5] - tail[-1])
    settled = f"{at}; mb-L-BFGS still fell by {falling:.3f} in the last fifth of its run"
    poorer = judge(mb > max(as_, sgd) and falling < 0.005, mb > min(as_, sgd))
    commits = min(column(curves[kind], "commit")[-1] for kind in ("async-sgd", "as-lbfgs"))
    even = {
        kind: float(np.interp(commits, column(curves[kind], "commit"), column(curves[kind], "rmse")))
        for kind in ("async-sgd", "as-lbfgs")
    }
    ahead = even["async-sgd"] - even["as-lbfgs"]
    equal = f"{at}; after {commits:.0f} iterations {even['as-lbfgs']:.3f} against {even['async-sgd']:.3f}"
    rough = {kind: _roughness(curves[kind]) for kind in ("async-sgd", "as-lbfgs")}
    jitter = ", ".join(f"{NAMES[kind]} {100 * value:.2f} %" for kind, value in rough.items())
    more = rough["as-lbfgs"] / rough["async-sgd"]
    return [
        first,
        Claim("mb-L-BFGS ends with a poorer RMSE than both", words, poorer, settled),
        Claim("as-L-BFGS gains slightly on a-SGD", words, judge(0 < sgd - as_ < 0.1, ahead > 0), equal),
        Claim("as-L-BFGS fluctuates more than a-SGD", words, judge(more > 1.2, more > 1.0),
              f"jitter of the gradient norm around its trend in the second half: {jitter}"),
    ]  # fmt: skip


def _final(curve: list[Record]) -> float:
    """The last RMSE; infinite for a run that diverged."""
    last = curve[-1]["rmse"]
    return math.inf if curve[-1]["diverged"] or last is None else float(last)


def _first(curve: list[Record], level: float) -> float:
    """When the RMSE first was at most `level`."""
    hit = np.flatnonzero(column(curve, "rmse") <= level)
    return float(curve[int(hit[0])]["time"]) if hit.size else math.inf


def _roughness(rows: list[Record]) -> float:
    """Relative jitter of the gradient norm: third differences leave out a smooth trend, and the factor
    sqrt(20) is what they make of independent noise."""
    norms = np.log(column(rows, "grad_norm"))[len(rows) // 2 :]
    return float(np.sqrt(np.mean(np.diff(norms, 3) ** 2) / 20.0)) if norms.size > 3 else math.nan


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
