"""The algorithm for a problem and a number of workers, when the user names none.

The first line that applies decides:

- If no worker may wait: `TableLBFGS`.
- If the problem has a metric of samples: `MetricLBFGS`, growing samples in that metric.
- If the problem has a structured metric: `StagedLBFGS`, stale stochastic batches and then exact passes.
- If the rows make 64 parts, four per worker, each worth a message and a commit: `TableLBFGS`.
- If all rows are at most four waves: `BlockLBFGS`, one block per worker, each in up to four pieces.
- Otherwise: `GrowingLBFGS`, the same on samples that grow to all rows.

A wave is 1000 rows, or 100 rows per worker, or three rows for every two numbers of theta, whichever is most.
All but `TableLBFGS` wait for slow workers, whom idle ones help.

All methods end in exact gradients with a safeguard, and none has a step size, so nothing is left to set.
"""

from __future__ import annotations

from asyncqn.algorithms.fit import offers
from asyncqn.algorithms.quasi_newton.block_lbfgs import H0, BlockLBFGS
from asyncqn.algorithms.quasi_newton.growing_lbfgs import GrowingLBFGS
from asyncqn.algorithms.quasi_newton.metric_lbfgs import (
    MetricLBFGS,
    SampledMetric,
    default_metric_algorithm,
)
from asyncqn.algorithms.quasi_newton.samples import GROWTH
from asyncqn.algorithms.quasi_newton.scatter_inverse import LONGEST_MATRIX
from asyncqn.algorithms.quasi_newton.staged_lbfgs import (
    StagedLBFGS,
    default_factorization_algorithm,
)
from asyncqn.algorithms.quasi_newton.stochastic_start import StructuredMetric
from asyncqn.algorithms.quasi_newton.table_lbfgs import (
    MasterCost,
    MessageCost,
    TableLBFGS,
    enough_parts,
    table_algorithm,
    worthwhile_parts,
)
from asyncqn.core.stages import Closes, Stages
from asyncqn.parameters import Workers, checked
from asyncqn.types import Problem

TOLERANCE = 1e-8
"""Default tolerance of `core.stopping`."""
MAX_PASSES = 10_000
"""Default number of passes after which a run that has not converged ends."""

MAX_DEFAULT_TABLE = 2**28
"""Largest table in bytes that is chosen without being asked for (`waits=False`)."""
MAX_PIECES = 4
"""Largest number of pieces of a block: simulated versions hardly get shorter beyond that."""
MIN_ROWS_PER_PIECE = 3
"""Smallest number of rows of a piece where theta is short."""
SHORT_THETA = 1000
"""Largest length of theta that counts as short."""

MIN_WAVE, WAVE_ROWS_PER_WORKER, WAVE_ROWS_PER_NUMBER = 1000, 100, 1.5
"""Smallest numbers of rows of a wave: in all; per worker, so that a gradient takes ten times as long as a
message that takes the time of ten rows; and per number of theta.  A network with two numbers per row fits
every row by itself, and then goes astray (`python -m benchmarks.studies.models.network rule`)."""
PAIRS_BY_LENGTH = ((SHORT_THETA, 100), (10_000, 50))
"""(length, pairs): the memory of a theta up to this length; networks of a few thousand numbers profit too."""
PAIRS_OF_LONG_THETA = 20
"""Memory of a longer theta: 20 pairs already take 40 times the room of theta."""
MIN_PIECES_FOR_SCATTER = 32
"""Smallest number of pieces per version at which growing samples take their H0 from the scatter of the
updates."""


def pieces_of_a_block(dim: int, n_data: int, workers: int) -> int:
    """Return the number of pieces of a block: each costs an update of `dim` numbers, which its rows must be
    worth.

    A piece has at least three rows.  Where theta is long, it has at least four times as many rows as theta
    has numbers, because a row may touch only a few of them.  With a single worker there is nobody to help.
    """
    rows = MIN_ROWS_PER_PIECE if dim <= SHORT_THETA else 4 * dim
    return 1 if workers == 1 else max(1, min(MAX_PIECES, n_data // (workers * rows)))


def growths(dim: int, n_data: int, workers: int) -> int:
    """Return how often a sample of one wave must grow to become all rows; 0 if these are a few waves at
    most."""
    wave = max(
        MIN_WAVE, WAVE_ROWS_PER_WORKER * workers, int(WAVE_ROWS_PER_NUMBER * dim)
    )
    levels = 0
    # n / GROWTH^levels, the first sample, is then at most GROWTH waves.
    while n_data > wave * GROWTH ** (levels + 1):
        levels += 1
    return levels


@checked
def default_algorithm(
    problem: Problem,
    workers: Workers,
    *,
    waits: bool = True,
    message: MessageCost = 10.0,
    master: MasterCost = 0.1,
) -> BlockLBFGS | GrowingLBFGS | MetricLBFGS | StagedLBFGS | TableLBFGS:
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
        Time of a message to the master and back, in units of one row's gradient.
    master : float, default 0.1
        Time that the master takes for an update, in the same units.

    Returns
    -------
    Algorithm
        The algorithm with all parameters set.

    Examples
    --------
    >>> import asyncqn as aq
    >>> aq.default_algorithm(aq.LinearGaussian.random(dim=10, n_data=300), workers=2)
    BlockLBFGS(blocks=2, memory=100, backup_after=None, pieces=4, initial_scale='pairs')
    """
    if not waits:
        return table_algorithm(problem, workers, message, master)
    if offers(problem, SampledMetric.requires):
        pieces = pieces_of_a_block(problem.dim, problem.n_data, workers)
        return default_metric_algorithm(problem, workers, pieces)
    if offers(problem, StructuredMetric.requires):
        return default_factorization_algorithm(problem, workers)
    dim, n_data = problem.dim, problem.n_data
    table = table_algorithm(problem, workers, message, master)
    worthwhile = min(table.parts, worthwhile_parts(n_data, workers, message, master))
    if (
        enough_parts(worthwhile, workers)
        and 16 * table.parts * dim <= MAX_DEFAULT_TABLE
    ):
        return table
    levels = growths(dim, n_data, workers)
    # The first sample is the smallest, and all samples are cut into the same pieces.
    pieces = pieces_of_a_block(dim, n_data // GROWTH**levels, workers)
    memory = next(
        (pairs for length, pairs in PAIRS_BY_LENGTH if dim <= length),
        PAIRS_OF_LONG_THETA,
    )
    if levels:
        scattered = dim <= LONGEST_MATRIX and workers * pieces >= MIN_PIECES_FOR_SCATTER
        scale: H0 = "scatter" if scattered else "pairs"
        return GrowingLBFGS(
            workers, levels, memory=memory, pieces=pieces, initial_scale=scale
        )
    # A block needs at least one row.
    return BlockLBFGS(min(workers, n_data), memory, pieces=pieces)


def most_commits(algorithm: object) -> int:
    """Return the default limit on the commits of a run."""
    stages: Stages = getattr(algorithm, "stages", ())
    each_update = bool(stages) and stages[-1].closes is Closes.EACH_UPDATE
    # Where each update is a commit, a pass over P parts is P commits; otherwise a version is a pass.
    commits_per_pass = stages[-1].parts or 1 if each_update else 1
    return sum(stage.commits or 0 for stage in stages) + MAX_PASSES * commits_per_pass


def default_evaluate(algorithm: object, commits: int | None) -> int:
    """Return the default interval between two rows of the metric table, in commits.

    `commits` is the number of commits of the run, or None if it ends by convergence.
    """
    least: int = getattr(algorithm, "evaluate_every", 1)
    # About two hundred rows in all.
    return least if commits is None else max(least, commits // 200)
