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

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from asyncqn import MomentumLBFGS, Simulator
from asyncqn.lab import time_to
from asyncqn.types import Request, Stream, Task
from asyncqn_paper import movielens
from asyncqn_paper.claim_list import CAUTIOUS, DATA, FRICTION, H0, PROBLEM, RIVAL, START
from asyncqn_paper.claims import Outcome, outcome
from asyncqn_paper.consistency import consistency
from asyncqn_paper.drawing import CONTROLS, VARIANTS, panels
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.figures.fig2_cases import (
    BELOW_LIMIT,
    BY_PAIRS,
    EVERY_PAIR,
    RECIPES,
    problem_words,
    scale_below_limit,
)
from asyncqn_paper.figures.times import Job, run_labelled
from asyncqn_paper.problems import PROBLEMS
from asyncqn_paper.records import Record, column, distinct, where
from asyncqn_paper.settings import MEMORY, PAPER, algorithm, cluster, given

STIFF_PROBLEMS = ("rows-alike-8", "five-directions-20", "five-weak-10")
RATES = (0.002, 0.005, 0.0125, 0.03, 0.08)
FRICTIONS = (0.01, 0.03)
WORKERS, VARIANCE, LIMIT = 40, 200.0, 6000.0
RATINGS = ("synthetic-demo", "synthetic-100k")
RHOS = (0.0, 0.3, 3.0)
STEPS = tuple(10.0**-k for k in (2, 4, 5, 6, 7, 8, 10))
COMMITS = 600
CHEAP = 0.1
"""The overlap's gradient is cheap below this share of a worker's step."""


def drift_parameters(problem: str, recipe: tuple[str, float], rate: float, uses: int) -> dict[str, Any]:
    """H0, the cautious constant, and the h that gives the stiffest direction a drift `rate` per commit where
    H is used so many times and u is not kept."""
    h0, epsilon = recipe
    top = consistency(problem).largest
    scale = scale_below_limit(problem) if h0 == BELOW_LIMIT else 1.0 / top
    initial = "pair" if h0 == BY_PAIRS else scale
    return {"h": rate / (scale**uses * top), "initial_scale": initial, "epsilon": epsilon}


def momentum_job(
    problem: str, recipe: tuple[str, float], gamma: float | None, rate: float, seeds: range
) -> Job:
    """as-L-BFGS with friction gamma, or without momentum (None), at a drift `rate`."""
    if gamma is None:
        # Friction 1 keeps nothing of u: theta moves by -h H g alone.
        own = {**MEMORY, **drift_parameters(problem, recipe, rate, 1), "gamma": 1.0}
        return Job(problem, "momentum-lbfgs", given(own), VARIANCE, tuple(seeds), WORKERS, limit=LIMIT)
    own = {**PAPER["as-lbfgs"], **drift_parameters(problem, recipe, rate * gamma, 2), "gamma": gamma}
    return Job(problem, "as-lbfgs", given(own), VARIANCE, tuple(seeds), WORKERS, limit=LIMIT)


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

    def step(self, view: Any, local: Any, model: Any, task: Task) -> Any:
        update = super().step(view, local, model, task)
        once = update.d.copy()
        local.memory.product(once, update.d)
        return update


def without_momentum(job: TwiceJob) -> list[Record]:
    """One record per run, as of the jobs with momentum."""
    method = TwiceLBFGS(gamma=1.0, **drift_parameters(job.problem, job.recipe, job.rate, 2), **MEMORY)
    model, timing = PROBLEMS[job.problem].model(), cluster("as-lbfgs", WORKERS, VARIANCE)
    told = {"problem": job.problem, "H0": job.recipe[0], "epsilon": job.recipe[1], "rate": job.rate}
    runs = (time_to(model, method, timing, target=0.05, limit=LIMIT, seed=seed) for seed in job.seeds)
    return [{**told, "seed": seed, **run._asdict()} for seed, run in zip(job.seeds, runs, strict=True)]


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
    model = movielens.model(job.ratings)
    printed = movielens.parameters("1m", model.n_data)["as-lbfgs"]
    method = algorithm("as-lbfgs", given(printed, rho=job.rho, h=job.h, epsilon=job.epsilon))
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
        told = {name: value for name, value in vars(job).items() if name != "seeds"}
        records.append({**told, "seed": seed, "rmse": None if lost else last})
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
        model, printed = PROBLEMS[job.name].model(), PAPER["as-lbfgs"]
    else:
        model = movielens.model(job.name)
        printed = movielens.parameters("1m", model.n_data)["as-lbfgs"]
    method: Any = algorithm("as-lbfgs", printed)
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
    cells = list(itertools.product(STIFF_PROBLEMS, RECIPES, RATES))
    jobs = [
        (
            {"problem": problem, "H0": recipe[0], "epsilon": recipe[1], "gamma": gamma, "rate": rate},
            momentum_job(problem, recipe, gamma, rate, seeds),
        )
        for problem, recipe, rate in cells
        for gamma in (None, *FRICTIONS)
    ]
    twice = [TwiceJob(*cell, tuple(seeds)) for cell in cells]
    few = tuple(seeds[: 6 if context.full else 2])
    starts = ("near the mean", "from the prior")
    tried = itertools.product(RATINGS, RHOS, STEPS, (EVERY_PAIR, 30.0), starts)
    factorizations = [RhoJob(*cell, few) for cell in tried]
    alone = context.alone
    costs = alone.jobs("cost of the overlap", cost, [CostJob("rows-alike-8"), CostJob("synthetic-100k")])
    table = {"problem": "the table's units", "step": 70.0, "overlap": 1000.0 * MEMORY["overlap"] / 600.0}
    table |= {"rows": MEMORY["batch"], "overlap rows": MEMORY["overlap"], "source": "μ_w = 1000 N_Ω/N_Y + 60"}
    return {
        "momentum": run_labelled(context, "momentum against none", jobs),
        "twice": context.jobs("momentum against none, H twice", without_momentum, twice),
        "rho": context.jobs("H + ρI against H", factorize, factorizations),
        "cost": [table, *costs],
        "parameters": [
            {"setting": "momentum", "found by": f"equal drift {RATES}, friction {FRICTIONS} or none"},
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
    for problem, h0, epsilon in dict.fromkeys((r["problem"], r["H0"], r["epsilon"]) for r in rows):
        same = {"problem": problem, "H0": h0, "epsilon": epsilon}
        rivals = {
            "against θ − h H g": where(rows, **same, gamma=None),
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
    axes = (distinct(rows, name) for name in ("ratings", "epsilon", "start"))
    for name, epsilon, start in itertools.product(*axes):
        mine = where(rows, ratings=name, epsilon=epsilon, start=start)
        runs = {rho: where(mine, rho=rho) for rho in distinct(mine, "rho")}
        best = {rho: best_rmse(tried) for rho, tried in runs.items()}
        told = "; ".join(
            f"ρ = {rho:g}: RMSE {best[rho]:.3f} at its best step, "
            f"{100 * len(where(tried, rmse=None)) / len(tried):.0f} % of all runs diverge"
            for rho, tried in runs.items()
        )
        ridged = min(value for rho, value in best.items() if rho > 0.0)
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


def draw(tables: Tables) -> dict[str, Any]:
    """Share of runs that arrive against the drift, and RMSE against the step."""
    figure, axes = panels(1, 2, width=4.4, height=3.2)
    left, right = axes[0]
    rows = tables["momentum"]
    shown = [(where(rows, gamma=None), "none, H once", CONTROLS[1])]
    shown += [
        (where(rows, gamma=g), f"γ = {g:g}", look) for g, look in zip(FRICTIONS, VARIANTS[1::2], strict=False)
    ]
    for mine, words, look in [*shown, (tables["twice"], "none, H twice", CONTROLS[2])]:
        rates = sorted(distinct(mine, "rate"))
        shares = [np.mean([r["status"] == "reached" for r in where(mine, rate=q)]) for q in rates]
        left.plot(rates, shares, label=words, **look)
    left.set(xscale="log", xlabel="drift of the stiffest direction per commit", ylim=(-0.03, 1.03))
    left.set_xticks(rates, [f"{q:g}" for q in rates])
    left.minorticks_off()
    left.set(ylabel="share of the runs that arrive", title="as-L-BFGS and the same without momentum")
    start = where(tables["rho"], start="from the prior", ratings=tables["rho"][0]["ratings"])
    for rho, look in zip(distinct(start, "rho"), (CONTROLS[1], *VARIANTS[1::2]), strict=False):
        steps = sorted(distinct(start, "h"))
        means = [column(where(start, rho=rho, h=h), "rmse").mean() for h in steps]
        right.plot(steps, means, label=f"ρ = {rho:g}", **look)
    right.set(xscale="log", xlabel="step h", ylabel="RMSE (gaps: a run diverged)", title="H + ρI")
    for axis in (left, right):
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
    return {"remarks": figure}


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
