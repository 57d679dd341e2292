"""The engine of processes: a gradient that holds the interpreter lock, large updates, and the time to start.

Slices of runs take turns, so that a busy minute falls on all; rates are commits over the time of the run's
own axis.  Read the ratios: on a machine with other work the rates are those of what is left of it.  What two
processes gain that compute the same and exchange nothing is the most that an engine could.
"""

from __future__ import annotations

import json
import sys
import time
from multiprocessing import get_context
from statistics import median
from typing import Any

import numpy as np

import asyncqn as aq
from benchmarks.mpi_start import start
from benchmarks.speed.bench_mpi import Flat, Idle
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
        """Return a problem whose gradient takes this time on this machine at present."""
        tried, theta = cls(20_000), np.ones(cls.dim)

        def spent() -> float:
            begin = time.perf_counter()
            tried.grad(theta, theta, theta)
            return time.perf_counter() - begin

        return cls(round(tried.turns * seconds / median(spent() for _ in range(50))))


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
    took = time.perf_counter() - begin
    for worker in workers:
        worker.join()
    return processes * COMMITS / took


def rate(problem: Any, algorithm: Any, engine: Any, commits: int) -> float:
    """Commits per second of a run."""
    run = aq.minimize(
        problem,
        algorithm,
        engine=engine,
        commits=commits,
        evaluate=commits,
        check=False,
        theta0=np.ones(problem.dim),
        tol=None,
    )
    return float(commits / run.metrics["time"][-1])


def bench_python_gradient() -> list[Record]:
    engines = {
        "Threads(1)": aq.Threads(1),
        "Threads(2)": aq.Threads(2),
        "Processes(1)": aq.Processes(1),
        "Processes(2)": aq.Processes(2),
    }
    alone = {"one process without exchange": 1, "two processes without exchange": 2}
    found: dict[str, list[float]] = {name: [] for name in (*alone, *engines)}
    problem = PythonGradient.lasting(GRADIENT)
    for _ in range(SLICES):
        for name, processes in alone.items():
            found[name].append(rate_without_exchange(problem, processes))
        for name, engine in engines.items():
            found[name].append(
                rate(problem, aq.AsyncSGD(h=1e-4, batch=1), engine, COMMITS)
            )
    records = []
    for name, rates in found.items():
        one = median(
            found["one process without exchange" if name in alone else "Processes(1)"]
        )
        ratio, wanted = median(rates) / one, 1.7 if name == "Processes(2)" else None
        records.append(
            {
                "name": f"2 ms of Python, {name}",
                "value": median(rates),
                "unit": "commits/s",
                "ratio": ratio,
                "target": None if wanted is None else f">= {wanted} of one worker",
                "met": None if wanted is None else ratio >= wanted,
            }
        )
    gains = {
        names: median(two / one for two, one in zip(found[names[0]], found[names[1]]))
        for names in (("Processes(2)", "Processes(1)"), tuple(reversed(alone)))
    }
    engine, bare = gains.values()
    records.append(
        {
            "name": "2 ms of Python, gain of a second worker over that of a second process without exchange",
            "value": engine,
            "unit": "times",
            "ratio": engine / bare,
            "target": None,
            "met": None,
        }
    )
    return records


def intervals(dim: int, commits: int, engine: Any) -> tuple[float, float] | None:
    """Seconds per commit of a run whose workers only send: the mean, and the median of the intervals."""
    run = aq.minimize(
        Flat(dim), Idle(), engine=engine, commits=commits, evaluate=commits
    )
    if run is None:  # a rank that computed for another
        return None
    # A median of intervals ignores the few in which another program had the core.
    between = np.diff(run.schedule.commit_times())
    return float(between.mean()), float(np.median(between))


def mpi_intervals(workers: int, dim: int, commits: int) -> list[tuple[float, float]]:
    """Measure the same for MPI in shared memory, run by run."""
    process = start(
        workers + 1, ["-m", "benchmarks.speed.bench_processes", str(dim), str(commits)]
    )
    out, err = process.communicate(timeout=300)
    if process.returncode != 0:
        raise RuntimeError(f"the MPI job failed: {err[-2000:]}")
    found: list[tuple[float, float]] = json.loads(out)
    return found[1:]  # the first loads kernels and touches memory


def bench_large_updates() -> list[Record]:
    """Exchange both vectors of 50,000 numbers with idle workers; MPI in shared memory before and after.

    Ranks of MPI never sleep, and so get more of a core that others want too: the median of the intervals
    between commits shows what an exchange takes where nothing interrupts it.
    """
    dim, commits = 50_000, 1000
    records = []
    for W in (1, 2):
        theirs = mpi_intervals(W, dim, commits)
        found = [intervals(dim, commits, aq.Processes(W)) for _ in range(2 * SLICES)]
        ours = [interval for interval in found if interval is not None]
        theirs += mpi_intervals(W, dim, commits)
        for place, name in enumerate(("in the mean", "at the median interval")):
            mine, other = (
                1.0 / median(one[place] for one in both) for both in (ours, theirs)
            )
            records.append(
                {
                    "name": f"d = {dim:,} both ways, Processes({W}) against MPI in shared memory, {name}",
                    "value": mine,
                    "unit": "commits/s",
                    "ratio": mine / other,
                    "target": ">= 1",
                    "met": mine >= other,
                }
            )
    return records


def bench_start() -> list[Record]:
    def seconds() -> float:
        begin = time.perf_counter()
        rate(Nothing(1000), Echo(), aq.Processes(4), 1)
        return time.perf_counter() - begin

    took = median(seconds() for _ in range(SLICES))
    return [
        {
            "name": "a run of one commit on Processes(4)",
            "value": took,
            "unit": "s",
            "ratio": None,
            "target": "<= 1 s",
            "met": took <= 1.0,
        }
    ]


BENCHMARKS = (bench_python_gradient, bench_large_updates, bench_start)

if __name__ == "__main__":  # what every rank of `mpi_intervals` runs
    size, length = map(int, sys.argv[1:])
    runs = [intervals(size, length, aq.MPI(shared=True)) for _ in range(SLICES + 1)]
    if runs[0] is not None:
        print(json.dumps(runs))
