"""Figure 3: iterations and time to epsilon of as-L-BFGS against the number of workers.

The step is chosen for every W, as in the paper, here by a stated rule: all of a grid of
q = h c^2 lambda / gamma (how fast the error falls per commit) and gamma W are tried on tuning seeds, and the
fastest that always arrives is measured on fresh seeds; where fewer than half of those runs arrive, the next.
Beside each point stands the same run without pairs (M = 0): a W = 1 that rare bad pairs slow down would
flatter the speedup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncqn.lab import delay_limit
from asyncqn_paper.claim_list import CAUTIOUS, H0, LINK, PROBLEM, SPREAD, START, TARGET
from asyncqn_paper.claims import Outcome, outcome
from asyncqn_paper.consistency import consistency
from asyncqn_paper.controls import accepted_words, without_pairs
from asyncqn_paper.drawing import CONTROLS, VARIANTS, band, few_decades, panels
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.figures.fig2_cases import EVERY_PAIR, FEW_PAIRS, SOME_PAIRS, START_WORDS, problem_words
from asyncqn_paper.figures.times import Curve, Job, curve, run_labelled
from asyncqn_paper.records import Record, column, distinct, where
from asyncqn_paper.settings import MESSAGE, PAPER, PRODUCTS, given

RATES = (0.002, 0.005, 0.0125, 0.03, 0.08, 0.2)
FRICTIONS = (0.4, 0.9)
LARGEST_FRICTION = 0.3
TUNING_SEED = 2_000_000
ATTEMPTS = 4
CYCLE = 10.0 + PRODUCTS["as-lbfgs"] + MESSAGE
TICKS = (1, 2, 5, 10, 20, 40, 80)
RISES, STEADY = 1.1, 1.05
"""Iterations rise: by this factor from the first to the last W.  Time falls: no W takes longer than this
times the time of the W before."""


class Setting(NamedTuple):
    """A problem with H0 = c I, a cautious constant, and what of a message occupies the master."""

    problem: str
    scale: float
    epsilon: float
    serial: float = 0.0
    target: float = 0.05
    start: str = "prior"

    @property
    def choices(self) -> dict[str, str]:
        return {
            PROBLEM: problem_words(self.problem),
            LINK: f"b = {self.serial:g}",
            CAUTIOUS: f"cautious constant {self.epsilon:g}",
            H0: f"H₀ = {self.scale:g} I",
            TARGET: f"ε = {self.target:g}",
            START: START_WORDS[self.start],
        }

    @property
    def words(self) -> str:
        usual = (self.target, self.start) == (0.05, "prior")
        return ", ".join(list(self.choices.values())[: 3 if usual else None])


SETTINGS = {
    setting.words: setting
    for setting in (
        Setting("rows-alike-8", 0.3, SOME_PAIRS),
        Setting("rows-alike-8", 0.3, SOME_PAIRS, 2.0),
        Setting("rows-alike-8", 0.3, EVERY_PAIR),
        Setting("five-weak-10", 0.1, FEW_PAIRS),
        Setting("rows-alike-8", 0.2, SOME_PAIRS, target=0.1, start="far"),
    )
}


class Size(NamedTuple):
    """How much is measured; `most_commits` limits every run."""

    repetitions: int
    workers: tuple[int, ...]
    variances: tuple[float, ...] = (1.0, 200.0, 900.0)
    tuning_seeds: int = 2
    most_commits: float = 8000.0


QUICK = Size(6, (1, 3, 10, 40, 80))
FULL = Size(40, (1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 60, 80, 100), (1.0, 25.0, 200.0, 900.0), 3)


def fixed_parameters(setting: Setting) -> dict[str, Any]:
    """The table's parameters with H0 and the cautious constant of a setting."""
    return {**PAPER["as-lbfgs"], "initial_scale": setting.scale, "epsilon": setting.epsilon}


def parameters(setting: Setting, rate: float, friction: float, workers: int) -> dict[str, Any]:
    """The table's parameters with gamma and h from the numbers of the grid."""
    gamma = min(LARGEST_FRICTION, friction / workers)
    h = rate * gamma / (setting.scale**2 * consistency(setting.problem).largest)
    return {**fixed_parameters(setting), "gamma": gamma, "h": h}


def compute(context: Context) -> Tables:
    """Tables `grid`, `runs` and `parameters`."""
    size = FULL if context.full else QUICK
    tuning = range(TUNING_SEED + context.seed, TUNING_SEED + context.seed + size.tuning_seeds)
    fresh = range(context.seed, context.seed + size.repetitions)

    def job(
        role: str, point: tuple[str, float, int], own: dict[str, Any], seeds: range, **labels: Any
    ) -> tuple[Record, Job]:
        name, variance, W = point
        setting = SETTINGS[name]
        told = {"role": role, "setting": name, "h": own["h"], "gamma": own["gamma"], **labels}
        limit = size.most_commits * CYCLE / min(W, 40 if setting.serial else W)
        place = (W, setting.target, limit, setting.serial, setting.start)
        return told, Job(setting.problem, "as-lbfgs", given(own), variance, tuple(seeds), *place)

    points = [(name, v, W) for name in SETTINGS for v in size.variances for W in size.workers]
    grid = run_labelled(
        context,
        "Fig. 3, steps for every W",
        [
            job("grid", point, parameters(SETTINGS[point[0]], q, g, point[2]), tuning, rate=q, friction=g)
            for point in points
            for q in RATES
            for g in FRICTIONS
        ],
    )
    ranks = {(name, v, W): ranked(where(grid, setting=name, variance=v, workers=W)) for name, v, W in points}
    chosen: dict[tuple[str, float, int], list[Record]] = {}
    for attempt in range(ATTEMPTS):
        waiting = [point for point, steps in ranks.items() if point not in chosen and len(steps) > attempt]
        tries = [
            job("chosen", p, parameters(SETTINGS[p[0]], *ranks[p][attempt], p[2]), fresh) for p in waiting
        ]
        records = run_labelled(context, f"Fig. 3, repetitions, choice {attempt + 1}", tries)
        for k, point in enumerate(waiting):
            mine = records[k * len(fresh) : (k + 1) * len(fresh)]
            last = attempt == ATTEMPTS - 1 or len(ranks[point]) == attempt + 1
            if last or np.isfinite(column(mine, "time")).mean() >= 0.5:
                chosen[point] = mine
    runs = []
    for point in points:
        same = fixed_parameters(SETTINGS[point[0]])
        if point in chosen:
            step = {name: chosen[point][0][name] for name in ("h", "gamma")}
            runs.append(job("no pairs", point, without_pairs({**same, **step}), fresh))
        if point[1] == size.variances[-1]:
            runs.append(job("fixed", point, same, fresh))
    how = f"grid over q {RATES} and gamma W {FRICTIONS}"
    return {
        "grid": grid,
        "runs": [
            *(record for records in chosen.values() for record in records),
            *run_labelled(context, "Fig. 3, without pairs, and a fixed step", runs),
        ],
        "parameters": [
            {"setting": "chosen", "found by": how},
            {"setting": "fixed", "found by": "the paper's table, H0 and cautious constant of the setting"},
        ],
    }


def ranked(grid: Sequence[Record]) -> list[tuple[float, float]]:
    """(rate, friction) of those that always reach epsilon, the least mean time first."""
    found = []
    for q in distinct(grid, "rate"):
        for g in distinct(grid, "friction"):
            times = column(where(grid, rate=q, friction=g), "time")
            if np.isfinite(times).all():
                found.append((float(times.mean()), q, g))
    return [(q, g) for _, q, g in sorted(found)]


def draw(tables: Tables) -> dict[str, Any]:
    """The paper's two panels, iterations and time against W, for one setting; time in the others below."""
    names = list(SETTINGS)
    figure, axes = panels(2, 3, width=3.1, height=2.7)
    spots = [(axes[0][0], names[0], "commits"), (axes[0][1], names[0], "time")]
    spots += list(zip((axes[0][2], *axes[1]), names[1:], ("time",) * 4, strict=True))
    for axis, name, what in spots:
        axis.set(xscale="log", yscale="log")
        _panel(axis, where(tables["runs"], setting=name), what)
        axis.set_title(textwrap.fill(name, 40), fontsize=8)
        axis.set(
            xlabel="workers W", ylabel=rf"{'iterations' if what == 'commits' else 'time'} to $\varepsilon$"
        )
        axis.set_xticks(TICKS, [str(w) for w in TICKS])
        axis.minorticks_off()
        few_decades(axis)
    handles = axes[0][1].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=7.5)
    return {"fig3": figure}


def _panel(axis: Any, runs: Sequence[Record], what: str) -> None:
    variances = sorted(distinct(runs, "variance"))
    for role, words, looks in (
        ("chosen", "step chosen for every W", VARIANTS[1:]),
        ("no pairs", "the same, M = 0", (*CONTROLS, VARIANTS[0])),
    ):
        for variance, look in zip(variances, looks, strict=False):
            found = curve(where(runs, role=role, variance=variance), what, "workers")
            x, middle, low, high, _ = found
            band(axis, x, middle, low, high, rf"{words}, $\sigma_w^2$ = {variance:g}", look)
            if what == "time" and role == "chosen" and np.isfinite(middle).any():
                start = int(np.flatnonzero(np.isfinite(middle))[0])
                line = {"color": "black", "linewidth": 0.8, "linestyle": ":"}
                label = "linear speedup" if variance == variances[0] else None
                axis.plot(x, middle[start] * x[start] / x, label=label, **line)


def outcomes(tables: Tables) -> list[Outcome]:
    """Iterations up, time down, more so for steady workers; and where a fixed step fails."""
    found = []
    for name, setting in SETTINGS.items():
        runs = where(tables["runs"], setting=name)
        for variance in sorted(distinct(runs, "variance")):
            words = f"{name}, σ_w² = {variance:g}"
            chosen = where(runs, role="chosen", variance=variance)
            commits, times = (curve(chosen, what, "workers") for what in ("commits", "time"))
            plain = curve(where(runs, role="no pairs", variance=variance), "time", "workers")
            controls = _controls(chosen, times, plain)
            steps = [where(chosen, workers=int(w))[0]["h"] for w in (commits.x[0], commits.x[-1])]
            rises = bool(commits.mean[-1] > RISES * commits.mean[0]) if commits.arrives else None
            told = f"iterations {_ends(commits)}; h {steps[0]:.1e} at the first, {steps[1]:.1e} at the last"
            found.append(outcome("fig3-iterations", words, rises, told + controls, setting.choices))
            falls = bool((times.mean[1:] <= STEADY * times.mean[:-1]).all()) if times.arrives else None
            told = f"time {_ends(times)}: {times.mean[0] / times.mean[-1]:.1f} times faster"
            found.append(outcome("fig3-time", words, falls, told + controls, setting.choices))
        found += _spreads(name, setting, where(runs, role="chosen"))
    return [*found, *(_friction(tables, name) for name in SETTINGS)]


def _spreads(name: str, setting: Setting, chosen: Sequence[Record]) -> list[Outcome]:
    """The speedup with the steadiest workers against that with the others, from the first to the last W at
    which most runs of both arrive.

    Runs of one seed share their start and their samples, so the speedups are compared seed by seed: the claim
    holds where their ratio is above 1 by two standard errors, fails where it is as far below `STEADY`, and
    cannot be told otherwise.
    """
    found = []
    low, *others = sorted(distinct(chosen, "variance"))
    for high in others:
        words, choices = f"σ_w² = {low:g} against {high:g}", dict(setting.choices)
        choices[SPREAD] = words
        arrived = [
            {int(x) for x, share in zip(c.x, c.share, strict=True) if share >= 0.5}
            for c in (curve(where(chosen, variance=v), "time", "workers") for v in (low, high))
        ]
        both = sorted(set.intersection(*arrived))
        gains = _gains(chosen, low, high, both) if len(both) > 1 else np.array([])
        if gains.size < 2:
            found.append(outcome("fig3-variance", f"{name}, {words}", None, "too few runs arrive", choices))
            continue
        mean, error = gains.mean(), gains.std(ddof=1) / np.sqrt(gains.size)
        holds = True if mean > 2 * error else False if mean + 2 * error < np.log(STEADY) else None
        told = (
            f"speedup from W = {both[0]} to {both[-1]} at σ_w² = {low:g} over that at {high:g}: "
            f"{np.exp(mean):.3f}, two standard errors {np.exp(mean - 2 * error):.3f} to "
            f"{np.exp(mean + 2 * error):.3f} ({gains.size} seeds)"
        )
        found.append(outcome("fig3-variance", f"{name}, {words}", holds, told, choices))
    return found


def _gains(chosen: Sequence[Record], low: float, high: float, both: Sequence[int]) -> Any:
    """Logarithms of the ratio of the two speedups, for every seed whose four runs arrive."""
    times = {(r["variance"], r["workers"], r["seed"]): r["time"] for r in chosen if r["time"]}
    found = []
    for seed in distinct(chosen, "seed"):
        keys = [(v, W, seed) for v in (low, high) for W in (both[0], both[-1])]
        if all(key in times for key in keys):
            one, many, uneven_one, uneven_many = (float(times[key]) for key in keys)
            found.append(np.log(one / many) - np.log(uneven_one / uneven_many))
    return np.array(found)


def _controls(chosen: Sequence[Record], times: Curve, plain: Curve) -> str:
    """The share of accepted pairs, and the speedup without any."""
    words = accepted_words(chosen)
    if np.isfinite(plain.mean).all() and plain.x.size == times.x.size:
        words += f"; with M = 0 {plain.mean[0] / plain.mean[-1]:.1f} times faster ({_ends(plain)})"
    return f"; {words}" if words else ""


def _ends(found: Curve) -> str:
    return f"{found.mean[0]:.0f} at W = {found.x[0]}, {found.mean[-1]:.0f} at W = {found.x[-1]}"


def _friction(tables: Tables, name: str) -> Outcome:
    """Where the table's step fails against where equal delays forbid its friction."""
    fixed = curve(where(tables["runs"], role="fixed", setting=name), "time", "workers")
    lost = [int(w) for w, share in zip(fixed.x, fixed.share, strict=True) if share < 0.5]
    gamma = PAPER["as-lbfgs"]["gamma"]
    limits = [int(w) for w in fixed.x if gamma >= delay_limit(int(w) - 1)]
    because = f"most runs miss ε at {_workers(lost)}; equal delays forbid γ = {gamma:g} at {_workers(limits)}"
    return outcome("friction", name, lost == limits if limits else None, because)


def _workers(numbers: Sequence[int]) -> str:
    return f"W = {', '.join(map(str, numbers))}" if numbers else "no W"


EXPERIMENT = Experiment(
    "fig3",
    "Iterations and time to ε against the number of workers",
    "as-L-BFGS; lines are means, shades 10 to 90 % of the runs. The first two panels are the paper's, "
    "the others the time in other settings.",
    compute,
    draw,
    outcomes,
    quick="6 repetitions, 5 values of W, three of σ_w²",
    full="40 repetitions, 13 values of W, four of σ_w²",
    minutes=(1.0, 12.0),
)
