"""asyncqn beside other libraries: data set x rank x library, RMSE, NDCG at 10, fit time, rate of lists.

    python -m benchmarks.studies.recommender.table PYTHON [RANK...]

PYTHON: an interpreter that has the libraries; those it lacks are named.  One split of each set, a tenth held
out; processor seconds on one thread, of the fastest of three; NDCG of lists of ten without seen items,
relevant are test ratings of at least 4, or test clicks.  Lines that stand in
docs/results/recommender/peers.csv are not measured again: an interrupted run continues where it was.
Afterwards the page is written anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asyncqn import __version__
from asyncqn_recommender.data import Ratings, load
from asyncqn_recommender.estimator import Recommender
from benchmarks.studies.recommender import page
from benchmarks.studies.recommender.clicks import CHOSEN, ndcg
from benchmarks.studies.recommender.peers import PEERS, SEED, N, timed
from benchmarks.studies.tables import read, write
from benchmarks.timing import one_blas_thread

TABLE = "recommender/peers"
RANKS = (20, 50)
LIKED = 4.0
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
COLUMNS = (
    "data", "rank", "library", "version", "rmse", "ndcg", "fit_seconds", "lists_per_second", "missing",
)  # fmt: skip


def divided(data: Set) -> tuple[Ratings, Ratings]:
    ratings = load(data.stored)
    if data.kind == "clicks":
        liked = ratings.take(ratings.values >= LIKED)
        ratings = replace(liked, values=np.ones(len(liked), np.float32))
    return ratings.split(0.1, SEED)


def ours(data: Set, rank: int, train: Ratings, test: Ratings) -> Record:
    rated = data.kind == "ratings"
    model = Recommender(rank, feedback="explicit" if rated else "implicit", workers=1)
    model.fit(train.take(slice(0, 10_000)))
    with one_blas_thread():
        fitted = timed(lambda: model.fit(train))
        model.recommend_many(n=N)
        listed = timed(lambda: model.recommend_many(n=N))
    found: Record = {"rmse": round(model.rmse(test), 4)} if rated else {}
    return found | {
        "version": __version__,
        "ndcg": round(model.evaluate(test, k=N, threshold=LIKED if rated else None)["ndcg"], 4),
        "fit_seconds": round(fitted, 3),
        "lists_per_second": round(len(model.user_ids_) / listed),
    }


def theirs(python: str, library: str, data: Set, rank: int, train: Ratings, test: Ratings) -> Record:
    with tempfile.TemporaryDirectory() as folder:
        split, lists = str(Path(folder) / "split.npz"), Path(folder) / "lists.npy"
        columns: dict[str, Any] = {
            f"{name}_{column}": getattr(part, column)
            for name, part in (("train", train), ("test", test))
            for column in ("users", "items", "values")
        }
        sizes = {"n_users": train.n_users, "n_items": train.n_items}
        np.savez(split, **columns, **sizes, implicit=np.array(CHOSEN["implicit"]))
        script = str(Path(__file__).with_name("peers.py"))
        words = [python, script, split, str(lists), library, str(rank)]
        one = dict.fromkeys(THREADS, "1")
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **one})
        record: Record = json.loads(done.stdout.splitlines()[-1])
        if lists.exists():
            relevant = test.take(test.values >= LIKED) if data.kind == "ratings" else test
            record["ndcg"] = round(ndcg(np.load(lists, allow_pickle=False), relevant), 4)
    return record


def main(python: str, *ranks: str) -> None:
    asked = [int(rank) for rank in ranks] or list(RANKS)
    records: list[Record] = list(read(TABLE))
    known = {(record["data"], int(record["rank"]), record["library"]) for record in records}
    for data in SETS:
        train, test = divided(data)
        for rank in asked:
            for library in ("asyncqn", *PEERS[data.kind]):
                key = (data.name, rank, library)
                if key in known:
                    continue
                found = (
                    ours(data, rank, train, test)
                    if library == "asyncqn"
                    else theirs(python, library, data, rank, train, test)
                )
                found |= dict(zip(("data", "rank", "library"), key))
                print(found, flush=True)
                records.append({name: found.get(name, "") for name in COLUMNS})
                write(TABLE, sorted(records, key=place))
    page.main()


def place(record: Record) -> tuple[int, int]:
    """Return the position of a line in the table; libraries of a cell keep the order in which they came."""
    return [data.name for data in SETS].index(record["data"]), int(record["rank"])


if __name__ == "__main__":
    main(*sys.argv[1:])
