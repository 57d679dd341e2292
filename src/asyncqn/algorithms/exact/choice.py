"""The parameters of exact L-BFGS for a problem and a number of workers.

The samples before all rows are so many that the first one is a *wave* or a few: 1000 rows, 100 rows per
worker, and some rows for every number in theta.
"""

from __future__ import annotations

import math
from dataclasses import replace

from asyncqn.algorithms.exact.exact_lbfgs import ExactLBFGS
from asyncqn.algorithms.exact.inverse import METRIC_EXTRAS
from asyncqn.algorithms.exact.samples import GROWTH
from asyncqn.algorithms.exact.scatter import LONGEST_MATRIX
from asyncqn.algorithms.fit import offers
from asyncqn.parameters import Workers, checked
from asyncqn.types import Problem, extra

MAX_PIECES = 4
"""Largest number of pieces of a block: simulated versions hardly get shorter beyond that."""
MIN_ROWS_PER_PIECE = 3
"""Smallest number of rows of a piece where theta is short."""
SHORT_THETA = 1000
"""Largest length of theta that counts as short."""
MEMORY = 500_000
"""Numbers in the s, and in the y, of a full memory, if that has 20 to 100 pairs."""
MIN_WAVE = 1000
"""Smallest number of rows of a wave."""
ROWS_PER_WORKER = 100
"""Rows of a wave per worker: a gradient then takes ten times as long as a message of ten rows."""
ROWS_PER_NUMBER = 1.5
"""Rows of a wave per number of theta.  A network with two numbers per row fits every row by itself, and then
goes astray."""
METRIC_ROWS_PER_NUMBER = 10
"""The same where the metric is made of these rows: a matrix of fewer says little about flat directions."""
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


def growths(
    dim: int, n_data: int, workers: int, rows_per_number: float = ROWS_PER_NUMBER
) -> int:
    """Return how often a sample of one wave must grow to become all rows; 0 if these are a few waves at
    most."""
    wave = max(MIN_WAVE, ROWS_PER_WORKER * workers, int(rows_per_number * dim))
    levels = 0
    # n / GROWTH^levels, the first sample, is then at most GROWTH waves.
    while n_data > wave * GROWTH ** (levels + 1):
        levels += 1
    return levels


@checked
def exact_algorithm(problem: Problem, workers: Workers) -> ExactLBFGS:
    """Return `ExactLBFGS` with all parameters set for a problem and a number of workers.

    Parameters
    ----------
    problem : Problem
        The problem to minimise: its rows, its dimension and the metric that it offers decide.
    workers : int
        Number of workers, W.

    Returns
    -------
    ExactLBFGS
        The algorithm with all parameters set.

    Examples
    --------
    >>> import asyncqn as aq
    >>> aq.exact_algorithm(aq.LinearGaussian.random(dim=10, n_data=300), workers=2)
    ExactLBFGS(blocks=2, pieces=4, samples=0, inverse='pairs', memory=100, curvature=0)
    """
    n, dim = int(problem.n_data), int(problem.dim)
    # A block needs at least one row.
    blocks = min(workers, n)
    if offers(problem, METRIC_EXTRAS):
        size = int(extra(problem, "curvature_size"))
        # The stride before all rows is 16: one growth less, and none where theta is so long that H0 is a
        # diagonal for most of it: samples of rows with rare features do not pay there.
        levels = growths(dim, n, workers, METRIC_ROWS_PER_NUMBER)
        samples = max(0, levels - 1) if size > 2 * dim else 0
        pieces = pieces_of_a_block(dim, n, workers)
        exact = ExactLBFGS(blocks, pieces, samples, "metric", curvature=size)
        if extra(problem, "stand_in") is None:
            return exact
        # Rows come to the worker that computes on them: who helps another would have to fetch its rows.
        return replace(exact, pieces=1, backup_after=math.inf)
    samples = growths(dim, n, workers)
    # The first sample is the smallest, and all samples are cut into the same pieces.
    pieces = pieces_of_a_block(dim, n // GROWTH**samples, workers)
    scattered = dim <= LONGEST_MATRIX and workers * pieces >= MIN_PIECES_FOR_SCATTER
    return ExactLBFGS(
        blocks,
        pieces,
        samples,
        "scatter" if samples and scattered else "pairs",
        # Networks of a few thousand numbers profit from many pairs, too.
        memory=max(20, min(100, MEMORY // dim)),
    )
