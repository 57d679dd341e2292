"""python -m benchmarks.studies.posteriors CHECKOUT RESULTS: fill a file of results, cell by cell.

Cells that the file has already are left as they are, so that a study can be interrupted and go on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.posteriors.compare import Moments, moments
from benchmarks.studies.posteriors.database import Database
from benchmarks.studies.posteriors.densities import DENSITIES
from benchmarks.studies.posteriors.rows import METHODS


def reference_moments(draws: dict[str, np.ndarray]) -> tuple[list[str], Moments]:
    """The names and the moments of the reference draws; a constant is left out."""
    names = [name for name, chains in draws.items() if chains.std() > 0.0]
    stacked = np.stack([draws[name] for name in names], axis=2)
    return names, moments(list(stacked))


def main() -> None:
    """Compute the cells that are asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of posteriordb")
    parser.add_argument("results", type=Path, help="a file of JSON lines, to which rows are added")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--only", nargs="+", default=list(DENSITIES), metavar="POSTERIOR")
    asked = parser.parse_args()
    database = Database(asked.checkout)
    lines = asked.results.read_text().splitlines() if asked.results.exists() else []
    done = {
        tuple(json.loads(line)[key] for key in ("posterior", "method", "workers", "seed")) for line in lines
    }
    for posterior in asked.only:
        density = DENSITIES[posterior](database.data(posterior))
        names, reference = reference_moments(database.reference(posterior))
        for seed in asked.seeds:
            for method in asked.methods:
                for workers in asked.workers if method == "sample" else [4]:
                    cell: dict[str, Any] = {
                        "posterior": posterior,
                        "method": method,
                        "workers": workers,
                        "seed": seed,
                    }
                    if tuple(cell.values()) in done:
                        continue
                    try:
                        row = METHODS[method](density, names, reference, workers, asked.draws, seed)
                    except Exception as error:  # a row that says so, and the study goes on
                        row = {"error": f"{type(error).__name__}: {error}"}
                    with asked.results.open("a") as file:
                        file.write(json.dumps({**cell, "dim": density.dim, **row}) + "\n")


if __name__ == "__main__":
    main()
