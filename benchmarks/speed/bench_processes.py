"""The engine of processes: a gradient that holds the interpreter lock, large updates, and the time to start.

Slices of runs take turns, so that a busy minute falls on all; rates are commits over the time of the run's
own axis.  Read the ratios: on a machine with other work the rates are those of what is left of it.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

import asyncqn as aq
from benchmarks.speed.bench_mpi import Flat, Idle, commit_rate, rates_of_job
from benchmarks.speed.bench_ray import Echo, Nothing

Record = dict[str, Any]

LOOP = 40_000
"""Turns of an empty loop of Python: about 2 ms."""
SLICES, COMMITS = 5, 150


class PythonGradient:
    """A gradient of about 2 ms of Python."""

    n_data, dim = 100, 10

    def value(self, theta: np.ndarray) -> float:
        return 0.5 * float(theta @ theta)

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        for _ in range(LOOP):
            pass
        out[:] = theta


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
    found: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(SLICES):
        for name, engine in engines.items():
            found[name].append(rate(PythonGradient(), aq.AsyncSGD(h=1e-4, batch=1), engine, COMMITS))
    one = median(found["Processes(1)"])
    records = []
    for name, rates in found.items():
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
