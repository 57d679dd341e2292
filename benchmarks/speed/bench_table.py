"""The master's work per commit of `TableLBFGS`, against moving the bytes that a commit must move.

A commit of a table with M pairs and d numbers must read the pairs twice: H v takes 2 M inner products and
then a combination of 2 M vectors whose coefficients are known only after all inner products.  On top come,
in vectors of d numbers:

    entry      14    read the new g and z and the old ones, write them, and add to four sums
    scatter     4    read and write the running mean and the diagonal of F
    step        7    read both sums, F and theta0, and write the step, theta, and the copy of a kept point
                     that the safeguard compares with
    guard       1    read theta once more for its fingerprint

so that (4 M + 26) d numbers are moved.  Pairs are learned once in a quarter of the parts; the time of that is
in the mean over all commits.
"""

from __future__ import annotations

import time
from statistics import mean, median
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.table.state import Update
from asyncqn.core.master import Master
from asyncqn.core.request import Request
from asyncqn.engines.round_trip import Nothing
from benchmarks.timing import mover

Record = dict[str, Any]
MEMORY, PARTS, TURNS = 20, 48, 240
VECTORS = 26


class Quadratic:
    """Parts with one diagonal Hessian and minima that differ; the workers of a run, without a run."""

    def __init__(self, dim: int) -> None:
        rng = np.random.default_rng(0)
        self.curvature = np.geomspace(1.0, 100.0, dim)
        self.minima = 0.1 * rng.standard_normal((PARTS, dim)) + 1.0

    def update(self, part: int, theta: np.ndarray, version: int) -> Update:
        away = theta - self.minima[part]
        g = self.curvature * away
        return Update(
            g, theta.copy(), 0.5 * float(np.sum(g * away)), part, True, version
        )


def commits(dim: int) -> tuple[list[float], list[float], int]:
    """Processor seconds of commits and of moving the bytes they must move, in turns, and the pairs in use."""
    quadratic = Quadratic(dim)
    algorithm = aq.TableLBFGS(PARTS, PARTS, memory=MEMORY)
    master = Master(
        Request(Nothing(dim), algorithm, np.zeros(dim), 10**9, evaluate=None), workers=4
    )
    # The header derives this number.
    move = mover((4 * MEMORY + VECTORS) * dim * 8)
    clock, ours, bare, version = time.thread_time, [], [], 0

    def commit() -> float:
        nonlocal version
        # Parts in turn, each at the newest theta: what a single worker would send.
        update = quadratic.update(version % PARTS, master.iterate.theta, version)
        begun = clock()
        master.commit([update], float(version), [0])
        version += 1
        return clock() - begun

    # A table of exact quadratics converges, and is then held: stop before that, and begin again.
    while master.iterate.memory.stored < MEMORY:
        commit()
    for _ in range(TURNS):
        begun = clock()
        move()
        bare.append(clock() - begun)
        ours.append(commit())
    return ours, bare, int(master.iterate.memory.stored)


def table_commit() -> list[Record]:
    """At d = 50,000 and at d = 50, where Python's own time is all there is."""
    long, bare, stored = commits(50_000)
    assert stored == MEMORY, f"{stored} pairs"
    short, _, _ = commits(50)
    ratio = mean(long) / mean(bare)
    return [
        {
            "name": f"commit of a table, d = 50,000, {MEMORY} pairs, to moving its bytes (mean)",
            "value": 1e6 * mean(long),
            "unit": "us",
            "ratio": ratio,
            "target": "<= 2.5",
            "met": ratio <= 2.5,
        },
        {
            "name": "the same, medians",
            "value": 1e6 * median(long),
            "unit": "us",
            "ratio": median(long) / median(bare),
            "target": None,
            "met": None,
        },
        {
            "name": "commit of a table, d = 50",
            "value": 1e6 * median(short),
            "unit": "us",
            "ratio": None,
            "target": None,
            "met": None,
        },
    ]


def parts_on_threads() -> list[dict[str, Any]]:
    """U of a network on scikit-learn's digits after 15 passes on two threads, by the number of parts."""
    import torch
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
    )
    inputs = (features / 16).astype(np.float32)
    loss = torch.nn.CrossEntropyLoss()
    problem = aq.from_torch(module, loss, inputs, labels, prior=1e-2)
    records = []
    for parts in (3, 8, 16, 32):
        table = aq.TableLBFGS(parts, first=min(parts, 4), stochastic=True)
        ends = []
        for seed in range(3):
            run = aq.minimize(
                problem, table, engine=aq.Threads(2), max_passes=15, seed=seed
            )
            ends.append(run.fun)
        record = {"name": f"U after 15 passes with {parts} parts (median of 3)"}
        record |= {"value": median(ends), "unit": "U", "ratio": max(ends) / min(ends)}
        records.append(record | {"target": None, "met": None})
    return records


BENCHMARKS = (table_commit, parts_on_threads)
