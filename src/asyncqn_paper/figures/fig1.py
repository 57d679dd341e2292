"""Figure 1: simulated against real as-L-BFGS: error over time, staleness, throughput.

First a real run, not slowed, on two workers: MPI, or threads where there is none.  A cluster is
fitted to its record (`Cluster.from_run`), and the same run is simulated on it.  How far two real runs of one
seed are apart is measured too: no simulation can be nearer than that.  Then the paper's W = 40, on
threads whose computations are stretched to drawn times so that 40 of them fit on few processors; there the
simulation uses the same parameters and the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn import Cluster, LogNormal, Run, Simulator, Threads
from asyncqn.lab import accepted_share
from asyncqn_paper.claims import Outcome, outcome
from asyncqn_paper.controls import accepted_words
from asyncqn_paper.drawing import STYLES, panels
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.movielens import model, parameters, source
from asyncqn_paper.real_runs import GAUSSIAN, WARM_UP, RealRun, run_real
from asyncqn_paper.records import Record, along, column, distinct, where
from asyncqn_paper.settings import PAPER, cluster, given

TIME_UNIT = 0.004
"""Seconds per unit of time of the stretched run: 8 ms between commits, far above what a commit costs."""
GIVEN = {**PAPER["as-lbfgs"], "initial_scale": 0.3, "epsilon": 1.2}
"""The paper's table, and of what it leaves open a choice with which pairs act: see the experiment order."""
STRETCHED = "W = 40, stretched"
AGAIN = "real, again"
STYLES_OF = {"simulated": STYLES[0], "real": STYLES[4]}


@dataclass(frozen=True)
class StretchedJob:
    """One run with W = 40 on one engine, with the simulator's own draws."""

    engine: str
    commits: int
    seed: int
    memory: int = 3
    workers: int = 40
    variance: float = 200.0


@dataclass(frozen=True)
class RealJob:
    """Real runs, not slowed, and the same runs simulated on the clusters fitted to them."""

    problem: str
    workers: int
    commits: int
    seeds: tuple[int, ...]


def measure_stretched(job: StretchedJob) -> list[Record]:
    """The error along the run, the shares of staleness, the share of accepted pairs."""
    timing = cluster("as-lbfgs", job.workers, job.variance)
    engine = (
        Simulator(timing) if job.engine == "simulated" else Threads(timing_model=timing, time_unit=TIME_UNIT)
    )
    own = given(GIVEN, memory=job.memory)
    real = RealRun(GAUSSIAN, "as-lbfgs", own, job.workers, job.commits, job.seed)
    engine.minimize(real.request(WARM_UP))  # a real clock would count compiling as the first commit's time
    run = engine.minimize(real.request())
    return _records(run, "error", {"setting": STRETCHED, "engine": job.engine, "memory": job.memory})


def measure_real(job: RealJob) -> list[Record]:
    """Both engines' records, and the fitted clusters."""
    if job.problem == GAUSSIAN:
        own, metric, words = GIVEN, "error", "linear Gaussian"
    else:
        own, metric, words = parameters("1m", model(job.problem).n_data)["as-lbfgs"], "rmse", "ratings"
    asked_for = (job.problem, "as-lbfgs", given(own), job.workers, job.commits)
    jobs = [RealRun(*asked_for, seed, evaluate=max(10, job.commits // 60)) for seed in job.seeds]
    real = run_real([*jobs, *jobs])  # every run twice: what another schedule changes
    first, second = real.runs[: len(jobs)], real.runs[len(jobs) :]
    records = []
    for asked, run, again in zip(jobs, first, second, strict=True):
        fitted = Cluster.from_run(run)
        simulated = Simulator(fitted).minimize(asked.request())
        setting = f"W = {job.workers}, not slowed, {words}"
        shared = {"setting": setting, "memory": 3, "on": real.engine, "because": real.because}
        for engine, one in (("simulated", simulated), ("real", run), (AGAIN, again)):
            records += _records(one, metric, {**shared, "engine": engine})
        records += [
            {**shared, "engine": "real", "seed": asked.seed, "what": what, "x": 0.0, "y": value}
            for what, value in _fitted(fitted).items()
        ]
    return records


def _fitted(fitted: Cluster) -> dict[str, float]:
    """mu_w, sigma_w, mu_m, tau and the link's time, in milliseconds."""
    (law, *_) = fitted.laws() or (LogNormal(fitted.means()[0], fitted.stds()[0]),)
    assert isinstance(law, LogNormal)
    found = {"mu_w": law.mean, "sigma_w": law.std, "mu_m": fitted.master, "tau": fitted.message}
    return {name: 1000.0 * value for name, value in {**found, "link": fitted.link}.items()}


def _records(run: Run, metric: str, shared: Record) -> list[Record]:
    """The metric along a run, its staleness, and the share of accepted pairs."""
    curve = [("error", row["time"], row[metric]) for row in along(run, metric) if row[metric] is not None]
    counts = run.schedule.staleness_histogram()
    shares = [("staleness", float(l), float(n / counts.sum())) for l, n in enumerate(counts)]
    accepted = accepted_share(run)
    times = run.schedule.commit_times()
    pace = [("commits per time", 0.0, float(len(times) / times[-1]))]
    pairs = [] if accepted is None else [("pairs", 0.0, accepted)]
    seed = int(run.manifest["seed"])
    return [
        {**shared, "seed": seed, "what": what, "x": x, "y": y}
        for what, x, y in [*curve, *shares, *pace, *pairs]
    ]


def compute(context: Context) -> Tables:
    """Tables `runs`, `controls` (M = 0) and `parameters`; one run at a time, since real time is measured."""
    alone = context.alone
    seeds = tuple(range(context.seed, context.seed + (5 if context.full else 2)))
    real = [RealJob(GAUSSIAN, 2, 4000, seeds), RealJob(source("1m"), 2, 1200 if context.full else 400, seeds)]
    runs = alone.jobs("Fig. 1, real runs", measure_real, real)
    commits = 2000 if context.full else 800
    some = seeds[:3] if context.full else seeds[:1]
    stretched = [StretchedJob(engine, commits, seed) for seed in some for engine in STYLES_OF]
    runs += alone.jobs("Fig. 1, W = 40 stretched", measure_stretched, stretched)
    controls = [StretchedJob("simulated", commits, seed, memory=0) for seed in some]
    table = "the paper's table"
    ours = f"{table}, with H0 and the cautious constant of the experiment order"
    used = [
        {"setting": "linear Gaussian", "parameters": str(GIVEN), "found by": ours},
        {"setting": "ratings", "parameters": "the 1M row", "found by": table},
    ]
    return {
        "runs": [{"on": "threads", "because": "", **row} for row in runs],
        "controls": alone.jobs("Fig. 1, without pairs", measure_stretched, controls),
        "parameters": used,
    }


def draw(tables: Tables) -> dict[str, Any]:
    """A column per setting: error over time above, staleness below; one line per seed and engine."""
    runs = tables["runs"]
    settings = distinct(runs, "setting")
    figure, axes = panels(2, len(settings), width=3.7, height=2.6)
    for column_of, setting in zip(axes.T, settings, strict=True):
        mine = where(runs, setting=setting)
        for axis, what in zip(column_of, ("error", "staleness"), strict=True):
            for k, seed in enumerate(distinct(mine, "seed")):
                for engine, look in STYLES_OF.items():
                    rows = where(mine, engine=engine, what=what, seed=seed)
                    style = {**look, "markevery": max(1, len(rows) // 12), "alpha": 1.0 if k == 0 else 0.5}
                    axis.plot(column(rows, "x"), column(rows, "y"), label=engine if k == 0 else None, **style)
        unit = "units" if setting == STRETCHED else "s"
        where_ = "threads" if setting == STRETCHED else mine[0]["on"]
        ratings = "ratings" in setting
        column_of[0].set(
            xlabel=f"time ({unit})",
            ylabel="RMSE (stars)" if ratings else "(U − U*)/U*",
            yscale="linear" if ratings else "log",
            title=f"as-L-BFGS, {setting} ({where_})".replace(", not", ",\nnot"),
        )
        column_of[1].set(xlabel="staleness (commits)", ylabel="share of the updates", yscale="log")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return {"fig1": figure}


def outcomes(tables: Tables) -> list[Outcome]:
    """The simulator is realistic: same speed, same error, same staleness, in every pair of runs."""
    found = []
    for setting in distinct(tables["runs"], "setting"):
        mine = where(tables["runs"], setting=setting)
        runs = [where(mine, seed=seed) for seed in distinct(mine, "seed")]
        pairs = [_compare(rows, "simulated") for rows in runs]
        paces, gaps, distances = (sorted(values) for values in zip(*pairs, strict=True))
        because = (
            f"the real run lasted {_range(paces, 2)} times the simulated one; median gap of the error curves "
            f"{_range([100 * g for g in gaps])} %; the distributions of staleness differ in "
            f"{_range([100 * d for d in distances])} % of their mass"
        )
        again = [_compare(rows, AGAIN)[1:] for rows in runs if where(rows, engine=AGAIN)]
        apart = np.median(again, axis=0) if again else np.zeros(2)
        if again:
            because += (
                f"; two real runs of one seed differ by {100 * apart[0]:.0f} % and {100 * apart[1]:.0f} %"
            )
        # No simulation can be nearer to a real run than another real run is.
        near, alike = np.maximum((0.25, 0.2), 1.5 * apart)
        close = bool(paces[0] > 0.85 and paces[-1] < 1.15 and gaps[-1] < near and distances[-1] < alike)
        engine = mine[0]["on"]
        if setting == STRETCHED:
            because += _controls(tables)
            choice = "threads that sleep what is missing of the simulator's own draws"
        else:
            because += f"; τ is fitted to the run's own pace; {_cluster_words(mine)}" + (
                f"; {mine[0]['because']}" if mine[0]["because"] else ""
            )
            choice = f"{engine}, not slowed, a cluster fitted to the record"
        words = f"{setting}, {engine}, {len(pairs)} pair{'s' * (len(pairs) > 1)} of runs"
        found.append(outcome("fig1", words, close, because, {"engine": choice}))
    return found


def _cluster_words(rows: list[Record]) -> str:
    """The fitted cluster, in the mean of the runs."""
    names = {"mu_m": "μ_m", "mu_w": "μ_w", "sigma_w": "σ_w", "tau": "τ", "link": "link"}
    shown = [f"{word} {column(where(rows, what=what), 'y').mean():.3f}" for what, word in names.items()]
    return f"fitted, in ms: {', '.join(shown)}"


def _controls(tables: Tables) -> str:
    """The share of accepted pairs, and where the error ends with and without any."""
    mine = where(tables["runs"], setting=STRETCHED, engine="simulated")
    words = f"; {accepted_words([{'pairs': r['y']} for r in where(mine, what='pairs')])}"
    both = [where(rows, what="error") for rows in (mine, tables.get("controls", []))]
    if all(both):
        with_, without = (column(rows, "y")[-1] for rows in both)
        words += f"; the error ends at {with_:.3g}, with M = 0 at {without:.3g}"
    return words


def _compare(runs: list[Record], other: str) -> tuple[float, float, float]:
    """Real over the other's length, median gap of the logarithms of the errors, distance of staleness."""
    error = {e: where(runs, engine=e, what="error") for e in ("real", other)}
    stale = {e: where(runs, engine=e, what="staleness") for e in ("real", other)}
    end = {e: column(rows, "x")[-1] for e, rows in error.items()}
    grid = np.linspace(0, 0.95 * min(end.values()), 100)
    logs = [np.interp(grid, column(rows, "x"), np.log(column(rows, "y"))) for rows in error.values()]
    gap = float(np.median(np.abs(logs[0] - logs[1])))
    length = max(len(rows) for rows in stale.values())
    shares = [np.pad(column(rows, "y"), (0, length - len(rows))) for rows in stale.values()]
    distance = float(0.5 * np.abs(shares[0] - shares[1]).sum())
    return float(end["real"] / end[other]), gap, distance


def _range(values: list[float], digits: int = 0) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


EXPERIMENT = Experiment(
    "fig1",
    "Simulated against real",
    "Above the error over time, below the staleness. Not slowed: a real run on two workers, and the run "
    "simulated on the cluster that was fitted to its record. Stretched: 40 threads that sleep for what is "
    "missing of the simulator's own draws: its times are no evidence, only its messages and order are.",
    compute,
    draw,
    outcomes,
    quick="2 real runs, twice, of 4000 commits and 2 on ratings, 1 pair of stretched runs of 800 commits",
    full="5 real runs, twice, of 4000 commits and 5 on ratings, 3 pairs of stretched runs of 2000 commits",
    minutes=(0.2, 3.0),
)
