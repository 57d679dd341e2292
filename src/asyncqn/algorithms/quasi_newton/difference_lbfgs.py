"""Difference L-BFGS: growing samples and an H0 from differences of gradients where they cost a pass at most.

For problems that say nothing of their curvature.  The samples are those of `MetricLBFGS`.  On the smaller
ones this is L-BFGS, `versions` versions on each, pairs kept when the sample grows.  With the first version on
one row of 16, and again on all rows, comes a Hessian (`differenced_hessian`).  Where it is positive definite,
its inverse is the H0 of everything that follows and pairs are forgotten, as in `MetricLBFGS`; where it is
not, L-BFGS goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from asyncqn.algorithms.parameters import BackupAfter, Blocks, CurvatureSize, PairedMemorySize, Pieces
from asyncqn.algorithms.quasi_newton.composition import GROWING_EVALUATE, QuasiNewton
from asyncqn.algorithms.quasi_newton.differenced_hessian import (
    ROWS_PER_NUMBER,
    DifferencedHessian,
    curvature_size,
    dim_of,
    stride_of,
)
from asyncqn.algorithms.quasi_newton.metric_lbfgs import (
    LATER_VERSIONS,
    MetricLBFGS,
    Versions,
    samples_before_all,
)
from asyncqn.algorithms.quasi_newton.samples import GROWTH, Sample, Samples
from asyncqn.errors import require
from asyncqn.parameters import parameter
from asyncqn.types import Counters, Potential, Rows


@dataclass(frozen=True)
class DifferenceLBFGS(QuasiNewton):
    """L-BFGS on growing samples, then in the metric of a sampled Hessian; it needs gradients alone.

    The parameters of `MetricLBFGS`; curvature: d (d + 1) / 2 + 1 for d numbers in theta; versions: on each
    sample of less than one row in 16.  renewals and last_renewals have no effect: saved runs name them.

    >>> import asyncqn as aq
    >>> problem = aq.LogisticRegression.random(n_data=20_000, dim=5, condition=100, seed=0)
    >>> algorithm = aq.DifferenceLBFGS(blocks=4, curvature=16, samples=2)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, run.passes < 9
    ('converged', True)
    """

    blocks: Blocks
    curvature: CurvatureSize
    samples: Annotated[int, parameter("How many samples come before all rows", ge=1, le=14)] = 1
    versions: Annotated[
        int, parameter("How many versions each sample of less than one row in 16 serves", ge=2, le=2**31 - 1)
    ] = 20
    renewals: Annotated[Versions, parameter("Of no effect: saved runs name it")] = MetricLBFGS.renewals
    last_renewals: Annotated[Versions, parameter("Of no effect: saved runs name it")] = (
        MetricLBFGS.last_renewals
    )
    memory: PairedMemorySize = 20
    pieces: Pieces = 1
    backup_after: BackupAfter | None = None

    evaluate_every = GROWING_EVALUATE
    initial_inverse = DifferencedHessian

    @classmethod
    def example(cls, potential: Potential) -> DifferenceLBFGS:
        """Small parameters that run on any potential, for tests."""
        blocks = min(3, max(1, potential.n_data // GROWTH**2))
        return cls(blocks, curvature_size(potential.dim), samples=1, versions=4)

    @property
    def summary_size(self) -> int:
        return self.curvature

    @cached_property
    def plan(self) -> Samples:
        strides = [GROWTH ** (j + 1) for j in range(self.samples, 0, -1)]
        growing = [Sample(stride, self.versions) for stride in strides[:-1]]
        last = Sample(strides[-1], LATER_VERSIONS, (0,))
        fewer = "use fewer samples or blocks."
        return Samples(
            (*growing, last, Sample(renewals=(0,))), self.blocks, self.pieces, self.backup_after, fewer
        )

    def check(self, problem: Potential) -> None:
        size = curvature_size(problem.dim)
        require(size == self.curvature, f"curvature must be {size} for this theta, not {self.curvature}.")
        super().check(problem)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        rows, dim = super().rows_of(n_data, read, part), dim_of(self.curvature)
        asked = np.array([self.plan.asks(int(version)) for version in read], bool)
        taken = stride_of(self.plan.sample_sizes(n_data, read), dim)
        more: Rows = rows + asked * (dim + 1) * -(-rows // taken)
        return more


def default_difference_algorithm(potential: Potential, workers: int, pieces: int) -> DifferenceLBFGS | None:
    """The rule for a potential without curvature: where 20 d^2 rows are a pass at most; None where not."""
    n, dim = potential.n_data, potential.dim
    samples = samples_before_all(n, dim, workers)
    if samples == 0 or ROWS_PER_NUMBER * dim * dim > n:
        return None
    return DifferenceLBFGS(min(workers, n), curvature_size(dim), samples, pieces=pieces)
