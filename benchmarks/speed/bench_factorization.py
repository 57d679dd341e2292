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
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization
from asyncqn_recommender.problems.profiled_factorization import (
    ProfiledFactorization,
    als,
)
from benchmarks.timing import mover, side_by_side

N_USERS, N_ITEMS, N_DATA, RANK = 6040, 3706, 1_000_209, 5
BATCH = N_DATA // 100

Record = dict[str, Any]
Columns = tuple[np.ndarray, np.ndarray, np.ndarray]
AddUp = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]


def ratings() -> dict[str, Any]:
    """Popularity falls like 1 / (rank + 30), activity is log-normal; values are whole stars."""
    rng = np.random.default_rng(0)
    popularity = 1.0 / (np.arange(N_ITEMS) + 30.0)
    activity = rng.lognormal(0.0, 1.0, N_USERS)
    # Permuted, so that popular items are not neighbours in memory.
    items = rng.permutation(N_ITEMS)[
        rng.choice(N_ITEMS, N_DATA, p=popularity / popularity.sum())
    ]
    users = rng.choice(N_USERS, N_DATA, p=activity / activity.sum())
    values = rng.integers(1, 6, N_DATA).astype(np.float32)
    return {
        "users": users,
        "items": items,
        "values": values,
        "n_users": N_USERS,
        "n_items": N_ITEMS,
    }


def numpy_gradient(
    columns: Columns,
    theta: np.ndarray,
    rows: np.ndarray,
    out: np.ndarray,
    add_up: AddUp,
) -> None:
    """The same estimate (prior = 1) by whole-array operations; `add_up(out, index, terms)` does the sums."""
    cut = N_ITEMS * RANK
    F, G = theta[:cut].reshape(N_ITEMS, RANK), theta[cut:].reshape(N_USERS, RANK)
    items, users, values = (column[rows] for column in columns)
    f, g = F[items], G[users]
    errors = (np.einsum("nk,nk->n", f, g) - values) * theta.dtype.type(
        N_DATA / len(rows)
    )
    np.copyto(out, theta)
    add_up(out[:cut].reshape(N_ITEMS, RANK), items, errors[:, None] * g)
    add_up(out[cut:].reshape(N_USERS, RANK), users, errors[:, None] * f)


def by_bincount(out: np.ndarray, index: np.ndarray, terms: np.ndarray) -> None:
    """NumPy's fastest way to add up by index, one column at a time."""
    for k in range(RANK):
        out[:, k] += np.bincount(index, terms[:, k], len(out))


def over(
    row_sets: list[np.ndarray], call: Callable[[np.ndarray], Any]
) -> Callable[[], Any]:
    """Return a call on the next set of rows each time, so that no batch stays in the cache."""
    cycle = itertools.cycle(row_sets)
    return lambda: call(next(cycle))


def batches() -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(1)
    starts = range(0, N_DATA - BATCH + 1, BATCH)
    return {
        "shuffled": [np.arange(start, start + BATCH) for start in starts],
        "replacement": [rng.integers(0, N_DATA, BATCH) for _ in range(100)],
    }


def subsample_gradient() -> list[Record]:
    records = []
    data = ratings()
    for dtype in (np.float64, np.float32):
        model = MatrixFactorization(**data, rank=RANK, dtype=dtype)
        theta = model.initial(np.random.default_rng(0))
        out = np.empty_like(theta)
        # In the model's shuffled order, so that both read the same ratings for the same rows.
        columns = tuple(
            model.ratings[name].copy() for name in ("item", "user", "value")
        )
        for sampling, rows in batches().items():
            name = f"gradient K=5 {np.dtype(dtype).name} {sampling}"
            fast = over(rows, lambda r: model.grad(theta, r, out))  # noqa: B023
            for add_up, form, goal in (
                (np.add.at, "add.at", 20.0),
                (by_bincount, "bincount", None),
            ):
                slow = over(
                    rows,
                    lambda r: numpy_gradient(columns, theta, r, out, add_up),  # noqa: B023
                )
                pair = side_by_side(fast, slow, repeats=15)
                records.append(
                    {
                        "name": f"{name}, against NumPy ({form})",
                        "value": pair.a.median / BATCH * 1e9,
                        "unit": "ns/rating",
                        "ratio": pair.ratio,
                        "target": goal and f">= {goal:g}x",
                        "met": goal and pair.ratio >= goal,
                    }
                )
            # Touched: the record, both rows read, both rows of the result read and written; and the prior.
            size = theta.itemsize
            touched = BATCH * (12 + 8 + 6 * RANK * size) + 2 * theta.nbytes
            pair = side_by_side(mover(touched), fast, repeats=15)
            records.append(
                {
                    "name": f"{name}, against moving its bytes",
                    "value": pair.b.median / BATCH * 1e9,
                    "unit": "ns/rating",
                    "ratio": pair.ratio,
                    "target": None,
                    "met": None,
                }
            )
    return records


def exact_gradient() -> list[Record]:
    records = []
    data = ratings()
    for dtype in (np.float64, np.float32):
        both = MatrixFactorization(**data, rank=RANK, dtype=dtype)
        profiled = ProfiledFactorization(**data, rank=RANK, dtype=dtype)
        theta = both.initial(np.random.default_rng(0))
        # theta of the joint problem begins with the item rows.
        F = theta[: profiled.dim].copy()
        out, out_f = np.empty_like(theta), np.empty_like(F)
        rows, users = np.arange(N_DATA), np.arange(N_USERS)
        pair = side_by_side(
            lambda: both.grad(theta, rows, out),  # noqa: B023
            lambda: profiled.grad(F, users, out_f),  # noqa: B023
            repeats=9,
        )
        kind = np.dtype(dtype).name
        for name, timing in (("joint", pair.a), ("profiled", pair.b)):
            records.append(
                {
                    "name": f"exact gradient K=5 {kind}, {name}",
                    "value": timing.median / N_DATA * 1e9,
                    "unit": "ns/rating",
                    "ratio": None,
                    "target": None,
                    "met": None,
                }
            )
    return records


def alternating_least_squares() -> list[Record]:
    model = MatrixFactorization(**ratings(), rank=RANK, dtype=np.float32)
    theta = model.initial(np.random.default_rng(0))
    pair = side_by_side(
        lambda: als(model, theta, sweeps=10, threads=2),
        lambda: als(model, theta, sweeps=10),
        repeats=5,
    )
    return [
        {
            "name": "ALS, 10 sweeps K=5 float32, two threads against one",
            "value": pair.b.median * 1e3,
            "unit": "ms on one",
            "ratio": pair.ratio,
            "target": None,
            "met": None,
        }
    ]


def one_step(
    algorithm: Any, model: MatrixFactorization, theta: np.ndarray
) -> Callable[[], None]:
    """Return a call that makes a worker's whole step and the master's commit, on one worker."""
    iterate, local, counter = (
        algorithm.init(theta),
        algorithm.init_worker(model, theta),
        itertools.count(),
    )
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
    for dtype in (np.float64, np.float32):
        model = MatrixFactorization(**ratings(), rank=RANK, dtype=dtype)
        theta = model.initial(np.random.default_rng(0))
        first = one_step(AsyncSGD(h=1e-6, batch=BATCH), model, theta)
        second = one_step(
            ASLBFGS(
                h=2e-8,
                gamma=0.1,
                beta=1e3,
                memory=3,
                batch=BATCH,
                overlap=BATCH // 3,
                rho=3.0,
            ),
            model,
            theta,
        )
        pair = side_by_side(first, second)
        records.append(
            {
                "name": f"as-L-BFGS step against a-SGD step, ML-1M shape, {np.dtype(dtype).name}",
                "value": pair.b.median * 1e6,
                "unit": "us",
                "ratio": pair.ratio,
                "target": "<= 2",
                "met": pair.ratio <= 2.0,
            }
        )
    return records


BENCHMARKS = (subsample_gradient, exact_gradient, steps, alternating_least_squares)
