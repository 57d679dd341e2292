"""Figures 5 and S1: as-L-BFGS on MovieLens 1M for W = 1 ... 20: speedup, instability, and its cure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.algorithms.stability import delay_limit
from asyncqn.core.request import Request
from asyncqn.engines.simulator import Simulator
from asyncqn.minimize import starting_point
from asyncqn.paper.controls import accepted_words, without_pairs
from asyncqn.paper.drawing import LOOKS, few_decades, panels
from asyncqn.paper.experiment import Claim, Context, Experiment, Tables, verdict
from asyncqn.paper.figures.fig4 import TimingJob, timing
from asyncqn.paper.movielens import Timing, label, measured_cluster, parameters, potential, source
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.paper.settings import algorithm
from asyncqn.paper.studies import carried
from asyncqn.tuning.measure import accepted_share

WORKERS = (1, 2, 5, 10, 15, 20)
STUDY = "as-lbfgs-matrix-factorization-W20"
"""The tuner's study at the largest W, with rho kept at the paper's 3."""
STEADY = 0.01
"""A run is stable when it ends within this of its lowest RMSE; one that swings ever less may be."""


@dataclass(frozen=True)
class Job:
    """One run with W workers."""

    role: str
    name: str
    workers: int
    h: float
    gamma: float
    parameters: tuple[tuple[str, Any], ...]
    timing: tuple[float, float, float]
    commits: int
    seed: int


def measure(job: Job) -> list[Record]:
    """The metrics along the run."""
    model, method = potential(job.name), algorithm("as-lbfgs", dict(job.parameters))
    run = Simulator(measured_cluster(Timing(*job.timing), job.workers)).minimize(
        Request(
            model,
            method,
            theta0=starting_point(model, None, job.seed),
            commits=job.commits,
            seed=job.seed,
            evaluate=25,
        )
    )
    rows = [run.metrics.row(i) for i in range(run.metrics.rows)]
    return [
        {
            "role": job.role,
            "ratings": job.name,
            "workers": job.workers,
            "h": job.h,
            "gamma": job.gamma,
            "status": run.status,
            "pairs": accepted_share(run),
            "commit": int(row["commit"]),
            "time": row["time"],
            "rmse": float(row["rmse"]) if np.isfinite(row["rmse"]) else None,
            "grad_norm": float(row["grad_norm"]) if np.isfinite(row["grad_norm"]) else None,
        }
        for row in rows
    ]


def compute(context: Context) -> Tables:
    """Tables `timings`, `curves`, `controls` (M = 0), `reach` and `parameters`."""
    name = source("1m")
    alone = Context(context.folder, context.full, 1, context.seed, context.progress)
    timings = alone.jobs("Fig. 5, timings", timing, [TimingJob(name, "1m", "as-lbfgs")])
    seconds = (timings[0]["worker"], timings[0]["master"], timings[0]["message"])
    given = parameters("1m", potential(name).n_data)["as-lbfgs"]
    commits = 4000 if context.full else 1200

    study = context.tuned(STUDY)
    tuned = carried(study, name, Timing(*seconds))

    def job(role: str, workers: int, plain: dict[str, Any]) -> Job:
        values = tuple(sorted(plain.items()))
        return Job(role, name, workers, plain["h"], plain["gamma"], values, seconds, commits, context.seed)

    jobs = [job("paper", W, given) for W in WORKERS] + [job("tuned", WORKERS[-1], tuned)]
    curves = context.jobs("Figs. 5 and S1", measure, jobs)
    plain = without_pairs(given)
    controls = [job("no pairs", W, plain) for W in (WORKERS[0], 10)]
    how = study["command"]
    if name != study["problem"]["ratings"]:
        how += f"; not tuned on {label(name)}: carried over in units of its curvature"
    used = [
        {"setting": "paper", "parameters": str(given), "found by": "the paper's table"},
        {"setting": "tuned at W = 20", "parameters": str(tuned), "found by": how},
    ]
    return {
        "timings": timings,
        "curves": curves,
        "controls": context.jobs("Figs. 5 and S1, without pairs", measure, controls),
        "reach": _reach(curves),
        "parameters": used,
    }


def _target(curves: list[Record]) -> float:
    """RMSE to reach: that of the first run (one worker) in the middle of its commits, rounded up to 0.01."""
    alone = [r for r in curves if r["role"] == curves[0]["role"] and r["workers"] == curves[0]["workers"]]
    return float(np.ceil(100.0 * column(alone, "rmse")[len(alone) // 2]) / 100.0)


def _reach(curves: list[Record]) -> list[Record]:
    """Per run: when the target was first reached, the best and the last RMSE, and how rough the end is."""
    rows = []
    target = _target(curves)
    for role in distinct(curves, "role"):
        for W in distinct(where(curves, role=role), "workers"):
            for h, gamma in dict.fromkeys((r["h"], r["gamma"]) for r in where(curves, role=role, workers=W)):
                run = where(curves, role=role, workers=W, h=h, gamma=gamma)
                rmse = column(run, "rmse")
                hit = np.flatnonzero(rmse <= target)
                first = run[int(hit[0])] if hit.size else None
                norms = column(run, "grad_norm")[len(run) // 2 :]
                rows.append(
                    {
                        "role": role,
                        "workers": W,
                        "h": h,
                        "gamma": gamma,
                        "target": target,
                        "commits": first["commit"] if first else None,
                        "time": first["time"] if first else None,
                        "last rmse": run[-1]["rmse"],
                        "lowest rmse": float(np.nanmin(rmse)),
                        "rises": float(np.mean(~(np.diff(norms) <= 0))),
                        "friction limit": delay_limit(W - 1),
                    }
                )
    return rows


def _stable(row: Record) -> bool:
    return row["last rmse"] is not None and row["last rmse"] < row["lowest rmse"] + STEADY


def draw(tables: Tables) -> dict[str, Any]:
    """RMSE against iterations and time, and the speedups."""
    figure, axes = panels(1, 3, width=3.7, height=3.0)
    curves = tables["curves"]
    for W, look in zip(WORKERS, LOOKS, strict=True):
        rows = where(curves, role="paper", workers=W)[1:]  # a logarithmic axis has no time 0
        for axis, x in zip(axes[0], ("commit", "time"), strict=False):
            axis.plot(
                column(rows, x),
                column(rows, "rmse"),
                label=f"W = {W}",
                **{**look, "markevery": max(1, len(rows) // 10)},
            )
    rows = where(curves, role="tuned")[1:]
    words = f"W = 20, tuned: γ = {rows[0]['gamma']:.2g}, h = {rows[0]['h']:.1e}"
    for axis, x in zip(axes[0], ("commit", "time"), strict=False):
        axis.plot(column(rows, x), column(rows, "rmse"), color="black", linewidth=1.0, label=words)
    start = column(curves, "rmse")[0]
    lowest = min(r["lowest rmse"] for r in tables["reach"])
    limits = (lowest - 0.05 * (start - lowest), start)
    axes[0][0].set(xlabel="iterations", ylabel="RMSE (stars)", ylim=limits, title=label(curves[0]["ratings"]))
    axes[0][1].set(
        xlabel="time (s, simulated from measured steps)", ylabel="RMSE (stars)", ylim=limits, xscale="log"
    )
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=7, fontsize=7)
    reach = where(tables["reach"], role="paper")
    workers, axis = column(reach, "workers"), axes[0][2]
    for what, look in (("time", LOOKS[0]), ("commits", LOOKS[1])):
        values = column(reach, what)
        axis.plot(
            workers,
            values[0] / values,
            label=f"speedup in {'iterations' if what == 'commits' else what}",
            **look,
        )
    axis.plot(workers, workers, color="black", linestyle=":", linewidth=0.8, label="linear")
    axis.set(xlabel="workers W", ylabel=f"speedup to RMSE {reach[0]['target']:g}", xscale="log", yscale="log")
    axis.set_xticks(workers, [f"{w:g}" for w in workers])
    axis.minorticks_off()
    few_decades(axis)
    axis.legend(fontsize=7)
    return {"fig5": figure}


def claims(tables: Tables) -> list[Claim]:
    """Near-linear speedup, instability at W = 20, and its cure."""
    reach = where(tables["reach"], role="paper")
    words = f"{label(tables['curves'][0]['ratings'])}, the paper's parameters"
    target = f"RMSE {reach[0]['target']:g}"
    first, ten, last = (where(reach, workers=W)[0] for W in (1, 10, 20))
    found = []
    text = "speedup in time is near linear up to W = 10"
    if first["time"] and ten["time"]:
        gain = first["time"] / ten["time"]
        steps = first["commits"] / ten["commits"]
        because = f"{gain:.1f} times faster to {target} with 10 workers, {steps:.2f} in iterations"
        because += _controls(tables)
        found.append(Claim(text, words, verdict(gain > 7, gain > 4), because))
    else:
        found.append(Claim(text, words, verdict(False), f"{target} is not reached"))
    unstable = _stable(ten) and not _stable(last)
    because = (
        f"γ = {last['gamma']:g} against the limit {last['friction limit']:.3f} of stale friction at W = 20 "
        f"and {ten['friction limit']:.3f} at W = 10; last RMSE and lowest: {_ends(last)} at W = 20, "
        f"{_ends(ten)} at W = 10"
    )
    found.append(
        Claim("W = 20 is unstable with the parameters that serve W = 10", words, verdict(unstable), because)
    )
    tuned = where(tables["reach"], role="tuned")[0]
    good = _stable(tuned) and tuned["last rmse"] < (ten["last rmse"] or 0.0) + STEADY
    because = (
        f"the tuner's h is {tuned['h'] / last['h']:.2f} of the paper's, its γ "
        f"{tuned['gamma'] / last['gamma']:.2f} of it; last RMSE and lowest: {_ends(tuned)}, at W = 10 with "
        f"the paper's {_ends(ten)}; its gradient norm rises on {tuned['rises']:.2f} of the looks of the "
        "second half"
    )
    setting = f"{label(tables['curves'][0]['ratings'])}, W = 20, tuned"
    word = verdict(good and tuned["h"] < last["h"], _stable(tuned))
    found.append(Claim("a smaller step cures it", setting, word, because))
    return found


def _controls(tables: Tables) -> str:
    """The share of accepted pairs, and the last RMSE with and without any."""
    curves, controls = where(tables["curves"], role="paper"), tables.get("controls", [])
    words = accepted_words(curves)
    for W in distinct(controls, "workers"):
        with_, without = (where(rows, workers=W)[-1]["rmse"] for rows in (curves, controls))
        last = ["none" if r is None else f"{r:.4f}" for r in (with_, without)]
        words += f"; last RMSE at W = {W}: {last[0]}, with M = 0 {last[1]}"
    return f"; {words}" if words else ""


def _ends(row: Record) -> str:
    last = "none" if row["last rmse"] is None else f"{row['last rmse']:.4g}"
    return f"{last}, {row['lowest rmse']:.4g}"


EXPERIMENT = Experiment(
    "fig5",
    "Matrix factorization: speedup and its limit (also Fig. S1)",
    "as-L-BFGS on the 1M set. Numbers are real; the time axis is that of a simulated cluster whose step and "
    "commit times were measured on this machine.",
    compute,
    draw,
    claims,
    quick="1200 commits",
    full="4000 commits",
)
