"""Held-out quality of `Recommender` on MovieLens 1M: how its defaults were chosen, what they reach.

    asyncqn recommender data ml-1m                                     # once; --from FILE for a zip on disk
    python -m benchmarks.studies.recommender.quality choose  # ridge, trust and offsets, on splits 10 to 12
    python -m benchmarks.studies.recommender.quality columns  # how the ridge grows by column, three data sets
    python -m benchmarks.studies.recommender.quality measure  # the defaults, on splits 0 to 2

`choose` compares settings on other splits than `measure` reports on.  Each call writes its table to
docs/results/recommender, and `measure` the page.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any
from unittest.mock import patch

import numpy as np

from asyncqn_recommender.data import load, synthetic_ratings
from asyncqn_recommender.estimator import Recommender
from benchmarks.studies.recommender import page
from benchmarks.studies.tables import write

RANKS = (5, 10, 20, 50, 100)
RIDGES = ((1.0, 0.035), (3.0, 0.02), (3.0, 0.035), (3.0, 0.05), (6.0, 0.035))
TRUSTS = (0.0, 2.0, 5.0, 10.0, 20.0)
TARGETS = {5: 0.857, 10: 0.846, 20: 0.841, 50: 0.841, 100: 0.841}

Record = dict[str, Any]


def splits(seeds: range) -> Iterator[tuple[int, Any, Any]]:
    ratings = load("ml-1m")
    for seed in seeds:
        yield seed, *ratings.split(0.1, seed)


def choose() -> list[Record]:
    """Mean test RMSE of every ridge; and of every trust, which needs no other fit, at the default ridge."""
    found: dict[tuple[int, str], list[float]] = {}
    for seed, train, test in splits(range(10, 13)):
        for rank in RANKS:
            plain = Recommender(rank, seed=seed)
            settings = [(f"prior={p:g} alpha={a:g}", {"prior": p, "alpha": a}) for p, a in RIDGES]
            settings += [
                ("offsets", {"offsets": True}),
                ("the same ridge in all columns", {"plain_columns": None}),
            ]
            for name, setting in settings:
                model = Recommender(rank, seed=seed, **setting).fit(train)
                found.setdefault((rank, name), []).append(model.rmse(test))
                if all(getattr(plain, key) == value for key, value in setting.items()):
                    for trust in TRUSTS:
                        other = replace(model.model_, trust=trust)
                        found.setdefault((rank, f"trust={trust:g}"), []).append(other.measure(test)["rmse"])
                    other = replace(model.model_, clip=False, trust=0.0)
                    found.setdefault((rank, "trust=0, no clip"), []).append(other.measure(test)["rmse"])
    return [
        {"rank": rank, "setting": name, "splits": "10-12", "test_rmse": round(mean(v), 4)}
        for (rank, name), v in sorted(found.items())
    ]


def columns() -> list[Record]:
    """Test RMSE where the ridge of the items grows by column with other powers, on three data sets."""
    records = []
    sets = {
        "ml-1m": load("ml-1m"),
        "synthetic 9k": synthetic_ratings(300, 120, 9_000, seed=1),
        "synthetic 100k": synthetic_ratings(1000, 1700, 100_000, seed=2),
    }
    for name, ratings in sets.items():
        train, test = ratings.split(0.1, 10)
        for power in (0.0, 1.0, 2.0, 4.0):
            rule = partial(_grown, power)
            for rank in (5, 10, 20, 50):
                with patch("asyncqn_recommender.feedback.column_ridges", rule):
                    model = Recommender(rank, passes=10, seed=10).fit(train)
                found = round(model.rmse(test), 4)
                records.append({"set": name, "power": power, "rank": rank, "test_rmse": found})
    return records


def _grown(power: float, rank: int, plain: int, train: Any) -> Any:
    return np.maximum(1.0, np.arange(1, rank + 1) / plain) ** power


def measure() -> list[Record]:
    """Defaults on splits 0 to 2, in processor seconds; a small fit compiles first."""
    records = []
    Recommender(RANKS[0], passes=2).fit(synthetic_ratings(300, 120, 9_000, seed=1))
    for seed, train, test in splits(range(3)):
        for rank in RANKS:
            begun = time.process_time()
            model = Recommender(rank, seed=seed).fit(train)
            used = time.process_time() - begun
            found = model.rmse(test)
            records.append(
                {
                    "rank": rank, "split": seed, "test_rmse": round(found, 4), "target": TARGETS[rank],
                    "met": found <= TARGETS[rank], "train_rmse": round(model.rmse(train), 4),
                    "processor_seconds": round(used, 2), "passes": int(model.history_["passes"][-1]),
                    "status": model.status_,
                }
            )  # fmt: skip
            print(records[-1], flush=True)
    return sorted(records, key=lambda record: record["rank"])


WHAT = {"choose": choose, "columns": columns, "measure": measure}


def main(what: str) -> None:
    records = WHAT[what]()
    write(f"recommender/{what}", records)
    page.main()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["measure"]))
