"""The algorithm for a problem and a number of workers, when the user names none.

Problems that offer a structured metric get `MetricLBFGS`, growing samples in that metric, where a sample's
metric serves for all rows, and else `StagedLBFGS`: stale stochastic batches first, exact passes afterwards.
Where the workers can cover all rows in a few waves, others get `BlockLBFGS` with as many blocks as workers,
each in up to four pieces; where they cannot, samples that grow to all rows: `DifferenceLBFGS` where the
Hessian of a sample costs a pass at most, and else `GrowingLBFGS`.  A wave is 1000 rows, or 100 for every
worker or three rows for every two numbers in theta if that is more; a few are up to four.  All of these wait
for slow workers, who get help.  Where nobody may wait, every problem gets `TableLBFGS`.

All end in exact gradients with a safeguard, and none has a step size: nothing is left to set.
"""

from __future__ import annotations

from typing import Annotated

from asyncqn.algorithms.fit import offers
from asyncqn.algorithms.quasi_newton.block_lbfgs import H0, BlockLBFGS
from asyncqn.algorithms.quasi_newton.difference_lbfgs import DifferenceLBFGS, default_difference_algorithm
from asyncqn.algorithms.quasi_newton.growing_lbfgs import GrowingLBFGS
from asyncqn.algorithms.quasi_newton.metric_lbfgs import MetricLBFGS, SampledMetric, default_metric_algorithm
from asyncqn.algorithms.quasi_newton.samples import GROWTH
from asyncqn.algorithms.quasi_newton.scatter_inverse import LONGEST_MATRIX
from asyncqn.algorithms.quasi_newton.staged_lbfgs import StagedLBFGS, default_factorization_algorithm
from asyncqn.algorithms.quasi_newton.stochastic_start import StructuredMetric
from asyncqn.algorithms.quasi_newton.table_lbfgs import MasterCost, MessageCost, TableLBFGS, table_algorithm
from asyncqn.core.stages import Closes, Stages
from asyncqn.parameters import Workers, checked, parameter
from asyncqn.types import Problem

Waits = Annotated[bool, parameter("Whether the default method may wait for slow workers")]

TOLERANCE = 1e-8
"""The tolerance of `core.stopping` when the user does not say."""
MOST_PASSES = 10_000
"""Passes after which a run that has not converged ends, when the user does not say."""

PIECES = 4
"""Into how many a block is cut at most: simulated versions get hardly shorter beyond that."""
FEW_ROWS, SHORT = 3, 1000
"""Rows that a piece has at least; the length up to which theta is short."""

WAVE, ROWS_PER_WORKER, ROWS_PER_NUMBER = 1000, 100, 1.5
"""Rows of a wave at least: in all; for every worker, so that a gradient takes ten times as long as a message
of ten rows' time; and for every number in theta: a network fits half as many rows as it has numbers one by
one, and then goes astray (`python -m benchmarks.studies.models.network rule`)."""
MEMORIES = ((SHORT, 100), (10_000, 50))
"""Pairs remembered up to such a length of theta; networks of a few thousand numbers profit too."""
USUAL_MEMORY = 20
"""And beyond: pairs take room."""
SCATTERED = 32
"""Pieces of a version from which on growing samples take their H0 from the scatter of the updates."""


def pieces_of_a_block(dim: int, n_data: int, workers: int) -> int:
    """Return how many pieces pay: each costs an update of `dim` numbers, and its rows must be worth that.

    A piece has at least three rows; where theta is long, at least four times as many rows as theta has
    numbers, for a row may touch only a few of them.  A worker alone has nobody to help it.
    """
    rows = FEW_ROWS if dim <= SHORT else 4 * dim
    return 1 if workers == 1 else max(1, min(PIECES, n_data // (workers * rows)))


def growths(dim: int, n_data: int, workers: int) -> int:
    """Return how often a sample of a wave must grow to be all rows; 0: all rows are a few waves at most."""
    wave = max(WAVE, ROWS_PER_WORKER * workers, int(ROWS_PER_NUMBER * dim))
    levels = 0
    while n_data > wave * GROWTH ** (levels + 1):
        levels += 1
    return levels


@checked
def default_algorithm(
    problem: Annotated[Problem, parameter("Problem to minimise")],
    workers: Workers,
    *,
    waits: Waits = True,
    message: MessageCost = 10.0,
    master: MasterCost = 0.1,
) -> BlockLBFGS | DifferenceLBFGS | GrowingLBFGS | MetricLBFGS | StagedLBFGS | TableLBFGS:
    """Return the algorithm that `minimize` uses when it is given none.

    Parameters
    ----------
    problem : Problem
        The problem: its number of rows, its dimension and the metric that it offers decide.
    workers : int
        Number of workers, W.
    waits : bool, default True
        Whether the method may wait for slow workers; False returns `TableLBFGS`, which never does.
    message : float, default 10.0
        Time of a message to the master and back, in units of one row's gradient; used where `waits` is
        False.
    master : float, default 0.1
        Time that the master takes for an update, in the same units; used where `waits` is False.

    Returns
    -------
    Algorithm
        The algorithm with all parameters set.

    Examples
    --------
    >>> import asyncqn as aq
    >>> aq.default_algorithm(aq.LinearGaussian.random(dim=10, n_data=300), workers=2)
    BlockLBFGS(blocks=2, memory=100, backup_after=None, conjugacy=0.03, pieces=4, initial_scale='pairs')
    """
    if not waits:
        return table_algorithm(problem, workers, message, master)
    if offers(problem, SampledMetric.requires):
        pieces = pieces_of_a_block(problem.dim, problem.n_data, workers)
        return default_metric_algorithm(problem, workers, pieces)
    if offers(problem, StructuredMetric.requires):
        return default_factorization_algorithm(problem, workers)
    dim, n_data = problem.dim, problem.n_data
    levels = growths(dim, n_data, workers)
    pieces = pieces_of_a_block(dim, n_data // GROWTH**levels, workers)
    memory = next((pairs for length, pairs in MEMORIES if dim <= length), USUAL_MEMORY)
    by_differences = default_difference_algorithm(problem, workers, pieces) if levels else None
    if by_differences is not None:
        return by_differences
    if levels:
        scattered = dim <= LONGEST_MATRIX and workers * pieces >= SCATTERED
        scale: H0 = "scatter" if scattered else "pairs"
        return GrowingLBFGS(workers, levels, memory=memory, pieces=pieces, initial_scale=scale)
    return BlockLBFGS(min(workers, n_data), memory, pieces=pieces)


def most_commits(algorithm: object) -> int:
    """Return how many commits a run has at most when the user does not say."""
    stages: Stages = getattr(algorithm, "stages", ())
    each_update = bool(stages) and stages[-1].closes is Closes.EACH_UPDATE
    commits_per_pass = stages[-1].parts or 1 if each_update else 1
    return sum(stage.commits or 0 for stage in stages) + MOST_PASSES * commits_per_pass


def default_evaluate(algorithm: object, commits: int | None) -> int:
    """Commits between two rows of the metric table when the user does not say (commits None: open)."""
    least: int = getattr(algorithm, "evaluate_every", 1)
    return least if commits is None else max(least, commits // 200)
