"""The parameters of Table L-BFGS for a problem, a number of workers, and the costs of a cluster."""

from __future__ import annotations

import math
from typing import Annotated

from asyncqn.algorithms.table.table_lbfgs import TableLBFGS
from asyncqn.parameters import Workers, checked, parameter
from asyncqn.types import Problem, extra

MESSAGES_PER_PART = 4
"""Least time of a part's gradient in messages, so that workers compute most of the time."""
PARTS, PARTS_PER_WORKER = 100, 4
"""A table has this many parts, in all and per worker, even where messages ask for fewer and longer ones: each
update is a step.  With fewer, updates are too old for the table to be the default."""
FEWEST_PARTS = 16
"""A table has no fewer parts, whatever messages cost.  Below 8 parts every step would be exact: a network on
scikit-learn's digits (two threads, 15 passes, three runs each) ends at U = 845 to 1110 with 3 parts, 40 to 45
with 8, 14 to 19 with 16 and 10 to 17 with 32, which takes longer."""
SHORTEST, MIN_ROWS = 0.5, 8
"""No part is shorter than this many messages, or has fewer rows."""
ROWS_PER_NUMBER, FIRST_DIVISOR = 10, 12
"""The parts that are active at the start have so many rows for every number in theta, so that the scatter says
something about curvature, but are no more than one for each worker and one part in the second number."""
LARGEST_TABLE = 2**28
"""Largest size of the table at the coordinator, in bytes; a user may ask for four times that."""
STEPS_PER_ROUND = 40
"""Steps of the master in the time in which every worker sends an update."""
MessageCost = Annotated[float, parameter(ge=0.0)]
MasterCost = Annotated[float, parameter(ge=0.0)]


def most_parts(n_data: int, workers: int, message: float, master: float) -> int:
    """Return into how many parts rows can be cut so that none is too short for its message and its commit."""
    return int(n_data / max(MIN_ROWS, SHORTEST * message, workers * master))


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
        The algorithm with all parameters set. It starts with stochastic steps unless the problem states that
        it is convex (`convex = True`).

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
    several = min(PARTS, most_parts(n, workers, message, master))
    swept = n / (workers * master) if master > 0.0 else math.inf
    each = max(workers, int(min(PARTS_PER_WORKER * workers, swept)))
    # 16 bytes: a number of g and one of z, in double precision, as `TableLBFGS.check` counts them.
    most = min(n, LARGEST_TABLE // (16 * max(1, d)))
    parts = min(max(worthwhile, several, each, FEWEST_PARTS), most)
    first = min(
        math.ceil(ROWS_PER_NUMBER * d * parts / n), workers + parts // FIRST_DIVISOR
    )
    return TableLBFGS(
        parts,
        min(max(first, workers), parts),
        stochastic=not extra(problem, "convex"),
        every=max(1, workers // STEPS_PER_ROUND),
    )
