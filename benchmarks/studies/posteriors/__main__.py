"""python -m benchmarks.studies.posteriors CHECKOUT: fill the table of results, cell by cell.

Cells that the table has already are left as they are, so that a study can be interrupted and go on.  The most
important cells come first (`TIERS`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.studies.posteriors import table
from benchmarks.studies.posteriors.database import Database
from benchmarks.studies.posteriors.densities import DENSITIES
from benchmarks.studies.posteriors.rows import METHODS, Case

TIERS: tuple[tuple[tuple[str, int], ...], ...] = (
    (("sample", 4), ("nuts-dense", 4)),
    (("sample", 16),),
    (("sample", 1), ("nuts-diagonal", 4)),
)
"""Methods with their numbers of workers, the most important first; NUTS has four chains."""


def main() -> None:
    """Compute the cells that are asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of posteriordb")
    parser.add_argument(
        "--table",
        type=Path,
        default=table.TABLE,
        help="a CSV file, to which rows are added",
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument(
        "--only", nargs="+", default=list(DENSITIES), metavar="POSTERIOR"
    )
    asked = parser.parse_args()
    database = Database(asked.checkout)
    done = {table.key(row) for row in table.read(asked.table)}
    for tier in TIERS:
        for posterior in asked.only:
            cells = [
                (posterior, method, workers, seed)
                for method, workers in tier
                for seed in asked.seeds
                if method in asked.methods and workers in asked.workers
            ]
            missing = [cell for cell in cells if cell not in done]
            case = Case.read(database, posterior) if missing else None
            for cell in missing:
                assert case is not None
                _, method, workers, seed = cell
                try:
                    row = METHODS[method](case, workers, asked.draws, seed)
                except Exception as error:  # a row that says so, and the study goes on
                    row = {"error": f"{type(error).__name__}: {error}"[:200]}
                done.add(cell)
                table.append(
                    {**dict(zip(table.KEY, cell)), "dim": case.density.dim, **row},
                    asked.table,
                )


if __name__ == "__main__":
    main()
