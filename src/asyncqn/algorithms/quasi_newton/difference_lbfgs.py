"""Difference L-BFGS: growing samples and an H0 from differences of gradients where they cost a pass at most.

For problems that say nothing of their curvature.  The samples are those of `MetricLBFGS`.  On the smaller
ones this is L-BFGS, `versions` versions on each, pairs kept when the sample grows.  With the first version on
one row of 16, and again on all rows, comes the Hessian of 20 d rows of the sample: d + 1 gradients of these
rows, so 20 d^2 rows in all, made symmetric.  Where it is positive definite, its inverse is the H0 of
everything that follows and pairs are forgotten, as in `MetricLBFGS`; where it is not, or a gradient was not
finite, L-BFGS continues.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from asyncqn.algorithms.parameters import BackupAfter, Blocks, CurvatureSize, PairedMemorySize, Pieces
from asyncqn.algorithms.quasi_newton.composition import GROWING_EVALUATE, QuasiNewton
from asyncqn.algorithms.quasi_newton.initial_inverse import Evaluated, Sampled, share_of
from asyncqn.algorithms.quasi_newton.metric_lbfgs import (
    LATER_VERSIONS,
    MetricLBFGS,
    SampledMetric,
    Versions,
    samples_before_all,
    scaled,
)
from asyncqn.algorithms.quasi_newton.samples import GROWTH, Sample, Samples
from asyncqn.errors import require
from asyncqn.kernels.gram import cholesky, solve, unpack_lower
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Counters, Problem, Rows

ROWS_PER_NUMBER = 20
"""Rows of the Hessian, for every number in theta."""
# Forward differences err by the third derivatives of U times the step, and by the rounding of a gradient
# divided by the step.  Both steps exceed the square root of eps (1.5e-8 and 3.5e-4), which suits a gradient
# that is exact to the last digit: a sum over rows is not.
STEPS = {8: 1e-6, 4: 3e-3}
"""The difference in a number of theta, as a share of it or of 1, by the bytes of a number."""


@dataclass
class DifferencedHessian(SampledMetric):
    """H0 = the inverse Hessian of a sample, by differences of gradients: it needs nothing else."""

    # `SampledMetric` requires extras of the problem; here the coordinator inverts the Hessian by itself.
    requires = ()

    @classmethod
    def check(cls, problem: Any, summary_size: int) -> None:
        # The length is a parameter all the same, because updates and state are sized by the method alone.
        size = curvature_size(problem.dim)
        require(size == summary_size, f"curvature must be {size} for this theta, not {summary_size}.")

    @classmethod
    def _maker(cls, commit: Commit) -> Callable[[Array], Any]:
        # Not remembered as the problem's own function is: every product with H0 factorizes again.  Where the
        # rule at the end of this file applies, d^3 / 3 operations are few beside the n d of a pass.
        return inverse_of_hessian

    @classmethod
    def evaluate(cls, problem: Any, theta: Array, at: Sampled, summary: Array) -> Evaluated:
        # Share 1, because `scaled` below multiplies gradient, U and summary by the share.
        g, value, finite = share_of(problem, theta, at.rows, 1.0)
        # Every part thins its own rows by the same stride.  As that is rounded down, all parts together use
        # from 20 d to about 40 d rows, or the whole sample where it has fewer.
        if finite and summary.size:
            differences(problem, theta, at.rows[:: stride_of(at.sample, theta.size)], summary)
        return scaled(g, value, finite, at.share, summary)


def stride_of(sample: Any, dim: int) -> Any:
    """Return the stride at which a sample of so many rows gives `ROWS_PER_NUMBER` rows for every number."""
    # `np.maximum`, because `rows_of` passes an array with one sample size per computation.
    return np.maximum(1, sample // (ROWS_PER_NUMBER * dim))


def curvature_size(dim: int) -> int:
    """Return the length of a Hessian as it travels: its upper triangle, and whether it is known."""
    return dim * (dim + 1) // 2 + 1


def dim_of(size: int) -> int:
    """Return the inverse of `curvature_size`."""
    # The root of d^2 + d = 2 (size - 1), in integers, so that no rounding can change d.
    return (math.isqrt(8 * (size - 1) + 1) - 1) // 2


def differences(problem: Problem, theta: Array, rows: Rows, packed: Array) -> None:
    """Write the Hessian estimated from `rows`, made symmetric; zeros where a gradient is not finite."""
    d = theta.size
    here, there, H = np.empty_like(theta), np.empty_like(theta), np.empty((d, d))
    # Not the gradient that `evaluate` has: a difference must be of the same rows at both points.
    problem.grad(theta, rows, here)
    moved = theta.copy()
    for j in range(d):
        moved[j] += theta.dtype.type(STEPS[theta.itemsize] * max(1.0, abs(float(theta[j]))))
        problem.grad(moved, rows, there)
        # Both differences in float64, also where theta is float32: subtraction must not round a second time.
        np.subtract(there, here, out=H[j], dtype=np.float64)
        # By the step that theta could represent, not the one that was asked for.
        H[j] /= float(moved[j]) - float(theta[j])
        # Copied back: subtracting the step would leave a rounding error in every later difference.
        moved[j] = theta[j]
    # Row by row, as `unpack_lower` reads it.
    packed[:-1] = (0.5 * (H + H.T))[np.triu_indices(d)]
    # A worker scales this 1 by its share: the sum over all parts is 1 only if every one knows its Hessian.
    packed[-1] = 1.0
    if not math.isfinite(sum_of_squares(packed)):
        packed[...] = 0.0


@dataclass(frozen=True, eq=False)
class HessianSolver:
    """H0 v = r * (L L')^-1 (r * v)."""

    roots: Array
    """Shape (d,): r, one over the square roots of the Hessian's diagonal."""
    factor: Array
    """Shape (d, d): L, in the lower triangle, of the Hessian scaled to a diagonal of ones."""

    def apply(self, v: Array, out: Array) -> None:
        """Write H0 v into `out`."""
        # In float64, which `roots` has, whatever the precision of v.
        scaled = self.roots * v
        solve(self.factor, scaled)
        scaled *= self.roots
        out[...] = scaled


def inverse_of_hessian(packed: Array) -> HessianSolver | None:
    """Return H0 of a Hessian that travelled; None where it is not known or not positive definite."""
    d = dim_of(packed.size)
    # Less than 1 by a part's share where that part met a gradient that was not finite; 1e-9 allows for the
    # rounding of the sum of shares, and is far less than the share of a part.
    if not packed[-1] > 1.0 - 1e-9:
        return None
    L = np.zeros((d, d))
    unpack_lower(packed[:-1], L)
    diagonal = L.diagonal().copy()
    # Before the square roots, which would give NaN.
    if not bool((diagonal > 0.0).all()):
        return None
    roots = 1.0 / np.sqrt(diagonal)
    # A diagonal of ones: the test for positive definiteness then does not depend on the units of theta.
    L *= roots[:, None]
    L *= roots
    return HessianSolver(roots, L) if cholesky(L) else None


@dataclass(frozen=True)
class DifferenceLBFGS(QuasiNewton):
    """L-BFGS on growing samples, then in the metric of a sampled Hessian; it needs gradients alone.

    Parameters
    ----------
    blocks : int
        Number of blocks into which the rows are cut; best is the number of workers.
    curvature : int
        Length of the summary of curvature: d (d + 1) / 2 + 1 for d numbers in theta.
    samples : int, default 1
        Number of samples before all rows are used.
    versions : int, default 20
        Number of versions that each sample of less than one row in 16 serves.
    renewals : sequence of int, default (0, 1, 2, 3, 4, 6, 8, 10)
        Has no effect; saved runs name it.
    last_renewals : sequence of int, default (0, 2)
        Has no effect; saved runs name it.
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
    >>> problem = aq.LogisticRegression.random(n_data=20_000, dim=5, condition=100, seed=0)
    >>> algorithm = aq.DifferenceLBFGS(blocks=4, curvature=16, samples=2)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, run.passes < 9
    ('converged', True)
    """

    blocks: Blocks
    curvature: CurvatureSize
    # The largest stride is 4^(samples + 1), so that 14 means the same limit as 15 levels of `GrowingLBFGS`.
    samples: Annotated[int, parameter("How many samples come before all rows", ge=1, le=14)] = 1
    versions: Annotated[
        int, parameter("How many versions each sample of less than one row in 16 serves", ge=2, le=2**31 - 1)
    ] = 20
    # Both are accepted and ignored, because parameters of saved runs are read by name.
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
    def example(cls, problem: Problem) -> DifferenceLBFGS:
        """Small parameters that run on any problem, for tests."""
        blocks = min(3, max(1, problem.n_data // GROWTH**2))
        return cls(blocks, curvature_size(problem.dim), samples=1, versions=4)

    @cached_property
    def plan(self) -> Samples:
        # 4^(J + 1), ..., 64, 16, as in `MetricLBFGS`: a sample of one row in four costs too much.
        strides = [GROWTH ** (j + 1) for j in range(self.samples, 0, -1)]
        growing = [Sample(stride, self.versions) for stride in strides[:-1]]
        # With a Hessian for H0 a sample serves no more versions than the later ones of `MetricLBFGS` do.
        last = Sample(strides[-1], LATER_VERSIONS, (0,))
        samples, fewer = (*growing, last, Sample(renewals=(0,))), "use fewer samples or blocks."
        return Samples(samples, self.blocks, self.pieces, self.backup_after, fewer)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        rows, dim = super().rows_of(n_data, read, part), dim_of(self.curvature)
        # Beside the gradient of its rows, a computation with a Hessian takes d + 1 gradients of every
        # `taken`-th row: one at theta, and one at each of the d moved points.
        asked = np.array([self.plan.asks(int(version)) for version in read], bool)
        taken = stride_of(self.plan.sample_sizes(n_data, read), dim)
        # The length of rows[::taken], rounded up.
        more: Rows = rows + asked * (dim + 1) * -(-rows // taken)
        return more


def default_difference_algorithm(problem: Problem, workers: int, pieces: int) -> DifferenceLBFGS | None:
    """The rule for a problem without curvature: where 20 d^2 rows are a pass at most; None where not."""
    n, dim = problem.n_data, problem.dim
    samples = samples_before_all(n, dim, workers)
    # `DifferenceLBFGS` has at least one sample, that of one row in 16.
    if samples == 0 or ROWS_PER_NUMBER * dim * dim > n:
        return None
    return DifferenceLBFGS(min(workers, n), curvature_size(dim), samples, pieces=pieces)
