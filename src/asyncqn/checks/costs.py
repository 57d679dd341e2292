"""What a message and a commit cost in units of a row's gradient, for the choice of a number of parts.

A simulated cluster states its times, and so does the timing model of a real engine.  On other real engines
the gradient is timed on one row and on a sample, and messages and commits are taken to last as long as the
constants below say.  Those constants are assumptions of ours and not measurements.  Under MPI, where all
ranks must choose alike, nothing is timed: a row's gradient is taken to last a microsecond.  Both numbers are
rounded to a power of two, so that noise in a measurement seldom changes the choice.
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
MESSAGE_SECONDS = {"Threads": 3e-5, "Processes": 1.5e-4, "MPI": 2.5e-4, "Ray": 5e-3}
"""A message there and back on one machine, by engine."""
OTHER_ENGINE = 1e-3
SECONDS_PER_NUMBER = 2e-8
"""On top of it for every number in theta, of which a message carries up to three."""
COMMIT_SECONDS, COMMIT_PER_NUMBER = 8e-5, 8e-8
"""A commit of the master, and what it takes on top for every number in theta (20 pairs)."""
SHORTEST_ROW, ASSUMED_ROW = 1e-9, 1e-6
"""Seconds of a row's gradient at least, and where it is not timed."""


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
        What is minimised.  On a real engine its gradient is called eight times, on one row or `SAMPLE` rows.
    theta0 : array of dim numbers
        Where.
    engine : Engine
        Where the workers run.

    Returns
    -------
    Costs
        The defaults where a cluster does not state its times by rows.
    """
    cluster = getattr(engine, "cluster", None) or getattr(engine, "timing_model", None)
    if isinstance(cluster, Cluster):
        return _stated(cluster)
    one, row = 0.0, ASSUMED_ROW
    kind = type(engine).__name__
    if kind != "MPI":
        rows = min(SAMPLE, int(problem.n_data))
        one, many = (_seconds(problem, theta0, count) for count in (1, rows))
        row = max((many - one) / max(1, rows - 1), SHORTEST_ROW)
    message = MESSAGE_SECONDS.get(kind, OTHER_ENGINE) + SECONDS_PER_NUMBER * theta0.size
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
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def _power_of_two(x: float) -> float:
    return 2.0 ** round(math.log2(x)) if x > 0.0 else 0.0
