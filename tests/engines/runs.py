"""What the tests of real engines share: small problems, every algorithm, and what a replay must give."""

from __future__ import annotations

import math
from dataclasses import fields, replace
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
            stage.closes,
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
