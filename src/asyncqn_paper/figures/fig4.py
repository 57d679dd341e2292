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
from asyncqn_paper.drawing import ALGORITHM_STYLES, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.fig2 import INTEGRATOR, PAYS, QUORUM, START
from asyncqn_paper.figures.verdicts import estimates, verdict_bars
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
from asyncqn_paper.rules import UNDECIDED, Estimate, Outcome, above, all_of, estimate
from asyncqn_paper.settings import (
    EVERYONE,
    NAMES,
    NOBODY,
    PAYERS,
    Given,
    algorithm,
    given,
)

WORKERS = 10
POINTS = 60
STEPS = 4800
SEEDS = 10
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


def settings() -> list[list[Choices]]:
    """Return the settings in batches."""
    every = [
        {START: at, PAYS: payer, PACE: pace, INTEGRATOR: integrator, QUORUM: quorum}
        for integrator in ("explicit", "modified")
        for quorum in ("1", "0.5")
        for pace in (MEASURED, SLOW)
        for payer in PAYERS
        for at in STARTS
    ]
    plain = [
        one for one in every if (one[INTEGRATOR], one[QUORUM]) == ("explicit", "1")
    ]
    quick = [one for one in plain if one[PACE] == MEASURED]
    first = [one for one in quick if one[PAYS] == NOBODY and one[START] == "prior"]
    second = [
        one for one in quick if one[PAYS] in (NOBODY, EVERYONE) and one not in first
    ]
    third = [one for one in plain if one[PACE] == SLOW and one[PAYS] == NOBODY]
    return [
        first,
        second,
        third,
        [one for one in every if one not in (*first, *second, *third)],
    ]


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


def _size(full: bool) -> tuple[list[list[Choices]], int]:
    return (settings(), SEEDS) if full else ([settings()[0][:1]], 3)


def cells(full: bool) -> list[list[Cell]]:
    """Return the cells: every run of every setting."""
    batches, seeds = _size(full)
    return [
        [
            run_of(c, kind, s, full)
            for c in batch
            for kind in NAMES
            for s in range(seeds)
        ]
        for batch in batches
    ]


def _rows(
    get: Get, full: bool, choices: Choices
) -> dict[str, list[list[Record]]] | None:
    """Return the runs of every method; None where one is missing."""
    _, seeds = _size(full)
    found = {}
    for kind in NAMES:
        cells = [run_of(choices, kind, s, full) for s in range(seeds)]
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


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcome of every claim in every finished setting."""
    found: list[Outcome] = []
    batches, _ = _size(full)
    for choices in (choices for batch in batches for choices in batch):
        runs = _rows(get, full, choices)
        if runs is None:
            continue

        def told(
            claim: str, value: Estimate | str, choices: Choices = choices
        ) -> Outcome:
            if isinstance(value, str):
                return Outcome(claim, choices, UNDECIDED, because=value)
            return above(claim, choices, value)

        mb = told("fig4-mb", race(runs[MB], runs[AS]))
        gain = told("fig4-gain", race(runs[SGD], runs[AS]))
        # Ten stars stand for a run that diverged: any number above the scale would do.
        ends = {
            kind: np.array([min(last(run), 10.0) for run in mine])
            for kind, mine in runs.items()
        }
        poorer = [
            told("fig4-rmse", estimate(ends[MB] - ends[kind])) for kind in (SGD, AS)
        ]
        # The jitter of a run that diverges is that of its explosion.
        whole = [
            run for kind in (SGD, AS) for run in runs[kind] if math.isfinite(last(run))
        ]
        if len(whole) == len(runs[SGD]) + len(runs[AS]):
            apart = [
                math.log(jitter(a) / jitter(b))
                for a, b in zip(runs[AS], runs[SGD], strict=True)
            ]
            fluctuates = told("fig4-fluctuates", estimate(apart))
        else:
            fluctuates = told("fig4-fluctuates", "a run diverged")
        found += [
            mb,
            gain,
            all_of("fig4", choices, [mb, gain]),
            all_of("fig4-rmse", choices, poorer),
            fluctuates,
        ]
    return found


def draw(get: Get, full: bool) -> dict[str, Any]:
    """Draw RMSE and gradient norm over time and what the claims measure, then all settings."""
    done = [
        (c, runs)
        for batch in _size(full)[0][:2]
        for c in batch
        if (runs := _rows(get, full, c)) is not None
    ]
    ratios = {"height_ratios": (2.4, 2.4, 1.2)}
    figure, axes = panels(3, max(1, len(done)), width=2.8, height=2.2, **ratios)
    judged = outcomes(get, full)
    labels = {"fig4-mb": "mb's time /\nas's", "fig4-gain": "a-SGD's time /\nas's"}
    labels |= {"fig4-fluctuates": "jitter of as /\na-SGD's"}
    for column, (choices, runs) in zip(axes.T, done, strict=False):
        for kind, mine in runs.items():
            _over_time(column, kind, mine)
        first = runs[SGD][0][0]
        column[0].set(ylabel="RMSE (stars)", ylim=(0.8, 1.1 * first["rmse"]))
        column[0].set_title(
            f"{STARTS[choices[START]]},\n{choices[PAYS]} pays", fontsize=8
        )
        norms = [r["grad_norm"] for run in runs[SGD] for r in run if r["grad_norm"]]
        column[1].set(
            xlabel="time (s, simulated)", ylabel="gradient norm", yscale="log"
        )
        column[1].set_ylim(
            0.6 * min(norms), 4.0 * first["grad_norm"]
        )  # a diverging run leaves at the top
        few_decades(column[1])
        found = {o.claim: o for o in judged if o.choices == choices}
        estimates(column[2], [(label, found[claim]) for claim, label in labels.items()])
        column[2].set_xlabel("ratio (mark: the margin)", fontsize=7.5)
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3
    )
    claims = ("fig4-mb", "fig4-gain", "fig4", "fig4-rmse", "fig4-fluctuates")
    return {"fig4": figure, "fig4_settings": verdict_bars(judged, claims)}


def _over_time(column: Any, kind: str, mine: list[list[Record]]) -> None:
    """Draw the mean with three standard deviations; runs that diverge are drawn one by one, up to a cross."""
    look = ALGORITHM_STYLES[kind]
    whole = [run for run in mine if math.isfinite(last(run))]
    for axis, name in zip(column, ("rmse", "grad_norm"), strict=False):
        if whole:
            shortest = min(map(len, whole))
            times = np.median(
                [[r["time"] for r in run[:shortest]] for run in whole], axis=0
            )
            values = np.array([[r[name] for r in run[:shortest]] for run in whole])
            middle = values.mean(axis=0)
            wide = 3.0 * values.std(axis=0)
            axis.plot(
                times,
                middle,
                label=NAMES[kind],
                **{**look, "markevery": max(1, shortest // 8)},
            )
            axis.fill_between(
                times,
                middle - wide,
                middle + wide,
                color=look["color"],
                alpha=0.15,
                linewidth=0,
            )
        for run in mine:
            if run not in whole:
                rows = [
                    r
                    for r in run
                    if r["rmse"] is not None and r["grad_norm"] is not None
                ]
                seen = [
                    (r["time"], r[name])
                    for r in rows
                    if r["rmse"] <= 1.05 * run[0]["rmse"]
                ]
                x, y = zip(*seen, strict=True)
                axis.plot(
                    x,
                    y,
                    color=look["color"],
                    linewidth=0.6,
                    label=None if whole else NAMES[kind],
                )
                axis.plot(x[-1], y[-1], color=look["color"], marker="x", markersize=6)
    if len(whole) < len(mine):
        words = (
            f"{NAMES[kind]}: {len(mine) - len(whole)} of {len(mine)} diverge (crosses)"
        )
        column[0].text(
            0.98, 0.02, words, transform=column[0].transAxes, fontsize=6.5, ha="right"
        )


EXPERIMENT = Experiment(
    "fig4",
    "Matrix factorization on MovieLens 1M: error over time",
    "W = 10, the table's numbers, mean over 10 seeds with three standard deviations; the time axis is "
    "simulated from measured steps and a link of 10 Gbit/s. The last row shows what the claims compare, with "
    "two errors.",
    cells,
    outcomes,
    draw,
)
