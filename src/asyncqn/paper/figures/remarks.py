"""Three remarks of the paper that no figure shows: momentum repairs instability, rho stabilises, the overlap
is cheap.

Momentum: as-L-BFGS beside the same asynchronous L-BFGS without momentum, theta - h H g or theta - h H H g
(the paper's dynamics use H twice), over steps that are equal in the drift per commit they give to the
stiffest direction, q = h c^2 lambda / gamma, h c lambda and h c^2 lambda.  What counts is the largest q with
which every run arrives.
rho: factorization with H + rho I and with H alone, each at the best of steps from 1e-10 to 1e-2.
The overlap: processor time of its gradient over that of a worker's whole step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from asyncqn.algorithms.memory import product
from asyncqn.algorithms.quasi_newton.momentum_lbfgs import MomentumLBFGS
from asyncqn.core.request import Request
from asyncqn.core.streams import Stream
from asyncqn.engines.simulator import Simulator
from asyncqn.paper import movielens
from asyncqn.paper.claim_list import CAUTIOUS, DATA, FRICTION, H0, PROBLEM, RIVAL, START
from asyncqn.paper.claims import Outcome, outcome
from asyncqn.paper.consistency import consistency
from asyncqn.paper.experiment import Context, Experiment, Tables
from asyncqn.paper.figures.fig2_cases import (
    BELOW_LIMIT,
    BY_PAIRS,
    EVERY_PAIR,
    RECIPES,
    problem_words,
    scale_below_limit,
)
from asyncqn.paper.figures.remarks_drawing import draw
from asyncqn.paper.figures.times import Job, run_labelled
from asyncqn.paper.problems import PROBLEMS
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.paper.settings import MEMORY, PAPER, algorithm, cluster
from asyncqn.tuning.measure import time_to
from asyncqn.types import Task

STIFF_PROBLEMS = ("rows-alike-8", "five-directions-20", "five-weak-10")
RATES = (0.002, 0.005, 0.0125, 0.03, 0.08)
FRICTIONS = (0.01, 0.03)
WORKERS = 40
RATINGS = ("synthetic-demo", "synthetic-100k")
RHOS = (0.0, 0.3, 3.0)
STEPS = tuple(10.0**-k for k in (2, 4, 5, 6, 7, 8, 10))
COMMITS = 600
CHEAP = 0.1
"""The overlap's gradient is cheap below this share of a worker's step."""


def momentum_job(
    problem: str, recipe: tuple[str, float], gamma: float | None, rate: float, seeds: range
) -> Job:
    """as-L-BFGS with friction gamma, or without momentum (None), at a drift `rate`."""
    h0, epsilon = recipe
    top = consistency(problem).largest
    scale = scale_below_limit(problem) if h0 == BELOW_LIMIT else 1.0 / top
    open_choices = {"initial_scale": "pair" if h0 == BY_PAIRS else scale, "epsilon": epsilon}
    if gamma is None:
        # Friction 1 keeps nothing of u: theta moves by -h H g alone.
        kind, given = "momentum-lbfgs", {**MEMORY, "h": rate / (scale * top), "gamma": 1.0}
    else:
        h = rate * gamma / (scale**2 * top)
        kind, given = "as-lbfgs", {**PAPER["as-lbfgs"], "h": h, "gamma": gamma}
    plain = tuple(sorted({**given, **open_choices}.items()))
    return Job(problem, kind, plain, 200.0, tuple(seeds), WORKERS, limit=6000.0)


@dataclass(frozen=True)
class TwiceJob:
    """Runs of theta - h H H g, without momentum, at a drift `rate`."""

    problem: str
    recipe: tuple[str, float]
    rate: float
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class TwiceLBFGS(MomentumLBFGS):
    """No momentum (friction 1) and H used twice: a commit adds -h H H g."""

    def step(self, view: Any, local: Any, potential: Any, task: Task) -> Any:
        update = super().step(view, local, potential, task)
        once = update.d.copy()
        product(local.memory, once, update.d)
        return update


def without_momentum(job: TwiceJob) -> list[Record]:
    """One record per run, as of the jobs with momentum."""
    h0, epsilon = job.recipe
    top = consistency(job.problem).largest
    scale = scale_below_limit(job.problem) if h0 == BELOW_LIMIT else 1.0 / top
    method = TwiceLBFGS(
        h=job.rate / (scale**2 * top),
        gamma=1.0,
        epsilon=epsilon,
        initial_scale="pair" if h0 == BY_PAIRS else scale,
        **MEMORY,
    )
    model, timing = PROBLEMS[job.problem].potential(), cluster("as-lbfgs", WORKERS, 200.0)
    told = {"problem": job.problem, "H0": h0, "epsilon": epsilon, "gamma": None, "rate": job.rate}
    return [
        {
            **told,
            "seed": seed,
            **time_to(model, method, timing, target=0.05, limit=6000.0, seed=seed)._asdict(),
        }
        for seed in job.seeds
    ]


@dataclass(frozen=True)
class RhoJob:
    """Runs of as-L-BFGS on ratings, W = 10, with H + rho I."""

    ratings: str
    rho: float
    h: float
    epsilon: float
    start: str
    seeds: tuple[int, ...]


def factorize(job: RhoJob) -> list[Record]:
    """The last RMSE of each run; None where it diverged."""
    model = movielens.potential(job.ratings)
    given = movielens.parameters("1m", model.n_data)["as-lbfgs"]
    method = algorithm("as-lbfgs", {**given, "rho": job.rho, "h": job.h, "epsilon": job.epsilon})
    machines = movielens.measured_cluster(movielens.Timing(1.0, 0.0, 1.0), 10)
    records = []
    for seed in job.seeds:
        rng = np.random.Generator(np.random.Philox(key=[seed, 0x9A0]))
        theta0 = model.initial(rng) if job.start == "near the mean" else rng.standard_normal(model.dim)
        run = Simulator(machines).minimize(
            Request(model, method, theta0=theta0, commits=COMMITS, seed=seed, evaluate=COMMITS // 4)
        )
        last, first = float(run.metrics["rmse"][-1]), float(run.metrics["rmse"][0])
        lost = run.status == "diverged" or not last <= 3.0 * first
        records.append(
            {
                "ratings": job.ratings,
                "rho": job.rho,
                "h": job.h,
                "epsilon": job.epsilon,
                "start": job.start,
                "seed": seed,
                "rmse": None if lost else last,
            }
        )
    return records


@dataclass(frozen=True)
class CostJob:
    """Where the cost of the overlap is measured: a problem of Fig. 2, or a set of ratings."""

    name: str
    steps: int = 40


def cost(job: CostJob) -> list[Record]:
    """Medians of processor time: a worker's step and its learning, and in it the gradient on the overlap."""
    model: Any
    if job.name in PROBLEMS:
        model, given = PROBLEMS[job.name].potential(), PAPER["as-lbfgs"]
    else:
        model = movielens.potential(job.name)
        given = movielens.parameters("1m", model.n_data)["as-lbfgs"]
    method: Any = algorithm("as-lbfgs", given)
    theta0 = model.initial(np.random.default_rng(0))
    iterate, local, out = method.init(theta0), method.init_worker(model, theta0), np.empty_like(theta0)
    whole, extra = [], []
    for k in range(job.steps):
        task = Task(0, k, Stream(0, 0, k))
        t0 = time.thread_time()
        method.step(iterate, local, model, task)
        local = method.learn(iterate, local, model, task)
        t1 = time.thread_time()
        model.grad(iterate.theta, local.Omega[k & 1][: method.overlap], out)
        whole.append(t1 - t0)
        extra.append(time.thread_time() - t1)
        iterate.theta[...] += 1e-3
    # The first steps fill the memory and compile.
    row = {"problem": job.name, "step": median(whole[4:]), "overlap": median(extra[4:])}
    return [{**row, "rows": method.batch, "overlap rows": method.overlap, "source": "processor time"}]


def compute(context: Context) -> Tables:
    """Tables `momentum`, `twice`, `rho`, `cost` and `parameters`."""
    runs = 12 if context.full else 4
    seeds = range(context.seed, context.seed + runs)
    jobs = [
        (
            {"problem": problem, "H0": recipe[0], "epsilon": recipe[1], "gamma": gamma, "rate": rate},
            momentum_job(problem, recipe, gamma, rate, seeds),
        )
        for problem in STIFF_PROBLEMS
        for recipe in RECIPES
        for gamma in (None, *FRICTIONS)
        for rate in RATES
    ]
    twice = [
        TwiceJob(problem, recipe, rate, tuple(seeds))
        for problem in STIFF_PROBLEMS
        for recipe in RECIPES
        for rate in RATES
    ]
    few = tuple(seeds[: 6 if context.full else 2])
    factorizations = [
        RhoJob(name, rho, h, epsilon, start, few)
        for name in RATINGS
        for rho in RHOS
        for h in STEPS
        for epsilon in (EVERY_PAIR, 30.0)
        for start in ("near the mean", "from the prior")
    ]
    alone = context.alone
    costs = alone.jobs("cost of the overlap", cost, [CostJob("rows-alike-8"), CostJob("synthetic-100k")])
    batch, overlap = MEMORY["batch"], MEMORY["overlap"]
    table = {
        "problem": "the table's units",
        "step": 70.0,
        "overlap": 1000.0 * overlap / 600.0,
        "rows": batch,
        "overlap rows": overlap,
        "source": "μ_w = 1000 N_Ω/N_Y + 60",
    }
    return {
        "momentum": run_labelled(context, "momentum against none", jobs),
        "twice": context.jobs("momentum against none, H twice", without_momentum, twice),
        "rho": context.jobs("H + ρI against H", factorize, factorizations),
        "cost": [table, *costs],
        "parameters": [
            {
                "setting": "momentum",
                "found by": f"steps at equal drift {RATES}, friction {FRICTIONS} or none",
            },
            {"setting": "rho", "found by": f"the best of the steps {STEPS}, {COMMITS} commits"},
        ],
    }


def outcomes(tables: Tables) -> list[Outcome]:
    """The three remarks."""
    return [*_momentum(tables["momentum"], tables["twice"]), *_rho(tables["rho"]), *_cost(tables["cost"])]


def largest_rate(rows: Sequence[Record]) -> float:
    """The largest drift with which every run arrives; 0 where there is none."""
    rates = [
        r for r in distinct(rows, "rate") if all(row["status"] == "reached" for row in where(rows, rate=r))
    ]
    return max(rates, default=0.0)


def _momentum(rows: Sequence[Record], twice: Sequence[Record]) -> list[Outcome]:
    """For each problem, H0, rule and friction, against each of the two methods without momentum."""
    found = []
    cells = dict.fromkeys((r["problem"], r["H0"], r["epsilon"]) for r in rows)
    for problem, h0, epsilon in cells:
        same = {"problem": problem, "H0": h0, "epsilon": epsilon}
        rivals = {
            "against θ − h H g": [r for r in where(rows, **same) if r["gamma"] is None],
            "against θ − h H H g": where(twice, **same),
        }
        for gamma in FRICTIONS:
            mine = where(rows, **same, gamma=gamma)
            for rival, theirs in rivals.items():
                choices = {
                    PROBLEM: problem_words(problem),
                    H0: h0,
                    FRICTION: f"γ = {gamma:g}",
                    CAUTIOUS: f"cautious constant {epsilon:g}",
                    RIVAL: rival,
                }
                holds, told = _compared(mine, theirs)
                found.append(outcome("momentum", ", ".join(choices.values()), holds, told, choices))
    return found


def _compared(mine: Sequence[Record], theirs: Sequence[Record]) -> tuple[bool | None, str]:
    """Whether runs with momentum arrive at larger drifts; None where neither ever does."""
    with_, without = largest_rate(mine), largest_rate(theirs)
    lost = [100 * float(np.mean([r["status"] == "diverged" for r in group])) for group in (mine, theirs)]
    told = (
        f"largest drift per commit with which all runs arrive: {_rate(with_)} with momentum, "
        f"{_rate(without)} without; {lost[0]:.0f} and {lost[1]:.0f} % of all runs diverge"
    )
    return (None if with_ == without == 0.0 else with_ > without), told


def _rate(value: float) -> str:
    return f"{value:g}" if value else "none"


def _rho(rows: Sequence[Record]) -> list[Outcome]:
    found = []
    for name in distinct(rows, "ratings"):
        for epsilon in distinct(rows, "epsilon"):
            for start in distinct(rows, "start"):
                same = where(rows, ratings=name, epsilon=epsilon, start=start)
                best = {rho: best_rmse(where(same, rho=rho)) for rho in distinct(same, "rho")}
                lost = {
                    rho: 100 * float(np.mean([r["rmse"] is None for r in where(same, rho=rho)]))
                    for rho in best
                }
                ridged = min(value for rho, value in best.items() if rho > 0.0)
                told = "; ".join(
                    f"ρ = {rho:g}: RMSE {value:.3f} at its best step, {lost[rho]:.0f} % of all runs diverge"
                    for rho, value in best.items()
                )
                choices = {DATA: name, START: f"start {start}", CAUTIOUS: f"cautious constant {epsilon:g}"}
                words = ", ".join(choices.values())
                found.append(outcome("rho", words, ridged < best[0.0] - 0.01, told, choices))
    return found


def best_rmse(rows: Sequence[Record]) -> float:
    """The least mean RMSE over the steps with which no run diverges."""
    means = [column(where(rows, h=h), "rmse").mean() for h in distinct(rows, "h")]
    return min((float(m) for m in means if math.isfinite(m)), default=math.inf)


def _cost(rows: Sequence[Record]) -> list[Outcome]:
    found = []
    for row in rows:
        share = row["overlap"] / row["step"]
        told = (
            f"the gradient on {row['overlap rows']} rows beside {row['rows']} is {100 * share:.0f} % "
            f"of a worker's step ({row['source']})"
        )
        found.append(outcome("overlap", row["problem"], share < CHEAP, told, {DATA: row["problem"]}))
    return found


EXPERIMENT = Experiment(
    "remarks",
    "Remarks of the paper that no figure shows",
    "Left: the share of runs that arrive against the drift per commit, with momentum and without, at W = 40. "
    "Right: RMSE of a synthetic factorization after 600 commits against the step, with and without ρ.",
    compute,
    draw,
    outcomes,
    quick="4 runs of each point, 2 of each factorization",
    full="12 runs of each point, 6 of each factorization",
    minutes=(0.8, 2.5),
)
