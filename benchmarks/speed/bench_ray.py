"""The Ray engine against a raw loop of actors that moves the same bytes and computes nothing.

Both sides run in one process on one local Ray, in short slices one after the other, with as many
actors and with messages of the size of as-L-BFGS's (theta and u there, both changes back).  The raw
loop waits for one update, gets it and sends the next.  The engine commits, guards and records
besides, and its time is that of the run's axis.
"""

from __future__ import annotations

import os
import time
from statistics import median
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.engines.round_trip import Nothing
from asyncqn.types import Array, Progress
from benchmarks.speed.exchange import Echo
from benchmarks.timing import record

WORKERS, SLICES = 2, 30
SIZES = {1_000: 100, 49_615: 50}
"""Dimensions, with the number of updates of a slice: a small model, and MovieLens 1M with K = 5."""


class RawActor:
    def __init__(self, dim: int) -> None:
        self.update = (np.full(dim, 1e-9), np.full(dim, 1e-9))

    def step(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        return self.update


def raw_loop(ray: Any, actors: list[Any], dim: int, steps: int) -> float:
    """Seconds per update; the first update of every actor is not counted."""
    message = (np.zeros(dim), np.zeros(dim))
    pending = {actor.step.remote(message): actor for actor in actors}
    begin = 0.0
    for k in range(steps):
        if k == len(actors):
            begin = time.perf_counter()
        (ready,), _ = ray.wait(list(pending), num_returns=1)
        actor = pending.pop(ready)
        ray.get(ready)
        pending[actor.step.remote(message)] = actor
    seconds = (time.perf_counter() - begin) / (steps - len(actors))
    ray.get(list(pending))
    return seconds


def both(ray: Any, dim: int, steps: int) -> tuple[float, float]:
    """Median seconds per update of the raw loop and per commit of the engine.

    The raw slices run in the engine's callback, while its clock stands still.
    """
    # Without reserved processors, or the actors of the engine would find none.
    actors = [
        ray.remote(RawActor).options(num_cpus=0).remote(dim) for _ in range(WORKERS)
    ]
    raw: list[float] = []

    def callback(progress: Progress) -> None:
        raw.append(raw_loop(ray, actors, dim, steps))

    run = aq.minimize(
        Nothing(dim),
        Echo(),
        engine=aq.Ray(WORKERS),
        theta0=np.zeros(dim),
        commits=steps * (SLICES + 1),
        evaluate=steps,
        callback=callback,
    )
    for actor in actors:
        ray.kill(actor)
    # What was under way when the clock stood still arrived meanwhile, and is not counted either.
    times = run.schedule.time[run.schedule.commit > 0].reshape(SLICES + 1, steps)
    # Each slice without its first commits, one per worker, which were under way before it began.
    ours = (times[1:, -1] - times[1:, WORKERS - 1]) / (steps - WORKERS)
    return median(raw[2:]), float(np.median(ours))


def ray_master() -> list[dict[str, Any]]:
    """Commits per second of the engine, and what a raw loop of actors reaches beside it."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    records = []
    ray.init(num_cpus=2, include_dashboard=False, logging_level=40, log_to_driver=False)
    try:
        for dim, steps in SIZES.items():
            raw, ours = both(ray, dim, steps)
            name = f"Ray engine to a raw actor loop, d = {dim}"
            records.append(record(name, 1 / ours, "commits/s", raw / ours, ">= 0.8"))
    finally:
        ray.shutdown()
    return records


BENCHMARKS = (ray_master,)
