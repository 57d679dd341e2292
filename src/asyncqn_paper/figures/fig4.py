"""Figure 4: RMSE and gradient norm over time on MovieLens 1M, W = 10, three algorithms."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from asyncqn.types import Progress, Request
from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import ALGORITHM_STYLES, band, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.fig2 import INTEGRATOR, PAYS, QUORUM, START
from asyncqn_paper.figures.verdicts import tiles
from asyncqn_paper.movielens import (
    STARTS,
    TABLE,
    TIMINGS,
    Path,
    Timing,
    measured_cluster,
    model,
    race,
    run_on,
    start,
    timing_of,
)
from asyncqn_paper.records import Record
from asyncqn_paper.rules import Verdict, above, all_of, estimate, not_plausible
from asyncqn_paper.settings import (
    ENDLESS,
    NAMES,
    NOBODY,
    PAYERS,
    UPDATES_ONLY,
    Given,
    algorithm,
    given,
)

WORKERS = 10
POINTS = 60
STEPS = 4800
SEEDS = range(5)
FRESH_SEEDS = range(100, 110)
SGD, MB, AS = NAMES
PACE = "gradients"
MEASURED = "as fast as measured"
SLOW = "as slow as T_mb says"


@dataclass(frozen=True)
class Factorization(Cell):
    """One run, for the simulated time of `STEPS` steps of a-SGD."""

    table: ClassVar[str] = "factorization"
    kind: str
    parameters: Given
    start: str
    payer: str
    slow: bool
    seed: int

    @property
    def duration(self) -> float:
        """Simulated time of the run, the same for every method."""
        return STEPS * _interval(timing_of(SGD, self.slow), SGD, self.payer)

    def measure(self) -> list[Record]:
        timing = timing_of(self.kind, self.slow)
        machines = measured_cluster(timing, WORKERS, self.payer)
        duration = self.duration

        def stop(progress: Progress) -> None:
            if progress.time > duration:
                raise StopIteration

        # Rows are spread evenly over the simulated time, whatever a method commits in it.
        pace = _interval(timing, self.kind, self.payer)
        request = Request(
            model(),
            algorithm(self.kind, self.parameters),
            theta0=start(self.start, self.seed),
            seed=self.seed,
            callback=stop,
            commits=ENDLESS,
            evaluate=max(1, int(duration / pace / POINTS)),
        )
        return run_on(machines, request)


def _interval(timing: Timing, kind: str, payer: str) -> float:
    """Return the approximate time from one commit to the next."""
    # A message that is paid keeps the link for half of the exchange.
    kept = 0.0 if payer == NOBODY else timing.message / 2.0
    if kind == MB:
        # A round waits for a worker and a commit, and its messages to all workers share one link.
        return timing.worker + timing.master + timing.message + kept * WORKERS
    # Either the workers limit the pace, or the master does with its commit and the two messages of an update.
    return max(sum(timing) / WORKERS, timing.master + 2.0 * kept)


Choices = dict[str, str]
AXES = {
    PACE: (SLOW, MEASURED),
    INTEGRATOR: ("explicit", "modified"),
    QUORUM: ("1", "0.5"),
    PAYS: tuple(PAYERS),
    START: tuple(STARTS),
}
"""What the paper leaves open."""
SETTINGS: list[Choices] = [
    dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())
]
STATED = {
    PACE: SLOW,
    INTEGRATOR: "explicit",
    QUORUM: "1",
    PAYS: UPDATES_ONLY,
    START: "mean",
}
"""The setting that `rules.strongest` finds on the seeds of the map."""


def run_of(choices: Choices, kind: str, seed: int) -> Factorization:
    """Return the cell of one run."""
    own = dict(TABLE[kind])
    slow = choices[PACE] == SLOW
    if kind == MB:
        own["quorum"] = float(choices[QUORUM])
        if not slow:
            # The printed timeout suits gradients that are as slow as it says; for those of today it is scaled.
            own["timeout"] = 1.2 * TIMINGS[MB].worker
    if kind == AS:
        own["integrator"] = choices[INTEGRATOR]
    return Factorization(kind, given(own), choices[START], choices[PAYS], slow, seed)


def cells() -> list[Cell]:
    """Return the runs of the map, and those of the stated setting."""
    found: list[Cell] = []
    for choices in SETTINGS:
        for kind in NAMES:
            found += [run_of(choices, kind, seed) for seed in SEEDS]
    for kind in NAMES:
        found += [run_of(STATED, kind, seed) for seed in FRESH_SEEDS]
    return found


Runs = dict[str, list[Path]]


def runs_of(get: Get, choices: Choices, seeds: range) -> Runs:
    """Return the runs of every method."""
    runs: Runs = {kind: [] for kind in NAMES}
    for kind in NAMES:
        for seed in seeds:
            cell = run_of(choices, kind, seed)
            # A row is written every sixtieth of the duration.
            runs[kind].append(Path.of(get(cell), "time", 0.9 * cell.duration))
    return runs


def jitter(run: Path) -> float:
    """Return the spread of the second differences of the log gradient norm, in the second half of a run.

    Second differences remove the trend, which falls like a straight line over three neighbouring rows.
    """
    norms = run.grad_norm[run.grad_norm > 0.0]
    return float(np.std(np.diff(np.log(norms[len(norms) // 2 :]), 2)))


def judge(runs: Runs, choices: Choices) -> list[Verdict]:
    """Return the outcomes of the claims of Fig. 4 in one setting."""
    lasts = {kind: np.array([run.last for run in runs[kind]]) for kind in NAMES}
    if not np.isfinite([lasts[SGD], lasts[AS]]).all():
        return not_plausible("fig4", choices, "the table's parameters diverge")
    # Ten stars stand for a run that diverged: any number above the scale would do.
    ends = {kind: np.minimum(values, 10.0) for kind, values in lasts.items()}
    poorer = [
        above("fig4-rmse", choices, estimate(ends[MB] - ends[kind]))
        for kind in (SGD, AS)
    ]
    noise = {kind: np.array([jitter(run) for run in runs[kind]]) for kind in (SGD, AS)}
    parts = [
        above("fig4-mb", choices, race(runs[MB], runs[AS])),
        above("fig4-gain", choices, race(runs[SGD], runs[AS])),
        all_of("fig4-rmse", choices, poorer),
        above("fig4-fluctuates", choices, estimate(np.log(noise[AS] / noise[SGD]))),
    ]
    return [*parts, all_of("fig4", choices, parts)]


def outcomes(get: Get) -> list[Verdict]:
    """Return the outcome of every claim in every setting of the map."""
    found: list[Verdict] = []
    for choices in SETTINGS:
        found += judge(runs_of(get, choices, SEEDS), choices)
    return found


def stated(get: Get) -> list[Verdict]:
    """Return the outcomes in the stated setting, on fresh seeds."""
    words = {
        PACE: "gradients are as slow as the printed timeout implies",
        START: "runs start near the mean",
    }
    return judge(runs_of(get, STATED, FRESH_SEEDS), words)


def still_falling(get: Get) -> tuple[float, float]:
    """Return the mean RMSE of mb-L-BFGS at half time and at the end, in the stated setting."""
    runs = runs_of(get, STATED, FRESH_SEEDS)[MB]
    half = np.mean([run.rmse[len(run.rmse) // 2] for run in runs])
    return float(half), float(np.mean([run.last for run in runs]))


def draw(get: Get) -> dict[str, Any]:
    """Draw RMSE and gradient norm over time, with three standard deviations; and the map."""
    marks = {}
    for outcome in outcomes(get):
        choices = outcome.choices
        plain = (choices[INTEGRATOR], choices[QUORUM]) == ("explicit", "1")
        if outcome.claim == "fig4-gain" and plain:
            row = f"{choices[PACE]},\n{STARTS[choices[START]]}"
            marks[row, choices[PAYS]] = outcome
    runs = runs_of(get, STATED, FRESH_SEEDS)
    figure, axes = panels(1, 2, width=2.5, height=2.5)
    for axis, name in zip(axes[0], ("rmse", "grad_norm"), strict=True):
        for kind, mine in runs.items():
            shortest = min(len(run.time) for run in mine)
            values = np.array([getattr(run, name)[:shortest] for run in mine])
            look = {**ALGORITHM_STYLES[kind], "markevery": max(1, shortest // 8)}
            times = np.median([run.time[:shortest] for run in mine], axis=0)
            band(axis, times, values, NAMES[kind], look)
        axis.set_xlabel("time (s, simulated)")
    axes[0][0].set_ylabel("RMSE (stars)")
    axes[0][1].set(ylabel="gradient norm", yscale="log")
    few_decades(axes[0][1])
    axes[0][0].legend(fontsize=7)
    return {"fig4": figure, "fig4_map": tiles(marks, "gradients, start")}


EXPERIMENT = Experiment(
    "fig4",
    "Lead over a-SGD, by gradients, start and who pays",
    "Lead over a-SGD on MovieLens 1M, W = 10. Time is simulated from measured steps and a link of 10 Gbit/s, or "
    "from gradients as slow as the printed T_mb says.",
    cells,
    outcomes,
    draw,
    stated,
)
