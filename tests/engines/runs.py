"""What the tests of real engines share: small problems, every algorithm, and what a replay must give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.quasi_newton.block_lbfgs import BlockLBFGS

ASYNCHRONOUS = {
    "as-lbfgs": aq.ASLBFGS(h=1e-4, gamma=0.05, beta=100.0, memory=3, batch=10, overlap=4, initial_scale=0.01),
    "async-sgd": aq.AsyncSGD(h=1e-5, batch=10),
    "sgd": aq.SGD(h=1e-5, batch=10, momentum=0.5),
    "sgld": aq.SGLD(h=1e-5, beta=100.0, batch=10),
}
ROUNDS = {
    "mb-lbfgs": aq.MBLBFGS(h=0.01, memory=3, batch=10, overlap=4),
    "mb-lbfgs with timeout": aq.MBLBFGS(h=0.01, memory=3, batch=10, overlap=4, timeout=2e-4, quorum=0.5),
}
BLOCKS = {
    "block-lbfgs": BlockLBFGS(blocks=4),
    "growing-lbfgs": aq.GrowingLBFGS(blocks=4, levels=1, versions=8),
}
EVERY: dict[str, Any] = {**ASYNCHRONOUS, **ROUNDS, **BLOCKS}
SERIAL = {"lbfgs": aq.LBFGS(memory=5)}


def problem() -> aq.LinearGaussian:
    return aq.LinearGaussian.random(12, 60, seed=3)


class Slope:
    """U = sum_i (theta - y_i)^2 / 2 in plain Python, with only what a user must write."""

    def __init__(self, fail_at: int | None = None, poison: int | None = None) -> None:
        self.y = np.linspace(-1.0, 1.0, 30)
        self.calls, self.fail_at, self.poison = 0, fail_at, poison

    dim = 1
    n_data = 30

    def value(self, theta: np.ndarray) -> float:
        return float(sum((theta[0] - y) ** 2 for y in self.y) / 2)

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise ZeroDivisionError("the data are gone")
        scale = self.n_data / len(rows)
        out[0] = scale * sum(theta[0] - self.y[i] for i in rows)
        if self.poison is not None and int(rows[0]) == self.poison:
            out[0] = math.nan


def assert_replays(run: aq.Run, potential: Any = None) -> None:
    """Every bit again: iterates, metrics, schedule and counters."""
    again = aq.replay(run, potential)
    assert again.theta.tobytes() == run.theta.tobytes()
    assert np.array_equal(again.fingerprints, run.fingerprints)
    assert again.schedule == run.schedule
    assert again.counters == run.counters
    for name in run.metrics:
        assert again.metrics[name].tobytes() == run.metrics[name].tobytes()
