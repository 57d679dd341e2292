"""Runs on the linear Gaussian problems: the cells of Figs. 2 and 3 and of the remarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from asyncqn import Cluster, LinearGaussian, Simulator, starting_point
from asyncqn.types import Algorithm, Progress, Request
from asyncqn_paper.cells import Cell
from asyncqn_paper.problems import AlikeRows, described
from asyncqn_paper.records import Record
from asyncqn_paper.settings import ENDLESS, NOBODY, Given, algorithm, cluster

DRAWS = 5
"""Draws of a random problem; seed k uses draw k mod 5."""
FRESH = 12_000
"""The first of the seeds on which a stated setting is measured, up to twice this number."""
EPSILON = 0.05
TARGET = "time 0.05"
COMMITS = "commits 0.05"
"""Columns of a record: when the error first was `EPSILON` or less; None where that did not happen."""
HOPELESS = 1e6
"""Factor on the error's start beyond which a run is stopped as divergent."""


@cache
def model(problem: str, draw: int) -> LinearGaussian:
    """Return a draw of a problem."""
    return replace(described(problem), draw=draw).model()


def draw_of(seed: int) -> int:
    """Return the draw of the problem that a seed uses; every fresh seed has a draw of its own."""
    return seed if FRESH <= seed < 2 * FRESH else seed % DRAWS


@cache
def largest(problem: str) -> float:
    """lambda_max of the posterior precision."""
    return float(np.linalg.eigvalsh(model(problem, 0).precision)[-1])


def scale_below_limit(problem: str) -> float:
    """c of H0 = c I with c^2 lambda_max = 0.8, rounded: the limit of stability at W = 40 is 0.96."""
    # The scale is a number of the description and not of a draw: all draws get the same parameters.
    own = described(problem)
    # `AlikeRows.top` is an eigenvalue of A'A / sigma_x^2, to which the prior adds 1.
    top = own.top + 1.0 if isinstance(own, AlikeRows) else own.high
    return float(round((0.8 / top) ** 0.5, 2))


@dataclass(frozen=True)
class Curve(Cell):
    """All repetitions of one point: times until the target; longer ones than `limit` are censored."""

    table: ClassVar[str] = "times"
    problem: str
    kind: str
    parameters: Given
    variance: float
    seeds: int
    first: int = 0
    payer: str = NOBODY
    workers: int = 40
    limit: float = 6000.0

    def measure(self) -> list[Record]:
        method = algorithm(self.kind, self.parameters)
        machines = cluster(self.kind, self.workers, self.variance, payer=self.payer)
        seeds = range(self.first, self.first + self.seeds)
        return [self.run(method, machines, seed) for seed in seeds]

    def run(self, method: Algorithm, machines: Cluster, seed: int) -> Record:
        """Run one repetition; return time and commits of the first crossing, and how it ended."""
        # The draw belongs to the seed, so all methods see the same problem at the same seed.
        problem = model(self.problem, draw_of(seed))
        theta0 = starting_point(problem, None, seed)
        watch = _Watch(self.limit)
        request = Request(
            problem,
            method,
            theta0=theta0,
            seed=seed,
            commits=ENDLESS,
            # A round costs W gradients, so every one is looked at. An asynchronous commit reads six rows and a
            # look at U all 600, so only every fifth is.
            evaluate=1 if method.stages[0].waits else min(5, machines.workers),
            callback=watch,
        )
        run = Simulator(machines).minimize(request)
        accepted = run.counters.get("pairs_accepted", 0)
        offered = accepted + run.counters.get("pairs_rejected", 0)
        return {
            "seed": seed,
            TARGET: watch.time,
            COMMITS: watch.commits,
            "lost": watch.lost,
            "pairs": accepted / offered if offered else None,
        }


class _Watch:
    """Notes the first crossing of the target, and ends the run there or when it is hopeless."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.time: float | None = None
        self.commits: int | None = None
        self.first: float | None = None
        self.lost = False

    def __call__(self, progress: Progress) -> None:
        error = progress.metrics["error"]
        self.first = error if self.first is None else self.first
        # Written so that NaN counts as lost.
        self.lost = not error <= HOPELESS * max(1.0, self.first)
        if progress.time > self.limit or self.lost:
            raise StopIteration
        if error <= EPSILON:
            self.time = round(float(progress.time), 1)
            self.commits = int(progress.commit)
            raise StopIteration


def seeds_and_draws(records: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the group of every record: its draw, or one group where most draws have a single seed."""
    draws = [draw_of(int(record["seed"])) for record in records]
    return draws if len(records) >= 2 * len(set(draws)) else [0] * len(records)
