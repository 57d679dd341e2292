"""The rivals, and how they are tuned: a random search that grows with their parameters, then steps around.

For each problem and W, under log-normal times and seed 0, a rival gets `PER_PARAMETER` trials for each of its
parameters: two thirds at random from the space in `lab.tuning.spaces` (batches of 10 to 300 rows), the
rest around the best so far.  A trial is given no more time than the best one needed for the last gap.  Under
other laws h is tried again at half and double.  What is found is measured with other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from asyncqn.algorithms import ALGORITHMS
from asyncqn.algorithms.stability import largest_curvature
from asyncqn.lab.tuning.spaces import SPACES, Search, Setting
from benchmarks.studies.laboratory.cells import CONVEX, problem

PER_PARAMETER = 6
LONGEST = {"ours": 40.0, "rivals": 6.0, "table": 12.0}
"""Passes after which a method that has not arrived is given up, where U is convex."""
LONG, NETWORK = 100.0, 20.0
"""The same where it is not, as many need 30 to leave the start's plateau; for rivals on the network."""
RIVALS = {"delay-adaptive-sgd": 4, "ringmaster": 4, "rennala": 4, "async-saga": 4}
"""Parameters that are searched: h, rows, the rule for delays (or the order of parts), and the metric."""
BATCHES = (10, 30, 100, 300)


def longest(kind: str, name: str) -> float:
    """Passes that a method of a kind is given on a problem."""
    if name in CONVEX:
        return LONGEST[kind]
    return NETWORK if (kind, name) == ("rivals", "network") else LONG


class RandomTrial:
    """A trial at random; the numbers are remembered by name."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        if name == "r":
            low, high = 0.03, 20.0
        if log:
            return float(math.exp(self.rng.uniform(math.log(low), math.log(high))))
        return float(self.rng.uniform(low, high))

    def suggest_categorical(self, name: str, options: tuple[Any, ...]) -> Any:
        return options[int(self.rng.integers(len(options)))]


def drawn(kind: str, name: str, workers: int, rng: np.random.Generator) -> dict[str, Any]:
    """A point of the rival's space; the metric of the scatter is on in three of four."""
    told = problem(name)
    curvature = largest_curvature(told.model, told.theta0)
    kept: dict[str, Any] = {"scatter": bool(rng.random() < 0.75)}
    if kind != "async-saga":
        kept["batch"] = max(1, round(rng.choice(BATCHES) / told.row))
    setting = Setting(curvature, workers, told.model.n_data, 1.0, kept)
    return SPACES[kind](Search(RandomTrial(rng), setting))


def varied(kind: str, point: dict[str, Any], n_data: int, rng: np.random.Generator) -> dict[str, Any]:
    """A neighbour: h by a factor up to 2.5, and one of the others by up to 2."""
    new = dict(point)
    new["h"] = float(point["h"] * math.exp(rng.uniform(-0.9, 0.9)))
    numbers = [key for key in ("batch", "tau", "max_delay", "collect", "parts") if key in point]
    key = numbers[int(rng.integers(len(numbers)))]
    new[key] = max(1, round(point[key] * math.exp(rng.uniform(-0.7, 0.7))))
    if "parts" in new:
        new["parts"] = min(new["parts"], n_data // 2)
    return new


def trials(kind: str, name: str, workers: int) -> Iterator[Any]:
    """Points to try; the generator is sent the one that is best so far."""
    rng = np.random.default_rng([3, workers, sum(map(ord, kind + name))])
    count = PER_PARAMETER * RIVALS[kind]
    best: dict[str, Any] | None = None
    n = problem(name).model.n_data
    for k in range(count):
        around = best is not None and k >= 2 * count // 3
        best = yield varied(kind, best, n, rng) if around else drawn(kind, name, workers, rng)  # type: ignore[arg-type]


def make(kind: str, point: dict[str, Any]) -> Any:
    return ALGORITHMS[kind](**point)
