"""Tempering: does noise find better minima of non-convex problems than the same method without it?

A start is a random instance with a random theta0; tuning and test have starts of their own, the same for
all arms.  Every arm ends with the same polish, exact L-BFGS steps from where it stopped, and succeeds
when it ends within `TOLERANCE` of the planted minimum.  Arms of a method, with equal commits and equally
many trials of tuning:

    none      beta = inf, one run (minibatch noise remains)
    constant  one beta, as in the paper
    annealed  beta rises a hundredfold from its first value
    restarts  beta = inf, several shorter runs from fresh starts; the one with the lowest U is polished

`block-lbfgs` restarts exact L-BFGS until the same number of gradient rows is used up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from asyncqn import (
    ASLBFGS,
    SGLD,
    Annealing,
    BlockLBFGS,
    Cluster,
    Mixture,
    PhaseRetrieval,
    Simulator,
    minimize,
    starting_point,
)
from asyncqn.lab import largest_curvature
from asyncqn.types import Array, Progress
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.figures.tempering_figure import ARMS, draw, outcomes, score
from asyncqn_paper.records import Record, where

COMMITS = {"mixture": 1500, "phase-retrieval": 1000}
ROWS, OVERLAP = 12, 5
"""Rows of gradients per commit, of every method; as-L-BFGS computes the overlap twice."""
POLISH, IDLE_PASSES = 40, 10
TOLERANCE = 1.0
TUNING_STARTS, TUNING_FIRST = 20, 10_000
BETAS = (0.01, 0.03, 0.1, 0.3)
RESTARTS = (2, 3, 5, 8)
TRIALS = 12
STEPS = {
    ("sgld", 1): (0.1, 0.4),
    ("sgld", 10): (0.3, 1.2),
    ("as-lbfgs", 1): (0.01, 0.1),
    ("as-lbfgs", 10): (0.02, 0.2),
}
"""The range of r, the step relative to 1 / (W times the largest curvature), by method and workers."""


@dataclass(frozen=True)
class Job:
    """One arm with its parameters on the starts first, ..., first + count - 1."""

    problem: str
    method: str
    workers: int
    arm: str
    r: float
    beta: float
    restarts: int
    first: int
    count: int


@cache
def instance(problem: str, seed: int) -> tuple[Any, float, float]:
    """A problem, U at its planted minimum, and the largest curvature there."""
    model: Any
    if problem == "phase-retrieval":
        model = PhaseRetrieval.random(dim=20, n_data=40, seed=seed)
        return model, 0.0, largest_curvature(model, model.signal)
    model = Mixture.random(components=8, n_data=400, width=20.0, seed=seed)
    planted = model.centres.ravel()
    return model, descend(model, planted, 100).fun, largest_curvature(model, planted)


class Descent(NamedTuple):
    """The best point that exact L-BFGS saw, U there, and how many gradients it took."""

    theta: Array
    fun: float
    gradients: int


def descend(model: Any, theta0: Array, gradients: int) -> Descent:
    """Exact L-BFGS, until the lowest U fell by less than a thousandth in ten gradients, or `gradients`."""
    lowest = [Descent(theta0, float(model.value(theta0)), 0)]

    def look(progress: Progress) -> None:
        # A run may end on a trial that would have been rejected, so the best point is kept here.
        fun, last = progress.metrics["fun"], lowest[-1]
        lowest.append(Descent(progress.theta, fun, 0) if fun < last.fun else last)
        before = lowest[max(0, len(lowest) - 1 - IDLE_PASSES)].fun
        if len(lowest) > IDLE_PASSES and before - lowest[-1].fun < 1e-3 * (1.0 + abs(before)):
            raise StopIteration

    run = minimize(
        model,
        BlockLBFGS(1),
        engine=Simulator(Cluster(1)),
        theta0=theta0,
        commits=gradients,
        evaluate=1,
        callback=look,
        progress=False,
    )
    return lowest[-1]._replace(gradients=run.schedule.commits)


def algorithm(job: Job, top: float, commits: int) -> SGLD | ASLBFGS:
    """h from r: the pull of the stiffest direction is r / W a step, whatever the method.

    as-L-BFGS moves by about h H^2 g / gamma with H0 = 1 / top; its pairs must be ones that can be
    trusted (epsilon, cosine_floor), else all of its arms diverge.
    """
    beta: float | Annealing = job.beta
    if job.arm == "annealed":
        beta = Annealing(job.beta, 100.0 * job.beta, max(1, commits // job.workers))
    if job.method == "sgld":
        return SGLD(h=job.r / (top * job.workers), beta=beta, batch=ROWS)
    gamma = 0.5 / job.workers
    return ASLBFGS(
        h=job.r * gamma * top / job.workers,
        gamma=gamma,
        beta=beta,
        memory=3,
        batch=ROWS - OVERLAP,
        overlap=OVERLAP,
        initial_scale=1.0 / top,
        cosine_floor=0.5,
        epsilon=0.3 * top,
    )


def last_points(job: Job, seed: int) -> list[Array]:
    """Where the runs of an arm end; one that diverged ends nowhere."""
    model, _, top = instance(job.problem, seed)
    total = COMMITS[job.problem]
    points: list[Array] = []
    if job.method == "block-lbfgs":
        left = total * ROWS // model.n_data
        while left > 0:
            theta0 = starting_point(model, None, seed + 100_000 * len(points))
            descent = descend(model, theta0, left)
            points.append(descent.theta)
            left = left - descent.gradients if job.restarts else 0
        return points
    commits = total // job.restarts
    cluster = Cluster(job.workers, worker_std=0.3)
    for number in range(job.restarts):
        run = minimize(
            model,
            algorithm(job, top, commits),
            engine=Simulator(cluster),
            commits=commits,
            seed=seed + 100_000 * number,
            evaluate=commits,
            progress=False,
        )
        if run.status == "completed":
            points.append(run.theta)
    return points


def setting(job: Job) -> Record:
    """The columns that say what was run; beta = inf is None."""
    columns = {name: value for name, value in vars(job).items() if name not in ("first", "count")}
    return {**columns, "beta": None if math.isinf(job.beta) else job.beta}


def measure(job: Job) -> list[Record]:
    """The excess over the planted minimum, of every start."""
    records = []
    for seed in range(job.first, job.first + job.count):
        model, planted, _ = instance(job.problem, seed)
        points = last_points(job, seed)
        excess = None
        if points:
            best = min(points, key=model.value)
            excess = descend(model, best, POLISH).fun - planted
        success = excess is not None and excess < TOLERANCE
        records.append({**setting(job), "start": seed, "excess": excess, "success": success})
    return records


def trials(problem: str, method: str, workers: int, arm: str) -> list[Job]:
    """The twelve settings among which an arm is tuned: without noise, all of them are steps."""
    low, high = STEPS[method, workers]

    def job(r: float, beta: float = math.inf, restarts: int = 1) -> Job:
        r = float(f"{r:.3g}")
        return Job(problem, method, workers, arm, r, beta, restarts, TUNING_FIRST, TUNING_STARTS)

    if arm == "none":
        return [job(r) for r in np.geomspace(low, high, TRIALS)]
    steps = np.geomspace(low, high, TRIALS // len(BETAS))
    if arm == "restarts":
        return [job(r, restarts=count) for count in RESTARTS for r in steps]
    return [job(r, beta) for beta in BETAS for r in steps]


def best(jobs: Sequence[Job], tuning: Sequence[Record]) -> Job:
    """Most successes on the tuning starts; ties go to the lower mean logarithm of the excess."""
    return max(jobs, key=lambda job: score(where(tuning, **setting(job))))


def compute(context: Context) -> Tables:
    """`tuning`: all trials; `runs`: on the test starts, every arm at its best, and every constant beta."""
    count = 200 if context.full else 60
    cells = [(problem, method, workers) for problem in COMMITS for method, workers in STEPS]
    candidates = {(*cell, arm): trials(*cell, arm) for cell in cells for arm in ARMS}
    tuning = context.jobs("Tempering, tuning", measure, [job for jobs in candidates.values() for job in jobs])
    chosen: list[Job] = []
    for (*_, arm), jobs in candidates.items():
        chosen.append(best(jobs, tuning))
        if arm == "constant":  # the curve: the best step for every beta
            chosen += [best([job for job in jobs if job.beta == beta], tuning) for beta in BETAS]
    for problem in COMMITS:
        for arm, restarts in (("once", 0), ("restarts", 1)):
            chosen.append(Job(problem, "block-lbfgs", 1, arm, 0.0, math.inf, restarts, 0, 0))
    first = 1000 * context.seed
    pieces = [
        Job(**{**vars(job), "first": first + i, "count": 20})
        for job in dict.fromkeys(chosen)
        for i in range(0, count, 20)
    ]
    runs = context.jobs("Tempering, test", measure, pieces)
    winners = {(job.problem, job.method, job.workers, job.arm): job for job in reversed(chosen)}
    for record in runs:
        # `best` marks the setting that tuning chose for the arm; other rows belong to the curve.
        job = winners[record["problem"], record["method"], record["workers"], record["arm"]]
        record["best"] = bool(where([record], **setting(job)))
    return {"tuning": tuning, "runs": runs}


EXPERIMENT = Experiment(
    "tempering",
    "Noise, annealing and restarts on non-convex problems",
    "Success rates of SGLD and as-L-BFGS with and without noise, and of restarted Block L-BFGS, on mixtures "
    "with unknown centres and on phase retrieval; equal gradient rows, equally many trials of tuning.",
    compute,
    draw,
    outcomes,
)
