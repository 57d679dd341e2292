"""Metric L-BFGS: growing samples and then all rows, in a metric that the potential's own curvature makes.

Samples hold one row of every 4^J, ..., 64, 16 consecutive ones, then all rows follow (no n / 4: it costs a
quarter of a pass per version and brings less than that).  With every answer of some versions comes a summary
of the curvature, which adds up over the rows as the gradient does; H0 is made of it,

    theta <- base - H g,        H of the last M pairs on top of H0

When the sample grows, H0 is made anew and pairs are forgotten: over an H0 that is nearly right, those of a
smaller sample do harm.  The first sample serves `versions` versions and asks for a summary at those of
`renewals`, the others three with one summary each, all rows as many as it takes, with a summary at the
versions of `last_renewals` and at every sixteenth; all this is fixed beforehand, so that schedules do not
depend on numbers.  A trial is judged by `algorithms.safeguard`, and only where it is kept is its summary
taken up.

The timetable and the constants are our own; sums of a subsample in the place of the Hessian are those of
subsampled Newton methods (Byrd, Chin, Neveitt and Nocedal 2011; Erdogdu and Montanari 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from asyncqn.algorithms.parameters import BackupAfter, Blocks, CurvatureSize, PairedMemorySize, Pieces
from asyncqn.algorithms.quasi_newton.block_lbfgs import BlockLBFGS
from asyncqn.algorithms.quasi_newton.exact_gradients import Worker, whole_sum
from asyncqn.algorithms.quasi_newton.growth import FACTOR, GrowingSamples, Iterate
from asyncqn.algorithms.quasi_newton.pairs_over_metric import PairsOverMetric, empty_memory
from asyncqn.core.stages import Stages, stage_index
from asyncqn.errors import require
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Potential, Rows, Task, extra

Versions = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
LATER = 3
"""Versions on each sample but the first."""
AGAIN = 16
"""Versions on all rows between two summaries."""


class Update(NamedTuple):
    """A piece's share of the gradient, of U and of the summary (zeros where it is not asked for)."""

    g: Array
    value: float
    part: int
    finite: bool
    read: int
    summary: Array


@dataclass(frozen=True)
class MetricLBFGS(GrowingSamples):
    """L-BFGS in the metric of the potential's own curvature, on growing samples; it has no step size.

    blocks, pieces, backup_after, memory: as in `BlockLBFGS`; curvature: the potential's `curvature_size`.

    samples: how many come before all rows; versions, renewals: of the first sample, and last_renewals: of all
    rows, see above.

    >>> import asyncqn as aq
    >>> problem = aq.LogisticRegression.random(n_data=20_000, dim=5, seed=0)
    >>> algorithm = aq.MetricLBFGS(blocks=4, curvature=problem.curvature_size, samples=1)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, run.passes < 9
    ('converged', True)
    """

    blocks: Blocks
    curvature: CurvatureSize
    samples: Annotated[int, parameter("How many samples come before all rows", ge=0, le=14)] = 0
    versions: Annotated[int, parameter("How many versions the first sample serves", ge=2, le=2**31 - 1)] = 12
    renewals: Annotated[Versions, parameter("Versions of the first sample that renew the metric")] = (
        *(0, 1, 2, 3, 4),
        *(6, 8, 10),
    )
    last_renewals: Annotated[Versions, parameter("Versions on all rows that renew the metric")] = (0, 2)
    memory: PairedMemorySize = 20
    pieces: Pieces = 1
    backup_after: BackupAfter | None = None

    requires: ClassVar[tuple[str, ...]] = (
        "curvature_size",
        "grad_with_curvature",
        "inverse_metric_from",
        "sampled_metric",
    )

    @classmethod
    def example(cls, potential: Potential) -> MetricLBFGS:
        """Small parameters that run on any potential with a sampled metric, for tests."""
        return cls(
            blocks=min(3, max(1, potential.n_data // FACTOR**2)),
            curvature=extra(potential, "curvature_size"),
            samples=1,
            versions=4,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("renewals", "last_renewals"):
            versions = getattr(self, name)
            require(0 in versions, f"{name} must be versions, one of them 0, not {versions!r}.")

    def _exact(self) -> BlockLBFGS:
        return BlockLBFGS(self.blocks, self.memory, self.backup_after, pieces=self.pieces)

    def _strides(self) -> list[int]:
        return [FACTOR ** (j + 1) for j in range(self.samples, 0, -1)] + [1]

    @cached_property
    def stages(self) -> Stages:
        (whole,) = self._exact().stages
        samples = [
            replace(whole, share=1.0 / stride, commits=self._versions(j))
            for j, stride in enumerate(self._strides()[:-1])
        ]
        return (*samples, whole)

    def _versions(self, stage: int) -> int:
        """How many a sample serves."""
        return LATER if stage else self.versions

    def _asks(self, read: int) -> bool:
        """Whether the answers on version `read` bring a summary."""
        stages = self.stages
        stage = stage_index(stages, read)
        version = read - sum(before.commits or 0 for before in stages[:stage])
        if stage == self.samples and (version in self.last_renewals or version % AGAIN == 0):
            return True
        return version == 0 or (stage == 0 and version in self.renewals)

    def check(self, potential: Potential) -> None:
        size = extra(potential, "curvature_size")
        require(size == self.curvature, f"curvature must be the potential's {size}, not {self.curvature}.")
        self._check_parts(potential, "samples")

    def init(self, theta0: Array) -> Iterate:
        memory = empty_memory(self.memory, self.curvature, theta0)
        fresh = self._exact().init(theta0)
        return Iterate(*fresh, start=theta0.copy())._replace(memory=memory)

    def step(self, view: Iterate, local: Worker, potential: Any, task: Task) -> Update:
        rows, sample = self._rows(potential.n_data, task)
        g, summary, share = np.empty_like(view.theta), np.zeros(self.curvature), rows.size / sample
        asked = summary if self._asks(task.read) else summary[:0]
        value, finite = self._computed(potential, view.theta, rows, sample, g, asked)
        if not finite:  # the master must hear of it, to turn back
            g[...], asked[...], value = 0.0, 0.0, 0.0
        g *= g.dtype.type(share)
        asked *= share
        assert task.part is not None
        return Update(g, share * value, task.part, finite, task.read, summary)

    def _computed(
        self, potential: Any, theta: Array, rows: Rows, sample: int, g: Array, asked: Array
    ) -> tuple[float, bool]:
        """U, whether all is finite; the gradient and the summary of `rows` are written."""
        value = float(potential.grad_with_curvature(theta, rows, g, asked, sample))
        return value, math.isfinite(value + sum_of_squares(g) + sum_of_squares(asked))

    def _metric(self, commit: Commit) -> Callable[[Array], Any]:
        """What makes H0 of a summary; it may answer None, where the summary is no good."""
        assert commit.inverse_metric_from is not None
        return commit.inverse_metric_from

    def apply(self, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        read = updates[0].read
        at, value = whole_sum(updates, self.blocks * self.pieces)
        metric = self._metric(commit)
        fresh: Array | None = None
        if at is not None and self._asks(read):  # the summary of all parts, in the parts' own order
            summed: Any = sum(update.summary for update in sorted(updates, key=lambda update: update.part))
            fresh = None if metric(summed) is None else summed
        pairs = PairsOverMetric(iterate.memory, fresh, metric)
        return self._judged(iterate, pairs, at, value, read, commit)

    def _forget_at_growth(self, pairs: PairsOverMetric) -> None:
        if pairs.fresh is not None or pairs.known:
            pairs.forget_pairs()


SMALLEST, ROWS_PER_NUMBER, ROWS_PER_WORKER = 1000, 10, 100
"""Rows that the first sample has at least: in all, for every number in theta, and for every worker."""
LONG = 300
"""The length of theta from which a summary costs more than the versions it saves."""


def samples_before_all(n: int, dim: int, workers: int) -> int:
    """As many as leave the first one enough rows."""
    least = max(SMALLEST, ROWS_PER_NUMBER * dim, ROWS_PER_WORKER * workers)
    samples = 0
    while n // FACTOR ** (samples + 2) >= least:
        samples += 1
    return samples


def default_metric_algorithm(potential: Any, workers: int, pieces: int) -> MetricLBFGS:
    """The rule for a potential with a sampled metric and W workers, nothing else given.

    As many samples as leave the first one enough rows; none where the summary is at most twice as long as
    theta, which is then so long that H0 is a diagonal for most of it: samples of rows with rare features do
    not pay there.
    """
    n, dim, size = int(potential.n_data), int(potential.dim), int(potential.curvature_size)
    samples = samples_before_all(n, dim, workers) if size > 2 * dim else 0
    algorithm = MetricLBFGS(min(workers, n), size, samples, pieces=pieces)
    if size <= 2 * dim:
        return replace(algorithm, renewals=(0,))  # there is no first sample: those of all rows alone
    if dim <= LONG:
        return algorithm
    return replace(algorithm, versions=8, renewals=(0,), last_renewals=(0,))
