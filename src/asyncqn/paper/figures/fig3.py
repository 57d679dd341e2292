"""Figure 3: iterations and time to epsilon of as-L-BFGS against the number of workers.

The step is chosen for every W, as in the paper, here by a stated rule: all of a grid of
q = h c^2 lambda / gamma (how fast the error falls per commit) and gamma W are tried on tuning seeds,
the fastest is measured on fresh seeds.  H0 = c I and the floor on the cosine are those tuned at W = 40.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncqn.algorithms.stability import delay_limit
from asyncqn.paper.controls import accepted_words, without_pairs
from asyncqn.paper.drawing import LOOKS, band, few_decades, panels
from asyncqn.paper.experiment import UNTESTABLE, Claim, Context, Experiment, Tables, verdict
from asyncqn.paper.problems import STANDARD
from asyncqn.paper.records import Record, distinct, summary, where
from asyncqn.paper.settings import MENDED, algorithm, cluster
from asyncqn.tuning.measure import time_to

RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
FRICTIONS = (0.3, 0.6, 1.2)
TUNING_SEED = 2_000_000
ENOUGH = 0.9
"""A mean is taken over the runs that reach epsilon, where at least this share of them does."""
TICKS = (1, 2, 5, 10, 20, 40, 80)


@dataclass(frozen=True)
class Spec:
    """Sizes; `most_commits` is the limit in commits per run (time W-independent of luck)."""

    repetitions: int
    workers: tuple[int, ...]
    variances: tuple[float, ...] = (25.0, 200.0)
    tuning_seeds: int = 2
    epsilon: float = 0.05
    most_commits: float = 8000.0


QUICK = Spec(8, (1, 2, 5, 10, 20, 40, 80))
FULL = Spec(100, (1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 60, 80, 100), tuning_seeds=4)


@dataclass(frozen=True)
class Job:
    """Runs of one parameter set at one W; `role` is "grid", "chosen", "no pairs" (M = 0) or "fixed"."""

    role: str
    workers: int
    variance: float
    rate: float
    friction: float
    parameters: tuple[tuple[str, Any], ...]
    seeds: tuple[int, ...]
    epsilon: float
    most_commits: float


def measure(job: Job) -> list[Record]:
    """One record per seed."""
    timing = cluster("as-lbfgs", job.workers, job.variance)
    method = algorithm("as-lbfgs", dict(job.parameters))
    cycle = float(timing.means()[0]) + timing.message
    records = []
    for seed in job.seeds:
        outcome = time_to(
            STANDARD.potential(),
            method,
            timing,
            seed=seed,
            target=job.epsilon,
            limit=job.most_commits * cycle / job.workers,
        )
        records.append(
            {
                "role": job.role,
                "workers": job.workers,
                "variance": job.variance,
                "rate": job.rate,
                "friction": job.friction,
                "h": dict(job.parameters)["h"],
                "gamma": dict(job.parameters)["gamma"],
                "seed": seed,
                **outcome._asdict(),
            }
        )
    return records


def _parameters(base: dict[str, Any], rate: float, friction: float, workers: int) -> dict[str, Any]:
    gamma = min(0.3, friction / workers)
    c = base["initial_scale"] if isinstance(base["initial_scale"], float) else 0.02
    return {**base, "initial_scale": c, "gamma": gamma, "h": rate * gamma / (c * c * STANDARD.high)}


def compute(context: Context) -> Tables:
    """Tables `grid`, `runs` and `parameters`."""
    spec = FULL if context.full else QUICK
    study = context.tuned("as-lbfgs-linear-gaussian")
    base = study["best"]["parameters"]

    def job(
        role: str, W: int, variance: float, q: float, g: float, given: dict[str, Any], seeds: range
    ) -> Job:
        plain = tuple(sorted(given.items()))
        return Job(role, W, variance, q, g, plain, tuple(seeds), spec.epsilon, spec.most_commits)

    tuning = range(TUNING_SEED + context.seed, TUNING_SEED + context.seed + spec.tuning_seeds)
    fresh = range(context.seed, context.seed + spec.repetitions)
    grid = context.jobs(
        "Fig. 3, steps for every W",
        measure,
        [
            job("grid", W, variance, q, g, _parameters(base, q, g, W), tuning)
            for variance in spec.variances
            for W in spec.workers
            for q in RATES
            for g in FRICTIONS
        ],
    )
    runs = []
    for variance in spec.variances:
        for W in spec.workers:
            chosen = _fastest(where(grid, variance=variance, workers=W))
            if chosen is not None:
                given = _parameters(base, *chosen, W)
                runs.append(job("chosen", W, variance, *chosen, given, fresh))
                if W in (spec.workers[0], spec.workers[-1]):
                    runs.append(job("no pairs", W, variance, *chosen, without_pairs(given), fresh))
            runs.append(job("fixed", W, variance, 0.0, 0.0, MENDED["as-lbfgs"], fresh))
    return {
        "grid": grid,
        "runs": context.jobs("Fig. 3, repetitions", measure, runs),
        "parameters": [
            {
                "setting": "chosen",
                "found by": f"grid over q {RATES} and gamma W {FRICTIONS}; H0, floor: {study['command']}",
            },
            {"setting": "fixed", "found by": "the paper's table, with H0 and floor from the map"},
        ],
    }


def _fastest(grid: Sequence[Record]) -> tuple[float, float] | None:
    """(rate, friction) of the least mean time among those that always reach epsilon."""
    best = None
    for q in distinct(grid, "rate"):
        for g in distinct(grid, "friction"):
            mean, _, share = summary(where(grid, rate=q, friction=g), "time")
            if share == 1.0 and (best is None or mean < best[0]):
                best = (mean, q, g)
    return None if best is None else (best[1], best[2])


def curve(runs: Sequence[Record], what: str) -> tuple[Any, Any, Any]:
    """W, mean and standard deviation over the runs that reached epsilon; NaN where too few did."""
    workers = sorted(distinct(runs, "workers"))
    rows = [summary(where(runs, workers=W), what) for W in workers]
    mean = np.array([m if share >= ENOUGH else np.nan for m, _, share in rows])
    return np.array(workers), mean, np.array([s for _, s, _ in rows])


def draw(tables: Tables) -> dict[str, Any]:
    """Iterations and time against W."""
    figure, axes = panels(1, 2, width=4.0)
    for axis, what, label in zip(axes[0], ("commits", "time"), ("iterations", "time (units)"), strict=True):
        looks = iter(LOOKS)
        for role, words in (("chosen", "step chosen per W"), ("fixed", "the paper's step")):
            for variance in distinct(tables["runs"], "variance"):
                runs = where(tables["runs"], role=role, variance=variance)
                W, mean, spread = curve(runs, what)
                band(axis, W, mean, spread, rf"{words}, $\sigma_w^2$ = {variance:g}", next(looks))
        if what == "time":
            W, mean, _ = curve(where(tables["runs"], role="chosen", variance=200.0), what)
            start = int(np.flatnonzero(np.isfinite(mean))[0]) if np.isfinite(mean).any() else 0
            axis.plot(
                W,
                mean[start] * W[start] / W,
                color="black",
                linewidth=0.8,
                linestyle=":",
                label="linear speedup",
            )
        axis.set(xlabel="workers W", ylabel=rf"{label} to $\varepsilon$ = 0.05", xscale="log", yscale="log")
        axis.set_xticks(TICKS, [str(w) for w in TICKS])
        axis.minorticks_off()
        few_decades(axis)
    handles = axes[0][1].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=7)
    return {"fig3": figure}


def _controls(tables: Tables, variance: float) -> str:
    """The share of accepted pairs at every W, and the times without pairs at the first and the last W."""
    words = accepted_words(where(tables["runs"], role="chosen", variance=variance))
    plain = where(tables["runs"], role="no pairs", variance=variance)
    times = [
        f"{summary(where(plain, workers=W), 'time')[0]:.0f} at W = {W}" for W in distinct(plain, "workers")
    ]
    words += f"; with M = 0 the time is {', '.join(times)}" if times else ""
    return f"; {words}" if words else ""


def claims(tables: Tables) -> list[Claim]:
    """Iterations up, time down, more so for steady workers."""
    found = []
    speedups = {}
    for variance in distinct(tables["runs"], "variance"):
        words = f"σ_w² = {variance:g}, step chosen for every W"
        chosen = where(tables["runs"], role="chosen", variance=variance)
        W, commits, _ = curve(chosen, "commits")
        _, time, _ = curve(chosen, "time")
        sure = np.isfinite(commits)
        left_out = ", ".join(str(w) for w in W[~sure])
        words += f" (W = {left_out} left out: too many runs miss ε)" if left_out else ""
        if sure.sum() < 4:
            text = "iterations rise with W, time falls"
            found.append(
                Claim(text, words, UNTESTABLE, f"enough runs reach ε at {sure.sum()} values of W only")
            )
            continue
        least = min(summary(where(chosen, workers=int(w)), "time")[2] for w in W[sure])
        words += f"; at least {100 * least:.0f} % of the runs reach ε" if least < 1.0 else ""
        W, commits, time = W[sure], commits[sure], time[sure]
        growth = commits[-1] / commits[0]
        ends = f"{commits[0]:.0f} at W = {W[0]}, {commits[-1]:.0f} at W = {W[-1]}"
        steps = [where(chosen, workers=int(w))[0]["h"] for w in (W[0], W[-1])]
        least_at = f"least {commits.min():.0f} at W = {W[commits.argmin()]}"
        because = f"iterations {ends}, {least_at}; h {steps[0]:.1e} at the first, {steps[1]:.1e} at the last"
        rising = float(np.mean(np.diff(commits) > 0))
        found.append(
            Claim(
                "more workers need more iterations, since the step must shrink",
                words,
                verdict(growth > 1.1 and rising > 0.5, commits[-1] > 1.1 * commits.min()),
                because,
            )
        )
        falls = bool((np.diff(time) < 0).all())
        ends = f"{time[0]:.0f} at W = {W[0]}, {time[-1]:.0f} at W = {W[-1]}"
        because = f"time {ends}: {time[0] / time[-1]:.1f} times faster{_controls(tables, variance)}"
        found.append(
            Claim("the time to ε falls gracefully with W", words, verdict(falls, time[-1] < time[0]), because)
        )
        speedups[variance] = time[0] / time[-1]
    if len(speedups) == 2:
        (low, a), (high, b) = sorted(speedups.items())
        because = f"speedup from the first to the last W: {a:.1f} at σ_w² = {low:g}, {b:.1f} at {high:g}"
        text = "the speedup is more prominent for smaller σ_w²"
        found.append(Claim(text, "step chosen for every W", verdict(a > 1.05 * b, a >= 0.98 * b), because))
    fixed = where(tables["runs"], role="fixed", variance=200.0)
    workers = sorted(distinct(fixed, "workers"))
    lost = [w for w in workers if summary(where(fixed, workers=w), "time")[2] < 0.5]
    gamma = MENDED["as-lbfgs"]["gamma"]
    limits = [w for w in workers if gamma >= delay_limit(int(w) - 1)]
    word = verdict(lost == limits, bool(set(lost) & set(limits))) if limits else UNTESTABLE
    text = "a step that serves few workers fails for many (stale friction, our own prediction)"
    because = f"most runs miss ε at W = {lost}; equal delays forbid this γ at W = {limits}"
    found.append(Claim(text, f"γ = {gamma} at every W", word, because))
    return found


EXPERIMENT = Experiment(
    "fig3",
    "Iterations and time to ε against the number of workers",
    "as-L-BFGS on the strongly correlated problem; lines are means, shades three standard deviations.",
    compute,
    draw,
    claims,
    quick="8 repetitions, 7 values of W",
    full="100 repetitions, 13 values of W",
)
