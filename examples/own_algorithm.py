"""Your own algorithm on a simulated cluster: SGD whose master shortens stale steps.

The guide "Your own algorithm" explains the methods; `aq.check_algorithm` tests yours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import asyncqn as aq


class Vector(NamedTuple):
    """One vector: the iterate, an update, or a worker's buffer."""

    theta: Any


@dataclass(frozen=True)
class AgeAwareSGD:
    """theta -= h / (1 + l) g, with l the staleness of g."""

    h: float
    batch: int
    # Without an annotation this is an attribute of the class, and no field of the dataclass.
    stages = aq.stages.ASYNCHRONOUS

    def init(self, theta0: Any) -> Vector:
        return Vector(theta0.copy())

    def init_worker(self, problem: Any, theta0: Any) -> Vector:
        return Vector(theta0.copy())

    def step(self, view: Vector, local: Vector, problem: Any, task: Any) -> Vector:
        # All randomness comes from the task's stream; only then can the run be replayed.
        rows = task.stream.generator().integers(problem.n_data, size=self.batch)
        problem.grad(view.theta, rows, local.theta)
        return local

    def apply(self, iterate: Vector, updates: Any, commit: Any) -> Vector:
        # An asynchronous commit has one update; the loop also serves stages with several.
        for update, staleness in zip(updates, commit.staleness, strict=True):
            iterate.theta[:] -= self.h / (1 + staleness) * update.theta
        return iterate


def main() -> None:
    """Compare it with plain SGD at the same step size, which is too large for eight workers."""
    problem = aq.LinearGaussian.random(dim=20, n_data=200, noise_var=10.0, seed=0)
    engine = aq.Simulator(aq.Cluster(workers=8, worker_std=0.3))
    for algorithm in (AgeAwareSGD(h=1.2e-3, batch=6), aq.AsyncSGD(h=1.2e-3, batch=6)):
        run = aq.minimize(problem, algorithm, engine=engine, commits=1_500)
        print(
            f"{type(algorithm).__name__}: {run.status}, error {run.metrics['error'][-1]:.3g}"
        )


if __name__ == "__main__":
    main()
