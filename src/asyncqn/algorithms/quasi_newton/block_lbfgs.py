"""Block L-BFGS: exact gradients from fixed blocks of the data, quasi-Newton steps at the coordinator.

The plan is `samples` with all rows as its only sample; H0 is a diagonal that the pairs teach
(`LearnedDiagonal`) or made of the scatter of the pieces' gradients (`scatter_inverse`).

A new theta is a trial, which `algorithms.safeguard` judges.  After one that fails the next starts from the
same base with the new pair in memory: on a quadratic that is the point the method would have gone to anyway,
for H y = s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from asyncqn.algorithms.parameters import BackupAfter, Blocks, PairedMemorySize, Pieces
from asyncqn.algorithms.quasi_newton.composition import QuasiNewton
from asyncqn.algorithms.quasi_newton.initial_inverse import (
    LearnedDiagonal,
    ScalarInverse,
)
from asyncqn.algorithms.quasi_newton.samples import ALL_ROWS, Samples
from asyncqn.algorithms.quasi_newton.scatter_inverse import ScatterInverse
from asyncqn.types import Problem

# The kinds of H0 that need nothing of the problem beyond gradients; `GrowingLBFGS` offers the same two.
H0 = Literal["pairs", "scatter"]
INITIAL_INVERSES: dict[str, type[ScalarInverse]] = {
    "pairs": LearnedDiagonal,
    "scatter": ScatterInverse,
}
"""What H0 is made of, by the name of the parameter `initial_scale`."""


@dataclass(frozen=True)
class BlockLBFGS(QuasiNewton):
    """L-BFGS on exact gradients, of which each worker computes a block; it has no step size.

    Parameters
    ----------
    blocks : int
        Number of blocks into which the rows are cut; best is the number of workers.
    memory : int, default 20
        M: largest number of curvature pairs in the memory.
    backup_after : float, optional
        Idle workers receive a block, too, once it is this many times later than usual; infinity means
        never. By default 3 for blocks in one piece and 2 for others, because a piece computed in vain costs
        less.
    pieces : int, default 1
        Number of pieces into which each block is cut, so that idle workers can help with a slow block.
        Every piece costs one update of theta's length.
    initial_scale : "pairs" or "scatter", default "pairs"
        What H0 is made of: the stored pairs, or the scatter of the pieces' gradients, for problems that are
        cut into many pieces.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, aq.BlockLBFGS(blocks=4), engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, abs(run.fun - problem.optimum) < 1e-6 * problem.optimum
    ('converged', True)
    """

    blocks: Blocks
    memory: PairedMemorySize = 20
    backup_after: BackupAfter | None = None
    pieces: Pieces = 1
    initial_scale: H0 = "pairs"

    @classmethod
    def example(cls, problem: Problem) -> BlockLBFGS:
        """Small parameters that run on any problem, for tests."""
        # A block needs at least one row.
        return cls(blocks=min(4, problem.n_data))

    @cached_property
    def plan(self) -> Samples:
        # Cached, because every update asks the plan for its stage; a new plan would build all stages again.
        return Samples((ALL_ROWS,), self.blocks, self.pieces, self.backup_after)

    @property
    def initial_inverse(self) -> type[ScalarInverse]:
        return INITIAL_INVERSES[self.initial_scale]
