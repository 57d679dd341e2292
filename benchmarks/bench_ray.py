"""The Ray engine against a raw loop of actors that moves the same bytes and computes nothing.

Both sides run in one process on one local Ray, alternately, with as many actors and with messages
of the size of as-L-BFGS's (theta and u there, both changes back).  The raw loop does what Ray's own
documentation shows: wait for one answer, get it, send the next.  The engine commits, guards and
records besides, and its time is that of the run's axis.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.types import Array, Asynchronous, Potential, Task

Record = dict[str, Any]

WORKERS, REPEATS = 2, 5
SIZES = {1_000: 600, 49_615: 300}
"""Dimensions, with the number of updates of a turn: a small model, and MovieLens 1M with K = 5."""


class Pair(NamedTuple):
    theta: Array
    u: Array


class Nothing:
    """A potential that costs nothing to evaluate."""

    n_data = 1

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def value(self, theta: Array) -> float:
        return 0.0

    def grad(self, theta: Array, rows: Any, out: Array) -> None:
        out[...] = 0.0


class Echo:
    """An algorithm that only sends: (theta, u) to the worker, as much back, added by the master."""

    pattern = Asynchronous()

    def check(self, potential: Potential) -> None:
        pass

    def init(self, theta0: Array) -> Pair:
        return Pair(theta0.copy(), np.zeros_like(theta0))

    def init_worker(self, potential: Potential, theta0: Array) -> Pair:
        return Pair(np.full_like(theta0, 1e-9), np.full_like(theta0, 1e-9))

    def step(self, view: Pair, local: Pair, potential: Potential, task: Task) -> Pair:
        return local

    def learn(self, view: Pair, local: Pair, potential: Potential, task: Task) -> Pair:
        return local

    def forget(self, local: Pair) -> Pair:
        return local

    def apply(self, iterate: Pair, updates: Sequence[Pair]) -> Pair:
        for update in updates:
            np.add(iterate.theta, update.theta, out=iterate.theta)
            np.add(iterate.u, update.u, out=iterate.u)
        return iterate

    def counters(self, iterate: Pair, locals_: Sequence[Pair]) -> dict[str, int]:
        return {}


class RawActor:
    def __init__(self, dim: int) -> None:
        self.answer = (np.full(dim, 1e-9), np.full(dim, 1e-9))

    def step(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        return self.answer


def raw_loop(ray: Any, actors: list[Any], dim: int, steps: int) -> float:
    """Answers per second."""
    message = (np.zeros(dim), np.zeros(dim))
    pending = {actor.step.remote(message): actor for actor in actors}
    begin = time.perf_counter()
    for _ in range(steps):
        (ready,), _ = ray.wait(list(pending), num_returns=1)
        actor = pending.pop(ready)
        ray.get(ready)
        pending[actor.step.remote(message)] = actor
    rate = steps / (time.perf_counter() - begin)
    ray.get(list(pending))
    return rate


def engine(dim: int, steps: int) -> float:
    """Commits per second, after those in which actors begin."""
    warm = 20
    run = aq.minimize(
        Nothing(dim), Echo(), engine=aq.Ray(WORKERS), theta0=np.zeros(dim), commits=steps + warm,
        evaluate=10**9,
    )  # fmt: skip
    return float(steps / (run.schedule.time[-1] - run.schedule.time[len(run.schedule) - steps - 1]))


def ray_master() -> list[Record]:
    """Commits per second of the engine, and what a raw loop of actors reaches beside it."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    warnings.simplefilter("ignore", ResourceWarning)
    records: list[Record] = []
    ray.init(
        address="local", num_cpus=2, _node_ip_address="127.0.0.1", include_dashboard=False,
        logging_level=40, log_to_driver=False,
    )  # fmt: skip
    try:
        for dim, steps in SIZES.items():
            # Idle raw actors cost the engine nothing, so they stay for all turns.
            actors = [ray.remote(RawActor).options(num_cpus=0).remote(dim) for _ in range(WORKERS)]
            raw_loop(ray, actors, dim, 20)
            turns = [
                (raw_loop(ray, actors, dim, steps), engine(dim, steps), raw_loop(ray, actors, dim, steps))
                for _ in range(REPEATS)
            ]
            ratio = median(ours / median((before, after)) for before, ours, after in turns)
            raw = median(rate for before, _, after in turns for rate in (before, after))
            records += [
                {"name": f"raw Ray actor loop, d = {dim}", "value": raw, "unit": "answers/s", "ratio": None,
                 "target": None, "met": None},
                {"name": f"Ray engine to a raw actor loop, d = {dim}", "value": median(t[1] for t in turns),
                 "unit": "commits/s", "ratio": ratio, "target": ">= 0.8", "met": ratio >= 0.8},
            ]  # fmt: skip
            for actor in actors:
                ray.kill(actor)
    finally:
        ray.shutdown()
    return records


BENCHMARKS = (ray_master,)
