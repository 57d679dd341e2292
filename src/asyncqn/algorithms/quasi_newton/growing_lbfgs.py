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

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.memory import pair_totals
from asyncqn.algorithms.quasi_newton import block_lbfgs as exact
from asyncqn.algorithms.quasi_newton.block_lbfgs import BlockLBFGS, Worker
from asyncqn.algorithms.quasi_newton.growth import grown
from asyncqn.algorithms.quasi_newton.pairs_over_scatter import Memory as ScatterMemory
from asyncqn.algorithms.quasi_newton.scaled_pairs import Memory
from asyncqn.algorithms.safeguard import Trial, advance, standing
from asyncqn.core.stages import Stages, stage_index
from asyncqn.errors import require
from asyncqn.kernels.strata import fill_strata
from asyncqn.types import Array, Commit, Counters, Potential, Rows, Standing, Task

FACTOR = 4
"""How much a sample grows."""
_DOUBLINGS = 2
"""The smallest samples serve at most 2 to this power times as many versions as the largest."""


class Iterate(NamedTuple):
    """The fields of `block_lbfgs.Iterate`, the start, and the stage whose sample `base` was judged on."""

    theta: Array
    base: Array
    at_base: Array
    anchor: Array
    memory: Memory | ScatterMemory
    trial: Trial
    start: Array
    stage: int = -1
    """-1: none yet."""
    first_value: float = math.nan
    """U at the start, as the first sample says it; NaN where that does not say U."""


class Update(NamedTuple):
    """A piece's share of the gradient and of U on the sample of version `read`."""

    g: Array
    value: float
    part: int
    finite: bool
    read: int


@dataclass(frozen=True)
class GrowingLBFGS:
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

    blocks: int
    levels: int
    versions: int = 10
    memory: int = 50
    pieces: int = 1
    backup_after: float | None = None
    initial_scale: str = "pairs"

    sent = ("theta",)

    @classmethod
    def example(cls, potential: Potential) -> GrowingLBFGS:
        """Small parameters that run on any potential, for tests."""
        return cls(blocks=min(4, max(1, potential.n_data // FACTOR)), levels=1, versions=8)

    def __post_init__(self) -> None:
        for name, least in (("levels", 1), ("versions", 2)):
            value = getattr(self, name)
            require(
                isinstance(value, int) and not isinstance(value, bool) and value >= least,
                f"{name} must be an integer of at least {least}, not {value!r}.",
            )
        require(self.levels <= 15, f"levels must be at most 15, not {self.levels}: 4^15 is a billion.")
        self._exact()

    def _exact(self) -> BlockLBFGS:
        return BlockLBFGS(
            self.blocks, self.memory, self.backup_after, pieces=self.pieces, initial_scale=self.initial_scale
        )

    @property
    def stages(self) -> Stages:
        (exact,) = self._exact().stages
        samples = [
            replace(exact, share=float(FACTOR) ** -j, commits=self.versions << min(j - 1, _DOUBLINGS))
            for j in range(self.levels, 0, -1)
        ]
        return (*samples, exact)

    @property
    def growing_versions(self) -> int:
        """How many versions there are before those on all rows."""
        return sum(stage.commits or 0 for stage in self.stages)

    def check(self, potential: Potential) -> None:
        n, parts = potential.n_data // FACTOR**self.levels, self.blocks * self.pieces
        require(
            parts <= n,
            f"a sample of {n} data points cannot be cut into {parts} parts: use fewer levels or blocks.",
        )

    def init(self, theta0: Array) -> Iterate:
        return Iterate(*self._exact().init(theta0), start=theta0.copy())

    def init_worker(self, potential: Potential, theta0: Array) -> Worker:
        return Worker()

    def step(self, view: Iterate, local: Worker, potential: Potential, task: Task) -> Update:
        rows, share = self._rows(potential.n_data, task)
        g, value, finite = exact.share_of(potential, view.theta, rows, share)
        assert task.part is not None
        return Update(g, value, task.part, finite, task.read)

    def _rows(self, n: int, task: Task) -> tuple[Rows, float]:
        """The rows of a task's part, and their share in its sample."""
        stride = FACTOR ** (self.levels - stage_index(self.stages, task.read))
        strata, parts = -(-n // stride), self.blocks * self.pieces
        part = task.part
        assert part is not None
        first, last = part * strata // parts, (part + 1) * strata // parts
        if stride == 1:
            return np.arange(first, last), (last - first) / n
        rows = np.empty(last - first, np.int64)
        fill_strata(task.stream.seed, stride, first, n, rows)
        return rows, (last - first) / strata

    def learn(self, view: Iterate, local: Worker, potential: Potential, task: Task) -> Worker:
        return local

    def forget(self, local: Worker) -> Worker:
        return local

    def apply(self, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        stages, read = self.stages, updates[0].read
        stage = stage_index(stages, read)
        at, value = exact.whole_sum(updates, self.blocks * self.pieces)
        exact.note_scatter(iterate.memory, updates)
        pairs = exact.metric_of(iterate.memory, BlockLBFGS.conjugacy)
        ask = commit.value if stage == self.levels else None  # nobody else knows U of a sample
        if iterate.trial.kept == 0 and math.isnan(iterate.first_value):
            iterate = iterate._replace(first_value=value)
        if stage == iterate.stage or iterate.trial.kept == 0:
            iterate = iterate._replace(trial=advance(iterate, pairs, at, value, ask), stage=stage)
        elif iterate.theta.tobytes() == iterate.base.tobytes():
            empty = self._exact().init(iterate.start).trial
            iterate = grown(iterate, pairs, at, value, ask, stage, empty)
        if stage_index(stages, read + 1) != iterate.stage:
            iterate.theta[...] = iterate.base
        return iterate

    def standing(self, iterate: Iterate) -> Standing | None:
        """Once all rows were used; the first |g| is the largest at any stage's start: samples estimate U."""
        return standing(iterate) if iterate.stage == self.levels else None

    def answers(self, iterate: Iterate) -> tuple[Array, ...]:
        """The last point kept, and the start, which a run never does worse than."""
        return iterate.base, iterate.start

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        ends = np.cumsum([stage.commits for stage in self.stages[:-1]])
        stride = FACTOR ** (self.levels - np.searchsorted(ends, read, "right"))
        return exact.rows_of_parts(-(-n_data // stride), self.blocks * self.pieces, part)

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return pair_totals([iterate.memory])
