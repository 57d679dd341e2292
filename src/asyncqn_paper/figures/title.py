"""The title, "for non-convex optimization": does noise find better minima than the same method without it?

A start is a random instance with a random theta0, the same for both arms: beta = inf, where the noise of the
minibatches remains, and one beta, as in the paper.  Both end with the same polish, exact L-BFGS steps from
where they stopped, and succeed when they end within `TOLERANCE` of the planted minimum.  They have equal
commits, and the best of twelve parameters on twenty tuning starts.  Annealing and restarts are no claim of the
paper: docs/results/earlier.md has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from asyncqn import (
    ASLBFGS,
    SGLD,
    Cluster,
    ExactLBFGS,
    Simulator,
    minimize,
)
from asyncqn.lab import largest_curvature
from asyncqn.types import Array, Progress
from asyncqn_paper.cells import Cell
from asyncqn_paper.drawing import panels
from asyncqn_paper.experiment import Experiment, Get
from asyncqn_paper.figures.verdicts import estimates
from asyncqn_paper.nonconvex import Mixture, PhaseRetrieval
from asyncqn_paper.records import Record
from asyncqn_paper.rules import Verdict, above, share_of

COMMITS = {"mixture": 1500, "phase-retrieval": 1000}
ROWS = 12
OVERLAP = 5
"""Rows of gradients per commit, of every method; as-L-BFGS computes the overlap twice."""
POLISH = 40
IDLE_PASSES = 10
TOLERANCE = 1.0
FIRST = 5000
COUNT = 200
PIECE = 20
"""The first test start, how many there are, and how many to a cell."""
METHODS = {"as-lbfgs": "as-L-BFGS", "sgld": "SGLD"}
ARMS = ("none", "constant")
INF = math.inf
CHOSEN: dict[tuple[str, str, int], tuple[tuple[float, float], ...]] = {
    ("mixture", "as-lbfgs", 1): ((0.0351, INF), (0.01, 0.03)),
    ("mixture", "as-lbfgs", 10): ((0.02, INF), (0.0632, 0.01)),
    ("phase-retrieval", "as-lbfgs", 1): ((0.0123, INF), (0.0316, 0.03)),
    ("phase-retrieval", "as-lbfgs", 10): ((0.0866, INF), (0.0632, 0.03)),
    ("mixture", "sgld", 1): ((0.4, INF), (0.4, 0.3)),
    ("mixture", "sgld", 10): ((1.06, INF), (1.2, 0.03)),
    ("phase-retrieval", "sgld", 1): ((0.4, INF), (0.4, 0.03)),
    ("phase-retrieval", "sgld", 10): ((0.639, INF), (0.3, 0.01)),
}
"""(r, beta) of both arms, found on tuning starts (docs/results/tempering/tuning.parquet): r is the step relative
to 1 / (W times the largest curvature)."""


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
    return model, descend(model, planted, 100), largest_curvature(model, planted)


def descend(model: Any, theta0: Array, gradients: int) -> float:
    """Return the least U of exact L-BFGS, which ends after a thousandth gained in ten gradients."""
    lowest = [float(model.value(theta0))]

    def look(progress: Progress) -> None:
        # A run may end on a trial that would have been rejected, so the lowest is kept here.
        lowest.append(min(lowest[-1], progress.metrics["fun"]))
        if len(lowest) > IDLE_PASSES:
            before = lowest[-1 - IDLE_PASSES]
            if before - lowest[-1] < 1e-3 * (1.0 + abs(before)):
                raise StopIteration

    minimize(
        model,
        ExactLBFGS(1),
        engine=Simulator(Cluster(1)),
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
    first: int
    count: int

    def algorithm(self, top: float) -> SGLD | ASLBFGS:
        """h from r: the pull of the stiffest direction is r / W a step, whatever the method.

        as-L-BFGS moves by about h H^2 g / gamma with H0 = 1 / top; its pairs must be ones that can be
        trusted (epsilon, cosine_floor), else all of its arms diverge.
        """
        # Parameters are kept as text, since JSON has no infinity.
        beta = float(self.beta)
        if self.method == "sgld":
            return SGLD(h=self.r / (top * self.workers), beta=beta, batch=ROWS)
        # As in Fig. 3: stale friction must fall with the number of workers.
        gamma = 0.5 / self.workers
        h = self.r * gamma * top / self.workers
        return ASLBFGS(
            h=h,
            gamma=gamma,
            beta=beta,
            memory=3,
            batch=ROWS - OVERLAP,
            overlap=OVERLAP,
            initial_scale=1.0 / top,
            cosine_floor=0.5,
            epsilon=0.3 * top,
        )

    def measure(self) -> list[Record]:
        """Return the excess over the planted minimum, of every start; None where the run diverged."""
        records: list[Record] = []
        for seed in range(self.first, self.first + self.count):
            model, planted, top = instance(self.problem, seed)
            commits = COMMITS[self.problem]
            run = minimize(
                model,
                self.algorithm(top),
                engine=Simulator(Cluster(self.workers, worker_std=0.3)),
                commits=commits,
                seed=seed,
                evaluate=commits,
                progress=False,
            )
            excess = None
            if run.status == "completed":
                excess = descend(model, run.theta, POLISH) - planted
            success = excess is not None and excess < TOLERANCE
            records.append({"start": seed, "excess": excess, "success": success})
        return records


Place = tuple[str, str, int]
"""A problem, a method and a number of workers."""


def arm_cells(place: Place, arm: str) -> list[Starts]:
    """Return the cells of one arm."""
    r, beta = CHOSEN[place][ARMS.index(arm)]
    firsts = range(FIRST, FIRST + COUNT, PIECE)
    return [Starts(*place, arm, r, repr(beta), first, PIECE) for first in firsts]


def cells() -> list[Cell]:
    """Return the cells of noise and of none."""
    starts: list[Cell] = []
    for place in CHOSEN:
        for arm in ARMS:
            starts += arm_cells(place, arm)
    return starts


def successes(get: Get, place: Place, arm: str) -> list[float]:
    """Return 1 or 0 for every start."""
    records = []
    for cell in arm_cells(place, arm):
        records += get(cell)
    return [float(record["success"]) for record in records]


def outcomes(get: Get) -> list[Verdict]:
    """Return the outcomes of constant noise against none, start by start."""
    results = []
    for place in CHOSEN:
        problem, method, workers = place
        with_noise = successes(get, place, "constant")
        without = successes(get, place, "none")
        # Both arms have the same starts, so the difference is taken start by start.
        gain = np.subtract(with_noise, without)
        choices = {
            "problem": problem,
            "method": METHODS[method],
            "workers": f"W = {workers}",
        }
        results.append(above("title", choices, share_of(gain.tolist())))
    return results


def draw(get: Get) -> dict[str, Any]:
    """Draw the gain by constant noise, start by start, beside the margin."""
    figure, axes = panels(1, 1, width=5.0, height=2.4)
    rows = []
    for outcome in outcomes(get):
        problem, method, workers = outcome.choices.values()
        rows.append((f"{problem.replace('-', ' ')}, {method}, {workers}", outcome))
    estimates(axes[0][0], rows)
    axes[0][0].axvline(0.0, color="black", linewidth=0.6, linestyle=":")
    axes[0][0].set_xlabel("successes with noise less without (mark: margin)")
    return {"title_map": figure}


EXPERIMENT = Experiment(
    "title",
    "Non-convex problems: does noise find better minima?",
    "200 starts, two errors. Both arms had twelve tuning trials.",
    cells,
    outcomes,
    draw,
)
