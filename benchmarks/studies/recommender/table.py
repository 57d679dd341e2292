"""asyncqn beside other libraries: data set x rank x library, RMSE, NDCG at 10, fit time, rate of lists.

    python -m benchmarks.studies.recommender.table PYTHON [RANK...]

PYTHON: an interpreter that has the libraries; those it lacks are named.  One split of each set, a tenth held
out; processor seconds on one thread; NDCG of lists of ten without seen items, relevant are test ratings of at
least 4, or test clicks.  Writes docs/results/recommender_peers.json and prints the table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asyncqn.data import Ratings, load
from asyncqn.recommender.estimator import Recommender
from benchmarks.studies.recommender.clicks import ndcg
from benchmarks.timing import one_blas_thread

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results" / "recommender_peers.json"
RANKS = (20, 50)
LIKED = 4.0
IMPLICIT = (2.0, 40.0)
"""alpha and regularization of implicit, the best of the grid in clicks.py."""
THREADS = (
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "LK_NUM_THREADS",
)  # fmt: skip
"""Variables by which the libraries are told to use one thread."""
Record = dict[str, Any]


class Set(NamedTuple):
    """Ratings of the name `stored`, as they are or as clicks."""

    name: str
    stored: str
    kind: str


SETS = (
    Set("MovieLens 1M", "ml-1m", "ratings"),
    Set("synthetic 100k", "synthetic-100k", "ratings"),
    Set("MovieLens 1M, clicks", "ml-1m", "clicks"),
)
COLUMNS = ("data", "rank", "library", "rmse", "ndcg", "fit_seconds", "lists_per_second")


def divided(data: Set) -> tuple[Ratings, Ratings]:
    ratings = load(data.stored)
    if data.kind == "clicks":
        liked = ratings.take(ratings.values >= LIKED)
        ratings = replace(liked, values=np.ones(len(liked), np.float32))
    return ratings.split(0.1, 0)


def ours(data: Set, rank: int, train: Ratings, test: Ratings) -> Record:
    feedback = "implicit" if data.kind == "clicks" else "explicit"
    Recommender(rank, feedback=feedback, workers=1, passes=2).fit(train.take(slice(0, 10_000)))
    with one_blas_thread():
        begun = time.process_time()
        model = Recommender(rank, feedback=feedback, workers=1).fit(train)
        fitted = time.process_time()
        table = model.recommend_many(n=10)
        done = time.process_time()
    rmse = round(model.rmse(test), 4) if data.kind == "ratings" else None
    liked = model.evaluate(test, k=10, threshold=LIKED if data.kind == "ratings" else None)
    return {
        "library": "asyncqn", "rank": rank, "rmse": rmse, "ndcg": round(liked["ndcg"], 4),
        "fit_seconds": round(fitted - begun, 2),
        "lists_per_second": round(len(np.unique(table["user"])) / (done - fitted)),
    }  # fmt: skip


def theirs(python: str, data: Set, ranks: tuple[int, ...], train: Ratings, test: Ratings) -> list[Record]:
    records = []
    with tempfile.TemporaryDirectory() as folder:
        columns: dict[str, Any] = {
            f"{name}_{column}": getattr(part, column)
            for name, part in (("train", train), ("test", test))
            for column in ("users", "items", "values")
        }
        sizes = {"n_users": train.n_users, "n_items": train.n_items}
        np.savez(Path(folder) / "split.npz", **columns, **sizes, implicit=np.array(IMPLICIT))
        script = str(Path(__file__).with_name("peers.py"))
        words = [python, script, f"{folder}/split.npz", data.kind, "0", folder, *map(str, ranks)]
        one = dict.fromkeys(THREADS, "1")
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **one})
        relevant = test.take(test.values >= LIKED) if data.kind == "ratings" else test
        for line in done.stdout.splitlines():
            record = json.loads(line)
            if lists := record.pop("lists", None):
                found = np.load(Path(folder) / lists, allow_pickle=False)
                record["ndcg"] = round(ndcg(found, relevant), 4)
            records.append(record)
    return records


def main(python: str, *ranks: str) -> None:
    asked = tuple(int(rank) for rank in ranks) or RANKS
    records: list[Record] = []
    for data in SETS:
        train, test = divided(data)
        found = [ours(data, rank, train, test) for rank in asked]
        found += theirs(python, data, asked, train, test)
        records += [{"data": data.name, **record} for record in sorted(found, key=lambda r: r["rank"])]
    RESULTS.write_text(json.dumps(records, indent=0) + "\n")
    print(
        "| data | rank | library | RMSE | NDCG@10 | fit, processor s | lists per processor s |\n|"
        + "---|" * 7
    )
    for record in records:
        if "missing" not in record:
            cells = (record.get(name) for name in COLUMNS)
            print("| " + " | ".join("–" if cell is None else str(cell) for cell in cells) + " |")
    for name in sorted({record["library"] for record in records if "missing" in record}):
        print(f"not installed: {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
