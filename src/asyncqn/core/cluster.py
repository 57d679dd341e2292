"""Cluster: a timing model of workers, messages and a master, in one generic unit of time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn.kernels.random import DELAYS, fill_normals


@dataclass(frozen=True)
class Cluster:
    """A timing model of workers, messages and a master; worker times are log-normal.

    Worker times are log-normal with mean mu_w and standard deviation sigma_w.

    workers: W; worker_mean: mu_w, one number or one per worker; worker_std: sigma_w, likewise;
    message: tau, half of it each way; master: mu_m, the service time of a commit;
    deaths, joins: time by worker number (a worker without a join is there from the start).

    >>> import asyncqn as aq
    >>> cluster = aq.Cluster(workers=40, worker_mean=70.0, worker_std=14.0, message=10.0, deaths={3: 500.0})
    >>> cluster.compute_times(seed=0, worker=0, count=2).shape
    (2,)
    """

    workers: int
    worker_mean: float | Sequence[float] = 1.0
    worker_std: float | Sequence[float] = 0.0
    message: float = 0.0
    master: float = 0.0
    deaths: Mapping[int, float] = field(default_factory=dict)
    joins: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        W = self.workers
        require(
            isinstance(W, int) and not isinstance(W, bool) and W >= 1,
            f"a cluster needs at least one worker: workers = {W!r}.",
        )
        for name in ("worker_mean", "worker_std"):
            try:
                values = np.asarray(getattr(self, name), np.float64)
            except (TypeError, ValueError):
                given = getattr(self, name)
                raise BadInput(f"{name} must be one number or one per worker ({W}), not {given!r}.") from None
            require(
                values.shape in ((), (W,)),
                f"{name} must be one number or one per worker ({W}), not of shape {values.shape}.",
            )
            require(
                bool(np.isfinite(values).all() and (values >= 0).all()),
                f"{name} must be finite and not negative.",
            )
            if values.ndim:
                object.__setattr__(self, name, tuple(float(v) for v in values))
        mean, std = self.means(), self.stds()
        require(
            bool(((mean > 0) | (std == 0)).all()),
            "worker_mean must be positive where worker_std is: a log-normal time has a positive mean.",
        )
        for name in ("message", "master"):
            value = getattr(self, name)
            require(0.0 <= value < math.inf, f"{name} must be finite and not negative, not {value!r}.")
        require(
            bool(mean.min() + self.message + self.master > 0),
            "an update must take some time: worker_mean, message and master are all zero for some worker.",
        )
        for name in ("deaths", "joins"):
            times = {int(w): float(t) for w, t in getattr(self, name).items()}
            object.__setattr__(self, name, times)
            for worker, time in times.items():
                require(
                    0 <= worker < W, f"{name} names worker {worker}, but workers are numbered 0 to {W - 1}."
                )
                require(time >= 0.0, f"{name}: the time of worker {worker} must not be negative.")
                require(
                    name == "deaths" or time < math.inf,
                    f"joins: the time of worker {worker} must be finite: leave out workers that never join.",
                )
        require(
            any(self.joins.get(w, 0.0) == 0.0 for w in range(W)),
            "at least one worker must be there from the start: every worker has a join time after 0.",
        )

    def means(self) -> npt.NDArray[np.float64]:
        """mu_w of every worker."""
        return np.broadcast_to(np.asarray(self.worker_mean, np.float64), (self.workers,)).copy()

    def stds(self) -> npt.NDArray[np.float64]:
        """sigma_w of every worker."""
        return np.broadcast_to(np.asarray(self.worker_std, np.float64), (self.workers,)).copy()

    def time_law(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(m, s) of every worker's times exp(m + s Z): s^2 = ln(1 + sigma^2/mu^2), m = ln mu - s^2/2.

        Where s = 0 the time is m itself, mu to the last bit, so that equal times are equal.
        """
        mean, std = self.means(), self.stds()
        safe = np.where(mean > 0, mean, 1.0)
        s2 = np.log1p((std / safe) ** 2)
        return np.where(s2 > 0, np.log(safe) - s2 / 2, mean), np.sqrt(s2)

    def compute_times(self, seed: int, worker: int, count: int) -> npt.NDArray[np.float64]:
        """The times of a worker's first `count` computations: see `time_law`; Z is a function of the seed."""
        z = np.empty(count)
        fill_normals(seed, 0, worker, DELAYS, z)
        m, s = (parameter[worker] for parameter in self.time_law())
        return np.asarray(np.exp(m + s * z)) if s > 0 else np.full(count, m)
