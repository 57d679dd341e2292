"""Metric L-BFGS: growing samples and then all rows, in a metric that the problem's own curvature makes.

The plan is `samples`: one row of every 4^J, ..., 64, 16 consecutive ones, then all rows (no n / 4: it costs a
quarter of a pass per version and brings less than that).  With every update of some versions comes a summary
of the curvature, of which H0 is made (`sampled_metric`).

When the sample grows, H0 is made anew and pairs are forgotten: over an H0 that is nearly right, those of a
smaller sample do harm.  The first sample serves `versions` versions and asks for a summary at those of
`renewals`, the others three with one summary each, all rows as many as it takes, with a summary at the
versions of `last_renewals` and at every sixteenth; all this is fixed beforehand, so that schedules do not
depend on numbers.  A trial is judged by `algorithms.safeguard`, and its summary is used only where it is
accepted.

The timetable and the constants are our own; sums of a subsample in the place of the Hessian are those of
subsampled Newton methods (Byrd, Chin, Neveitt and Nocedal 2011; Erdogdu and Montanari 2015).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import msgspec

from asyncqn.algorithms.parameters import BackupAfter, Blocks, CurvatureSize, PairedMemorySize, Pieces
from asyncqn.algorithms.quasi_newton.composition import GROWING_EVALUATE, QuasiNewton
from asyncqn.algorithms.quasi_newton.sampled_metric import SampledMetric
from asyncqn.algorithms.quasi_newton.samples import GROWTH, Sample, Samples
from asyncqn.errors import require
from asyncqn.parameters import parameter
from asyncqn.types import Potential, extra

Versions = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
LATER_VERSIONS = 3
"""Versions on each sample but the first."""
RENEWAL_PERIOD = 16
"""Versions on all rows between two summaries."""


@dataclass(frozen=True)
class MetricLBFGS(QuasiNewton):
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

    evaluate_every = GROWING_EVALUATE
    initial_inverse = SampledMetric

    @classmethod
    def example(cls, potential: Potential) -> MetricLBFGS:
        """Small parameters that run on any potential with a sampled metric, for tests."""
        return cls(
            blocks=min(3, max(1, potential.n_data // GROWTH**2)),
            curvature=extra(potential, "curvature_size"),
            samples=1,
            versions=4,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("renewals", "last_renewals"):
            versions = getattr(self, name)
            require(0 in versions, f"{name} must be versions, one of them 0, not {versions!r}.")

    @property
    def summary_size(self) -> int:
        return self.curvature

    @cached_property
    def plan(self) -> Samples:
        strides = [GROWTH ** (j + 1) for j in range(self.samples, 0, -1)]
        growing = [Sample(stride, LATER_VERSIONS, (0,)) for stride in strides]
        growing[:1] = [first._replace(commits=self.versions, renewals=self.renewals) for first in growing[:1]]
        last = self.last_renewals if growing else (*self.last_renewals, *self.renewals)
        fewer = "use fewer samples or blocks."
        samples = (*growing, Sample(renewals=last, period=RENEWAL_PERIOD))
        return Samples(samples, self.blocks, self.pieces, self.backup_after, fewer)

    def check(self, problem: Potential) -> None:
        size = extra(problem, "curvature_size")
        require(size == self.curvature, f"curvature must be the potential's {size}, not {self.curvature}.")
        super().check(problem)


SMALLEST, ROWS_PER_NUMBER, ROWS_PER_WORKER = 1000, 10, 100
"""Rows that the first sample has at least: in all, for every number in theta, and for every worker."""
LONG = 300
"""The length of theta from which a summary costs more than the versions it saves."""


def samples_before_all(n: int, dim: int, workers: int) -> int:
    """As many as leave the first one enough rows."""
    least = max(SMALLEST, ROWS_PER_NUMBER * dim, ROWS_PER_WORKER * workers)
    samples = 0
    while n // GROWTH ** (samples + 2) >= least:
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
