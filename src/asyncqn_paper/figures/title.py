"""The title, "for non-convex optimization": does noise find better minima than the same method without it?

A start is a random instance with a random theta0, the same for all arms.  Every arm ends with the same
polish, exact L-BFGS steps from where it stopped, and succeeds when it ends within `TOLERANCE` of the
planted minimum. Arms have equal commits, and the best of twelve parameters on twenty tuning starts:

    none      beta = inf, one run (minibatch noise remains)
    constant  one beta, as in the paper
    annealed  beta rises a hundredfold from its first value
    restarts  beta = inf, several shorter runs from fresh starts; the one with the lowest U is polished
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from asyncqn import (
    ASLBFGS,
    SGLD,
    Annealing,
    Cluster,
    ExactLBFGS,
    Simulator,
    minimize,
)
from asyncqn.lab import largest_curvature
from asyncqn.types import Array, Progress
from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import STYLES, panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.fig5 import share_of
from asyncqn_paper.figures.verdicts import estimates
from asyncqn_paper.nonconvex import Mixture, PhaseRetrieval
from asyncqn_paper.records import Record
from asyncqn_paper.rules import Outcome, above

COMMITS = {"mixture": 1500, "phase-retrieval": 1000}
ROWS = 12
OVERLAP = 5
"""Rows of gradients per commit, of every method; as-L-BFGS computes the overlap twice."""
POLISH = 40
IDLE_PASSES = 10
TOLERANCE = 1.0
FIRST = 5000
FULL = 200
QUICK = 20
PIECE = 20
"""The first test start, how many in each size, and how many to a cell."""
METHODS = {"as-lbfgs": "as-L-BFGS", "sgld": "SGLD"}
ARMS = ("none", "constant", "annealed", "restarts")
INF = math.inf
CHOSEN: dict[tuple[str, str, int], tuple[tuple[float, float, int], ...]] = {
    ("mixture", "as-lbfgs", 1): (
        (0.0351, INF, 1),
        (0.01, 0.03, 1),
        (0.0316, 0.1, 1),
        (0.0316, INF, 3),
    ),
    ("mixture", "as-lbfgs", 10): (
        (0.02, INF, 1),
        (0.0632, 0.01, 1),
        (0.02, 0.3, 1),
        (0.0632, INF, 5),
    ),
    ("phase-retrieval", "as-lbfgs", 1): (
        (0.0123, INF, 1),
        (0.0316, 0.03, 1),
        (0.01, 0.1, 1),
        (0.0316, INF, 8),
    ),
    ("phase-retrieval", "as-lbfgs", 10): (
        (0.0866, INF, 1),
        (0.0632, 0.03, 1),
        (0.0632, 0.01, 1),
        (0.0632, INF, 8),
    ),
    ("mixture", "sgld", 1): (
        (0.4, INF, 1),
        (0.4, 0.3, 1),
        (0.4, 0.03, 1),
        (0.4, INF, 5),
    ),
    ("mixture", "sgld", 10): (
        (1.06, INF, 1),
        (1.2, 0.03, 1),
        (1.2, 0.03, 1),
        (1.2, INF, 8),
    ),
    ("phase-retrieval", "sgld", 1): (
        (0.4, INF, 1),
        (0.4, 0.03, 1),
        (0.2, 0.3, 1),
        (0.4, INF, 8),
    ),
    ("phase-retrieval", "sgld", 10): (
        (0.639, INF, 1),
        (0.3, 0.01, 1),
        (1.2, 0.01, 1),
        (0.6, INF, 8),
    ),
}
"""(r, beta, restarts) of every arm, found on tuning starts (docs/results/tempering/tuning.parquet): r is the step
relative to 1 / (W times the largest curvature)."""


@cache
def instance(problem: str, seed: int) -> tuple[Any, float, float]:
    """Return a problem, U at its planted minimum, and the largest curvature there."""
    model: Any
    if problem == "phase-retrieval":
        model = PhaseRetrieval.random(dim=20, n_data=40, seed=seed)
        # Phase retrieval without noise: U is 0 at the signal.
        return model, 0.0, largest_curvature(model, model.signal)
    model = Mixture.random(components=8, n_data=400, width=20.0, seed=seed)
    planted = model.centres.ravel()
    # The minimum lies near the planted centres, not at them, because the data are noisy.
    return model, descend(model, planted, 100).fun, largest_curvature(model, planted)


class Descent(NamedTuple):
    """The best point that exact L-BFGS saw, and U there."""

    theta: Array
    fun: float


def descend(model: Any, theta0: Array, gradients: int) -> Descent:
    """Run exact L-BFGS until U falls by less than a thousandth in ten gradients, or for `gradients`."""
    lowest = [Descent(theta0, float(model.value(theta0)))]

    def look(progress: Progress) -> None:
        # A run may end on a trial that would have been rejected, so the best point is kept here.
        fun = progress.metrics["fun"]
        last = lowest[-1]
        lowest.append(Descent(progress.theta, fun) if fun < last.fun else last)
        before = lowest[max(0, len(lowest) - 1 - IDLE_PASSES)].fun
        if len(lowest) > IDLE_PASSES and before - lowest[-1].fun < 1e-3 * (
            1.0 + abs(before)
        ):
            raise StopIteration

    engine = Simulator(Cluster(1))
    minimize(
        model,
        ExactLBFGS(1),
        engine=engine,
        theta0=theta0,
        commits=gradients,
        evaluate=1,
        callback=look,
        progress=False,
    )
    return lowest[-1]


@dataclass(frozen=True)
class Starts(Cell):
    """One arm with its parameters on the starts first, ..., first + count - 1."""

    table: ClassVar[str] = "starts"
    problem: str
    method: str
    workers: int
    arm: str
    r: float
    beta: str
    restarts: int
    first: int
    count: int

    def algorithm(self, top: float, commits: int) -> SGLD | ASLBFGS:
        """h from r: the pull of the stiffest direction is r / W a step, whatever the method.

        as-L-BFGS moves by about h H^2 g / gamma with H0 = 1 / top; its pairs must be ones that can be
        trusted (epsilon, cosine_floor), else all of its arms diverge.
        """
        # Parameters are kept as text, since JSON has no infinity.
        beta: float | Annealing = float(self.beta)
        if self.arm == "annealed":
            beta = Annealing(
                float(self.beta),
                100.0 * float(self.beta),
                max(1, commits // self.workers),
            )
        if self.method == "sgld":
            return SGLD(h=self.r / (top * self.workers), beta=beta, batch=ROWS)
        # As in Fig. 3: stale friction must fall with the number of workers.
        gamma = 0.5 / self.workers
        h = self.r * gamma * top / self.workers
        rule: dict[str, Any] = {
            "initial_scale": 1.0 / top,
            "cosine_floor": 0.5,
            "epsilon": 0.3 * top,
        }
        return ASLBFGS(
            h, gamma, beta, memory=3, batch=ROWS - OVERLAP, overlap=OVERLAP, **rule
        )

    def last_points(self, seed: int) -> list[Array]:
        """Return where the runs of the arm end; one that diverged ends nowhere."""
        model, _, top = instance(self.problem, seed)
        commits = COMMITS[self.problem] // self.restarts
        points = []
        for number in range(self.restarts):
            run = minimize(
                model,
                self.algorithm(top, commits),
                engine=Simulator(Cluster(self.workers, worker_std=0.3)),
                commits=commits,
                # Restarts have starts of their own; the first is that of the other arms.
                seed=seed + 100_000 * number,
                evaluate=commits,
                progress=False,
            )
            # A run that diverged is no candidate; an arm whose runs all diverge fails at this start.
            if run.status == "completed":
                points.append(run.theta)
        return points

    def measure(self) -> list[Record]:
        """Return the excess over the planted minimum, of every start; None where all runs diverged."""
        records: list[Record] = []
        for seed in range(self.first, self.first + self.count):
            model, planted, _ = instance(self.problem, seed)
            # Restarts are compared by U where they stopped, and only the best is polished, as each other
            # arm is.
            points = self.last_points(seed)
            excess = None
            if points:
                excess = (
                    descend(model, min(points, key=model.value), POLISH).fun - planted
                )
            records.append(
                {
                    "start": seed,
                    "excess": excess,
                    "success": excess is not None and excess < TOLERANCE,
                }
            )
        return records


def arm_cells(cell: tuple[str, str, int], arm: str, full: bool) -> list[Starts]:
    """Return the cells of one arm."""
    r, beta, restarts = CHOSEN[cell][ARMS.index(arm)]
    starts = range(FIRST, FIRST + (FULL if full else QUICK), PIECE)
    return [
        Starts(*cell, arm, r, repr(beta), restarts, first, PIECE) for first in starts
    ]


def cells(full: bool) -> list[list[Cell]]:
    """Return the cells of noise against none first, then those of the other arms."""
    if not full:
        return [[c for arm in ARMS for c in arm_cells(next(iter(CHOSEN)), arm, full)]]
    noise = ("none", "constant")
    others = ("annealed", "restarts")

    def some(method: str, arms: tuple[str, ...]) -> list[Cell]:
        mine = [cell for cell in CHOSEN if cell[1] == method]
        return [c for cell in mine for arm in arms for c in arm_cells(cell, arm, full)]

    return [
        [c for arm in noise for c in arm_cells(("mixture", "as-lbfgs", 10), arm, full)],
        [*some("as-lbfgs", noise), *some("sgld", noise)],
        some("as-lbfgs", others),
        some("sgld", others),
    ]


def successes(
    get: Get, cell: tuple[str, str, int], arm: str, full: bool
) -> list[float] | None:
    """Return 1 or 0 for every start; None where a cell is missing."""
    found = [get(one) for one in arm_cells(cell, arm, full)]
    if any(records is None for records in found):
        return None
    return [float(record["success"]) for records in found for record in records or []]


def outcomes(get: Get, full: bool) -> list[Outcome]:
    """Return the outcomes of constant noise against none, start by start."""
    found = []
    for problem, method, workers in CHOSEN:
        cell = (problem, method, workers)
        without, with_ = (
            successes(get, cell, arm, full) for arm in ("none", "constant")
        )
        if without is not None and with_ is not None:
            choices = {
                "problem": problem,
                "method": METHODS[method],
                "workers": f"W = {workers}",
            }
            # Both arms have the same starts, so the difference is taken start by start.
            gain = share_of(np.subtract(with_, without).tolist())
            found.append(above("title", choices, gain))
    return found


def draw(get: Get, full: bool) -> dict[str, Any]:
    """Draw the share of successful starts for every arm, and the gain by noise, start by start."""
    figure, axes = panels(1, 3, width=4.0, height=2.9, width_ratios=(1.0, 1.0, 0.75))
    for axis, problem in zip(axes[0], COMMITS, strict=False):
        mine = [cell for cell in CHOSEN if cell[0] == problem]
        for k, (cell, look) in enumerate(zip(mine, STYLES, strict=False)):
            points = []
            for x, arm in enumerate(ARMS):
                ones = successes(get, cell, arm, full)
                if ones is not None:
                    share = share_of(ones)
                    points.append((x + 0.08 * k, share.value, 2.0 * share.error))
            if points:
                x_, y, wide = np.array(points).T
                label = f"{METHODS[cell[1]]}, W = {cell[2]}"
                axis.errorbar(
                    x_,
                    y,
                    yerr=wide,
                    label=label,
                    capsize=2,
                    **{**look, "linestyle": ":"},
                )
        axis.set_title(problem.replace("-", " "))
        axis.set_xticks(
            range(len(ARMS)), ["no noise", "constant β", "annealed", "restarts"]
        )
        axis.set(ylabel="share of successful starts", ylim=(0.0, 1.05))
    rows = []
    for found in outcomes(get, full):
        problem, method, workers = found.choices.values()
        rows.append((f"{problem.split('-')[0]}, {method}, {workers}", found))
    estimates(axes[0][2], rows)
    axes[0][2].axvline(0.0, color="black", linewidth=0.6, linestyle=":")
    axes[0][2].set_title("gain by constant noise")
    axes[0][2].set_xlabel("difference of the shares (mark: margin)")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4
    )
    return {"title": figure}


EXPERIMENT = Experiment(
    "title",
    "Non-convex problems: does noise find better minima?",
    "Share of starts that end in the planted minimum after equal commits, with two standard errors; each arm "
    "was tuned with twelve trials on other starts. On the right is what the claim compares; restarts without "
    "noise are no claim of the paper and stand beside it.",
    cells,
    outcomes,
    draw,
)
