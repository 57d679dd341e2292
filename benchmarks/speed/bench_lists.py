"""Lists for many users: users per processor second, beside matrix products and argpartition in NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from asyncqn_recommender import Recommender, synthetic_ratings
from asyncqn_recommender.data import PRESETS
from asyncqn_recommender.model import FactorModel
from asyncqn_recommender.ranking import best_items
from benchmarks.timing import one_blas_thread, record

N = 10
"""Length of a list."""


def in_numpy(model: FactorModel) -> None:
    """The same lists by products of a thousand users at a time and argpartition."""
    offsets, seen = model.offsets, model.seen
    for first in range(0, len(model.user_ids), 1000):
        users = np.arange(first, min(first + 1000, len(model.user_ids)))
        base = offsets.mean + offsets.items + offsets.users[users, None]
        n = np.minimum(offsets.item_counts, offsets.user_counts[users, None])
        w = n / (n + model.trust)
        products = model.user_factors[users] @ model.item_factors.T
        scores = w * products + (1.0 - w) * base
        rows = np.repeat(np.arange(len(users)), np.diff(seen.start)[users])
        columns = seen.others[seen.start[users[0]] : seen.start[users[-1] + 1]]
        scores[rows, columns] = -np.inf
        best = np.argpartition(-scores, N, axis=1)[:, :N]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable")
        np.take_along_axis(best, order, 1)


def processor_seconds(call: Callable[[], Any], repeats: int = 5) -> float:
    call()
    taken = []
    for _ in range(repeats):
        begun = time.process_time()
        call()
        taken.append(time.process_time() - begun)
    return median(taken)


def lists() -> list[dict[str, Any]]:
    """Time the lists of all users of a catalogue like that of MovieLens 1M."""
    records = []
    ratings = synthetic_ratings(*PRESETS["synthetic-1m"])
    for rank, target in ((20, ">= 10000"), (100, None)):
        model = Recommender(rank, passes=1).fit(ratings).model_
        users = np.arange(len(model.user_ids))
        with one_blas_thread():
            ours = processor_seconds(lambda m=model, u=users: best_items(m, u, N, True))
            theirs = processor_seconds(lambda m=model: in_numpy(m))
        name = f"lists of {N} items, rank {rank}"
        rate = len(users) / ours
        unit = "users per processor second"
        records.append(record(name, rate, unit, target=target))
        records.append(record(f"{name}, against NumPy", theirs, "s", theirs / ours))
    return records


BENCHMARKS = (lists,)
