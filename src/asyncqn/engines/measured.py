"""Measured: the times of the workers and the master of a real run, in sums of constant size.

`Cluster.from_run` makes a cluster from it; the manifest of the run holds it under `engine.measured`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

_TIMES_BUFFERED = 512
"""Number of times that are collected before they are summed: summing each by itself would slow commits."""

_ALWAYS_TIMED, _TIMED_EVERY = 32, 8
"""Computations at the start that are all timed, so that short runs have enough of them; and the interval
after that."""


def is_timed(computation: int) -> bool:
    """Return whether a worker's computation of this number, from 0, is timed.

    The first `_ALWAYS_TIMED` are, then one in `_TIMED_EVERY`: to read the clock at every commit would show
    where a commit takes 30 microseconds.
    """
    return computation < _ALWAYS_TIMED or computation % _TIMED_EVERY == 0


class Measured:
    """Times in the run's unit, as sums for each worker and each size of computation."""

    def __init__(self) -> None:
        self._computed: dict[int, dict[float, npt.NDArray[np.float64]]] = {}
        self._new: dict[int, list[tuple[float, float]]] = {}
        self._served = {"commit": [0.0, 0.0], "update": [0.0, 0.0]}

    def computed(self, worker: int, time: float, share: float = 1.0) -> None:
        """Record the time of a worker's computation: of the step, and of learning from the one before.

        `share` is its size, relative to the computation whose time a cluster states
        (`core.stages.time_share`).
        """
        if worker not in self._new:
            self._new[worker], self._computed[worker] = [], {}
        new = self._new[worker]
        new.append((time, share))
        if len(new) >= _TIMES_BUFFERED:
            self._add_up(worker)

    def _add_up(self, worker: int) -> None:
        # One sort and sum over a batch of times costs less than as many additions in Python.
        times, shares = np.array(self._new[worker]).reshape(-1, 2).T
        # Logarithms give the spread of a log-normal law; the floor protects them from a clock that did not
        # move.
        logs = np.log(np.maximum(times, 1e-12))
        for share in np.unique(shares):
            mine = shares == share
            found = np.array(
                [
                    mine.sum(),
                    times[mine].sum(),
                    logs[mine].sum(),
                    (logs[mine] ** 2).sum(),
                ]
            )
            self._computed[worker][float(share)] = found + self._computed[worker].get(
                float(share), 0.0
            )
        self._new[worker] = []

    def slowest(self) -> float:
        """Return the mean time of a computation of the slowest worker; 0 where none has sent an update.

        The mean, since a worker's first computation may have compiled something.
        """
        for worker in self._new:
            self._add_up(worker)
        sums = [
            np.sum(list(sizes.values()), axis=0)
            for sizes in self._computed.values()
            if sizes
        ]
        return max((float(total / n) for n, total, *_ in sums), default=0.0)

    def served(self, time: float, *, commit: bool) -> None:
        """Record how long the master needed for an update, with or without a commit, and for its reply."""
        sums = self._served["commit" if commit else "update"]
        sums[0] += 1.0
        sums[1] += time

    def to_json(self) -> dict[str, Any]:
        """Return counts, means, deviations of the logarithm and fixed times, for the manifest."""
        for worker in self._new:
            self._add_up(worker)
        workers = {
            str(worker): _summary(sums)
            for worker, sums in sorted(self._computed.items())
        }
        served = {kind: sums for kind, sums in self._served.items() if sums[0] > 0}
        master = {
            kind: {"count": int(n), "mean": total / n}
            for kind, (n, total) in served.items()
        }
        return {"workers": workers, "master": master}


def _summary(sums: dict[float, npt.NDArray[np.float64]]) -> dict[str, Any]:
    """Fit time = fixed + mean * share, by least squares over the mean times of the sizes, in relative terms.

    Computations of few rows are dominated by what is fixed, and those of many by their rows.
    """
    share = np.array(list(sums))
    n, total, log, log2 = np.array(list(sums.values())).T
    time, fixed = total / n, 0.0
    if share.size > 1:
        # Weighted by relative precision: n computations of mean `time` have an error proportional to time /
        # sqrt(n).
        weight = n / np.maximum(time, 1e-12) ** 2
        centre = float((weight * share).sum() / weight.sum())
        middle = float((weight * time).sum() / weight.sum())
        slope = float((weight * (share - centre) * (time - middle)).sum())
        slope /= float((weight * (share - centre) ** 2).sum())
        # Noise may give a negative intercept or one above the shortest time; neither has a meaning.
        fixed = min(max(0.0, middle - max(slope, 0.0) * centre), float(time.min()))
    size = float((n * share).sum())
    mean = float(max(total.sum() - fixed * n.sum(), 1e-3 * total.sum())) / size
    spread = float((share * (log2 - log * log / n)).sum()) / size
    return {
        "computations": int(n.sum()),
        "mean": mean,
        "log_std": math.sqrt(max(0.0, spread)),
        **({"fixed": fixed} if fixed > 0.0 else {}),
    }
