"""Ratings for Figs. 4 and 5, the paper's parameters for them, and a time axis measured on this machine."""

from __future__ import annotations

import time
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from asyncqn.core.cluster import Cluster
from asyncqn.core.stages import Closes
from asyncqn.core.streams import Stream
from asyncqn.data import known_names, load
from asyncqn.paper.settings import algorithm
from asyncqn.potentials.factorization.matrix_factorization import MatrixFactorization
from asyncqn.types import Algorithm, Commit, Task

BANDWIDTH = 1.25e9
"""Bytes per second of a message, our own choice: a network of 10 Gbit/s."""
SPREAD = 0.3
"""Standard deviation of a worker's time over its mean, our own choice."""

# h of a-SGD, mb-L-BFGS and as-L-BFGS, then gamma and beta of as-L-BFGS, from the paper's table.
TABLE = {
    "1m": (1e-6, 5e-7, 2e-8, 1e-1, 1e3),
    "10m": (2e-7, 1e-8, 1e-9, 3e-2, 1e3),
    "20m": (1e-7, 1e-8, 1e-9, 1e-3, 1e3),
}
RANK, RHO, MEMORY = 5, 3.0, 3


class Timing(NamedTuple):
    """Seconds of a worker's step, of a commit, and of the messages of one step."""

    worker: float
    master: float
    message: float


def source(size: str) -> str:
    """The stored MovieLens set of this size, or else the synthetic one of its shape."""
    real = f"ml-{size}"
    return real if known_names().get(real) else f"synthetic-{size}"


def label(name: str) -> str:
    """What a figure calls a set."""
    size = name.rpartition("-")[2].upper()
    return f"MovieLens {size}" if name.startswith("ml-") else f"synthetic ratings of the {size} shape"


def size_of(name: str) -> str:
    """The row of the paper's table for a set: that of its own size, or of 1M for any other."""
    size = name.rpartition("-")[2]
    return size if size in TABLE else "1m"


@cache
def potential(name: str) -> MatrixFactorization:
    """The paper's MAP objective on a set of ratings."""
    return MatrixFactorization.from_ratings(load(name), RANK)


def parameters(size: str, n_data: int) -> dict[str, dict[str, Any]]:
    """The paper's parameters; N_Omega = N_Y / 100, N_O = N_Omega / 3, H + rho I for both L-BFGS methods."""
    sgd, mb, h, gamma, beta = TABLE[size]
    batch = n_data // 100
    shared = {"memory": MEMORY, "batch": batch, "overlap": batch // 3, "rho": RHO}
    return {
        "async-sgd": {"h": sgd, "batch": batch},
        "mb-lbfgs": {"h": mb, **shared},
        "as-lbfgs": {"h": h, "gamma": gamma, "beta": beta, **shared},
    }


def measure_timing(name: str, kind: str, given: dict[str, Any], steps: int = 12) -> Timing:
    """Median times of a single worker's steps and of commits, in this process alone."""
    model, method = potential(name), algorithm(kind, given)
    theta0 = model.initial(np.random.default_rng(0))
    iterate, local = method.init(theta0), method.init_worker(model, theta0)
    work, commit = [], []
    for k in range(steps):
        task = Task(0, k, Stream(0, 0, k))
        t0 = time.perf_counter()
        update = method.step(iterate, local, model, task)
        local = method.learn(iterate, local, model, task)
        t1 = time.perf_counter()
        iterate = method.apply(iterate, [update], Commit(1, [0], model.value))
        work.append(t1 - t0)
        commit.append(time.perf_counter() - t1)
    vectors = 4 if kind == "as-lbfgs" else 2
    # The first steps fill the memory and warm the caches.
    return Timing(median(work[4:]), median(commit[4:]), vectors * 8 * model.dim / BANDWIDTH)


def measured_cluster(timing: Timing, workers: int) -> Cluster:
    """A cluster with these times."""
    return Cluster(workers, timing.worker, SPREAD * timing.worker, timing.message, timing.master)


def with_timeout(given: dict[str, Any], method: Algorithm, timing: Timing) -> dict[str, Any]:
    """Rounds of mb-L-BFGS may close after 1.2 mean times of a worker; the paper's 400 ms suit its cluster."""
    return {**given, "timeout": 1.2 * timing.worker} if method.stages[0].closes is Closes.ROUND else given
