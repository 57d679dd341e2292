"""Figure 4: RMSE and gradient norm over time on MovieLens, W = 10, with the paper's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.engines.simulator import Simulator
from asyncqn.experiments.drawing import ALGORITHM_LOOKS, panels
from asyncqn.experiments.experiment import UNTESTABLE, Claim, Context, Experiment, Tables, judge
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
from asyncqn.experiments.records import Record, column, distinct, where
from asyncqn.experiments.settings import NAMES, algorithm
from asyncqn.minimize import starting_point

WORKERS = 10


@dataclass(frozen=True)
class TimingJob:
    """Measure an algorithm's steps on a set of ratings."""

    name: str
    size: str
    kind: str


@dataclass(frozen=True)
class Job:
    """One run of `computations` worker steps, on the measured times."""

    name: str
    kind: str
    parameters: tuple[tuple[str, Any], ...]
    timing: tuple[float, float, float]
    computations: int
    seed: int


def timing(job: TimingJob) -> list[Record]:
    """Seconds per step, with the parameters they belong to."""
    given = parameters(job.size, potential(job.name).n_data)[job.kind]
    seconds = measure_timing(job.name, job.kind, given)
    return [{"ratings": job.name, "size": job.size, "algorithm": job.kind, **seconds._asdict()}]


def measure(job: Job) -> list[Record]:
    """The metrics along one run; a round of mb-L-BFGS takes WORKERS computations."""
    model, method = potential(job.name), algorithm(job.kind, dict(job.parameters))
    commits = job.computations // (WORKERS if job.kind == "mb-lbfgs" else 1)
    run = Simulator(measured_cluster(Timing(*job.timing), WORKERS)).minimize(
        model, method, theta0=starting_point(model, None, job.seed), commits=commits, seed=job.seed,
        evaluate=max(1, commits // 40), callback=None,
    )  # fmt: skip
    rows = [run.metrics.row(i) for i in range(run.metrics.rows)]
    return [
        {
            "ratings": job.name, "algorithm": job.kind, "status": run.status, "commit": int(row["commit"]),
            "time": row["time"], "rmse": _number(row["rmse"]), "grad_norm": _number(row["grad_norm"]),
        }
        for row in rows
    ]  # fmt: skip


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def compute(context: Context) -> Tables:
    """Tables `timings`, `curves` and `parameters`."""
    sizes = ("1m", "10m", "20m") if context.full else ("1m",)
    names = {size: source(size) for size in sizes}
    # One at a time: a neighbour on the other core would be measured too.
    alone = Context(context.folder, context.full, 1, context.seed, context.progress)
    timings = alone.jobs(
        "Fig. 4, timings", timing, [TimingJob(names[s], s, kind) for s in sizes for kind in NAMES]
    )
    jobs, used = [], []
    for row in timings:
        given = parameters(row["size"], potential(row["ratings"]).n_data)[row["algorithm"]]
        seconds = (row["worker"], row["master"], row["message"])
        given = with_timeout(given, algorithm(row["algorithm"], given), Timing(*seconds))
        steps = 4000 if context.full else 1500
        plain = tuple(sorted(given.items()))
        jobs.append(Job(row["ratings"], row["algorithm"], plain, seconds, steps, context.seed))
        found = "the paper's table; H + 3 I for both L-BFGS methods; timeout from the measured times"
        what = {"ratings": label(row["ratings"]), "algorithm": row["algorithm"]}
        used.append({**what, "parameters": str(given), "found by": found})
    return {"timings": timings, "curves": context.jobs("Fig. 4, runs", measure, jobs), "parameters": used}


def draw(tables: Tables) -> dict[str, Any]:
    """RMSE above, gradient norm below, one column per set."""
    names = distinct(tables["curves"], "ratings")
    figure, axes = panels(2, len(names), width=4.2, height=2.4)
    for j, name in enumerate(names):
        for kind, words in NAMES.items():
            rows = where(tables["curves"], ratings=name, algorithm=kind)
            for i, what in enumerate(("rmse", "grad_norm")):
                look = {**ALGORITHM_LOOKS[kind], "markevery": 5}
                axes[i][j].plot(column(rows, "time"), column(rows, what), label=words, **look)
        axes[0][j].set(title=f"{label(name)}, W = {WORKERS}", ylabel="RMSE (stars)")
        start = float(column(where(tables["curves"], ratings=name), "rmse")[0])
        if axes[0][j].get_ylim()[1] > 1.5 * start:  # a run that blows up must not hide the others
            axes[0][j].set_ylim(0.7 * start, 1.2 * start)
        axes[1][j].set(xlabel="time (s, simulated from measured steps)", ylabel="norm of ∇U", yscale="log")
        axes[0][j].legend()
    return {"fig4": figure}


def claims(tables: Tables) -> list[Claim]:
    """Four statements for every set of ratings."""
    found = []
    for name in distinct(tables["curves"], "ratings"):
        words = f"{label(name)}, the paper's parameters, W = {WORKERS}, time from measured steps"
        curves = {kind: where(tables["curves"], ratings=name, algorithm=kind) for kind in NAMES}
        end = min(column(rows, "time")[-1] for rows in curves.values())
        final = {
            kind: float(np.interp(end, column(rows, "time"), column(rows, "rmse")))
            for kind, rows in curves.items()
        }
        sgd, mb, as_ = (final[kind] for kind in ("async-sgd", "mb-lbfgs", "as-lbfgs"))
        at = f"RMSE after {end:.2f} s: as-L-BFGS {as_:.3f}, mb-L-BFGS {mb:.3f}, a-SGD {sgd:.3f}"
        found.append(
            Claim("as-L-BFGS is clearly faster than mb-L-BFGS", words, judge(as_ < mb - 0.005, as_ < mb), at)
        )
        tail = column(curves["mb-lbfgs"], "rmse")
        falling = float(tail[-1 - len(tail) // 5] - tail[-1])
        settled = f"{at}; mb-L-BFGS still fell by {falling:.3f} in the last fifth of its run"
        poorer = mb > max(as_, sgd)
        verdict = judge(poorer and falling < 0.005, mb > min(as_, sgd))
        found.append(Claim("mb-L-BFGS ends with a poorer RMSE than both", words, verdict, settled))
        commits = min(column(curves[kind], "commit")[-1] for kind in ("async-sgd", "as-lbfgs"))
        even = {
            kind: float(np.interp(commits, column(curves[kind], "commit"), column(curves[kind], "rmse")))
            for kind in ("async-sgd", "as-lbfgs")
        }
        ahead = even["async-sgd"] - even["as-lbfgs"]
        because = (
            f"{at}; after {commits:.0f} iterations {even['as-lbfgs']:.3f} against {even['async-sgd']:.3f}"
        )
        found.append(
            Claim("as-L-BFGS gains slightly on a-SGD", words, judge(0 < sgd - as_ < 0.1, ahead > 0), because)
        )
        rough = {kind: _roughness(curves[kind]) for kind in ("async-sgd", "as-lbfgs")}
        shares = f"as-L-BFGS {rough['as-lbfgs']:.2f}, a-SGD {rough['async-sgd']:.2f}"
        because = f"share of the curve's steps on which the gradient norm rises: {shares}"
        more = rough["as-lbfgs"] > rough["async-sgd"]
        found.append(Claim("as-L-BFGS fluctuates more than a-SGD", words, judge(more), because))
    missing = [
        s
        for s in ("1m", "10m", "20m")
        if not any(n.endswith(f"-{s}") for n in distinct(tables["curves"], "ratings"))
    ]
    if missing:
        text = "the same holds on the larger sets"
        found.append(
            Claim(text, ", ".join(missing), UNTESTABLE, "run with --full, which takes the larger sets too")
        )
    return found


def _roughness(rows: list[Record]) -> float:
    norms = column(rows, "grad_norm")
    return float(np.mean(np.diff(norms) > 0))


EXPERIMENT = Experiment(
    "fig4",
    "Matrix factorization: error over time",
    "The numbers are real; the time axis is that of a simulated cluster whose step and commit times were "
    "measured on this machine, with 10 Gbit/s messages and a spread of 30 % (our own choices).",
    compute,
    draw,
    claims,
)
