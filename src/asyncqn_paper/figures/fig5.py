"""Figures 5 and S1: as-L-BFGS on MovieLens 1M for W = 1 ... 20: speedup, instability, and its cure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from asyncqn import Simulator
from asyncqn.types import Request
from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import VARIANTS, few_decades, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.fig2 import INTEGRATOR, PAYS, START
from asyncqn_paper.figures.fig4 import along, closed, race
from asyncqn_paper.figures.verdicts import verdict_bars
from asyncqn_paper.movielens import (
    STARTS,
    TIMINGS,
    measured_cluster,
    model,
    parameters,
    set_of,
    start,
)
from asyncqn_paper.records import Record
from asyncqn_paper.rules import UNDECIDED, Estimate, Outcome, above, all_of
from asyncqn_paper.settings import (
    EVERYONE,
    NOBODY,
    UPDATES_ONLY,
    Given,
    algorithm,
    given,
)

WORKERS = (1, 2, 5, 10, 15, 20)
COMMITS = 1000
SEEDS = 10
EVERY = 20
DECIDING = [(1, 1.0), (10, 1.0), (20, 1.0), (20, 0.5)]
"""W and the share of the step, of the runs that decide the claims."""


@dataclass(frozen=True)
class Speedup(Cell):
    """One run with W workers."""

    table: ClassVar[str] = "speedup"
    ratings: str
    start: str
    payer: str
    parameters: Given
    workers: int
    commits: int
    seed: int

    def measure(self) -> list[Record]:
        problem = model(self.ratings)
        method = algorithm("as-lbfgs", self.parameters)
        machines = measured_cluster(TIMINGS["as-lbfgs"], self.workers, self.payer)
        theta0 = start(problem, self.start, self.seed)
        request = Request(
            problem,
            method,
            theta0=theta0,
            commits=self.commits,
            seed=self.seed,
            evaluate=EVERY,
        )
        return along(Simulator(machines).minimize(request), self.seed)


Choices = dict[str, str]


def settings() -> list[list[Choices]]:
    """Return the settings in batches: a tree of broadcasts changes nothing where replies go to one worker."""
    every = [
        {START: at, PAYS: payer, INTEGRATOR: integrator}
        for integrator in ("explicit", "modified")
        for payer in (NOBODY, EVERYONE, UPDATES_ONLY)
        for at in ("mean", "prior")
    ]
    first = [
        one
        for one in every
        if one[INTEGRATOR] == "explicit" and one[PAYS] != UPDATES_ONLY
    ]
    return [
        first[:1],
        first[1:3],
        first[3:],
        [one for one in every if one not in first],
    ]


def _size(full: bool) -> tuple[list[list[Choices]], tuple[int, ...], int]:
    return (
        (settings(), WORKERS, SEEDS) if full else ([settings()[0][:1]], (1, 10, 20), 2)
    )


def run_of(
    choices: Choices, workers: int, seed: int, full: bool, share: float = 1.0
) -> Speedup:
    """Return the cell of one run with a `share` of the SDE's step h: h' falls by its square, gamma' by it."""
    name, n_data = set_of(full)
    own = parameters("1m", n_data)["as-lbfgs"]
    # Half the step of the SDE, not half of h': the friction has to fall with it, or the scheme is another
    # one.
    own |= {
        "h": share**2 * own["h"],
        "gamma": share * own["gamma"],
        "integrator": choices[INTEGRATOR],
    }
    place = (name, choices[START], choices[PAYS], given(own), workers)
    return Speedup(*place, COMMITS if full else 200, seed)


def cells(full: bool) -> list[list[Cell]]:
    """Return the cells of every W of every setting, and of half the step at W = 20."""
    batches, workers, seeds = _size(full)

    def runs(batch: list[Choices], tried: list[tuple[int, float]]) -> list[Cell]:
        return [
            run_of(c, W, s, full, share)
            for c in batch
            for W, share in tried
            for s in range(seeds)
        ]

    found = [
        runs(batch, [*DECIDING, *((W, 1.0) for W in workers)]) for batch in batches
    ]
    return [runs(batches[0], DECIDING), *found] if full else found


def _rows(
    get: Get, full: bool, choices: Choices
) -> dict[tuple[int, float], list[list[Record]]] | None:
    """Return the finished runs by W and share of the step, or None where a deciding one is missing."""
    _, workers, seeds = _size(full)
    found = {}
    for W, share in sorted(
        {*DECIDING, *((W, 1.0) for W in workers)}, key=lambda one: (-one[1], one[0])
    ):
        cells = [run_of(choices, W, s, full, share) for s in range(seeds)]
        runs = [get(cell) for cell in cells]
        if all(run is not None for run in runs):
            found[W, share] = [
                closed(run or [], "commit", cells[0].commits) for run in runs
            ]
        # The other W are only drawn.
        elif (W, share) in DECIDING:
            return None
    return found


def stable(run: Sequence[Record]) -> float:
    """Return 1 if the last RMSE is below the first and near the least, else 0."""
    values = [math.inf if row["rmse"] is None else row["rmse"] for row in run]
    return float(values[-1] < values[0] and values[-1] <= min(values) + 0.1)


def share_of(values: Sequence[float]) -> Estimate:
    """Return the mean of numbers with its error, which is positive even for a share of exactly 0 or 1."""
    mean = float(np.mean(values))
    count = len(values)
    # Ten successes of ten do not prove a share of 1: the spread is at least that of half a run.
    spread = float(np.std(values, ddof=1)) if count > 1 else math.inf
    return Estimate(mean, max(spread, 0.5 / math.sqrt(count)) / math.sqrt(count), count)


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcome of every claim in every finished setting."""
    found: list[Outcome] = []
    for choices in (choices for batch in _size(full)[0] for choices in batch):
        runs = _rows(get, full, choices)
        if runs is None:
            continue

        def told(
            claim: str, value: Estimate | str, choices: Choices = choices
        ) -> Outcome:
            if isinstance(value, str):
                return Outcome(claim, choices, UNDECIDED, because=value)
            return above(claim, choices, value)

        linear = told("fig5-linear", race(runs[1, 1.0], runs[10, 1.0]))
        # Seed by seed, as all comparisons.
        lost = [
            stable(a) - stable(b)
            for a, b in zip(runs[10, 1.0], runs[20, 1.0], strict=True)
        ]
        unstable = told("fig5-unstable", share_of(lost))
        cured = told("fig5-step", share_of([stable(run) for run in runs[20, 0.5]]))
        iterations = told("s1", race(runs[1, 1.0], runs[10, 1.0], "commit"))
        found += [
            linear,
            unstable,
            all_of("fig5", choices, [linear, unstable]),
            cured,
            iterations,
        ]
    return found


def draw(get: Get, full: bool) -> dict[str, Any]:
    """Draw RMSE over time and iterations (S1), speedup and stable runs, for three settings; all settings."""
    tried = [c for batch in _size(full)[0] for c in batch]
    done = [(c, runs) for c in tried if (runs := _rows(get, full, c)) is not None][:3]
    figure, axes = panels(max(1, len(done)), 4, width=3.0, height=2.7)
    for line, (choices, runs) in zip(axes, done, strict=False):
        for (W, share), look in zip(
            runs,
            (*VARIANTS[: len(runs) - 1], {"color": "black", "linestyle": "--"}),
            strict=False,
        ):
            mine = runs[W, share]
            values = _padded(mine)
            label = f"W = {W}" + (", half the step" if share < 1.0 else "")
            for axis, name in ((line[0], "time"), (line[3], "commit")):
                length = max(map(len, mine))
                x = np.median(
                    [[r[name] for r in run] for run in mine if len(run) == length],
                    axis=0,
                )
                axis.plot(
                    x[1:],
                    np.median(values, axis=0)[1:],
                    label=label,
                    **{**look, "markevery": 8},
                )
        top = runs[1, 1.0][0][0]["rmse"]
        line[0].set(
            xlabel="time (s, simulated)",
            ylabel="RMSE (stars)",
            xscale="log",
            ylim=(0.8, 1.05 * top),
        )
        line[3].set(
            xlabel="iterations (Fig. S1)", ylabel="RMSE (stars)", ylim=(0.8, 1.05 * top)
        )
        line[0].set_title(f"{STARTS[choices[START]]}, {choices[PAYS]} pays", fontsize=8)
        _speedups(line[1], runs)
        _stability(line[2], runs)
    figure.legend(
        *axes[0][0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=7,
        fontsize=7,
    )
    claims = ("fig5-linear", "fig5-unstable", "fig5", "fig5-step", "s1")
    return {"fig5": figure, "fig5_settings": verdict_bars(outcomes(get, full), claims)}


def _padded(runs: list[list[Record]]) -> Any:
    """Return the RMSE by run and row; missing ones, as after a divergence, lie far above the axis."""
    values = np.full((len(runs), max(map(len, runs))), 10.0)
    for line, run in zip(values, runs, strict=True):
        line[: len(run)] = [10.0 if row["rmse"] is None else row["rmse"] for row in run]
    return values


def _stability(axis: Any, runs: dict[tuple[int, float], list[list[Record]]]) -> None:
    """Draw the share of stable runs against W, with two errors."""
    whole = [W for W, share in runs if share == 1.0]
    shares = [share_of([stable(run) for run in runs[W, 1.0]]) for W in whole]
    errors = [2.0 * found.error for found in shares]
    axis.errorbar(
        whole,
        [f.value for f in shares],
        yerr=errors,
        capsize=2,
        label="the step",
        **VARIANTS[3],
    )
    half = share_of([stable(run) for run in runs[20, 0.5]])
    look = {
        "color": "black",
        "marker": "x",
        "linestyle": "none",
        "capsize": 2,
        "label": "half the step",
    }
    axis.errorbar([20.5], [half.value], yerr=[2.0 * half.error], **look)
    axis.set(xlabel="workers W", ylabel="share of stable runs", ylim=(-0.13, 1.13))
    axis.legend(fontsize=7, loc="center left")


def _speedups(axis: Any, runs: dict[tuple[int, float], list[list[Record]]]) -> None:
    """Draw time and iterations of W = 1 over those of W workers, with two errors, where runs are stable."""
    workers = [W for W, share in runs if share == 1.0]
    for name, words, look in (
        ("time", "in time", VARIANTS[3]),
        ("commit", "in iterations, × W", VARIANTS[1]),
    ):
        points = []
        for W in workers:
            found = (
                race(runs[1, 1.0], runs[W, 1.0], name)
                if W > 1
                else Estimate(0.0, 0.0, 0)
            )
            if (
                not isinstance(found, str)
                and np.mean([stable(run) for run in runs[W, 1.0]]) > 0.5
            ):
                # Iterations do not fall with W; times W they can be compared with the line.
                factor = W if name == "commit" else 1.0
                points.append((W, factor * math.exp(found.value), 2.0 * found.error))
        x, y, wide = np.array(points).T
        axis.errorbar(
            x, y, yerr=np.minimum(y * wide, 0.9 * y), label=words, capsize=2, **look
        )
    axis.plot(
        workers, workers, color="black", linestyle=":", linewidth=0.8, label="linear"
    )
    axis.set(xlabel="workers W", ylabel="speedup", xscale="log", yscale="log")
    axis.set_xticks(workers, [f"{w:g}" for w in workers])
    axis.minorticks_off()
    few_decades(axis)
    axis.legend(fontsize=7)


EXPERIMENT = Experiment(
    "fig5",
    "Matrix factorization on MovieLens 1M: speedup and its limit (also Fig. S1)",
    "as-L-BFGS with the table's numbers, medians over 10 seeds; the time axis is simulated as in Fig. 4. A "
    "run is stable if its last RMSE is below the first and at most 0.1 above the least.",
    cells,
    outcomes,
    draw,
)
