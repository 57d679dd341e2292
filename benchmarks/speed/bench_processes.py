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
from benchmarks.speed.bench_mpi import Flat, Idle, commit_rate, rates_of_job
from benchmarks.speed.bench_ray import Echo, Nothing

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
        """One that takes so long here, at present."""
        tried, theta = cls(20_000), np.ones(cls.dim)

        def spent() -> float:
            begin = time.perf_counter()
            tried.grad(theta, theta, theta)
            return time.perf_counter() - begin

        return cls(round(tried.turns * seconds / median(spent() for _ in range(50))))


def rate_without_exchange(potential: PythonGradient, processes: int) -> float:
    """Gradients per second of so many processes that have nothing to do with each other."""
    context = get_context("fork")
    together = context.Barrier(processes + 1)

    def compute() -> None:
        theta = np.ones(potential.dim)
        together.wait()
        for _ in range(COMMITS):
            potential.grad(theta, theta, theta)
        together.wait()

    workers = [context.Process(target=compute) for _ in range(processes)]
    for worker in workers:
        worker.start()
    together.wait()
    begin = time.perf_counter()
    together.wait()
    took = time.perf_counter() - begin
    for worker in workers:
        worker.join()
    return processes * COMMITS / took


def rate(potential: Any, algorithm: Any, engine: Any, commits: int) -> float:
    """Commits per second of a run."""
    run = aq.minimize(
        potential, algorithm, engine=engine, commits=commits, evaluate=commits, check=False,
        theta0=np.ones(potential.dim), tol=None,
    )  # fmt: skip
    return float(commits / run.metrics["time"][-1])


def bench_python_gradient() -> list[Record]:
    engines = {
        "Threads(1)": aq.Threads(1), "Threads(2)": aq.Threads(2),
        "Processes(1)": aq.Processes(1), "Processes(2)": aq.Processes(2),
    }  # fmt: skip
    alone = {"one process without exchange": 1, "two processes without exchange": 2}
    found: dict[str, list[float]] = {name: [] for name in (*alone, *engines)}
    potential = PythonGradient.lasting(GRADIENT)
    for _ in range(SLICES):
        for name, processes in alone.items():
            found[name].append(rate_without_exchange(potential, processes))
        for name, engine in engines.items():
            found[name].append(rate(potential, aq.AsyncSGD(h=1e-4, batch=1), engine, COMMITS))
    records = []
    for name, rates in found.items():
        one = median(found["one process without exchange" if name in alone else "Processes(1)"])
        ratio, wanted = median(rates) / one, 1.7 if name == "Processes(2)" else None
        records.append({
            "name": f"2 ms of Python, {name}", "value": median(rates), "unit": "commits/s", "ratio": ratio,
            "target": None if wanted is None else f">= {wanted} of one worker",
            "met": None if wanted is None else ratio >= wanted,
        })  # fmt: skip
    return records


def bench_large_updates() -> list[Record]:
    """Both vectors of 50,000 numbers each way, idle workers; MPI in shared memory beside it."""
    dim, commits = 50_000, 1000
    records = []
    for W in (1, 2):

        def slices(workers: int = W) -> list[float]:
            engine = aq.Processes(workers)
            return [
                commit_rate(aq.minimize(Flat(dim), Idle(), engine=engine, commits=commits, evaluate=commits))
                for _ in range(SLICES)
            ]

        before, mpi = slices(), median(turn[2] for turn in rates_of_job(W, dim, commits))
        ours = median([*before, *slices()])
        records.append({
            "name": f"(theta, u) of d = {dim:,} both ways, Processes({W}) against MPI in shared memory",
            "value": ours, "unit": "commits/s", "ratio": ours / mpi, "target": ">= 1", "met": ours >= mpi,
        })  # fmt: skip
    return records


def bench_start() -> list[Record]:
    def seconds() -> float:
        begin = time.perf_counter()
        rate(Nothing(1000), Echo(), aq.Processes(4), 1)
        return time.perf_counter() - begin

    took = median(seconds() for _ in range(SLICES))
    return [{
        "name": "a run of one commit on Processes(4)", "value": took, "unit": "s", "ratio": None,
        "target": "<= 1 s", "met": took <= 1.0,
    }]  # fmt: skip


BENCHMARKS = (bench_python_gradient, bench_large_updates, bench_start)
