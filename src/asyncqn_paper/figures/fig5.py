"""Figures 5 and S1: as-L-BFGS on MovieLens 1M for W = 1 ... 20: speedup, instability, and its cure.

The table's step serves every W in the figure.  On the map stands beside it the step that is the best for each
W, of the same five shares of the table's h on the same tuning seeds.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from asyncqn.types import Request
from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import VARIANTS, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.fig2 import INTEGRATOR, PAYS, START
from asyncqn_paper.figures.fig4 import MEASURED, PACE, SLOW
from asyncqn_paper.figures.fig4 import STATED as FIG4
from asyncqn_paper.movielens import (
    TABLE,
    Path,
    measured_cluster,
    model,
    race,
    run_on,
    start,
    timing_of,
)
from asyncqn_paper.records import Record
from asyncqn_paper.rules import (
    Estimate,
    Verdict,
    above,
    all_of,
    not_plausible,
    share_of,
)
from asyncqn_paper.settings import (
    EVERYONE,
    NOBODY,
    UPDATES_ONLY,
    Given,
    algorithm,
    given,
)

WORKERS = (1, 2, 5, 10, 15, 20)
TUNED_WORKERS = (1, 5, 10, 20)
COMMITS = 1000
SEEDS = range(10)
FRESH_SEEDS = range(10, 26)
TUNING = range(2000, 2003)
FEW = 3
"""Seeds of runs whose times are compared, which hardly vary; shares of stable runs need all seeds."""
EVERY = 20
POINTS = ((1, 1.0), (2, 1.0), (5, 1.0), (10, 1.0), (15, 1.0), (20, 0.5), (20, 1.0))
"""W and the share of the step."""
SHARED = ((10, 1.0), (20, 1.0), (20, 0.5))
"""Those whose shares of stable runs are compared."""
SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Shares of the table's step h that are tried for every W."""
PAID = {NOBODY: "no message paid", EVERYONE: "all paid", UPDATES_ONLY: "answers paid"}
GOAL = 0.95
"""RMSE to which the speedup of tuned steps is measured."""


@dataclass(frozen=True)
class Speedup(Cell):
    """One run with W workers, with gradients as fast as measured or as slow as the printed timeout says."""

    table: ClassVar[str] = "speedup"
    start: str
    payer: str
    parameters: Given
    workers: int
    slow: bool
    seed: int

    def measure(self) -> list[Record]:
        timing = timing_of("as-lbfgs", self.slow)
        machines = measured_cluster(timing, self.workers, self.payer)
        request = Request(
            model(),
            algorithm("as-lbfgs", self.parameters),
            theta0=start(self.start, self.seed),
            commits=COMMITS,
            seed=self.seed,
            evaluate=EVERY,
        )
        return run_on(machines, request)


Choices = dict[str, str]
# A tree of broadcasts changes nothing where replies go to one worker.
SETTINGS: list[Choices] = [
    {PACE: MEASURED, START: at, PAYS: payer, INTEGRATOR: integrator}
    for integrator, payer, at in itertools.product(
        ("explicit", "modified"), PAID, ("mean", "prior")
    )
]
STATED = {PACE: MEASURED, START: "mean", PAYS: NOBODY, INTEGRATOR: "explicit"}
"""The setting that `rules.strongest` finds on the seeds of the map."""
OF_FIG4 = {axis: FIG4[axis] for axis in (PACE, START, PAYS, INTEGRATOR)}
"""The cluster of Fig. 4, measured on the fresh seeds."""
MAP = [*((choices, SEEDS) for choices in SETTINGS), (OF_FIG4, FRESH_SEEDS)]


def run_of(choices: Choices, workers: int, seed: int, share: float = 1.0) -> Speedup:
    """Return the cell of one run with a `share` of the SDE's step h: h' falls by its square, gamma' by it."""
    own = dict(TABLE["as-lbfgs"])
    # Half the step of the SDE, not half of h': the friction has to fall with it, or the scheme is another
    # one.
    own["h"] *= share**2
    own["gamma"] *= share
    own["integrator"] = choices[INTEGRATOR]
    slow = choices[PACE] == SLOW
    return Speedup(choices[START], choices[PAYS], given(own), workers, slow, seed)


def point_cells(choices: Choices, seeds: range, W: int, share: float) -> list[Speedup]:
    """Return the runs of one point of a setting."""
    mine = seeds if (W, share) in SHARED else seeds[:FEW]
    return [run_of(choices, W, seed, share) for seed in mine]


def cells() -> list[Cell]:
    """Return the runs of the map, those of the stated setting, and those of tuned steps."""
    found: list[Cell] = []
    for choices, seeds in (*MAP, (STATED, FRESH_SEEDS)):
        for W, share in POINTS:
            found += point_cells(choices, seeds, W, share)
    for W, share in itertools.product(TUNED_WORKERS, SHARES):
        found += [run_of(STATED, W, seed, share) for seed in TUNING]
    return found


Runs = dict[tuple[int, float], list[Path]]


def runs_of(get: Get, choices: Choices, seeds: range) -> Runs:
    """Return the runs of a setting by W and share of the step."""
    runs = {}
    for W, share in POINTS:
        mine = point_cells(choices, seeds, W, share)
        runs[W, share] = [Path.of(get(cell), "commit", COMMITS) for cell in mine]
    return runs


def stable_share(runs: list[Path]) -> list[float]:
    """Return 1 for every stable run and 0 for the others."""
    return [run.stable for run in runs]


def _speedup(runs: Runs, W: int, axis: str = "time") -> Estimate | str:
    """Estimate log(time of one worker / time of W), seed by seed."""
    return race(runs[1, 1.0][:FEW], runs[W, 1.0][:FEW], axis)


def judge(runs: Runs, choices: Choices) -> list[Verdict]:
    """Return the outcomes of the claims of Figs. 5 and S1 in one setting."""
    steady = stable_share(runs[1, 1.0] + runs[10, 1.0])
    if np.mean(steady) < 0.9:
        because = "the table's parameters diverge up to W = 10"
        return [
            *not_plausible("fig5", choices, because),
            *not_plausible("s1", choices, because),
        ]
    # Seed by seed, as all comparisons.
    lost = np.subtract(stable_share(runs[10, 1.0]), stable_share(runs[20, 1.0]))
    cured = share_of(stable_share(runs[20, 0.5]))
    parts = [
        above("fig5-linear", choices, _speedup(runs, 10)),
        above("fig5-unstable", choices, share_of(lost.tolist())),
        above("fig5-step", choices, cured),
    ]
    iterations = above("s1", choices, _speedup(runs, 10, "commit"))
    return [*parts, all_of("fig5", choices, parts), iterations]


def outcomes(get: Get) -> list[Verdict]:
    """Return the outcome of every claim in every setting of the map."""
    found: list[Verdict] = []
    for choices, seeds in MAP:
        found += judge(runs_of(get, choices, seeds), choices)
    return found


def stated(get: Get) -> list[Verdict]:
    """Return the outcomes in the stated setting, on fresh seeds."""
    words = {PAYS: "nobody pays for messages", START: "runs start near the mean"}
    return judge(runs_of(get, STATED, FRESH_SEEDS), words)


def best_steps(get: Get) -> dict[int, tuple[float, float]]:
    """Return, by W, the share of the table's step with the least mean time to `GOAL`, and this time."""
    best = {}
    for W in TUNED_WORKERS:
        times = {}
        for share in SHARES:
            cells = [run_of(STATED, W, seed, share) for seed in TUNING]
            runs = [Path.of(get(cell), "commit", COMMITS) for cell in cells]
            reached = [run.first_below(GOAL) for run in runs]
            if None not in reached and all(run.stable for run in runs):
                times[share] = float(np.mean(np.array(reached, float)))
        share = min(times, key=lambda one: times[one])
        best[W] = (share, times[share])
    return best


def draw(get: Get) -> dict[str, Any]:
    """Draw Fig. 5 and Fig. S1 in the stated setting, and the map."""
    runs = runs_of(get, STATED, FRESH_SEEDS)
    whole, axes = panels(1, 2, width=2.5, height=2.5)
    _along(axes[0][0], runs, "time", "time (s, simulated)")
    axes[0][0].set_xscale("log")
    _speedups(axes[0][1], runs, "as-L-BFGS", VARIANTS[3])
    axes[0][1].plot(WORKERS, WORKERS, color="black", linestyle=":", linewidth=0.8)
    axes[0][1].set(xlabel="workers W", ylabel="time speedup")
    axes[0][1].text(20, 1.5, "W = 20:\nunstable", fontsize=7, ha="right")
    single, axes = panels(1, 1, width=3.6, height=2.7)
    _along(axes[0][0], runs, "commit", "iterations")
    return {"fig5": whole, "figS1": single, "fig5_map": _draw_map(get)}


def _draw_map(get: Get) -> Any:
    """Draw the speedup with the table's step by who pays, and that with the best step of each W."""
    figure, axes = panels(1, 2, width=3.4, height=2.8)
    left, right = axes[0]
    shown = [c for c in SETTINGS if (c[START], c[INTEGRATOR]) == ("mean", "explicit")]
    for choices, look in zip((OF_FIG4, *shown), VARIANTS[1:], strict=False):
        seeds = FRESH_SEEDS if choices is OF_FIG4 else SEEDS
        pace = "slow" if choices[PACE] == SLOW else "fast"
        label = f"{pace} gradients, {PAID[choices[PAYS]]}"
        _speedups(left, runs_of(get, choices, seeds), label, look)
    left.set_title("the table's step", fontsize=8)
    right.set_title(f"the best step of each W, to RMSE {GOAL:g}", fontsize=8)
    best = best_steps(get)
    speed = [best[1][1] / time for _, time in best.values()]
    right.plot(list(best), speed, **VARIANTS[3])
    for (W, (share, _)), y in zip(best.items(), speed, strict=True):
        place = {"xytext": (4, -9), "textcoords": "offset points"}
        right.annotate(f"h × {share:g}", (W, y), fontsize=6.5, **place)
    for axis in axes[0]:
        axis.plot(WORKERS, WORKERS, color="black", linestyle=":", linewidth=0.8)
        axis.set(xlabel="workers W", ylabel="speedup in time")
        axis.set(xscale="log", yscale="log")
        axis.set_xticks(WORKERS, [f"{W:g}" for W in WORKERS])
        axis.minorticks_off()
        few_decades(axis)
    left.legend(fontsize=6.5)
    return figure


def _along(axis: Any, runs: Runs, name: str, words: str) -> None:
    """Draw the median RMSE over time or iterations, for every W."""
    looks = (*VARIANTS[: len(runs) - 1], {"color": "black", "linestyle": "--"})
    order = sorted(runs, key=lambda one: (-one[1], one[0]))
    for (W, share), look in zip(order, looks, strict=True):
        mine = runs[W, share]
        length = max(len(run.rmse) for run in mine)
        # Missing values, as after a divergence, lie far above the axis.
        values = np.full((len(mine), length), 10.0)
        for line, run in zip(values, mine, strict=True):
            line[: len(run.rmse)] = np.nan_to_num(run.rmse, nan=10.0)
        whole = [getattr(run, name) for run in mine if len(run.rmse) == length]
        label = f"W = {W}" + (", half the step" if share < 1.0 else "")
        middle = np.median(values, axis=0)
        style = {**look, "markevery": 8}
        axis.plot(np.median(whole, axis=0)[1:], middle[1:], label=label, **style)
    top = runs[1, 1.0][0].rmse[0]
    axis.set(xlabel=words, ylabel="RMSE (stars)", ylim=(0.82, 1.05 * top))
    axis.legend(fontsize=5.5, ncols=2, loc="lower left")


def _speedups(axis: Any, runs: Runs, label: str, look: dict[str, Any]) -> None:
    """Draw the time of W = 1 over that of W workers, with two errors, where runs are stable."""
    x = [1]
    y = [1.0]
    bars = [0.0]
    for W in WORKERS[1:]:
        gain = _speedup(runs, W)
        steady = np.mean(stable_share(runs[W, 1.0]))
        if not isinstance(gain, str) and steady > 0.5:
            x.append(W)
            y.append(math.exp(gain.value))
            bars.append(y[-1] * min(0.9, 2.0 * gain.error))
    axis.errorbar(x, y, yerr=bars, label=label, capsize=2, **look)


EXPERIMENT = Experiment(
    "fig5",
    "Speedup on MovieLens 1M, by who pays and how slow gradients are",
    "Left: the table's step; where gradients are slow and uneven, W = 20 oscillates and does not diverge.",
    cells,
    outcomes,
    draw,
    stated,
)
