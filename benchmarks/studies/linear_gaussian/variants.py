"""What was tried beside Block L-BFGS: quorums and stale tables of block gradients, and H applied once.

    python -m benchmarks.studies.linear_gaussian.variants [variants] [momentum]

writes variants.csv and momentum.csv in docs/results/beyond.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms import BlockLBFGS
from asyncqn.algorithms.memory import COUNT, Memory, PairRule, consider_pair, empty_memory, product
from asyncqn.kernels.conjugation import conjugate
from asyncqn.paper.records import Record
from asyncqn.paper.settings import N_Y, cluster
from asyncqn.tuning.measure import time_to
from asyncqn.types import Array, Blocks, Commit, Potential, Task
from benchmarks.studies.linear_gaussian.comparison import gathered
from benchmarks.studies.linear_gaussian.suite import (
    BUDGET,
    EPSILON,
    LIMIT,
    SPECTRA,
    TEST_SEEDS,
    VARIANCES,
    Cell,
    problem,
    shortlisted,
    tuned,
)

_RULE = PairRule(1e-30, 1e-5)


class Iterate(NamedTuple):
    theta: Array
    table: Array  # (2, blocks, d): the last gradient of every block, and where it was computed
    known: Array  # (blocks,)
    old: Array  # (2, d): centre and gradient of the step before
    memory: Memory


class Update(NamedTuple):
    g: Array
    theta: Array
    part: int


@dataclass(frozen=True)
class TableLBFGS:
    """L-BFGS on a table of last block gradients g_b(theta_b), taken as the gradient at their mean point.

    c = sum_b theta_b / B,  g = sum_b g_b,  theta <- c - H g, pairs from differences of (c, g).  A step
    is made when a share `quorum` of the blocks is fresh: 1 is Block L-BFGS without its safeguard,
    1/B a step per answer.  Gradients are as stale as the schedule makes them; blocks are in one piece.
    """

    blocks: int
    quorum: float
    memory: int = 5
    conjugacy: float = 0.03

    @property
    def pattern(self) -> Blocks:
        return Blocks(self.blocks, 3.0, self.quorum)

    def check(self, potential: Potential) -> None:
        pass

    def init(self, theta0: Array) -> Iterate:
        d = theta0.size
        return Iterate(
            theta0.copy(),
            np.zeros((2, self.blocks, d)),
            np.zeros(self.blocks),
            np.zeros((2, d)),
            empty_memory(self.memory, "pair", None, theta0),
        )

    def init_worker(self, potential: Potential, theta0: Array) -> tuple[()]:
        return ()

    def step(self, view: Iterate, local: tuple[()], potential: Potential, task: Task) -> Update:
        update = BlockLBFGS(self.blocks).step(view, local, potential, task)  # type: ignore[arg-type]
        return Update(update.g, view.theta.copy(), task.part)

    def learn(self, view: Iterate, local: tuple[()], potential: Potential, task: Task) -> tuple[()]:
        return local

    def forget(self, local: tuple[()]) -> tuple[()]:
        return local

    def apply(self, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        theta, table, known, old, memory = iterate
        first = not known.any()
        for update in updates:
            table[0, update.part], table[1, update.part] = update.g, update.theta
            known[update.part] = 1.0
        share = known.sum() / self.blocks
        g, centre = table[0].sum(0) / share, table[1].sum(0) / known.sum()
        if not first:
            s, y = centre - old[0], g - old[1]
            if self.conjugacy > 0.0:
                conjugate(memory.pairs, memory.gram, s, y, self.conjugacy, 1e-8)
            consider_pair(memory, _RULE, "pair", s, np.zeros_like(s), y, np.zeros_like(s))
        old[0], old[1] = centre, g
        if memory.ring[COUNT] == 0:
            theta[...] = centre - 0.01 * math.sqrt(centre @ centre) * g / math.sqrt(g @ g)
        else:
            theta[...] = centre - product(memory, g, np.empty_like(g))
        return iterate

    def counters(self, iterate: Iterate, locals_: Sequence[tuple[()]]) -> dict[str, int]:
        return {}


METHODS = {
    "Block L-BFGS": lambda W: BlockLBFGS(W, pieces=4),
    "in one piece": lambda W: BlockLBFGS(W),
    "in 2 pieces": lambda W: BlockLBFGS(W, pieces=2),
    "in 8 pieces": lambda W: BlockLBFGS(W, pieces=8),
    "no help": lambda W: BlockLBFGS(W, backup_after=1e9),
    "M = 2": lambda W: BlockLBFGS(W, memory=2, pieces=4),
    "M = 10": lambda W: BlockLBFGS(W, memory=10, pieces=4),
    "pairs as they are": lambda W: BlockLBFGS(W, conjugacy=0.0, pieces=4),
    "table, all fresh": lambda W: TableLBFGS(W, 1.0),
    "table, 90 % fresh": lambda W: TableLBFGS(W, 0.9),
    "table, 60 % fresh": lambda W: TableLBFGS(W, 0.6),
    "table, a step per answer": lambda W: TableLBFGS(W, 1.0 / W),
}


def run_variants(spectrum: str, workers: int = 40) -> list[Record]:
    """Mean time to epsilon of every variant at every spread; a failure counts as the limit."""
    records: list[Record] = []
    for name, make in METHODS.items():
        for variance in VARIANCES:
            timing = cluster("block-lbfgs", workers, variance, N_Y / workers)
            outcomes = [
                time_to(problem(spectrum), make(workers), timing, target=EPSILON, limit=LIMIT, seed=seed)
                for seed in TEST_SEEDS
            ]
            times = [LIMIT if outcome.time is None else outcome.time for outcome in outcomes]
            records.append(
                {
                    "variant": name,
                    "spectrum": spectrum,
                    "sigma_w": math.sqrt(variance),
                    "mean": float(np.mean(times)),
                    "reached": sum(outcome.time is not None for outcome in outcomes),
                    "runs": len(outcomes),
                }
            )
    return records


def run_momentum(spectrum: str) -> list[Record]:
    """as-L-BFGS and Momentum L-BFGS, tuned alike, at the middle spread; None: nothing within the limit."""
    records: list[Record] = []
    for kind in ("as-lbfgs", "momentum-lbfgs"):
        cell = Cell(algorithm=kind, spectrum=spectrum, variance=VARIANCES[1])
        trials = tuned(cell)
        best = {"mean": None, "reached": 0}
        if trials:
            measured = [record for record, _ in shortlisted(cell, trials)]
            best = min(measured, key=lambda record: float(record["mean"]))
        records.append(
            {
                "kind": kind,
                "spectrum": spectrum,
                "sigma_w": math.sqrt(cell.variance),
                "trials": BUDGET,
                "succeeded": len(trials),
                "mean": best["mean"],
                "reached": best["reached"],
            }
        )
    return records


if __name__ == "__main__":
    parts = sys.argv[1:] or ["variants", "momentum"]
    if "variants" in parts:
        gathered("variants", run_variants, list(SPECTRA))
    if "momentum" in parts:
        gathered("momentum", run_momentum, list(SPECTRA)[:4])
