"""The engine of processes: a gradient that holds the interpreter lock, large updates, and the time to start.

Slices of runs take turns, so that a busy minute falls on all; rates are commits over the time of the run's
own axis.  Read the ratios: on a machine with other work the rates are those of what is left of it.  What two
processes gain that compute the same and exchange nothing is the most that an engine could.
"""

from __future__ import annotations

import time
from multiprocessing import get_context
from statistics import median
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.engines.round_trip import Nothing
from benchmarks.speed.bench_mpi import rates_of_job
from benchmarks.speed.exchange import Echo, commit_rate
from benchmarks.timing import record

Record = dict[str, Any]

GRADIENT = 2e-3
"""Seconds of Python for a gradient."""
SLICES, COMMITS = 5, 150


class PythonGradient:
    """A gradient of so many turns of an empty loop of Python."""

    n_data, dim = 100, 10

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def value(self, theta: np.ndarray) -> float:
        return 0.5 * float(theta @ theta)

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        for _ in range(self.turns):
            pass
        out[:] = theta

    @classmethod
    def lasting(cls, seconds: float) -> PythonGradient:
        """Return a problem whose gradient takes this time on this machine at present."""
        trial, theta = cls(20_000), np.ones(cls.dim)
        times = []
        for _ in range(50):
            begin = time.perf_counter()
            trial.grad(theta, theta, theta)
            times.append(time.perf_counter() - begin)
        return cls(round(trial.turns * seconds / median(times)))


def rate_without_exchange(problem: PythonGradient, processes: int) -> float:
    """Gradients per second of so many processes that have nothing to do with each other."""
    context = get_context("fork")
    # All begin at once, and the clock is read between the two barriers.
    together = context.Barrier(processes + 1)

    def compute() -> None:
        theta = np.ones(problem.dim)
        together.wait()
        for _ in range(COMMITS):
            problem.grad(theta, theta, theta)
        together.wait()

    workers = [context.Process(target=compute) for _ in range(processes)]
    for worker in workers:
        worker.start()
    together.wait()
    begin = time.perf_counter()
    together.wait()
    seconds = time.perf_counter() - begin
    for worker in workers:
        worker.join()
    return processes * COMMITS / seconds


def rate(problem: Any, engine: Any, commits: int) -> float:
    """Commits per second of a run."""
    run = aq.minimize(
        problem,
        aq.AsyncSGD(h=1e-4, batch=1),
        engine=engine,
        commits=commits,
        evaluate=commits,
        check=False,
        theta0=np.ones(problem.dim),
        tol=None,
    )
    return float(commits / run.metrics["time"][-1])


def bench_python_gradient() -> list[Record]:
    problem = PythonGradient.lasting(GRADIENT)
    gains, possible, threads = [], [], []
    for _ in range(SLICES):
        one, two = (rate_without_exchange(problem, n) for n in (1, 2))
        possible.append(two / one)
        one, two = (rate(problem, aq.Processes(n), COMMITS) for n in (1, 2))
        gains.append(two / one)
        threads.append(rate(problem, aq.Threads(2), COMMITS) / one)
    gain, most = median(gains), median(possible)
    return [
        record("2 ms of Python, Processes(2) to (1)", gain, "x", None, ">= 1.7"),
        record("2 ms of Python, of two without exchange", most, "x", gain / most),
        record("2 ms of Python, Threads(2) to Processes(1)", median(threads), "x"),
    ]


def bench_large_updates() -> list[Record]:
    """Exchange both vectors of 50,000 numbers with idle workers, beside MPI."""
    dim, commits = 50_000, 1000
    records = []
    for workers in (1, 2):
        theirs = median(ours for _, ours in rates_of_job(workers, dim, commits))
        runs = [
            aq.minimize(
                Nothing(dim),
                Echo(),
                engine=aq.Processes(workers),
                commits=commits,
                evaluate=commits,
            )
            for _ in range(SLICES)
        ]
        ours = median(map(commit_rate, runs))
        name = f"d = {dim:,} both ways, Processes({workers}) against MPI"
        records.append(record(name, ours, "commits/s", ours / theirs, ">= 1"))
    return records


def bench_start() -> list[Record]:
    times = []
    for _ in range(SLICES):
        begin = time.perf_counter()
        rate(Nothing(1000), aq.Processes(4), 1)
        times.append(time.perf_counter() - begin)
    name = "a run of one commit on Processes(4)"
    return [record(name, median(times), "s", None, "<= 1 s")]


BENCHMARKS = (bench_python_gradient, bench_large_updates, bench_start)
