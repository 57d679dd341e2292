"""Growing L-BFGS: Block L-BFGS on samples of the data that grow fourfold, until they are all of it.

The plan is `samples`.  Sample j of J holds one row of every 4^(J-j) consecutive ones and serves a number of
versions that is fixed beforehand: `versions` the largest sample, twice as many each smaller one, at most four
times as many.  Pairs are kept when the sample grows: U of a sample estimates U itself, so their curvature is
nearly right there.  From the last growth on this is Block L-BFGS on all rows; what it returns minimises U.

A long memory is what makes cheap versions pay: they learn the curvature that the expensive ones use.  The
timetable is ours; a test of the gradient against its sampling error (Byrd, Chin, Nocedal and Wu 2012) would
make the times of a schedule depend on the numbers computed.  A point at which a larger sample is not finite
is moved halfway back to the start until it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from asyncqn.algorithms.parameters import BackupAfter, Blocks, PairedMemorySize, Pieces
from asyncqn.algorithms.quasi_newton.block_lbfgs import H0, INITIAL_INVERSES
from asyncqn.algorithms.quasi_newton.composition import GROWING_EVALUATE, QuasiNewton
from asyncqn.algorithms.quasi_newton.initial_inverse import ScalarInverse
from asyncqn.algorithms.quasi_newton.samples import ALL_ROWS, GROWTH, Sample, Samples
from asyncqn.parameters import parameter
from asyncqn.types import Problem

DOUBLINGS = 2
"""The smallest samples serve at most 2 to this power times as many versions as the largest."""
# In passes over the data all samples then cost at most versions * (1/4 + 2/16 + 4/64 + 4/256 + ...), which is
# 4.6 with the default of 10 versions.  Doubling without end would give 5.


@dataclass(frozen=True)
class GrowingLBFGS(QuasiNewton):
    """Block L-BFGS on samples that grow to all rows; it has no step size.

    Parameters
    ----------
    blocks : int
        Number of blocks into which the rows are cut; best is the number of workers.
    levels : int
        J: how often the sample grows fourfold.
    versions : int, default 10
        Number of versions that the largest sample serves.
    memory : int, default 50
        M: largest number of curvature pairs in the memory.
    pieces : int, default 1
        Number of pieces into which each block is cut, so that idle workers can help with a slow block.
        Every piece costs one update of theta's length.
    backup_after : float, optional
        Idle workers receive a block, too, once it is this many times later than usual; infinity means
        never. By default as in `BlockLBFGS`.
    initial_scale : "pairs" or "scatter", default "pairs"
        What H0 is made of: the stored pairs, or the scatter of the pieces' gradients.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LogisticRegression.random(n_data=4000, dim=5, seed=0)
    >>> algorithm = aq.GrowingLBFGS(blocks=4, levels=2)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status
    'converged'
    """

    blocks: Blocks
    # 4^15 is a thousand million: no data set leaves the first of 15 samples more than a few rows.
    levels: Annotated[int, parameter(ge=1, le=15)]
    # At least two: the first version on a larger sample only evaluates the accepted point again.
    versions: Annotated[int, parameter(ge=2, le=2**31 - 1)] = 10
    memory: PairedMemorySize = 50
    pieces: Pieces = 1
    backup_after: BackupAfter | None = None
    initial_scale: H0 = "pairs"

    evaluate_every = GROWING_EVALUATE

    @classmethod
    def example(cls, problem: Problem) -> GrowingLBFGS:
        """Small parameters that run on any problem, for tests."""
        # The only sample, one row of four, must have a row for every block.
        return cls(
            blocks=min(4, max(1, problem.n_data // GROWTH)), levels=1, versions=8
        )

    @cached_property
    def plan(self) -> Samples:
        # From the smallest sample, one row of every 4^J, to the largest, one row of four.
        growing = (
            Sample(GROWTH**j, self.versions << min(j - 1, DOUBLINGS))
            for j in range(self.levels, 0, -1)
        )
        fewer = "use fewer levels or blocks."
        return Samples(
            (*growing, ALL_ROWS), self.blocks, self.pieces, self.backup_after, fewer
        )

    @property
    def initial_inverse(self) -> type[ScalarInverse]:
        return INITIAL_INVERSES[self.initial_scale]

    @property
    def growing_versions(self) -> int:
        """Return how many versions there are before those on all rows."""
        # `ALL_ROWS` has no end: its `commits` is None.
        return sum(sample.commits or 0 for sample in self.plan.samples)
