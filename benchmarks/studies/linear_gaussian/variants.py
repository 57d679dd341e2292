"""Variants of Block L-BFGS that were tried: other numbers of pieces and pairs, and H applied once.

    python -m benchmarks.studies.linear_gaussian.variants [variants] [momentum]

writes variants.csv and momentum.csv in docs/results/beyond.  The rows on tables of block gradients were
recorded with version 0.1, in which a version could close before all blocks had arrived.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from asyncqn import BlockLBFGS
from asyncqn.lab.tuning.measure import time_to
from asyncqn_paper.records import Record
from asyncqn_paper.settings import N_Y, cluster
from benchmarks.studies.linear_gaussian.comparison import gathered
from benchmarks.studies.linear_gaussian.suite import (
    BUDGET,
    EPSILON,
    LIMIT,
    SPECTRA,
    TEST_SEEDS,
    VARIANCES,
    Cell,
    make_problem,
    shortlisted,
    tuned,
)

METHODS = {
    "Block L-BFGS": lambda W: BlockLBFGS(W, pieces=4),
    "in one piece": lambda W: BlockLBFGS(W),
    "in 2 pieces": lambda W: BlockLBFGS(W, pieces=2),
    "in 8 pieces": lambda W: BlockLBFGS(W, pieces=8),
    "no help": lambda W: BlockLBFGS(W, backup_after=1e9),
    "M = 2": lambda W: BlockLBFGS(W, memory=2, pieces=4),
    "M = 10": lambda W: BlockLBFGS(W, memory=10, pieces=4),
}


def run_variants(spectrum: str, workers: int = 40) -> list[Record]:
    """Mean time to epsilon of every variant at every spread; a failure counts as the limit."""
    records: list[Record] = []
    for name, make in METHODS.items():
        for variance in VARIANCES:
            timing = cluster("block-lbfgs", workers, variance, N_Y / workers)
            outcomes = [
                time_to(make_problem(spectrum), make(workers), timing, target=EPSILON, limit=LIMIT, seed=seed)
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
        records.append({
            "kind": kind, "spectrum": spectrum, "sigma_w": math.sqrt(cell.variance), "trials": BUDGET,
            "succeeded": len(trials), "mean": best["mean"], "reached": best["reached"],
        })  # fmt: skip
    return records


if __name__ == "__main__":
    parts = sys.argv[1:] or ["variants", "momentum"]
    if "variants" in parts:
        gathered("variants", run_variants, list(SPECTRA))
    if "momentum" in parts:
        gathered("momentum", run_momentum, list(SPECTRA)[:4])
