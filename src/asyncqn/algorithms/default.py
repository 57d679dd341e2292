"""The algorithm for a problem and a number of workers, when the user names none.

Potentials that offer a structured metric get `StagedLBFGS`: stale stochastic batches in that metric
first, exact passes afterwards.  All others get `BlockLBFGS` with as many blocks as workers.  Both
end in exact gradients with a safeguard, and neither has a step size: nothing is left to set.
"""

from __future__ import annotations

from asyncqn.algorithms.block_lbfgs import BlockLBFGS
from asyncqn.algorithms.staged_lbfgs import StagedLBFGS, default_factorization_algorithm
from asyncqn.errors import require
from asyncqn.types import Potential

VERSIONS, EPOCHS = 100, 12.0
"""How long a run is when the user does not say: exact gradients, or passes over the data."""


def default_algorithm(potential: Potential, workers: int) -> BlockLBFGS | StagedLBFGS:
    """What `minimize` uses when it is given no algorithm."""
    require(isinstance(workers, int) and workers >= 1, f"there must be at least one worker, not {workers!r}.")
    if getattr(potential, "curvature_size", None) is not None:
        return default_factorization_algorithm(potential, workers)
    return BlockLBFGS(min(workers, potential.n_data))


def default_commits(algorithm: object) -> int:
    """How many commits such a run has when the user does not say."""
    return algorithm.commits_for(EPOCHS) if isinstance(algorithm, StagedLBFGS) else VERSIONS
