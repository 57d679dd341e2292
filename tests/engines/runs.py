"""What the tests of real engines share: small problems, every algorithm, and what a replay must give."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from examples import EXAMPLES, VARIANTS, problem_for

import asyncqn as aq

# Of the variants only those that an engine could treat otherwise: each costs time on MPI and Ray.
EVERY: dict[str, Any] = {
    name: EXAMPLES[name]
    for name in EXAMPLES
    if name not in VARIANTS or name in ("mb-lbfgs timeout", "exact-lbfgs pieces")
}
# On real engines times are seconds.
EVERY["mb-lbfgs timeout"] = replace(
    EXAMPLES["mb-lbfgs timeout"], timeout=2e-4, quorum=0.5
)


def _pattern(algorithm: Any) -> tuple[Any, ...]:
    """What an engine sees of an algorithm: which fields of its stages are set, and how each closes."""
    return tuple(
        (
            type(stage).__name__,
            *(getattr(stage, field.name) != field.default for field in fields(stage)),
        )
        for stage in algorithm.stages
    )


PATTERNS: dict[str, Any] = {
    name: EVERY[name]
    for name in {_pattern(EVERY[name]): name for name in reversed(EVERY)}.values()
}
"""One algorithm for every pattern of messages, for engines on which each run costs seconds to start."""


def make_problem(name: str = "async-sgd") -> Any:
    """What the algorithm of this name runs on."""
    return problem_for(name)


def run_of(name: str, engine: Any, commits: int, **options: Any) -> aq.Run:
    """Run the algorithm of this name on its problem."""
    problem, algorithm = make_problem(name), EVERY[name]
    return aq.minimize(problem, algorithm, engine=engine, commits=commits, **options)


class Slope:
    """U = sum_i (theta - y_i)^2 / 2 in plain Python, with only what a user must write."""

    def __init__(self, fail_at: int | None = None, poison: int | None = None) -> None:
        self.y = np.linspace(1.0, 3.0, 30)  # zero, where runs start, is not the minimum
        self.calls, self.fail_at, self.poison = 0, fail_at, poison

    dim = 1
    n_data = 30

    def value(self, theta: np.ndarray) -> float:
        return float(sum((theta[0] - y) ** 2 for y in self.y) / 2)

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        self.calls += 1
        if (
            self.fail_at is not None and self.calls >= self.fail_at
        ):  # threads at once may skip a number
            raise ZeroDivisionError("the data are gone")
        scale = self.n_data / len(rows)
        out[0] = scale * sum(theta[0] - self.y[i] for i in rows)
        if self.poison is not None and int(rows[0]) == self.poison:
            out[0] = math.nan


def assert_made_all_commits(name: str, status: str, made: int, commits: int) -> None:
    """A run on a real engine made all its commits, and ended as an algorithm of this kind may.

    How stale updates are depends on how the machine schedules workers, and a short stochastic run may then
    end above its start, which is `diverged`.  A method with a safeguard never may.
    """
    ends = (
        ("completed",)
        if hasattr(EVERY[name], "standing")
        else ("completed", "diverged")
    )
    assert status in ends, f"{name}: {status}"
    assert made == commits


def assert_replays(run: aq.Run, problem: Any = None) -> None:
    """Every bit again: iterates, metrics, schedule and counters."""
    again = aq.replay(run, problem)
    assert again.theta.tobytes() == run.theta.tobytes()
    assert np.array_equal(again.fingerprints, run.fingerprints)
    assert again.schedule == run.schedule
    assert again.counters == run.counters
    for name in run.metrics:
        assert again.metrics[name].tobytes() == run.metrics[name].tobytes()


def process_of(engine: Any, worker: int) -> int:
    """The process of a worker of the run under way on processes or actors."""
    slot = engine.under_way[-1].ready[worker]
    if isinstance(engine, aq.Processes):
        return slot.process
    import ray

    return int(ray.get(slot.handle.__ray_call__.remote(lambda self: os.getpid())))


LONG = (
    '[problem]\nkind = "linear-gaussian"\ndim = 12\nn_data = 60\n'
    '[algorithm]\nkind = "async-sgd"\nh = 1e-7\nbatch = 10\n'
    "[cluster]\nworkers = 2\nworker_mean = 2.0\n[run]\ncommits = 100000000\nevaluate = 1000\n"
)
"""A job that does not end by itself."""


def command(folder: Path, job: str, *more: str) -> list[str]:
    """Write a job into a folder, and return the command that runs it."""
    (folder / "job.toml").write_text(job)
    return [sys.executable, "-m", "asyncqn", "run", "job.toml", "--quiet", *more]


def children(pid: int) -> set[int]:
    """The children of a process, theirs, and so on."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found |= {child} | children(child)
    return found


def left_of(pids: set[int], seconds: float = 20.0) -> set[int]:
    """Those that are there so long afterwards; they are killed."""
    until = time.monotonic() + seconds
    while (left := {p for p in pids if alive(p)}) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
