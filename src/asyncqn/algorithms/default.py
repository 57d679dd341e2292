"""The algorithm for a problem and a number of workers, when the user names none.

Potentials that offer a structured metric get `StagedLBFGS`: stale stochastic batches in that metric
first, exact passes afterwards.  All others get `BlockLBFGS` with as many blocks as workers, each in up
to four pieces.  Both end in exact gradients with a safeguard, and neither has a step size: nothing is
left to set.
"""

from __future__ import annotations

from asyncqn.algorithms.block_lbfgs import BlockLBFGS
from asyncqn.algorithms.staged_lbfgs import StagedLBFGS, default_factorization_algorithm
from asyncqn.errors import require
from asyncqn.types import Potential

VERSIONS, EPOCHS = 100, 12.0
"""How long a run is when the user does not say: exact gradients, or passes over the data."""

PIECES = 4
"""Into how many a block is cut at most: simulated versions get hardly shorter beyond that."""
FEW_ROWS, SHORT = 3, 1000
"""Rows that a piece has at least; the length up to which theta is short."""


def pieces_of_a_block(dim: int, n_data: int, workers: int) -> int:
    """How many pieces pay: each costs an answer of `dim` numbers, and its rows must be worth that.

    A piece has at least three rows; where theta is long, at least as many rows as theta has numbers,
    for a row may touch only a few of them.  A worker alone has nobody to help it.
    """
    rows = FEW_ROWS if dim <= SHORT else dim
    return 1 if workers == 1 else max(1, min(PIECES, n_data // (workers * rows)))


def default_algorithm(potential: Potential, workers: int) -> BlockLBFGS | StagedLBFGS:
    """What `minimize` uses when it is given no algorithm."""
    require(isinstance(workers, int) and workers >= 1, f"there must be at least one worker, not {workers!r}.")
    if getattr(potential, "curvature_size", None) is not None:
        return default_factorization_algorithm(potential, workers)
    blocks = min(workers, potential.n_data)
    return BlockLBFGS(blocks, pieces=pieces_of_a_block(potential.dim, potential.n_data, workers))


def default_commits(algorithm: object) -> int:
    """How many commits such a run has when the user does not say."""
    return algorithm.commits_for(EPOCHS) if isinstance(algorithm, StagedLBFGS) else VERSIONS
