"""Clicks: `Recommender(feedback="implicit")` beside implicit's ALS, with ridges and confidences chosen alike.

    python -m benchmarks.studies.recommender.clicks choose PYTHON [RANK...]
    python -m benchmarks.studies.recommender.clicks compare PYTHON [RANK...]

PYTHON: an interpreter that has `implicit`.  MovieLens 1M, ratings of at least 4 as clicks of strength 1, a
tenth held out.  `choose` scores grids on split 10; `compare` takes the best of each side to splits 0 to 2
and writes the NDCG at 10 and processor seconds on one thread to docs/results/recommender/clicks.csv; splits
and ranks that stand there are not measured again.  Afterwards the page is written anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asyncqn_recommender.data import Ratings, load
from asyncqn_recommender.estimator import Recommender
from asyncqn_recommender.feedback import click_ridge
from asyncqn_recommender.metrics import list_sums
from benchmarks.studies.recommender import page
from benchmarks.studies.tables import read, write
from benchmarks.timing import one_blas_thread

RANKS = (20, 64)
SPLITS = range(3)
OURS = [(c, s) for c in (1.0, 1.5, 2.0) for s in (0.55, 0.7, 0.85)]
"""Confidence, and the ridge as a share of the noise (see `click_ridge`)."""
THEIRS = [(a, r) for a in (1.0, 2.0, 3.0) for r in (25.0, 40.0, 55.0)]
"""alpha and regularization of implicit."""
CHOSEN = {"asyncqn": (2.0, 0.7), "implicit": (2.0, 40.0)}
"""The best of each side at rank 64, of wider grids: confidence 1 to 4, shares 0.5 to 1.2; alpha 1 to 10,
regularization 0.01 to 80."""
COLUMNS = ("rank", "split", "what", "passes", "ndcg", "processor_seconds")
Record = dict[str, Any]


def split(seed: int) -> tuple[Ratings, Ratings]:
    ratings = load("ml-1m")
    liked = ratings.take(ratings.values >= 4.0)
    return replace(liked, values=np.ones(len(liked), np.float32)).split(0.1, seed)


def ndcg(lists: np.ndarray, test: Ratings) -> float:
    """At the length of the lists, which are indices by user."""
    counts = np.bincount(test.users, minlength=test.n_users)
    users = np.flatnonzero(counts)
    pairs = np.sort(test.users.astype(np.int64) * test.n_items + test.items)
    asked = users[:, None] * test.n_items + lists[users]
    at = np.minimum(np.searchsorted(pairs, asked), len(pairs) - 1)
    return list_sums(pairs[at] == asked, counts[users])["ndcg"] / len(users)


def ours(rank: int, train: Ratings, test: Ratings, settings: list[tuple[float, float]]) -> list[Record]:
    records = []
    Recommender(rank, feedback="implicit", workers=1, passes=2).fit(train.take(slice(0, 20_000)))
    for confidence, share in settings:
        prior = click_ridge(train, confidence) * share / 0.7
        with one_blas_thread():
            begun = time.process_time()
            model = Recommender(rank, feedback="implicit", workers=1, confidence=confidence, prior=prior).fit(
                train
            )
            used = time.process_time() - begun
        found = model.evaluate(test)["ndcg"]
        records.append(
            {
                "what": "asyncqn", "rank": rank, "setting": [confidence, share], "ndcg": round(found, 4),
                "processor_seconds": round(used, 2), "passes": int(model.history_["passes"][-1]),
            }
        )  # fmt: skip
    return records


def theirs(
    python: str, rank: int, train: Ratings, test: Ratings, settings: list[tuple[float, float]]
) -> list[Record]:
    """After each of the iterations: their lists, judged here."""
    script = Path(__file__).with_name("implicit_als.py")
    records = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clicks.npz"
        np.savez(file, users=train.users, items=train.items, shape=[train.n_users, train.n_items])
        for alpha, ridge in settings:
            words = [python, str(script), str(file), str(rank), str(alpha), str(ridge), folder]
            done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
            for line in done.stdout.splitlines():
                told = json.loads(line)
                lists = np.load(Path(folder) / f"lists{told['iterations']}.npy", allow_pickle=False)
                records.append(
                    {
                        "what": "implicit", "rank": rank, "setting": [alpha, ridge],
                        "ndcg": round(ndcg(lists, test), 4), "passes": told["iterations"],
                        "processor_seconds": told["processor_seconds"],
                    }
                )  # fmt: skip
    return records


def choose(python: str, ranks: tuple[int, ...]) -> None:
    train, test = split(10)
    for rank in ranks:
        records = ours(rank, train, test, OURS) + theirs(python, rank, train, test, THEIRS)
        print(*records, sep="\n", flush=True)


def compare(python: str, ranks: tuple[int, ...]) -> None:
    records: list[Record] = list(read("recommender/clicks"))
    known = {(int(record["split"]), int(record["rank"])) for record in records}
    for seed in SPLITS:
        for rank in ranks:
            if (seed, rank) in known:
                continue
            train, test = split(seed)
            found = ours(rank, train, test, [CHOSEN["asyncqn"]])
            found += theirs(python, rank, train, test, [CHOSEN["implicit"]])
            print(*found, sep="\n", flush=True)
            records += [
                {name: {"split": seed, **record}.get(name, "") for name in COLUMNS} for record in found
            ]
            write("recommender/clicks", sorted(records, key=lambda r: (int(r["rank"]), int(r["split"]))))
    page.main()


def main(what: str, python: str, *ranks: str) -> None:
    {"choose": choose, "compare": compare}[what](python, tuple(int(rank) for rank in ranks) or RANKS)


if __name__ == "__main__":
    main(*sys.argv[1:])
