"""Figure 4: RMSE and gradient norm over time on MovieLens 1M, W = 10, three algorithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from asyncqn import Run, Simulator
from asyncqn.types import Progress, Request
from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import ALGORITHM_STYLES, band, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.fig2 import INTEGRATOR, PAYS, QUORUM, START
from asyncqn_paper.figures.verdicts import tiles
from asyncqn_paper.measuring import commits_within
from asyncqn_paper.movielens import (
    STARTS,
    TIMINGS,
    Timing,
    measured_cluster,
    model,
    parameters,
    set_of,
    slowed,
    start,
)
from asyncqn_paper.records import Record
from asyncqn_paper.rules import CLAIMS, GREY, Estimate, Outcome, above, all_of, estimate
from asyncqn_paper.settings import (
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
SEEDS = 5
FRESH = 100
FRESH_SEEDS = 10
SGD, MB, AS = NAMES
PACE = "gradients"
MEASURED = "as fast as measured"
SLOW = "as slow as T_mb says"


@dataclass(frozen=True)
class Factorization(Cell):
    """One run, for the simulated time of so many steps of a-SGD."""

    table: ClassVar[str] = "factorization"
    ratings: str
    kind: str
    parameters: Given
    start: str
    payer: str
    slow: bool
    steps: int
    seed: int

    def timing(self, kind: str) -> Timing:
        """Return the times of a method."""
        return slowed(kind, TIMINGS[kind]) if self.slow else TIMINGS[kind]

    @property
    def duration(self) -> float:
        """Return how long the run lasts, whatever the method."""
        return self.steps * _interval(self.timing(SGD), SGD, self.payer)

    def measure(self) -> list[Record]:
        problem = model(self.ratings)
        method = algorithm(self.kind, self.parameters)
        timing = self.timing(self.kind)
        machines = measured_cluster(timing, WORKERS, self.payer)
        duration = self.duration

        def stop(progress: Progress) -> None:
            if progress.time > duration:
                raise StopIteration

        # Rows are spread evenly over the simulated time, whatever a method commits in it.
        pace = _interval(timing, self.kind, self.payer)
        request = Request(
            problem,
            method,
            theta0=start(problem, self.start, self.seed),
            seed=self.seed,
            callback=stop,
            commits=commits_within(method, machines, duration),
            evaluate=max(1, int(duration / pace / POINTS)),
        )
        return along(Simulator(machines).minimize(request), self.seed)


def along(run: Run, seed: int) -> list[Record]:
    """Return RMSE and gradient norm along a run; None where they are not finite."""
    rows = (run.metrics.row(i) for i in range(run.metrics.rows))
    return [
        {"seed": seed, "commit": int(row["commit"]), "time": float(row["time"])}
        | {
            n: float(row[n]) if math.isfinite(row[n]) else None
            for n in ("rmse", "grad_norm")
        }
        for row in rows
    ]


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


def settings() -> list[Choices]:
    """Return every combination of what the paper leaves open; those with the printed T_mb come first."""
    return [
        {START: at, PAYS: payer, PACE: pace, INTEGRATOR: integrator, QUORUM: quorum}
        for pace in (SLOW, MEASURED)
        for integrator in ("explicit", "modified")
        for quorum in ("1", "0.5")
        for payer in PAYERS
        for at in STARTS
    ]


STATED = {
    START: "mean",
    PAYS: UPDATES_ONLY,
    PACE: SLOW,
    INTEGRATOR: "explicit",
    QUORUM: "1",
}
"""The setting that `rules.strongest` finds on the seeds of the map."""


def run_of(choices: Choices, kind: str, seed: int, full: bool) -> Factorization:
    """Return the cell of one run."""
    name, n_data = set_of(full)
    own = parameters("1m", n_data)[kind]
    if kind == MB:
        # The printed timeout suits gradients that are as slow as it says; for those of today it is scaled.
        timeout = 0.4 if choices[PACE] == SLOW else 1.2 * TIMINGS[MB].worker
        own |= {"quorum": float(choices[QUORUM]), "timeout": timeout}
    if kind == AS:
        own |= {"integrator": choices[INTEGRATOR]}
    place = (choices[START], choices[PAYS], choices[PACE] == SLOW)
    return Factorization(name, kind, given(own), *place, STEPS if full else 300, seed)


def _size(full: bool) -> tuple[list[Choices], range, range]:
    """Return the settings of the map, its seeds, and the fresh seeds of the stated setting."""
    if full:
        return settings(), range(SEEDS), range(FRESH, FRESH + FRESH_SEEDS)
    return [STATED], range(3), range(3, 6)


def cells(full: bool) -> list[list[Cell]]:
    """Return the runs of the map, and those of the stated setting."""
    every, seeds, fresh = _size(full)
    tuning = [run_of(c, k, s, full) for c in every for k in NAMES for s in seeds]
    return [[*tuning], [run_of(STATED, k, s, full) for k in NAMES for s in fresh]]


Runs = dict[str, list[list[Record]]]


def _rows(get: Get, full: bool, choices: Choices, seeds: range) -> Runs | None:
    """Return the runs of every method; None where one is missing."""
    found = {}
    for kind in NAMES:
        cells = [run_of(choices, kind, s, full) for s in seeds]
        runs = [get(cell) for cell in cells]
        if any(run is None for run in runs):
            return None
        # A row is written every sixtieth of the duration.
        found[kind] = [
            closed(run or [], "time", 0.9 * cell.duration)
            for run, cell in zip(runs, cells, strict=True)
        ]
    return found


def closed(run: list[Record], name: str, end: float) -> list[Record]:
    """Return the run; if it ended before `end`, it diverged, and a last row without an RMSE is added."""
    return (
        [*run, {**run[-1], "rmse": None, "grad_norm": None}]
        if run[-1][name] < end
        else run
    )


def last(run: Sequence[Record]) -> float:
    """Return the last RMSE; infinite where the run diverged."""
    value = run[-1]["rmse"]
    # A run that ends at more than twice the RMSE of its start has diverged, even if its numbers are finite.
    return math.inf if value is None or value > 2.0 * run[0]["rmse"] else float(value)


def first_below(
    run: Sequence[Record], target: float, name: str = "time"
) -> float | None:
    """Return when the RMSE first was at most `target`, interpolated between rows; None: never."""
    before = run[0]
    for row in run:
        if row["rmse"] is not None and row["rmse"] <= target:
            if row is before or before["rmse"] is None:
                return float(row[name])
            # Between two rows the RMSE falls along a line.
            share = (before["rmse"] - target) / max(before["rmse"] - row["rmse"], 1e-12)
            return float(before[name] + share * (row[name] - before[name]))
        before = row
    return None


def race(
    slow: Sequence[Sequence[Record]],
    quick: Sequence[Sequence[Record]],
    name: str = "time",
) -> Estimate | str:
    """Estimate log(time of `slow` / time of `quick`) to the RMSE at which the slower ends, run by run.

    A run that diverged is stopped early, so its own last time is no limit: it counts as the longest run of
    both sets, as the rules ask of runs that do not arrive.
    """
    limit = max(float(run[-1][name]) for run in (*slow, *quick))
    logs = []
    tied = 0
    for a, b in zip(slow, quick, strict=True):
        ends = [end for end in (last(a), last(b)) if math.isfinite(end)]
        if not ends:
            return "a pair of runs diverged"
        times = []
        for run in (a, b):
            reached = (
                first_below(run, max(ends), name) if math.isfinite(last(run)) else None
            )
            times.append(limit if reached is None else reached)
        tied += times == [0.0, 0.0]
        # A run that starts at the target has the time 0.
        logs.append(math.log(max(times[0], 1e-9) / max(times[1], 1e-9)))
    return "both start there" if 2 * tied >= len(logs) else estimate(logs)


def jitter(run: Sequence[Record]) -> float:
    """Return the spread of the second differences of the log gradient norm, in the second half of a run.

    Second differences remove the trend, which falls like a straight line over three neighbouring rows.
    """
    norms = [row["grad_norm"] for row in run if row["grad_norm"]]
    return float(np.std(np.diff(np.log(norms[len(norms) // 2 :]), 2)))


def judge(runs: Runs, choices: Choices) -> list[Outcome]:
    """Return the outcomes of the claims of Fig. 4 in one setting."""
    parts = CLAIMS["fig4"].parts
    whole = [math.isfinite(last(run)) for kind in (SGD, AS) for run in runs[kind]]
    if not all(whole):
        because = "the table's parameters diverge"
        return [
            Outcome(claim, choices, GREY, because=because) for claim in (*parts, "fig4")
        ]
    # Ten stars stand for a run that diverged: any number above the scale would do.
    ends = {
        kind: np.array([min(last(run), 10.0) for run in mine])
        for kind, mine in runs.items()
    }
    poorer = [
        above("fig4-rmse", choices, estimate(ends[MB] - ends[kind]))
        for kind in (SGD, AS)
    ]
    apart = [
        math.log(jitter(a) / jitter(b))
        for a, b in zip(runs[AS], runs[SGD], strict=True)
    ]
    found = [
        above("fig4-mb", choices, race(runs[MB], runs[AS])),
        above("fig4-gain", choices, race(runs[SGD], runs[AS])),
        all_of("fig4-rmse", choices, poorer),
        above("fig4-fluctuates", choices, estimate(apart)),
    ]
    return [*found, all_of("fig4", choices, found)]


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcome of every claim in every finished setting of the map."""
    every, seeds, _ = _size(full)
    found: list[Outcome] = []
    for choices in every:
        runs = _rows(get, full, choices, seeds)
        if runs is not None:
            found += judge(runs, choices)
    return found


def stated(get: Get, full: bool) -> list[Outcome]:
    """Return the outcomes in the stated setting, on fresh seeds."""
    runs = _rows(get, full, STATED, _size(full)[2])
    words = {PACE: f"gradients are {STATED[PACE]}", START: "runs start near the mean"}
    return (
        [] if runs is None else [o._replace(choices=words) for o in judge(runs, STATED)]
    )


def still_falling(get: Get, full: bool) -> tuple[float, float]:
    """Return the mean RMSE of mb-L-BFGS at half time and at the end, in the stated setting."""
    runs = _rows(get, full, STATED, _size(full)[2])
    if runs is None:
        return math.nan, math.nan
    halves = [run[len(run) // 2]["rmse"] for run in runs[MB]]
    return float(np.mean(halves)), float(np.mean([last(run) for run in runs[MB]]))


def draw(get: Get, full: bool) -> dict[str, Any]:
    """Draw RMSE and gradient norm over time, with three standard deviations; and the map."""
    every, _, fresh = _size(full)
    shown = [c for c in every if (c[INTEGRATOR], c[QUORUM]) == ("explicit", "1")]
    rows = {(c[PACE], STARTS[c[START]]): c for c in shown}
    figures = {}
    found = outcomes(get, full)
    if found:
        words = [f"{pace},\n{at}" for pace, at in rows]
        heads = list(dict.fromkeys(c[PAYS] for c in shown))
        marks = {
            (f"{o.choices[PACE]},\n{STARTS[o.choices[START]]}", o.choices[PAYS]): o
            for o in found
            if o.claim == "fig4-gain" and o.choices in shown
        }
        figures["fig4_map"] = tiles(words, heads, marks, "gradients, start")
    runs = _rows(get, full, STATED, fresh)
    if runs is None:
        return figures
    figure, axes = panels(1, 2, width=2.5, height=2.5)
    for axis, name in zip(axes[0], ("rmse", "grad_norm"), strict=True):
        for kind, mine in runs.items():
            shortest = min(map(len, mine))
            table = np.array(
                [[[r["time"], r[name]] for r in run[:shortest]] for run in mine]
            )
            middle = table[:, :, 1].mean(axis=0)
            wide = 3.0 * table[:, :, 1].std(axis=0)
            look = {**ALGORITHM_STYLES[kind], "markevery": max(1, shortest // 8)}
            times = np.median(table[:, :, 0], axis=0)
            band(axis, times, middle, middle - wide, middle + wide, NAMES[kind], look)
        axis.set_xlabel("time (s, simulated)")
    axes[0][0].set_ylabel("RMSE (stars)")
    axes[0][1].set(ylabel="gradient norm", yscale="log")
    few_decades(axes[0][1])
    axes[0][0].legend(fontsize=7)
    return {"fig4": figure, **figures}


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
