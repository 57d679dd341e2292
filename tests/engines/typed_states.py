"""An algorithm whose states and messages hold numbers of every kind, and insists that they stay so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncqn.core.stages import ASYNCHRONOUS


class Size(NamedTuple):
    """A state within a state."""

    norm: float
    recent: np.ndarray


class Iterate(NamedTuple):
    theta: np.ndarray
    count: int
    size: Size
    shift: np.float32
    settled: bool


class Update(NamedTuple):
    d_theta: np.ndarray
    seen: int
    size: Size


class Worker(NamedTuple):
    d_theta: np.ndarray
    steps: int
    size: Size


def assert_types(state: Any) -> None:
    """Every field is of the type it is declared as, and no number has become an array."""
    for name, kind in zip(state._fields, KINDS[type(state).__name__]):
        value = getattr(state, name)
        assert type(value) is kind, (
            f"{type(state).__name__}.{name} is a {type(value).__name__}"
        )
        if isinstance(value, Size):
            assert_types(value)


KINDS = {
    "Iterate": (np.ndarray, int, Size, np.float32, bool),
    "Update": (np.ndarray, int, Size),
    "Worker": (np.ndarray, int, Size),
    "Size": (float, np.ndarray),
}


@dataclass(frozen=True)
class TypedSGD:
    """Gradient steps on single rows, shortened as the count of commits that the worker saw grows."""

    h: float = 1e-3
    stages = ASYNCHRONOUS

    def check(self, problem: Any) -> None:
        pass

    def init(self, theta0: np.ndarray) -> Iterate:
        return Iterate(theta0.copy(), 0, Size(1.0, np.zeros(2)), np.float32(0.5), True)

    def init_worker(self, problem: Any, theta0: np.ndarray) -> Worker:
        return Worker(np.zeros_like(theta0), 0, Size(0.0, np.zeros(2)))

    def step(self, view: Iterate, local: Worker, problem: Any, task: Any) -> Update:
        assert_types(view)
        assert_types(local)
        rows = task.stream.rows(problem.n_data, np.zeros(3, np.int64))
        problem.grad(view.theta, rows, local.d_theta)
        local.d_theta[...] *= -self.h / (1 + 0.01 * view.count) * view.size.norm
        return Update(
            local.d_theta,
            view.count,
            Size(float(local.steps), view.size.recent + local.steps),
        )

    def learn(self, view: Iterate, local: Worker, problem: Any, task: Any) -> Worker:
        assert_types(view)
        return local._replace(
            steps=local.steps + 1,
            size=Size(local.size.norm + 1.0, local.size.recent + 1),
        )

    def forget(self, local: Worker) -> Worker:
        return local._replace(steps=0)

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Any
    ) -> Iterate:
        for update in updates:
            assert_types(update)
            iterate.theta[...] += update.d_theta
            iterate = iterate._replace(
                count=iterate.count + 1,
                size=Size(1.0 / (1 + update.size.norm), 0.5 * update.size.recent),
                settled=update.seen % 2 == 0,
            )
        return iterate

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return {
            "commits_counted": iterate.count,
            "steps": sum(local.steps for local in locals_),
        }
