"""Matrix factorization at the size of MovieLens 1M: subsample gradients, the profiled form, and ALS.

Synthetic long-tailed ratings, K = 5, batches of N_Y / 100 as in the paper.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncqn import ASLBFGS, AsyncSGD
from asyncqn.core.streams import Stream
from asyncqn.core.worker import WorkerSteps, explosion_limit
from asyncqn.types import Commit, Task
from asyncqn_recommender import synthetic_ratings
from asyncqn_recommender.data import PRESETS
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization
from asyncqn_recommender.problems.profiled_factorization import (
    ProfiledFactorization,
    als,
)
from benchmarks.timing import mover, record, side_by_side

RANK = 5
PRECISIONS = (np.float64, np.float32)
Record = dict[str, Any]


def joint(dtype: Any) -> MatrixFactorization:
    ratings = synthetic_ratings(*PRESETS["synthetic-1m"])
    return MatrixFactorization.from_ratings(ratings, RANK, dtype=dtype)


def subsample_gradient() -> list[Record]:
    """Time gradients on consecutive and on scattered rows, beside moving the bytes that they touch."""
    records = []
    for dtype in PRECISIONS:
        model = joint(dtype)
        theta = model.initial(np.random.default_rng(0))
        out = np.empty_like(theta)
        n = model.n_data
        batch = n // 100
        rng = np.random.default_rng(1)
        row_sets = {
            "consecutive": [
                np.arange(k, k + batch) for k in range(0, n - batch, batch)
            ],
            "scattered": [rng.integers(0, n, batch) for _ in range(100)],
        }
        for kind, rows in row_sets.items():
            # The next set each time, so that no batch stays in the cache.
            cycle = itertools.cycle(rows)
            # The record, both rows read, both rows of the result read and written; and the prior.
            touched = batch * (20 + 6 * RANK * theta.itemsize) + 2 * theta.nbytes
            pair = side_by_side(
                mover(touched),
                lambda: model.grad(theta, next(cycle), out),  # noqa: B023
                repeats=15,
            )
            name = f"gradient K=5 {theta.dtype} {kind}, against moving its bytes"
            time = pair.b.median / batch * 1e9
            records.append(record(name, time, "ns/rating", pair.ratio))
    return records


def exact_gradient() -> list[Record]:
    """Time the gradient over all ratings of the joint and of the profiled form."""
    records = []
    for dtype in PRECISIONS:
        both = joint(dtype)
        ratings = synthetic_ratings(*PRESETS["synthetic-1m"])
        profiled = ProfiledFactorization.from_ratings(ratings, RANK, dtype=dtype)
        theta = both.initial(np.random.default_rng(0))
        # theta of the joint problem begins with the item rows.
        F = theta[: profiled.dim].copy()
        out, out_f = np.empty_like(theta), np.empty_like(F)
        rows, users = np.arange(both.n_data), np.arange(profiled.n_data)
        pair = side_by_side(
            lambda: both.grad(theta, rows, out),  # noqa: B023
            lambda: profiled.grad(F, users, out_f),  # noqa: B023
            repeats=9,
        )
        for form, timing in (("joint", pair.a), ("profiled", pair.b)):
            name = f"exact gradient K=5 {theta.dtype}, {form}"
            records.append(record(name, timing.median / len(rows) * 1e9, "ns/rating"))
    return records


def alternating_least_squares() -> list[Record]:
    """Time ten sweeps on one and on two threads."""
    model = joint(np.float32)
    theta = model.initial(np.random.default_rng(0))
    pair = side_by_side(
        lambda: als(model, theta, sweeps=10, threads=2),
        lambda: als(model, theta, sweeps=10),
        repeats=5,
    )
    name = "ALS, 10 sweeps K=5 float32, two threads against one"
    return [record(name, pair.b.median * 1e3, "ms on one", pair.ratio)]


def one_step(
    algorithm: Any, model: MatrixFactorization, theta: np.ndarray
) -> Callable[[], None]:
    """Return a call that makes a worker's whole step and the master's commit, on one worker."""
    iterate = algorithm.init(theta)
    local = algorithm.init_worker(model, theta)
    counter = itertools.count()
    steps = WorkerSteps(algorithm, model, explosion_limit(theta))

    def step() -> None:
        k = next(counter)
        task = Task(0, k, Stream(1, 0, k))
        update = steps.compute(iterate, local, task)
        steps.learn(iterate, local, task, update)
        algorithm.apply(iterate, [update], Commit(1, [0], model.value))

    return step


def steps() -> list[Record]:
    """Compare a step of as-L-BFGS (the paper's parameters) with one of a-SGD at equal batch."""
    records = []
    for dtype in PRECISIONS:
        model = joint(dtype)
        theta = model.initial(np.random.default_rng(0))
        batch = model.n_data // 100
        sgd = AsyncSGD(h=1e-6, batch=batch)
        paper = {"h": 2e-8, "gamma": 0.1, "beta": 1e3, "memory": 3, "rho": 3.0}
        ours = ASLBFGS(**paper, batch=batch, overlap=batch // 3)
        pair = side_by_side(one_step(sgd, model, theta), one_step(ours, model, theta))
        name = f"as-L-BFGS step against a-SGD step, ML-1M shape, {theta.dtype}"
        records.append(record(name, pair.b.median * 1e6, "us", pair.ratio, "<= 2x"))
    return records


BENCHMARKS = (subsample_gradient, exact_gradient, steps, alternating_least_squares)
