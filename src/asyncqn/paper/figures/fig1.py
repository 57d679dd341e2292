"""Figure 1: simulated against real as-L-BFGS with W = 40: error over time, and staleness.

The real run uses threads whose computations are stretched to drawn times, so that 40 of them fit on
few cores; the simulation uses the same parameters and the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.core.request import Request
from asyncqn.core.run import Run
from asyncqn.engines.simulator import Simulator
from asyncqn.engines.threads import Threads
from asyncqn.minimize import starting_point
from asyncqn.paper.controls import accepted_words
from asyncqn.paper.drawing import LOOKS, panels
from asyncqn.paper.experiment import Claim, Context, Experiment, Tables, verdict
from asyncqn.paper.problems import STANDARD
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.paper.settings import MENDED, algorithm, cluster
from asyncqn.tuning.measure import accepted_share

ENGINES = {"simulated": "simulated", "real": "real (threads, stretched)"}
TIME_UNIT = 0.004
"""Seconds per unit of time: 8 ms between commits, far above what a commit costs."""

WARM_UP = 40


@dataclass(frozen=True)
class Job:
    """One run on one engine."""

    engine: str
    commits: int
    seed: int
    memory: int = 3
    workers: int = 40
    variance: float = 200.0


def measure(job: Job) -> list[Record]:
    """The error along the run, then the shares of staleness."""
    potential = STANDARD.potential()
    method = algorithm("as-lbfgs", {**MENDED["as-lbfgs"], "memory": job.memory})
    timing = cluster("as-lbfgs", job.workers, job.variance)
    engine = (
        Simulator(timing) if job.engine == "simulated" else Threads(timing_model=timing, time_unit=TIME_UNIT)
    )
    theta0 = starting_point(potential, None, job.seed)

    def run_for(commits: int) -> Run:
        return engine.minimize(
            Request(potential, method, theta0=theta0, commits=commits, seed=job.seed, evaluate=10)
        )

    run_for(WARM_UP)  # compiles the kernels: a real clock would count that as the first commit's time
    run = run_for(job.commits)
    curve: list[Record] = [
        {
            "engine": job.engine,
            "seed": job.seed,
            "what": "error",
            "x": float(row["time"]),
            "y": float(row["error"]),
        }
        for row in (run.metrics.row(i) for i in range(run.metrics.rows))
    ]
    counts = run.schedule.staleness_histogram()
    shares = [
        {
            "engine": job.engine,
            "seed": job.seed,
            "what": "staleness",
            "x": float(l),
            "y": float(n / counts.sum()),
        }
        for l, n in enumerate(counts)
    ]
    pairs = {"engine": job.engine, "seed": job.seed, "what": "pairs", "x": 0.0, "y": accepted_share(run)}
    return [{**row, "memory": job.memory} for row in [*curve, *shares, pairs]]


def compute(context: Context) -> Tables:
    """Tables `runs`, `controls` (M = 0) and `parameters`; one run at a time, since real time is measured."""
    alone = Context(context.folder, context.full, 1, context.seed, context.progress)
    commits = 2000 if context.full else 1200
    seeds = range(context.seed, context.seed + (3 if context.full else 1))
    jobs = [Job(engine, commits, seed) for seed in seeds for engine in ENGINES]
    found = "the paper's table, with H0 and floor from the map"
    used = [{"setting": "both engines", "parameters": str(MENDED["as-lbfgs"]), "found by": found}]
    controls = [Job("simulated", commits, seed, memory=0) for seed in seeds]
    return {
        "runs": alone.jobs("Fig. 1", measure, jobs),
        "controls": alone.jobs("Fig. 1, without pairs", measure, controls),
        "parameters": used,
    }


def draw(tables: Tables) -> dict[str, Any]:
    """Both error curves, both distributions of staleness; the first pair of runs is in the legend."""
    figure, axes = panels(1, 2, width=4.0)
    for k, seed in enumerate(distinct(tables["runs"], "seed")):
        for (engine, words), look in zip(ENGINES.items(), LOOKS, strict=False):
            for axis, what, every in zip(axes[0], ("error", "staleness"), (10, 15), strict=True):
                rows = where(tables["runs"], engine=engine, what=what, seed=seed)
                weight = {"label": words} if k == 0 else {"linewidth": 0.7, "alpha": 0.5, "marker": ""}
                axis.plot(column(rows, "x"), column(rows, "y"), **{**look, "markevery": every, **weight})
    axes[0][0].set(
        xlabel="time (units)",
        ylabel="(U − U*)/U*",
        yscale="log",
        title=r"as-L-BFGS, W = 40, $\sigma_w^2$ = 200",
    )
    axes[0][1].set(xlabel="staleness (commits)", ylabel="share of the updates")
    axes[0][0].legend()
    return {"fig1": figure}


def claims(tables: Tables) -> list[Claim]:
    """The simulator is realistic: same speed, same error, same staleness, in every pair of runs."""
    pairs = [_compare(where(tables["runs"], seed=seed)) for seed in distinct(tables["runs"], "seed")]
    paces, gaps, distances = (sorted(values) for values in zip(*pairs, strict=True))
    because = (
        f"the real run lasted {_range(paces, 2)} times the simulated one; median gap of the error curves "
        f"{_range([100 * g for g in gaps])} %; the distributions of staleness differ in "
        f"{_range([100 * d for d in distances])} % of their mass{_controls(tables)}"
    )
    close = paces[0] > 0.9 and paces[-1] < 1.15 and gaps[-1] < 0.25 and distances[-1] < 0.2
    word = verdict(close, paces[0] > 0.7 and paces[-1] < 1.5 and gaps[-1] < 1.0)
    text = "the simulator gives a realistic picture of a real run, fluctuations included"
    words = f"W = 40, threads stretched to drawn times, {len(pairs)} pair{'s' * (len(pairs) > 1)} of runs"
    return [Claim(text, words, word, because)]


def _controls(tables: Tables) -> str:
    """The share of accepted pairs, and where the error ends with and without any."""
    pairs = [{"pairs": r["y"]} for r in where(tables["runs"], what="pairs")]
    words = f"; {accepted_words(pairs)}" if pairs else ""
    both = [
        where(rows, engine="simulated", what="error") for rows in (tables["runs"], tables.get("controls", []))
    ]
    if all(both):
        with_, without = (column(rows, "y")[-1] for rows in both)
        words += f"; the error ends at {with_:.3g}, with M = 0 at {without:.3g}"
    return words


def _compare(runs: list[Record]) -> tuple[float, float, float]:
    """Real over simulated length, median gap of the logarithms of the errors, distance of staleness."""
    error = {e: where(runs, engine=e, what="error") for e in ENGINES}
    stale = {e: where(runs, engine=e, what="staleness") for e in ENGINES}
    end = {e: column(rows, "x")[-1] for e, rows in error.items()}
    grid = np.linspace(0, 0.95 * min(end.values()), 100)
    logs = [np.interp(grid, column(rows, "x"), np.log(column(rows, "y"))) for rows in error.values()]
    gap = float(np.median(np.abs(logs[0] - logs[1])))
    length = max(len(rows) for rows in stale.values())
    shares = [np.pad(column(rows, "y"), (0, length - len(rows))) for rows in stale.values()]
    distance = float(0.5 * np.abs(shares[0] - shares[1]).sum())
    return float(end["real"] / end["simulated"]), gap, distance


def _range(values: list[float], digits: int = 0) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


EXPERIMENT = Experiment(
    "fig1",
    "Simulated against real",
    "Error over time and staleness of as-L-BFGS, simulated and on 40 threads that sleep for what is missing "
    "of their drawn times; a short run before compiles the kernels.",
    compute,
    draw,
    claims,
    quick="1 pair of runs of 1200 commits",
    full="3 pairs of runs of 2000 commits",
)
