"""Costs of a message and of a commit, in row gradients, for the choice of a number of parts.

A simulated cluster states its times, and so does the timing model of a real engine.  On other real engines
the gradient is timed on one row and on a sample, and the engine measures a message (`engines.round_trip`)
before the run.  Under MPI the numbers of rank 0 count, so that all ranks choose alike.  All costs are rounded
to a power of two, so that noise in a measurement seldom changes the choice.  A replay measures nothing: the
manifest of a run has the algorithm that was chosen.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from asyncqn.cluster.cluster import Cluster
from asyncqn.types import Array, Engine, Problem, extra

SAMPLE, REPEATS = 256, 3
"""Rows of the sample that is timed, and how often; the shortest time counts."""
ASSUMED_MESSAGE = 1e-3
"""Seconds of a message on an engine that has no `message_seconds`."""
COMMIT_SECONDS, COMMIT_PER_NUMBER = 4e-5, 4e-8
"""A commit of the master, and what it takes on top for every number in theta (20 pairs), as measured by
`python -m benchmarks.run table_commit`."""
SHORTEST_ROW = 1e-9
"""Seconds of a row's gradient at least: the difference of two measured times may be zero or negative."""


class Costs(NamedTuple):
    """In units of the time of a row's gradient."""

    message: float = 10.0
    """A message there and back."""
    master: float = 0.1
    """A commit at the master."""


def relative_costs(problem: Problem, theta0: Array, engine: Engine) -> Costs:
    """Return what messages and commits cost on an engine.

    Parameters
    ----------
    problem : Problem
        What is minimised.  On a real engine its gradient is called eight times, on one row or `SAMPLE`.
    theta0 : array of dim numbers
        Where.
    engine : Engine
        Where the workers run.

    Returns
    -------
    Costs
        The defaults where a cluster does not state its times by rows.
    """
    # A cluster that states its times is believed: under a timing model even a real engine follows it.
    cluster = getattr(engine, "cluster", None) or getattr(engine, "timing_model", None)
    if isinstance(cluster, Cluster):
        return _stated(cluster)
    # A call costs something however few its rows: the difference of two sizes is the time of a row.
    rows = min(SAMPLE, int(problem.n_data))
    one, many = (_seconds(problem, theta0, count) for count in (1, rows))
    row = max((many - one) / max(1, rows - 1), SHORTEST_ROW)
    # An engine is any object with two members, so this one may be missing.
    measure = getattr(engine, "message_seconds", None)
    message = ASSUMED_MESSAGE if measure is None else measure(theta0)
    agreed = getattr(engine, "agreed", None)
    if agreed is not None:
        one, row, message = agreed((one, row, message))
    master = COMMIT_SECONDS + COMMIT_PER_NUMBER * theta0.size
    return Costs(_power_of_two((one + message) / row), _power_of_two(master / row))


def _stated(cluster: Cluster) -> Costs:
    """Return what a cluster says, where its times are by rows."""
    if cluster.rows is None:
        return Costs()
    row = 1.0 / float(np.mean(1.0 / cluster.means())) / cluster.rows
    fixed, master = cluster.message + cluster.fixed, cluster.master + 2.0 * cluster.link
    return Costs(*(_power_of_two(cost / row) for cost in (fixed, master)))


def _seconds(problem: Problem, theta0: Array, count: int) -> float:
    """Return the shortest time of a gradient on so many rows, after a first call that may compile."""
    both = extra(problem, "grad_with_value")
    gradient = problem.grad if both is None else both
    rows, out, shortest = np.arange(count), np.empty_like(theta0), math.inf
    for _ in range(1 + REPEATS):
        begin = time.perf_counter()
        gradient(theta0, rows, out)
        # Other programs can only make a call longer.
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def _power_of_two(x: float) -> float:
    return 2.0 ** round(math.log2(x)) if x > 0.0 else 0.0
