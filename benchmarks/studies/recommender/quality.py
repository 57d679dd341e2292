"""Held-out quality of `Recommender` on MovieLens 1M: how its defaults were chosen, what they reach.

    asyncqn data ml-1m                                     # once; --from FILE for a zip on disk
    python -m benchmarks.studies.recommender.quality choose  # ridge, trust and offsets, on splits 10 to 12
    python -m benchmarks.studies.recommender.quality columns  # how the ridge grows by column, three data sets
    python -m benchmarks.studies.recommender.quality measure  # the defaults, on splits 0 to 2

`choose` compares settings on other splits than `measure` reports on.  Each call adds its records to
docs/results/recommender_defaults.json and prints them as a table.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any
from unittest.mock import patch

import numpy as np

from asyncqn.data import load, synthetic_ratings
from asyncqn.recommender.estimator import Recommender

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results" / "recommender_defaults.json"
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
        {"what": "choose", "rank": rank, "setting": name, "splits": "10-12", "test_rmse": round(mean(v), 4)}
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
                with patch("asyncqn.recommender.feedback.column_ridges", rule):
                    model = Recommender(rank, passes=10, seed=10).fit(train)
                found = round(model.rmse(test), 4)
                records.append(
                    {"what": "columns", "set": name, "power": power, "rank": rank, "test_rmse": found}
                )
    return records


def _grown(power: float, rank: int, plain: int, train: Any) -> Any:
    return np.maximum(1.0, np.arange(1, rank + 1) / plain) ** power


def measure() -> list[Record]:
    """Defaults on splits 0 to 2.  A small fit compiles first; `seconds` is what `fit` took by the clock,
    `cpu_seconds` by the processors, which a busy machine does not stretch."""
    records = []
    for seed, train, test in splits(range(3)):
        for rank in RANKS:
            Recommender(rank, passes=2).fit(train.take(slice(0, 20_000)))
            begun = time.process_time()
            model = Recommender(rank, seed=seed).fit(train)
            used = time.process_time() - begun
            records.append(
                {
                    "what": "asyncqn",
                    "rank": rank,
                    "split": seed,
                    "train_rmse": round(model.rmse(train), 4),
                    "test_rmse": round(model.rmse(test), 4),
                    "target": TARGETS[rank],
                    "seconds": round(model.seconds_, 2),
                    "cpu_seconds": round(used, 2),
                    "passes": int(model.history_["passes"][-1]),
                    "status": model.status_,
                    "met": model.rmse(test) <= TARGETS[rank],
                }
            )
    return records


def main(what: str, *arguments: str) -> None:
    records = {"choose": choose, "columns": columns, "measure": measure}[what](*arguments)  # type: ignore[operator]
    old = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({**old, what: records}, indent=1) + "\n")
    names = list(records[0])
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for record in records:
        print("| " + " | ".join(str(record.get(name, "")) for name in names) + " |")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["measure"]))
