"""The time of a message on a real engine, measured by exchanges in which next to nothing is computed.

The engine itself carries out a short run of asynchronous gradient steps on a problem without data.  What such
an exchange takes is what the way to the master and back takes: locks or sockets, the copies of the numbers, and
the master's bookkeeping.  No engine needs a second implementation of its messages for this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn.algorithms.paper.async_sgd import AsyncSGD
from asyncqn.core.request import Engine, Request
from asyncqn.types import Array, Rows

EXCHANGES = 20
"""Exchanges of every worker: enough for a shortest one without a disturbance, in milliseconds in all."""


class Nothing:
    """A problem of `dim` numbers whose gradient is zero."""

    n_data = 1

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def value(self, theta: Array) -> float:
        return 0.0

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        out[:] = 0.0


def round_trip_seconds(engine: Engine, theta0: Array) -> float | None:
    """Return the shortest time of an exchange on an engine whose unit of time is a second.

    Parameters
    ----------
    engine : Engine
        The engine; it carries out a run of `EXCHANGES` exchanges per worker on average.
    theta0 : array
        A message has as many numbers, in both directions.

    Returns
    -------
    float or None
        Seconds; None on a rank of MPI that does not have the run.
    """
    # Without evaluations: the master's time between two exchanges is what is measured.
    commits, algorithm = EXCHANGES * engine.workers, AsyncSGD(h=1.0, batch=1)
    request = Request(Nothing(theta0.size), algorithm, theta0, commits, evaluate=None)
    run: Any = engine.minimize(request)
    if run is None:
        return None
    # Each commit is one update here, so the rows of the schedule are the commits in their order.
    times, workers = run.schedule.commit_times(), run.schedule.worker[:commits]
    # From one commit of a worker to its next: a message there and one back.
    gaps = [np.diff(times[workers == worker]) for worker in range(engine.workers)]
    # The shortest, because whatever else runs on the machine can only make an exchange longer.
    return float(np.concatenate(gaps).min())
