"""Block L-BFGS against tuned rivals on the linear Gaussian suite.

`python -m benchmarks.studies.linear_gaussian.comparison PART`, where PART is one of: rivals (tunes every
rival in every cell, about 20 minutes on two cores), blocks, speedup, safety, summary; `all` runs
them in this order.  Tables go to docs/results/beyond/ as CSV, one file per part; `summary` is made
from these files alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import t

from asyncqn.lab.tuning.processes import pool
from asyncqn_paper.records import Record
from benchmarks.studies.linear_gaussian.suite import (
    EPSILON,
    SPECTRA,
    TEST_SEEDS,
    VARIANCES,
    block_settings,
    run_blocks,
    run_rivals,
    time_of,
)
from benchmarks.studies.tables import read, write

WORKERS = (1, 2, 5, 10, 20, 40, 80)
SAFETY_SEEDS = range(10)
TRIVIAL = 100.0
"""Cells that a rival solves sooner are left out."""


def gathered(name: str, function: Callable[[Any], list[Record]], jobs: Sequence[Any]) -> None:
    """Run the jobs on two processes; the table grows with every job that ends."""
    records: list[Record] = []
    with pool(2) as executor:
        for job, part in zip(jobs, executor.map(function, jobs), strict=True):
            print(
                job,
                [record["mean"] and round(record["mean"]) for record in part],
                file=sys.stderr,
                flush=True,
            )
            records += part
            write(f"beyond/{name}", records)


def rivals() -> None:
    gathered("rivals", run_rivals, list(SPECTRA))


def blocks() -> None:
    gathered("blocks", run_blocks, list(SPECTRA))


def give_up_after(workers: int) -> float:
    """The time that counts for a run of Block L-BFGS that does not arrive: twice that of the slowest cell."""
    return 2000.0 * (1.0 + 40.0 / workers)


def _speedup(spectrum: str) -> list[Record]:
    """Mean times at sigma_w^2 = 200 for each number of workers, by the rule and with blocks in one piece."""
    records = []
    for workers in WORKERS:
        by_rule = block_settings(spectrum, workers)
        record: Record = {"spectrum": spectrum, "workers": workers, "pieces": by_rule["pieces"]}
        for column, settings in (("mean", by_rule), ("mean_in_one_piece", {"blocks": workers})):
            outcomes = [
                time_of("block-lbfgs", settings, spectrum, VARIANCES[1], seed, workers=workers, limit=1e5)
                for seed in TEST_SEEDS
            ]
            record[column] = float(
                np.mean([math.inf if outcome.time is None else outcome.time for outcome in outcomes])
            )
        records.append(record)
    alone = records[0]["mean"]
    return [
        {
            **record,
            "speedup": alone / record["mean"],
            "speedup_in_one_piece": alone / record["mean_in_one_piece"],
        }
        for record in records
    ]


def speedup() -> None:
    gathered("speedup", _speedup, list(SPECTRA))
    rows = read("beyond/speedup")
    for workers in WORKERS:
        here = [row for row in rows if int(row["workers"]) == workers]
        means = [np.mean([float(row[c]) for row in here]) for c in ("speedup", "speedup_in_one_piece")]
        least = min(float(row["speedup"]) for row in here)
        print(f"W = {workers}: mean speedup {means[0]:.2f}, least {least:.2f}; in one piece {means[1]:.2f}")


def _safety(spectrum: str) -> list[Record]:
    """Failures among ten seeds for each number of workers and each spread; nothing but W is given."""
    records = []
    for workers in WORKERS:
        settings = block_settings(spectrum, workers)
        for variance in VARIANCES:
            outcomes = [
                time_of("block-lbfgs", settings, spectrum, variance, seed, workers=workers, limit=1e5)
                for seed in SAFETY_SEEDS
            ]
            times = [outcome.time or give_up_after(workers) for outcome in outcomes]
            records.append(
                {
                    "spectrum": spectrum,
                    "workers": workers,
                    "sigma_w": math.sqrt(variance),
                    "runs": len(outcomes),
                    "diverged": sum(outcome.status == "diverged" for outcome in outcomes),
                    "not_reached": sum(outcome.status != "reached" for outcome in outcomes),
                    "mean": float(np.mean(times)),
                }
            )
    return records


def safety() -> None:
    gathered("safety", _safety, list(SPECTRA))


def summary() -> None:
    """The ratios to the best rival, cell by cell, and their geometric mean."""
    best: dict[tuple[str, str], tuple[float, str]] = {}
    for row in read("beyond/rivals"):
        cell, mean = (row["spectrum"], row["sigma_w"]), float(row["mean"] or "inf")
        best[cell] = min(best.get(cell, (math.inf, "")), (mean, row["kind"]))
    records = []
    ratios: list[float] = []
    by_spectrum: dict[str, list[float]] = {}
    for row in read("beyond/blocks"):
        cell = (row["spectrum"], row["sigma_w"])
        mean, kind = best[cell]
        ratio = float(row["mean"]) / mean
        if mean >= TRIVIAL:
            ratios.append(ratio)
            by_spectrum.setdefault(cell[0], []).append(-math.log(ratio))
        records.append(
            {
                "spectrum": cell[0],
                "sigma_w": cell[1],
                "best_rival": kind,
                "rival": mean,
                "block_lbfgs": float(row["mean"]),
                "ratio": ratio,
                "counts": mean >= TRIVIAL,
            }
        )
    write("beyond/summary", records)
    print(
        f"{len(ratios)} cells to error {EPSILON}: geometric mean {np.exp(np.mean(np.log(ratios))):.3f}, "
        f"worst {max(ratios):.3f}"
    )
    # The three spreads of one spectrum are alike, so the spectra are the independent units.
    logs = [float(np.mean(of_one)) for of_one in by_spectrum.values()]
    half = t.ppf(0.975, len(logs) - 1) * np.std(logs, ddof=1) / math.sqrt(len(logs))
    low, mean, high = np.exp(np.mean(logs) + half * np.array([-1.0, 0.0, 1.0]))
    print(
        f"speed-up {mean:.1f}, 95 % interval {low:.1f} to {high:.1f} over {len(logs)} spectra; "
        f"cells {1 / max(ratios):.1f} to {1 / min(ratios):.0f}"
    )


PARTS = {part.__name__: part for part in (rivals, blocks, speedup, safety, summary)}

if __name__ == "__main__":
    for name in PARTS if sys.argv[1:] in ([], ["all"]) else sys.argv[1:]:
        PARTS[name]()
