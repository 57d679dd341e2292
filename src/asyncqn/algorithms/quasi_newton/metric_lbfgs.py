"""Metric L-BFGS: growing samples and then all rows, in a metric that the problem's own curvature makes.

The plan is `samples`: one row of every 4^J, ..., 64, 16 consecutive ones, then all rows (no n / 4: it costs a
quarter of a pass per version and brings less than that).  With every update of some versions comes a summary
of the curvature, which adds up over the rows as the gradient does and of which H0 is made (`SampledMetric`).

When the sample grows, H0 is made anew and pairs are forgotten: over an H0 that is nearly right, those of a
smaller sample do harm.  The timetable is fixed beforehand, so that schedules do not depend on the numbers
computed:

- The first sample serves `versions` versions and asks for a summary at those of `renewals`.
- Each further sample serves three versions, with a summary at the first.
- All rows serve as many versions as it takes, with a summary at those of `last_renewals` and at every
  sixteenth.

A trial is judged by `algorithms.safeguard`, and its summary is used only where it is accepted.

The timetable and the constants are our own; sums of a subsample in the place of the Hessian are those of
subsampled Newton methods (Byrd, Chin, Neveitt and Nocedal 2011; Erdogdu and Montanari 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self

import msgspec
import numpy as np

from asyncqn.algorithms.pair_memory import RecursiveMemory
from asyncqn.algorithms.parameters import (
    BackupAfter,
    Blocks,
    CurvatureSize,
    PairedMemorySize,
    Pieces,
)
from asyncqn.algorithms.quasi_newton.composition import GROWING_EVALUATE, QuasiNewton
from asyncqn.algorithms.quasi_newton.initial_inverse import (
    SUMMARIES,
    Evaluated,
    Sampled,
    ScalarInverse,
    Updates,
)
from asyncqn.algorithms.quasi_newton.samples import GROWTH, Sample, Samples
from asyncqn.errors import require
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Problem, extra

Versions = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
LATER_VERSIONS = 3
"""Versions on each sample but the first."""
RENEWAL_PERIOD = 16
"""Versions on all rows between two summaries."""


class Summary(NamedTuple):
    """The state of `SampledMetric`."""

    summary: Array
    """What H0 is made of; its last entry is 0 where there is none."""


@dataclass
class SampledMetric(ScalarInverse):
    """H0 of the newest summary that came with an accepted point, which the coordinator applies.

    `inverse_metric_from(summary)` of the problem makes H0 of a summary.  H0 may change under the pairs, which
    are stored as (s, y).  While there is no summary, H0 = (s'y / y'y) I of the newest pair.

    Parameters
    ----------
    fresh : array or None
        The summary at the trial under way, used from the moment that the trial is accepted.
    make : callable
        Makes of a summary an object with `apply(v, out)`, or None where the summary is no good.
    """

    state: Summary
    fresh: Array | None
    make: Callable[[Array], Any]

    # Without `sampled_metric` the summary of a sample would not serve for all rows: `StructuredMetric` is for
    # those problems.
    requires = (*SUMMARIES, "sampled_metric")

    @classmethod
    def empty(cls, theta0: Array, summary_size: int) -> Summary:
        # In float64 whatever the precision of theta, because the coordinator factorizes it.
        return Summary(np.zeros(summary_size))

    @classmethod
    def for_commit(
        cls, state: Any, updates: Updates, summary: Array | None, commit: Commit
    ) -> Self:
        # The coordinator's copy of the problem's function remembers its last result, so that H0 is factorized
        # once per summary and not at every product.
        make = commit.inverse_metric_from
        assert make is not None
        # Tested here, because a summary of which no H0 can be made must not replace one that works.
        return cls(
            state, None if summary is None or make(summary) is None else summary, make
        )

    @classmethod
    def evaluate(
        cls, problem: Any, theta: Array, at: Sampled, summary: Array
    ) -> Evaluated:
        g = np.empty_like(theta)
        value = float(
            problem.grad_with_curvature(theta, at.rows, g, summary, at.sample)
        )
        # One test for all three: whichever is infinite or NaN, so is the sum.
        finite = math.isfinite(value + sum_of_squares(g) + sum_of_squares(summary))
        return scaled(g, value, finite, at.share, summary)

    @property
    def _from_summary(self) -> bool:
        # The last entry counts rows, so that 0 means that there is none.
        return bool(self.state.summary[-1] > 0.0)

    def known(self, memory: RecursiveMemory) -> bool:
        return self._from_summary or memory.stored > 0

    def apply(self, memory: RecursiveMemory, v: Array) -> None:
        if not self._from_summary:
            super().apply(memory, v)
            return
        # Into a second array, because a problem's `apply(v, out)` need not allow `out` to be v.
        image = np.empty_like(v)
        self.make(self.state.summary).apply(v, image)
        v[...] = image

    def accept(self, memory: RecursiveMemory) -> None:
        # Not earlier: the summary belongs to the trial, and after a failure the base needs its own H0.
        if self.fresh is not None:
            self.state.summary[...] = self.fresh

    def grow(self, memory: RecursiveMemory) -> None:
        """Remove the pairs: over an H0 that is nearly right, those of a smaller sample do harm."""
        # Without an H0 of summaries the pairs are all that is known, and they stay, as in `GrowingLBFGS`.
        if self.fresh is not None or self._from_summary:
            memory.forget()

    def forget(self, memory: RecursiveMemory) -> None:
        # H0 may have been at fault; until the next summary the pairs build on a scalar.
        self.state.summary[...] = 0.0


def scaled(
    g: Array, value: float, finite: bool, share: float, summary: Array
) -> Evaluated:
    """Return a share of what a worker found, zeros where it is not finite; scale the summary in place."""
    if not finite:  # the coordinator must hear of it, to turn back
        g[...], summary[...], value = 0.0, 0.0, 0.0
    g *= g.dtype.type(share)
    summary *= share
    return g, share * value, finite


@dataclass(frozen=True)
class MetricLBFGS(QuasiNewton):
    """L-BFGS in the metric of the problem's own curvature, on growing samples; it has no step size.

    Parameters
    ----------
    blocks : int
        Number of blocks into which the rows are cut; best is the number of workers.
    curvature : int
        The problem's `curvature_size`: length of the summary of curvature that comes with a gradient.
    samples : int, default 0
        Number of samples before all rows are used.
    versions : int, default 12
        Number of versions that the first sample serves.
    renewals : sequence of int, default (0, 1, 2, 3, 4, 6, 8, 10)
        Versions of the first sample that renew the metric.
    last_renewals : sequence of int, default (0, 2)
        Versions on all rows that renew the metric.
    memory : int, default 20
        M: largest number of curvature pairs in the memory.
    pieces : int, default 1
        Number of pieces into which each block is cut, so that idle workers can help with a slow block.
        Every piece costs one update of theta's length.
    backup_after : float, optional
        Idle workers receive a block, too, once it is this many times later than usual; infinity means
        never. By default as in `BlockLBFGS`.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LogisticRegression.random(n_data=20_000, dim=5, seed=0)
    >>> algorithm = aq.MetricLBFGS(blocks=4, curvature=problem.curvature_size, samples=1)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, run.passes < 9
    ('converged', True)
    """

    blocks: Blocks
    curvature: CurvatureSize
    # The largest stride is 4^(samples + 1), that of 15 levels of `GrowingLBFGS`.
    samples: Annotated[int, parameter(ge=0, le=14)] = 0
    versions: Annotated[int, parameter(ge=2, le=2**31 - 1)] = 12
    renewals: Versions = (
        *(0, 1, 2, 3, 4),
        *(6, 8, 10),
    )
    last_renewals: Versions = (0, 2)
    memory: PairedMemorySize = 20
    pieces: Pieces = 1
    backup_after: BackupAfter | None = None

    evaluate_every = GROWING_EVALUATE
    initial_inverse = SampledMetric

    @classmethod
    def example(cls, problem: Problem) -> MetricLBFGS:
        """Small parameters that run on any problem with a sampled metric, for tests."""
        return cls(
            # The first sample, one row of 16, must have a row for every block.
            blocks=min(3, max(1, problem.n_data // GROWTH**2)),
            curvature=extra(problem, "curvature_size"),
            samples=1,
            versions=4,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Pairs are forgotten when a sample begins, so that it must begin with a new H0.
        for name in ("renewals", "last_renewals"):
            versions = getattr(self, name)
            require(
                0 in versions,
                f"{name} must be versions, one of them 0, not {versions!r}.",
            )

    @cached_property
    def plan(self) -> Samples:
        # 4^(J + 1), ..., 64, 16: one row of four is left out.
        strides = [GROWTH ** (j + 1) for j in range(self.samples, 0, -1)]
        growing = [Sample(stride, LATER_VERSIONS, (0,)) for stride in strides]
        # Slices, because there may be no sample before all rows.
        growing[:1] = [
            first._replace(commits=self.versions, renewals=self.renewals)
            for first in growing[:1]
        ]
        # Where no sample comes first, all rows take its place and its renewals, too.
        last = self.last_renewals if growing else (*self.last_renewals, *self.renewals)
        fewer = "use fewer samples or blocks."
        samples = (*growing, Sample(renewals=last, period=RENEWAL_PERIOD))
        return Samples(samples, self.blocks, self.pieces, self.backup_after, fewer)


MIN_SAMPLE, ROWS_PER_NUMBER, ROWS_PER_WORKER = 1000, 10, 100
"""Rows that the first sample has at least: in all, for every number in theta, and for every worker."""
MAX_DIM_FOR_RENEWALS = 300
"""Largest length of theta at which H0 is renewed often: beyond it a summary costs more than the versions it
saves."""


def samples_before_all(n: int, dim: int, workers: int) -> int:
    """Return the largest number of samples that leaves the first one enough rows."""
    least = max(MIN_SAMPLE, ROWS_PER_NUMBER * dim, ROWS_PER_WORKER * workers)
    samples = 0
    # One sample more would have the stride 4^(samples + 2), as `plan` begins with 16 and not with 4.
    while n // GROWTH ** (samples + 2) >= least:
        samples += 1
    return samples


def default_metric_algorithm(problem: Any, workers: int, pieces: int) -> MetricLBFGS:
    """The rule for a problem with a sampled metric and W workers, nothing else given.

    As many samples as leave the first one enough rows; none where the summary is at most twice as long as
    theta, which is then so long that H0 is a diagonal for most of it: samples of rows with rare features do
    not pay there.
    """
    n, dim, size = int(problem.n_data), int(problem.dim), int(problem.curvature_size)
    samples = samples_before_all(n, dim, workers) if size > 2 * dim else 0
    algorithm = MetricLBFGS(min(workers, n), size, samples, pieces=pieces)
    if size <= 2 * dim:
        return replace(
            algorithm, renewals=(0,)
        )  # there is no first sample: those of all rows alone
    if dim <= MAX_DIM_FOR_RENEWALS:
        return algorithm
    # The matrix of a summary costs d^2 operations per row of S, a gradient d: one summary for each sample.
    return replace(algorithm, versions=8, renewals=(0,), last_renewals=(0,))
