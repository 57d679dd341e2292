"""Rivals with second moments at the master: asynchronous RMSProp, and Adam on one worker.

A worker sends g on fresh rows.  The master keeps m and v and steps by the newest update, however old:

    m <- momentum m + (1 - momentum) g,   v <- decay v + (1 - decay) g^2
    theta <- theta - rate m / (sqrt v + 1e-8)          both divided by what is missing of their weights

with a rate that falls to zero as a half cosine over the run.  Rates are in units of theta, so that three of
them, a factor of about three apart, cover all problems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.paper.async_sgd import StochasticGradient, Update
from asyncqn.algorithms.stability import largest_curvature
from asyncqn.types import Array, Commit

BATCH = 32
DECAY = 0.999
RATES = (1e-3, 3e-3, 1e-2)
STEPS = (0.05, 0.2, 0.8)
"""Steps of delay-adaptive SGD, in units of the limit of stability at the start."""


class Moments(NamedTuple):
    """The master's state."""

    theta: Array
    m: Array
    v: Array
    steps: int


@dataclass(frozen=True)
class Adam(StochasticGradient):
    """Asynchronous Adam; without momentum it is RMSProp.

    Parameters
    ----------
    rate : float
        The rate at the start.
    commits : int
        Length of the run.
    momentum : float
        Weight of the past in m.
    """

    rate: float
    commits: int
    momentum: float = 0.0
    batch: int = BATCH
    h: float = 1.0
    sampling: str = "shuffled"
    sent = ("theta",)

    def init(self, theta0: Array) -> Moments:
        return Moments(theta0.copy(), np.zeros_like(theta0), np.zeros_like(theta0), 0)

    def apply(
        self, iterate: Moments, updates: Sequence[Update], commit: Commit
    ) -> Moments:
        theta, m, v, steps = iterate
        for update in updates:
            # A worker sends -h g, and h is 1.
            g = -update.d_theta
            steps += 1
            m += (1.0 - self.momentum) * (g - m)
            v += (1.0 - DECAY) * (g * g - v)
            root = np.sqrt(v / (1.0 - DECAY**steps)) + 1e-8
            rate = 0.5 * self.rate * (1.0 + math.cos(math.pi * steps / self.commits))
            theta -= rate / (1.0 - self.momentum**steps) * m / root
        return Moments(theta, m, v, steps)


def rivals(model: Any, theta0: Array, workers: int, passes: int) -> dict[str, Any]:
    """Return the asynchronous rivals by name, each at three rates."""
    commits = math.ceil(passes * model.n_data / BATCH)
    found: dict[str, Any] = {f"rmsprop {rate:g}": Adam(rate, commits) for rate in RATES}
    limit = 1.0 / (largest_curvature(model, theta0) * workers)
    for step in STEPS:
        found[f"sgd {step:g}"] = aq.DelayAdaptiveSGD(
            h=step * limit, batch=BATCH, tau=workers
        )
    return found


def serial_rivals(model: Any, passes: int) -> dict[str, Any]:
    """Return Adam at three rates, for a single worker."""
    commits = math.ceil(passes * model.n_data / BATCH)
    return {f"serial {rate:g}": Adam(rate, commits, momentum=0.9) for rate in RATES}
