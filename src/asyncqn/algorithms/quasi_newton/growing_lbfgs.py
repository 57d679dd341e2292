"""Growing L-BFGS: Block L-BFGS on samples of the data that grow fourfold, until they are all of it.

Sample j of J holds one row of every 4^(J-j) consecutive ones, drawn anew for every j by the seed, and
serves a number of versions that is fixed beforehand: `versions` the largest sample, twice as many each
smaller one, at most four times as many.  On sample S

    U_S(theta) = prior + (n / |S|) sum_{i in S} U_i(theta)

is minimised as `BlockLBFGS` does: its gradients are exact, nothing is noise, no gradient is stale and no
step size is needed.  When the sample grows, U and its gradient are asked for once more at the last point
kept, now on the larger sample, and pairs are kept: U_S estimates U itself, so their curvature is nearly
right there.  From the last growth on this is Block L-BFGS on all rows; what it returns minimises U.

A long memory is what makes cheap versions pay: they learn the curvature that the expensive ones use.  The
timetable is ours; a test of the gradient against its sampling error (Byrd, Chin, Nocedal and Wu 2012) would
make the times of a schedule depend on the numbers computed.  A point at which a larger sample is not finite
is moved halfway back to the start until it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from asyncqn.algorithms.parameters import BackupAfter, Blocks, PairedMemorySize, Pieces
from asyncqn.algorithms.quasi_newton.block_lbfgs import H0, BlockLBFGS, metric_of, note_scatter
from asyncqn.algorithms.quasi_newton.exact_gradients import Worker, share_of, whole_sum
from asyncqn.algorithms.quasi_newton.growth import FACTOR, GrowingSamples, Iterate
from asyncqn.core.stages import Stages
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Potential, Task

_DOUBLINGS = 2
"""The smallest samples serve at most 2 to this power times as many versions as the largest."""


class Update(NamedTuple):
    """A piece's share of the gradient and of U on the sample of version `read`."""

    g: Array
    value: float
    part: int
    finite: bool
    read: int


@dataclass(frozen=True)
class GrowingLBFGS(GrowingSamples):
    """Block L-BFGS on samples that grow to all rows; it has no step size.

    blocks, pieces, backup_after, initial_scale: as in `BlockLBFGS`; levels: J, how often the sample grows.

    versions: how many the largest sample serves; memory: M.

    >>> import asyncqn as aq
    >>> problem = aq.LogisticRegression.random(n_data=4000, dim=5, seed=0)
    >>> algorithm = aq.GrowingLBFGS(blocks=4, levels=2)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status
    'converged'
    """

    blocks: Blocks
    levels: Annotated[int, parameter("J: how often the sample grows fourfold", ge=1, le=15)]
    versions: Annotated[int, parameter("How many versions the largest sample serves", ge=2, le=2**31 - 1)] = (
        10
    )
    memory: PairedMemorySize = 50
    pieces: Pieces = 1
    backup_after: BackupAfter | None = None
    initial_scale: H0 = "pairs"

    @classmethod
    def example(cls, potential: Potential) -> GrowingLBFGS:
        """Small parameters that run on any potential, for tests."""
        return cls(blocks=min(4, max(1, potential.n_data // FACTOR)), levels=1, versions=8)

    def _exact(self) -> BlockLBFGS:
        return BlockLBFGS(
            self.blocks, self.memory, self.backup_after, pieces=self.pieces, initial_scale=self.initial_scale
        )

    def _strides(self) -> list[int]:
        return [FACTOR**j for j in range(self.levels, -1, -1)]

    @property
    def stages(self) -> Stages:
        (exact,) = self._exact().stages
        samples = [
            replace(exact, share=float(FACTOR) ** -j, commits=self.versions << min(j - 1, _DOUBLINGS))
            for j in range(self.levels, 0, -1)
        ]
        return (*samples, exact)

    def check(self, potential: Potential) -> None:
        self._check_parts(potential, "levels")

    def init(self, theta0: Array) -> Iterate:
        return Iterate(*self._exact().init(theta0), start=theta0.copy())

    def step(self, view: Iterate, local: Worker, potential: Potential, task: Task) -> Update:
        rows, sample = self._rows(potential.n_data, task)
        g, value, finite = share_of(potential, view.theta, rows, rows.size / sample)
        assert task.part is not None
        return Update(g, value, task.part, finite, task.read)

    def apply(self, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        at, value = whole_sum(updates, self.blocks * self.pieces)
        note_scatter(iterate.memory, updates)
        pairs = metric_of(iterate.memory, BlockLBFGS.conjugacy)
        return self._judged(iterate, pairs, at, value, updates[0].read, commit)
