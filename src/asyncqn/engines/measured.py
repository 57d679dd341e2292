"""Measured: the times of the workers and the master of a real run, in sums of constant size.

`Cluster.from_run` makes a cluster from it; the manifest of the run holds it under `engine.measured`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_ALWAYS_TIMED, _TIMED_EVERY = 32, 8
"""Computations at the start that are all timed, so that short runs have enough of them; and the interval
after that."""
_CLOCK_STEP = 1e-12
"""Shortest time that is assumed, where a clock did not move."""


def is_timed(computation: int) -> bool:
    """Return whether a worker's computation of this number, from 0, is timed.

    The first `_ALWAYS_TIMED` are, then one in `_TIMED_EVERY`: to read the clock at every commit would show
    where a commit takes 30 microseconds.
    """
    return computation < _ALWAYS_TIMED or computation % _TIMED_EVERY == 0


class Sums:
    """Number, sum, and sums of the logarithms and their squares of some times.

    Logarithms give the spread of a log-normal law.
    """

    __slots__ = ("log", "log2", "n", "total")

    def __init__(self) -> None:
        self.n = 0
        self.total = self.log = self.log2 = 0.0

    def add(self, time: float) -> None:
        log = math.log(max(time, _CLOCK_STEP))
        self.n += 1
        self.total += time
        self.log += log
        self.log2 += log * log


class Measured:
    """Times in the run's unit, as sums for each worker and each size of computation."""

    def __init__(self) -> None:
        self._computed: dict[int, dict[float, Sums]] = {}
        self._served = {"commit": Sums(), "update": Sums()}

    def computed(self, worker: int, time: float, share: float = 1.0) -> None:
        """Record the time of a worker's computation: of the step, and of learning from the one before.

        `share` is its size, relative to the computation whose time a cluster states
        (`core.stages.time_share`).
        """
        sizes = self._computed.setdefault(worker, {})
        if share not in sizes:
            sizes[share] = Sums()
        sizes[share].add(time)

    def slowest(self) -> float:
        """Return the mean time of a computation of the slowest worker; 0 where none has sent an update.

        The mean, since a worker's first computation may have compiled something.
        """
        means = [
            sum(sums.total for sums in sizes.values())
            / sum(sums.n for sums in sizes.values())
            for sizes in self._computed.values()
        ]
        return max(means, default=0.0)

    def served(self, time: float, *, commit: bool) -> None:
        """Record how long the master needed for an update, with or without a commit, and for its reply."""
        self._served["commit" if commit else "update"].add(time)

    def to_json(self) -> dict[str, Any]:
        """Return counts, means, deviations of the logarithm and fixed times, for the manifest."""
        return {
            "workers": {
                str(worker): _summary(sizes)
                for worker, sizes in sorted(self._computed.items())
            },
            "master": {
                kind: {"count": sums.n, "mean": sums.total / sums.n}
                for kind, sums in self._served.items()
                if sums.n
            },
        }


def _summary(sizes: dict[float, Sums]) -> dict[str, Any]:
    """Fit time = fixed + mean * share, by least squares over the mean times of the sizes, in relative terms.

    Computations of few rows are dominated by what is fixed, and those of many by their rows.
    """
    share = np.array(list(sizes))
    n = np.array([sums.n for sums in sizes.values()])
    total = np.array([sums.total for sums in sizes.values()])
    time, fixed = total / n, 0.0
    if share.size > 1:
        # n computations of mean `time` have an error proportional to time / sqrt(n).
        precision = np.sqrt(n) / np.maximum(time, _CLOCK_STEP)
        slope, fixed = np.polyfit(share, time, 1, w=precision)
        # Noise may give a falling line, or one that begins above the shortest time; neither has a meaning.
        if slope < 0.0:
            fixed = float(np.average(time, weights=precision**2))
        fixed = min(max(0.0, float(fixed)), float(time.min()))
    size = float((n * share).sum())
    mean = float(max(total.sum() - fixed * n.sum(), 1e-3 * total.sum())) / size
    spread = sum(
        each * (sums.log2 - sums.log**2 / sums.n) for each, sums in sizes.items()
    )
    return {
        "computations": int(n.sum()),
        "mean": mean,
        "log_std": math.sqrt(max(0.0, spread / size)),
        **({"fixed": fixed} if fixed > 0.0 else {}),
    }
