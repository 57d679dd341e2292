"""Three remarks of the paper: momentum repairs instability, rho I stabilises, the overlap costs little.

Momentum: the fewest commits to the target at which no run is lost, over a grid of steps, with momentum and
without it (the same L-BFGS matrices in theta <- theta - h H g), on linear Gaussian problems at W = 40.
rho: the same question on ratings, the lowest RMSE after some commits.
The overlap: processor time of what a worker computes after sending.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.core.request import Request
from asyncqn.engines.simulator import Simulator
from asyncqn.paper.claim_list import CAUTIOUS, DATA, FRICTION, H0, PROBLEM, START, STEP
from asyncqn.paper.claims import Outcome, outcome
from asyncqn.paper.drawing import LOOKS, panels
from asyncqn.paper.experiment import Context, Experiment, Tables
from asyncqn.paper.movielens import (
    STARTS,
    Timing,
    label,
    measure_steps,
    measured_cluster,
    parameters,
    potential,
    source,
    start,
)
from asyncqn.paper.problems import AlikeRows, Spectrum
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.paper.settings import MEMORY, PAPER, algorithm, cluster
from asyncqn.tuning.measure import time_to

PROBLEMS: dict[str, AlikeRows | Spectrum] = {
    "rows alike, λ = 8": AlikeRows(8.0),
    "λ = 10, 5 weak directions": Spectrum(5, 10.0, 10.0),
}
SCALES = {"H₀ = 0.1 I": 0.1, "H₀ by pairs": "pair"}
EPSILONS = {"ε = 1e-4": 1e-4, "ε = 4": 4.0}
FRICTIONS = {"γ = 0.03": 0.03, "γ = 0.01": 0.01}
NONE = "no momentum"
EPSILON, LIMIT = 0.05, 3000.0
RHOS = {3.0: (0.25, 1.0, 4.0), 0.0: (1.0, 1e3, 1e5, 1e7)}
"""Steps over the printed one, by rho: without rho H is some thousand times smaller, and acts twice."""
_TIMING = Timing(1.0, 0.0, 0.1)


@dataclass(frozen=True)
class MomentumJob:
    """Runs to the target with one step."""

    problem: str
    scale: str
    epsilon: str
    friction: str
    h: float
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class RhoJob:
    """Runs on ratings with one rho and one step."""

    name: str
    start: str
    epsilon: str
    rho: float
    factor: float
    commits: int
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class OverlapJob:
    """The times of a worker's steps."""

    name: str


def measure_momentum(job: MomentumJob) -> list[Record]:
    """How many runs were lost, how many arrived, and after how many commits."""
    model = PROBLEMS[job.problem].potential()
    shared = {**MEMORY, "initial_scale": SCALES[job.scale], "epsilon": EPSILONS[job.epsilon], "h": job.h}
    if job.friction == NONE:
        method = algorithm("momentum-lbfgs", {**shared, "gamma": 1.0})
    else:
        given = {**PAPER["as-lbfgs"], **shared, "gamma": FRICTIONS[job.friction]}
        method = algorithm("as-lbfgs", given)
    # The same times for both: what is compared are commits.
    timing = cluster("as-lbfgs", 40, 200.0)
    found = [time_to(model, method, timing, target=EPSILON, limit=LIMIT, seed=s) for s in job.seeds]
    commits = [one.commits for one in found if one.commits is not None]
    row = {"problem": job.problem, "scale": job.scale, "epsilon": job.epsilon, "friction": job.friction}
    return [
        {
            **row,
            "h": job.h,
            "lost": float(np.mean([one.status == "diverged" for one in found])),
            "arrived": len(commits) / len(found),
            "commits": float(np.median(commits)) if len(commits) == len(found) else None,
        }
    ]


def measure_rho(job: RhoJob) -> list[Record]:
    """The last RMSE of every run, None where it was lost."""
    model = potential(job.name)
    given = parameters("1m", model.n_data)["as-lbfgs"]
    given |= {
        "rho": job.rho,
        "h": given["h"] * job.factor,
        "epsilon": {"ε = 30": 30.0}.get(job.epsilon, 1e-4),
    }
    row = {"ratings": job.name, "start": job.start, "epsilon": job.epsilon, "rho": job.rho}
    found = []
    for seed in job.seeds:
        theta0 = start(model, job.start, seed)
        request = Request(
            model,
            algorithm("as-lbfgs", given),
            theta0=theta0,
            commits=job.commits,
            seed=seed,
            evaluate=job.commits,
        )
        run = Simulator(measured_cluster(_TIMING, 10, link=False)).minimize(request)
        first, last = run.metrics["rmse"][0], run.metrics["rmse"][-1]
        lost = run.status == "diverged" or not last < 2.0 * first
        found.append(
            {
                **row,
                "factor": job.factor,
                "seed": seed,
                "rmse": None if lost else float(last),
                "from": float(first),
            }
        )
    return found


def measure_overlap(job: OverlapJob) -> list[Record]:
    """Seconds of a step, and of what comes after it."""
    if job.name in PROBLEMS:
        model: Any = PROBLEMS[job.name].potential()
        given = PAPER["as-lbfgs"]
    else:
        model = potential(job.name)
        given = parameters("1m", model.n_data)["as-lbfgs"]
    steps = measure_steps(model, "as-lbfgs", dict(given), 60)
    return [{"data": job.name, **steps._asdict()}]


def compute(context: Context) -> Tables:
    """Tables `momentum`, `rho`, `overlap` and `parameters`."""
    seeds = tuple(range(context.seed, context.seed + (10 if context.full else 3)))
    points = 9 if context.full else 6
    grids = {name: np.geomspace(4e-6, 4e-3, points) for name in FRICTIONS}
    grids[NONE] = np.geomspace(1e-4, 1e-1, points)
    momentum = [
        MomentumJob(problem, scale, epsilon, friction, float(h), seeds)
        for problem in PROBLEMS
        for scale in SCALES
        for epsilon in EPSILONS
        for friction, grid in grids.items()
        for h in grid
    ]
    name, commits = source("1m"), 1000 if context.full else 250
    rho = [
        RhoJob(name, at, epsilon, value, factor, commits, seeds[:2])
        for at in STARTS
        for epsilon in ("ε = 1e-4", "ε = 30")
        for value, factors in RHOS.items()
        for factor in factors
    ]
    alone = Context(context.folder, context.full, 1, context.seed, context.progress)
    used = [{"setting": "all", "parameters": "the paper's tables but for the step", "found by": "grids"}]
    return {
        "momentum": context.jobs("momentum", measure_momentum, momentum),
        "rho": context.jobs("ρ", measure_rho, rho),
        "overlap": alone.jobs("overlap", measure_overlap, [OverlapJob(n) for n in (*PROBLEMS, name)]),
        "parameters": used,
    }


def draw(tables: Tables) -> dict[str, Any]:
    """The share of lost runs against the step, with momentum and without; a panel per problem and choice."""
    rows = tables["momentum"]
    figure, axes = panels(2, 4, width=2.6, height=2.4, sharey=True)
    choices = [(p, s, e) for p in PROBLEMS for s in SCALES for e in EPSILONS]
    for axis, (problem, scale, epsilon) in zip(axes.flat, choices, strict=True):
        for look, friction in zip(LOOKS[:3], (*FRICTIONS, NONE), strict=True):
            mine = where(rows, problem=problem, scale=scale, epsilon=epsilon, friction=friction)
            axis.semilogx(column(mine, "h"), column(mine, "arrived"), label=friction, **look)
        axis.set_title(f"{problem},\n{scale}, {epsilon}", fontsize=8)
        axis.set_ylim(-0.05, 1.05)
    for row in axes:
        row[0].set_ylabel("share of runs that arrive")
    for axis in axes[-1]:
        axis.set_xlabel("step h")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return {"stability": figure}


def outcomes(tables: Tables) -> list[Outcome]:
    """What every setting says about the three remarks."""
    return [*_momentum(tables["momentum"]), *_rho(tables["rho"]), *_overlap(tables["overlap"])]


def _momentum(rows: list[Record]) -> list[Outcome]:
    found = []
    for problem in PROBLEMS:
        for scale in SCALES:
            for epsilon in EPSILONS:
                mine = where(rows, problem=problem, scale=scale, epsilon=epsilon)
                without = _best(where(mine, friction=NONE))
                for friction in FRICTIONS:
                    best = _best(where(mine, friction=friction))
                    words = f"{problem}, {scale}, {epsilon}, {friction}, W = 40, the step chosen for each"
                    because = (
                        f"fewest commits at which all runs arrive: {_n(best)}, without momentum {_n(without)}"
                    )
                    choices = {PROBLEM: problem, H0: scale, CAUTIOUS: epsilon, FRICTION: friction}
                    known = best is not None or without is not None
                    better = best is not None and (without is None or best < without)
                    found.append(outcome("momentum", words, better if known else None, because, choices))
    return found


def _best(rows: list[Record]) -> float | None:
    values = column(rows, "commits")
    return float(np.nanmin(values)) if np.isfinite(values).any() else None


def _n(value: float | None) -> str:
    return "none does" if value is None else f"{value:.0f}"


def _rho(rows: list[Record]) -> list[Outcome]:
    found = []
    name = label(rows[0]["ratings"])
    for at, words in STARTS.items():
        for epsilon in distinct(rows, "epsilon"):
            mine = where(rows, start=at, epsilon=epsilon)
            chosen = {START: words, CAUTIOUS: epsilon}
            setting = f"{name}, {words}, {epsilon}, W = 10"
            lost = {r: float(np.mean([x["rmse"] is None for x in where(mine, rho=r)])) for r in RHOS}
            lowest = {r: _lowest(where(mine, rho=r)) for r in RHOS}
            because = (
                f"lowest RMSE over the steps at which no run is lost: {lowest[3.0]:.3f} with ρ = 3, "
                f"{lowest[0.0]:.3f} with ρ = 0; lost over all steps {100 * lost[3.0]:.0f} % and "
                f"{100 * lost[0.0]:.0f} %"
            )
            better = bool(lowest[3.0] < lowest[0.0])
            step = {STEP: "the step chosen for each ρ"}
            found.append(
                outcome("rho", f"{setting}, the step chosen for each ρ", better, because, {**chosen, **step})
            )
            printed = {r: where(mine, rho=r, factor=1.0) for r in RHOS}
            ends = {r: _lowest(x) for r, x in printed.items()}
            first = printed[0.0][0]["from"]
            because = f"RMSE {ends[3.0]:.3f} with ρ = 3, {ends[0.0]:.3f} with ρ = 0, from {first:.3f}"
            # Without rho the printed step does not move: that is no sign of stability or the lack of it.
            still = ends[0.0] > 0.99 * first
            told = None if still else bool(ends[3.0] < ends[0.0])
            found.append(
                outcome(
                    "rho", f"{setting}, the printed step", told, because, {**chosen, STEP: "the printed step"}
                )
            )
    return found


def _lowest(rows: list[Record]) -> float:
    """The lowest median RMSE of the steps at which no run is lost."""
    best = np.inf
    for factor in distinct(rows, "factor"):
        values = column(where(rows, factor=factor), "rmse")
        if np.isfinite(values).all():
            best = min(best, float(np.median(values)))
    return float(best)


def _overlap(rows: list[Record]) -> list[Outcome]:
    found = []
    for row in rows:
        share = row["after"] / (row["step"] + row["after"])
        name = row["data"] if row["data"] in PROBLEMS else label(row["data"])
        because = (
            f"{100 * share:.0f} % of a worker's processor time ({1e3 * row['after']:.2g} of "
            f"{1e3 * (row['step'] + row['after']):.2g} ms, pairs included), after sending, so that it passes "
            "while messages travel"
        )
        found.append(outcome("overlap", f"{name}, N_O = N_Ω/3", share < 0.25, because, {DATA: name}))
    return found


EXPERIMENT = Experiment(
    "stability",
    "Momentum, ρ and the overlap",
    "The share of runs that reach the target against the step, with momentum (as-L-BFGS, two frictions) and "
    "without it (θ ← θ − h H g with the same L-BFGS matrices), on two linear Gaussian problems at W = 40.",
    compute,
    draw,
    outcomes,
    quick="3 seeds, 6 steps, 250 commits on ratings",
    full="10 seeds, 9 steps, 1000 commits on ratings",
    minutes=(1.0, 6.0),
)
