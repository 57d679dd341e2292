"""An exact method version by version, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asyncqn.core.master import Master
from asyncqn.core.request import Request
from asyncqn.core.streams import Stream
from asyncqn.types import Task


def versions(
    problem: Any, algorithm: Any, theta0: Any, commits: int, seed: int = 0
) -> Iterator[Any]:
    """The master's iterates, every part computed at every version."""
    request = Request(problem, algorithm, theta0, commits, evaluate=None)
    master = Master(request, workers=1)
    local = algorithm.init_worker(problem, theta0)
    for n in range(commits):
        updates = []
        for part in range(algorithm.blocks * algorithm.pieces):
            task = Task(0, n, Stream(seed, 0, n), part)
            updates.append(algorithm.step(master.iterate, local, problem, task))
        master.commit(updates, float(n), [0] * len(updates))
        yield master.iterate
