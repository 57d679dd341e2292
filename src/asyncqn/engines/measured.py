"""Measured: what the workers and the master of a real run were seen to need, in sums that do not grow.

From it `Cluster.from_run` makes a cluster; the manifest of the run keeps it under `engine.measured`.
"""

from __future__ import annotations

import math
from typing import Any


class Measured:
    """Times in the run's unit, as sums."""

    def __init__(self) -> None:
        self._computed: dict[int, list[float]] = {}
        self._served = {True: [0.0, 0.0], False: [0.0, 0.0]}

    def computed(self, worker: int, time: float) -> None:
        """A worker needed so long for a computation: for the step, and for learning from the one before."""
        sums = self._computed.setdefault(worker, [0.0, 0.0, 0.0, 0.0])
        log = math.log(max(time, 1e-12))
        sums[0] += 1.0
        sums[1] += time
        sums[2] += log
        sums[3] += log * log

    def served(self, time: float, *, commit: bool) -> None:
        """The master needed so long for an answer, with or without a commit, and for what it then sent."""
        sums = self._served[commit]
        sums[0] += 1.0
        sums[1] += time

    def to_json(self) -> dict[str, Any]:
        """For the manifest: how many, the mean, and the standard deviation of the logarithm."""
        workers = {}
        for worker, (n, total, log, log2) in sorted(self._computed.items()):
            spread = math.sqrt(max(0.0, log2 / n - (log / n) ** 2))
            workers[str(worker)] = {"computations": int(n), "mean": total / n, "log_std": spread}
        names = {True: "commit", False: "answer"}
        master = {
            names[kind]: {"count": int(n), "mean": total / n}
            for kind, (n, total) in self._served.items()
            if n > 0
        }
        return {"workers": workers, "master": master}
