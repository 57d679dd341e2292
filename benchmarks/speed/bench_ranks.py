"""Factorization at any rank: time of a pass from rank 16 to 256, and a fit beside alternating least squares.

Synthetic ratings of the shape of MovieLens 1M; processor time, everything on one thread.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import numpy as np

from asyncqn_recommender.data import Ratings, synthetic_ratings
from asyncqn_recommender.estimator import Recommender
from asyncqn_recommender.kernels.als import grouped
from asyncqn_recommender.model import column_ridges
from asyncqn_recommender.problems.profiled_factorization import ProfiledFactorization
from benchmarks.timing import one_blas_thread, record

Record = dict[str, Any]
STEPS = (7, 8, 9, 16, 17, 24, 25, 32, 33, 40, 41, 48, 49, 64, 65, 96, 97, 128, 129, 256)
ROUNDS = 5


def ratings() -> Ratings:
    return synthetic_ratings(6040, 3706, 1_000_209, seed=0)


def passes() -> list[Record]:
    """Time the exact gradient at every rank of STEPS, in turns, and keep the fastest round of each."""
    data = ratings()
    seconds = dict.fromkeys(STEPS, math.inf)
    calls = {}
    for rank in STEPS:
        problem = ProfiledFactorization.from_ratings(
            data, rank, prior=3.0, alpha=0.035, dtype="float32"
        )
        theta = problem.initial(np.random.default_rng(0))
        calls[rank] = partial(
            problem.grad, theta, np.arange(problem.n_data), np.empty_like(theta)
        )
    for _ in range(ROUNDS):
        for rank, call in calls.items():
            begun = time.process_time()
            call()
            seconds[rank] = min(seconds[rank], time.process_time() - begun)
    exponent = math.log(seconds[256] / seconds[16]) / math.log(16)
    steps = {k: seconds[k + 1] / seconds[k] for k in STEPS if k + 1 in seconds}
    worst = max(steps, key=lambda k: steps[k])
    dearest = f"the dearest step to the next rank, {worst} to {worst + 1}"
    return [
        *(record(f"a pass at rank {k}", 1e3 * t, "ms") for k, t in seconds.items()),
        record("exponent of a pass, rank 16 to 256", exponent, "", None, "<= 2.3"),
        record(dearest, 1e3 * seconds[worst], "ms a pass", steps[worst], "<= 1.3"),
    ]


def sweep(
    F: np.ndarray, G: np.ndarray, data: Any, ridges: np.ndarray, columns: np.ndarray
) -> None:
    """One half of alternating least squares in NumPy: G given F, one product and one solve for each row."""
    start, others, values = data
    for row in range(len(G)):
        part = slice(start[row], start[row + 1])
        f = F[others[part]]
        G[row] = np.linalg.solve(
            f.T @ f + np.diag(ridges[row] * columns), f.T @ values[part]
        )


def beside_least_squares(data: Ratings | None = None) -> list[Record]:
    """Time a whole fit at rank 50 beside NumPy's ALS, to the same objective from the same start."""
    data, rank = ratings() if data is None else data, 50
    Recommender(rank, workers=1, passes=2).fit(data.take(slice(0, 20_000)))
    begun = time.process_time()
    model = Recommender(rank, workers=1).fit(data)
    ours = time.process_time() - begun
    columns = column_ridges(rank, 5, data)
    problem = ProfiledFactorization.from_ratings(
        data, rank, prior=3.0, alpha=0.035, dtype="float32", columns=columns
    )
    F = problem.initial(np.random.default_rng(0)).reshape(-1, rank)
    G = np.zeros((data.n_users, rank), np.float32)
    by_user = grouped(data.users, data.items, data.values, data.n_users)
    by_item = grouped(data.items, data.users, data.values, data.n_items)
    theirs, sweeps = 0.0, 0
    level = 1.001 * model.fun_  # within a thousandth of the objective
    with one_blas_thread():
        while theirs < 4 * ours and problem.value(F.ravel()) > level:
            begun = time.process_time()
            sweep(F, G, by_user, problem.user_ridges, np.ones(rank, np.float32))
            sweep(G, F, by_item, problem.item_ridges, problem.columns)
            theirs, sweeps = theirs + time.process_time() - begun, sweeps + 1
    name = (
        f"fit at rank 50 beside {sweeps} sweeps of ALS in NumPy (ratio: ours / theirs)"
    )
    return [record(name, ours, "s", ours / theirs, "<= 0.5")]


BENCHMARKS = (passes, beside_least_squares)
