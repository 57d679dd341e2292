"""Measured: what the workers and the master of a real run were seen to need, in sums that do not grow.

From it `Cluster.from_run` makes a cluster; the manifest of the run keeps it under `engine.measured`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_MANY = 512
"""Times of a worker that are kept before they are added up: to add each by itself would show in a commit."""


class Measured:
    """Times in the run's unit, as sums."""

    def __init__(self) -> None:
        self._computed: dict[int, list[float]] = {}
        self._new: dict[int, list[tuple[float, float]]] = {}
        self._served = {True: [0.0, 0.0], False: [0.0, 0.0]}

    def computed(self, worker: int, time: float, share: float = 1.0) -> None:
        """A worker needed so long for a computation: for the step, and for learning from the one before.

        share: of the computation whose time a cluster states (`core.stages.time_share`), by which it counts.
        """
        if worker not in self._new:
            self._new[worker], self._computed[worker] = [], [0.0, 0.0, 0.0, 0.0, 0.0]
        new = self._new[worker]
        new.append((time, share))
        if len(new) >= _MANY:
            self._add_up(worker)

    def _add_up(self, worker: int) -> None:
        times, shares = np.array(self._new[worker]).reshape(-1, 2).T
        logs = np.log(np.maximum(times / shares, 1e-12))
        found = (times.size, shares.sum(), times.sum(), (shares * logs).sum(), (shares * logs * logs).sum())
        self._computed[worker] = [old + float(more) for old, more in zip(self._computed[worker], found)]
        self._new[worker] = []

    def served(self, time: float, *, commit: bool) -> None:
        """The master needed so long for an answer, with or without a commit, and for what it then sent."""
        sums = self._served[commit]
        sums[0] += 1.0
        sums[1] += time

    def to_json(self) -> dict[str, Any]:
        """For the manifest: how many, the mean, and the standard deviation of the logarithm."""
        for worker in self._new:
            self._add_up(worker)
        workers = {}
        for worker, (n, share, total, log, log2) in sorted(self._computed.items()):
            spread = math.sqrt(max(0.0, log2 / share - (log / share) ** 2))
            workers[str(worker)] = {"computations": int(n), "mean": total / share, "log_std": spread}
        names = {True: "commit", False: "answer"}
        master = {
            names[kind]: {"count": int(n), "mean": total / n}
            for kind, (n, total) in self._served.items()
            if n > 0
        }
        return {"workers": workers, "master": master}
