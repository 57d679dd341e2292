"""Lists for many users: users per processor second, beside matrix products and argpartition in NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from asyncqn_recommender.kernels.als import grouped
from asyncqn_recommender.model import FactorModel, Offsets
from asyncqn_recommender.ranking import best_items
from benchmarks.timing import one_blas_thread

USERS, ITEMS, SEEN, N = 6_040, 3_883, 1_000_209, 10
"""The shape of MovieLens 1M."""


def made_up(rank: int) -> FactorModel:
    """Return a model of that shape with random factors."""
    rng = np.random.default_rng(0)
    users = np.sort(rng.integers(0, USERS, SEEN)).astype(np.int32)
    seen = grouped(
        users,
        rng.integers(0, ITEMS, SEEN).astype(np.int32),
        np.ones(SEEN, np.float32),
        USERS,
    )
    counts = np.bincount(seen.others, minlength=ITEMS)
    offsets = Offsets(
        3.5, rng.normal(size=ITEMS), rng.normal(size=USERS), counts, np.diff(seen.start)
    )
    factors = (rng.normal(size=(n, rank)).astype(np.float32) for n in (ITEMS, USERS))
    ids = np.arange(USERS), np.arange(ITEMS)
    return FactorModel(
        *factors, offsets, *ids, None, seen, 1.0, 5.0, 3.0, 0.04, False, 5.0, True
    )


def in_numpy(model: FactorModel) -> None:
    """The same lists by products of a thousand users at a time and argpartition."""
    offsets, seen = model.offsets, model.seen
    for first in range(0, USERS, 1000):
        users = np.arange(first, min(first + 1000, USERS))
        base = offsets.mean + offsets.items + offsets.users[users, None]
        n = np.minimum(offsets.item_counts, offsets.user_counts[users, None])
        w = n / (n + model.trust)
        scores = (
            w * (model.user_factors[users] @ model.item_factors.T) + (1.0 - w) * base
        )
        lengths = np.diff(seen.start)[users]
        rows = np.repeat(np.arange(len(users)), lengths)
        scores[
            rows, seen.others[seen.start[users[0]] : seen.start[users[-1] + 1]]
        ] = -np.inf
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
    for rank in (20, 100):
        model = made_up(rank)
        with one_blas_thread():
            ours = processor_seconds(
                lambda model=model: best_items(model, np.arange(USERS), N, True)
            )
            theirs = processor_seconds(lambda model=model: in_numpy(model))
        rate = USERS / ours
        records.append(
            {
                "name": f"lists of {N} items, rank {rank} (ratio: NumPy's time / ours)",
                "value": rate,
                "unit": "users per processor second",
                "ratio": theirs / ours,
                "target": ">= 10000" if rank == 20 else None,
                "met": rate >= 10_000 if rank == 20 else None,
            }
        )
    return records


BENCHMARKS = (lists,)
