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

TIMED_ROWS, TIMED_CALLS = 256, 3
"""Rows of the sample that is timed, and the number of timed calls, of which the shortest counts."""
ASSUMED_MESSAGE = 1e-3
"""Seconds of a message on an engine that has no `message_seconds`."""
COMMIT_SECONDS, COMMIT_PER_NUMBER = 4e-5, 4e-8
"""Seconds of a commit at the master, and seconds on top of that for every number of theta (with 20 pairs), as
measured by `python -m benchmarks.run table_commit`."""
MIN_ROW_SECONDS = 1e-9
"""Smallest time of a row's gradient, in seconds: the difference of two measured times may be zero or
negative."""


class Costs(NamedTuple):
    """Costs in units of the time of a row's gradient."""

    message: float = 10.0
    """A message there and back."""
    master: float = 0.1
    """A commit at the master."""


def stated_costs(engine: Engine) -> Costs | None:
    """Return the costs that the cluster of an engine states; None where they have to be measured.

    They are the defaults where a cluster does not state its times by rows.
    """
    # A cluster that states its times is believed: under a timing model even a real engine follows it.
    cluster = getattr(engine, "cluster", None) or getattr(engine, "timing_model", None)
    if not isinstance(cluster, Cluster):
        return None
    if cluster.rows is None:
        return Costs()
    # Mean over the workers' rates: a fast worker computes more of the rows.
    row = 1.0 / float(np.mean(1.0 / cluster.means())) / cluster.rows
    fixed, master = cluster.message + cluster.fixed, cluster.master + 2.0 * cluster.link
    return Costs(_power_of_two(fixed / row), _power_of_two(master / row))


def measured_costs(problem: Problem, theta0: Array, engine: Engine) -> Costs:
    """Return the costs of a message and of a commit on an engine, as measured now at `theta0`.

    The gradient is called eight times, on one row or on `TIMED_ROWS`.
    """
    # A call costs something however few its rows: the difference of two sizes is the time of a row.
    rows = min(TIMED_ROWS, int(problem.n_data))
    one, many = _seconds(problem, theta0, 1), _seconds(problem, theta0, rows)
    row = max((many - one) / max(1, rows - 1), MIN_ROW_SECONDS)
    # An engine is any object with two members, so this one may be missing.
    measure = getattr(engine, "message_seconds", None)
    message = ASSUMED_MESSAGE if measure is None else measure(theta0)
    agreed = getattr(engine, "agreed", None)
    if agreed is not None:
        # Under MPI every rank measures, and all take the numbers of rank 0.
        one, row, message = agreed((one, row, message))
    master = COMMIT_SECONDS + COMMIT_PER_NUMBER * theta0.size
    return Costs(_power_of_two((one + message) / row), _power_of_two(master / row))


def _seconds(problem: Problem, theta0: Array, count: int) -> float:
    """Return the shortest time of a gradient on `count` rows; the first call may compile."""
    both = extra(problem, "grad_with_value")
    gradient = problem.grad if both is None else both
    rows = np.arange(count)
    out = np.empty_like(theta0)
    shortest = math.inf
    for _ in range(1 + TIMED_CALLS):
        begin = time.perf_counter()
        gradient(theta0, rows, out)
        # Other programs can only make a call longer.
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def _power_of_two(x: float) -> float:
    return 2.0 ** round(math.log2(x)) if x > 0.0 else 0.0
