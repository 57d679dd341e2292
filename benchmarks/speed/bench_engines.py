"""Threads and the master at the size of MovieLens 1M: d = 49,615 (K = 5), batches of N_Y / 100, M = 3.

One worker is compared with a bare loop by processor time, which other programs on the machine
disturb least.  The speed-up of two workers is one of real time (that of the run's axis, which
leaves evaluations out), and says something only when two cores are free; so the speed-up that two
unconnected loops get in the same minute is shown beside it.
"""

from __future__ import annotations

import threading
import time
import warnings
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.core.master import Master
from asyncqn.core.request import Request
from asyncqn.core.streams import Stream
from asyncqn.errors import StabilityWarning
from asyncqn.types import Commit, Task
from asyncqn_recommender.data.synthetic import PRESETS, synthetic_ratings
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization
from benchmarks.timing import record, side_by_side

Record = dict[str, Any]

BATCH = 10_000
ALGORITHM = aq.ASLBFGS(
    h=2e-8, gamma=0.1, beta=1e3, memory=3, batch=BATCH, overlap=BATCH // 3, rho=3.0
)
STEPS, REPEATS = 600, 5


@cache
def problem() -> MatrixFactorization:
    return MatrixFactorization.from_ratings(
        synthetic_ratings(*PRESETS["synthetic-1m"], seed=0), rank=5
    )


def start() -> np.ndarray:
    return problem().initial(np.random.default_rng(0))


class Rates(NamedTuple):
    """Steps per second of real time, and per second of processor time."""

    real: float
    processor: float


def bare_loop(steps: int) -> Rates:
    """Call the algorithm's own functions in a row, with nothing around them."""
    model, theta0 = problem(), start()
    iterate, local = ALGORITHM.init(theta0), ALGORITHM.init_worker(model, theta0)
    begin, begin_processor = time.perf_counter(), time.thread_time()
    for k in range(steps):
        task = Task(0, k, Stream(0, 0, k))
        update = ALGORITHM.step(iterate, local, model, task)
        local = ALGORITHM.learn(iterate, local, model, task)
        iterate = ALGORITHM.apply(iterate, [update], Commit(1, [0], model.value))
    return Rates(
        steps / (time.perf_counter() - begin),
        steps / (time.thread_time() - begin_processor),
    )


def on_threads(workers: int, steps: int) -> Rates:
    """Run the engine; count all its threads together, without the one evaluation at the end."""
    processor: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)
        run = aq.minimize(
            problem(),
            ALGORITHM,
            engine=aq.Threads(workers),
            theta0=start(),
            commits=steps,
            evaluate=10**9,
            callback=lambda progress: processor.append(time.process_time()),
        )
    begin = time.thread_time()
    problem().value(run.theta)
    value = time.thread_time() - begin
    return Rates(steps / run.time, steps / (processor[-1] - processor[0] - value))


def free_cores(steps: int) -> float:
    """Return the speed-up of two unconnected loops over one, on the machine as it is now."""
    rates: list[float] = []
    threads = [
        threading.Thread(target=lambda: rates.append(bare_loop(steps).real))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates) / bare_loop(steps).real


def threads() -> list[Record]:
    """Compare one worker with a bare loop, and two workers with one."""
    # Compiles, and starts the threads once, before anything is timed.
    bare_loop(5)
    on_threads(2, 5)
    to_bare, to_one, free, rates = [], [], [], []
    # All four in every repeat, so that a slow minute falls on each of them.
    for _ in range(REPEATS):
        bare, one = bare_loop(STEPS), on_threads(1, STEPS)
        two = on_threads(2, 2 * STEPS)
        rates.append(one.real)
        to_bare.append(one.processor / bare.processor)
        to_one.append(two.real / one.real)
        free.append(free_cores(STEPS))
    gain, possible = median(to_one), median(free)
    rate, name = median(rates), "threads, W = 1, to a bare loop"
    return [
        record(name, rate, "commits/s", median(to_bare), ">= 0.9"),
        record("threads, W = 2, to W = 1", gain, "x", None, ">= 1.7 on free cores"),
        record("two unconnected loops to one", possible, "x"),
        record("W = 2, of what two loops gain", gain, "x", gain / possible, ">= 0.85"),
    ]


def commit() -> list[Record]:
    """The master's commit of (theta, u), its fingerprint and its guard, against two plain vector adds."""
    model, theta0 = problem(), start()
    request = Request(model, ALGORITHM, theta0, commits=10**9, evaluate=None)
    master = Master(request, workers=2)
    rng = np.random.default_rng(0)
    # Small changes, which the master's guard accepts.
    update = ALGORITHM.init_worker(model, theta0).update
    for part in update:
        part[...] = 1e-9 * rng.standard_normal(part.size)
    theta, u = theta0.copy(), np.zeros_like(theta0)

    def plain() -> None:
        np.add(theta, update.d_theta, out=theta)
        np.add(u, update.d_u, out=u)

    both = side_by_side(plain, lambda: master.commit([update], 0.0, [master.version]))
    microseconds = 1e6 * both.b.median
    name = "master commit to two vector adds"
    return [record(name, microseconds, "us", both.ratio, "<= 2")]


BENCHMARKS = (threads, commit)
