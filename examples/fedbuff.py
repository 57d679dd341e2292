"""A kind of stage of your own: FedBuff, where K updates, however stale, make a version.

A stage is data, and its rule says which updates make a commit.  Nothing else has to know of it: the algorithm
below runs on a simulated cluster, on threads, and in a replay, bit for bit.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import asyncqn as aq
from asyncqn.core.stages import Arrival, Rule, Stage


@dataclass(frozen=True)
class Buffered(Stage):
    """A commit takes `size` updates, computed at any version; their workers go on at once."""

    size: int = 10

    goes_on: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        return self.size

    def rule(self, seed: int) -> Rule:
        return BufferRule(self, seed)


class BufferRule(Rule):
    """Let an update wait until the buffer is full."""

    def add(self, arrival: Arrival, version: int, spent: float) -> list[Arrival] | None:
        self.waiting.append(arrival)
        return self.waiting if len(self.waiting) == self.stage.rows else []


@dataclass(frozen=True)
class FedBuff(aq.AsyncSGD):
    """Stochastic gradient steps, averaged in a buffer; stale ones count less."""

    size: int = 4

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (Buffered(size=self.size),)

    def step(self, view: Any, local: Any, problem: Any, task: Any) -> Any:
        # In an array of its own: the worker computes again before the commit.
        update = super().step(view, local, problem, task)
        return update._replace(d_theta=update.d_theta.copy())

    def apply(self, iterate: Any, updates: Any, commit: Any) -> Any:
        for update, staleness in zip(updates, commit.staleness):
            share = len(updates) * np.sqrt(1.0 + staleness)
            iterate.theta[:] += update.d_theta / share
        return iterate


def main() -> None:
    """Run the method on a simulated cluster and on threads, and replay both runs."""
    problem = aq.LinearGaussian.random(dim=20, n_data=400, seed=0)
    method = FedBuff(h=5e-4, batch=20)
    cluster = aq.Cluster(workers=8, worker_std=0.5, message=0.2, link=0.02)
    for engine in (aq.Simulator(cluster), aq.Threads(2)):
        run = aq.minimize(problem, method, engine=engine, commits=100)
        again = aq.replay(run, problem, method)
        assert again.theta.tobytes() == run.theta.tobytes()
        staleness = run.schedule.staleness.mean()
        print(
            f"{type(engine).__name__}: {run.nit} versions of {method.size} updates, mean staleness "
            f"{staleness:.1f}, U from {problem.value(run.theta0):.0f} to {run.fun:.0f}"
        )


if __name__ == "__main__":
    main()
