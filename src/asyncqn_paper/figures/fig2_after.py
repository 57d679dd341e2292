"""Figure 2, continued: what the methods do after they have reached epsilon, in the base case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn import Simulator, starting_point
from asyncqn.types import Request
from asyncqn_paper.controls import without_pairs
from asyncqn_paper.drawing import ALGORITHM_STYLES, panels
from asyncqn_paper.experiment import Context, Tables
from asyncqn_paper.figures.fig2_cases import CASES
from asyncqn_paper.problems import PROBLEMS
from asyncqn_paper.records import Record, column, distinct, where
from asyncqn_paper.settings import NAMES, algorithm, cluster

STAYING_AT = 200.0
"""The variance at which runs are followed after they have arrived."""
LONG = 8000
"""Commits of a long run."""
EPSILON = CASES["base"].target
METHODS = {"as-lbfgs": NAMES["as-lbfgs"], "control": "as-L-BFGS, M = 0", "async-sgd": NAMES["async-sgd"]}


@dataclass(frozen=True)
class LongJob:
    """A run of the base case that goes on."""

    method: str
    seed: int


def measure_long(job: LongJob) -> list[Record]:
    """The error along the run."""
    case = CASES["base"]
    kind = "as-lbfgs" if job.method == "control" else job.method
    given = case.parameters[kind]
    given = without_pairs(given) if job.method == "control" else given
    model = PROBLEMS[case.problem].model()
    run = Simulator(cluster(kind, 40, STAYING_AT, serial=case.serial)).minimize(
        Request(
            model,
            algorithm(kind, given),
            theta0=starting_point(model, None, job.seed),
            seed=job.seed,
            commits=LONG,
            evaluate=LONG // 100,
        )
    )
    rows = [run.metrics.row(i) for i in range(run.metrics.rows)]
    shared = {"method": job.method, "seed": job.seed}
    return [{**shared, "time": float(r["time"]), "error": float(r["error"])} for r in rows]


def long_runs(context: Context) -> list[Record]:
    """Six runs of each method."""
    seeds = range(context.seed, context.seed + 6)
    jobs = [LongJob(method, seed) for method in METHODS for seed in seeds]
    return context.jobs("Fig. 2, long after ε", measure_long, jobs)


def by_method(tables: Tables) -> dict[str, list[list[Record]]]:
    """The long runs of each method, under its name."""
    return {
        title: [where(rows, seed=seed) for seed in distinct(rows, "seed")]
        for method, title in METHODS.items()
        if (rows := where(tables["after"], method=method))
    }


def draw_after(tables: Tables) -> Any:
    """Error over time, one line per run."""
    figure, axes = panels(1, len(METHODS), width=3.3, height=2.6, sharey=True)
    for axis, (method, title) in zip(axes[0], METHODS.items(), strict=True):
        look = ALGORITHM_STYLES["as-lbfgs" if method == "control" else method]
        for run in by_method(tables)[title]:
            errors = np.minimum(column(run, "error"), 1e6)
            axis.plot(column(run, "time"), errors, color=look["color"], linewidth=0.9, alpha=0.8)
        axis.axhline(EPSILON, color="black", linestyle=":", linewidth=0.9)
        axis.set(title=title, xlabel="time (units)", yscale="log", ylim=(1e-3, 1e2))
    axes[0][0].set_ylabel("(U − U*)/U*")
    return figure
