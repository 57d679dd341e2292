"""The parameters of Table L-BFGS for a problem, a number of workers, and the costs of a cluster."""

from __future__ import annotations

import math
from typing import Annotated

from asyncqn.algorithms.table.table_lbfgs import TableLBFGS
from asyncqn.parameters import Workers, checked, parameter
from asyncqn.types import Problem, extra

MESSAGES_PER_PART = 4
"""Least time of a part's gradient in messages, so that workers compute most of the time."""
MIN_PARTS, PARTS_PER_WORKER = 100, 4
"""A table has this many parts, in all and per worker, even where messages ask for fewer and longer ones, but
none of the first shorter than `SHORTEST` messages or `MIN_ROWS` rows: each update is a step.  On the laboratory's relu
network (W = 16) U after ten passes is 121 with 64 parts, 109 with 96 and 101 to 119 with 128."""
MIN_ROWS, SHORTEST = 8, 0.5
DEFAULT_PARTS = 64
"""With fewer parts updates are older than a quarter of a pass, and exact steps are the default."""
ROWS_PER_NUMBER = 10
"""Rows of the active parts for every number in theta, so that the scatter says something about curvature."""
PLENTY = 25
"""Rows for every number in theta from which on a table learns the curvature while its sample is small.  With
fewer rows, one part in `FIRST_DIVISOR` is active at the start, beside one for each worker, and stochastic
steps may follow."""
FIRST_DIVISOR = 12
LARGEST_TABLE = 2**28
"""Largest size of the table at the coordinator, in bytes; a user may ask for four times that."""
MAX_SWEEP = 3.0
"""Most passes in which the master takes an update of every part; where it is the bottleneck, parts grow."""
STEPS_PER_ROUND = 40
"""Steps of the master in the time in which every worker sends an update."""
MessageCost = Annotated[
    float,
    parameter(
        unit="row gradients",
        ge=0.0,
    ),
]
MasterCost = Annotated[
    float,
    parameter(
        unit="row gradients",
        ge=0.0,
    ),
]


def most_parts(n_data: int, workers: int, message: float, master: float) -> int:
    """Return into how many parts rows can be cut so that none is too short for its message and its commit."""
    return int(n_data / max(MIN_ROWS, SHORTEST * message, workers * master))


def enough_parts(parts: int, workers: int) -> bool:
    """Return whether updates are young enough for a table to be the default: see `DEFAULT_PARTS`."""
    return parts >= max(DEFAULT_PARTS, PARTS_PER_WORKER * workers)


@checked
def table_algorithm(
    problem: Problem,
    workers: Workers,
    message: MessageCost = 10.0,
    master: MasterCost = 0.1,
) -> TableLBFGS:
    """Return `TableLBFGS` with all parameters set for a problem and a number of workers.

    Parameters
    ----------
    problem : Problem
        The problem to minimise.
    workers : int
        Number of workers, W.
    message : float, default 10.0
        Time of a message to the master and back, in units of one row's gradient.
    master : float, default 0.1
        Time that the master takes for an update, in the same units.

    Returns
    -------
    TableLBFGS
        The algorithm with all parameters set. Stochastic steps may follow where there are fewer than 25
        rows for every number in theta, unless the problem states that it is convex (`convex = True`).

    Examples
    --------
    >>> import asyncqn as aq
    >>> from asyncqn.algorithms.table.choice import table_algorithm
    >>> algorithm = table_algorithm(aq.LogisticRegression.random(n_data=10_000, dim=20, seed=0), workers=8)
    >>> algorithm.parts, algorithm.first
    (250, 8)
    """
    n, d = int(problem.n_data), int(problem.dim)
    worthwhile = int(n / max(1.0, MESSAGES_PER_PART * message, workers * master))
    # More than are worth their messages, as far as the master can keep up.
    swept = MAX_SWEEP * n / (workers * master) if master > 0.0 else math.inf
    several = min(MIN_PARTS, most_parts(n, workers, message, master))
    least = min(max(several, PARTS_PER_WORKER * workers), swept)
    # 16 bytes: a number of g and one of z, in double precision, as `TableLBFGS.check` counts them.
    most = min(n, LARGEST_TABLE // (16 * max(1, d)))
    parts = min(max(1, workers, worthwhile, int(least)), most)
    every = max(1, workers // STEPS_PER_ROUND)
    # The active parts have first n / P rows, which are then `ROWS_PER_NUMBER` d at least.
    first = max(workers, math.ceil(ROWS_PER_NUMBER * d * parts / n))
    few = n < PLENTY * d and not extra(problem, "convex")
    if few:
        first = workers + parts // FIRST_DIVISOR
    return TableLBFGS(
        parts,
        min(first, parts),
        stochastic=few,
        every=every,
    )
