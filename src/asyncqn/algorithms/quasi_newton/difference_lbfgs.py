"""Difference L-BFGS: growing samples and an H0 from differences of gradients where they cost a pass at most.

For potentials that say nothing of their curvature.  The samples are those of `MetricLBFGS`.  On the smaller
ones this is L-BFGS, `versions` versions on each, pairs kept when the sample grows.  With the first version on
one row of 16, and again on all rows, comes the Hessian of 20 d rows of the sample: d + 1 gradients of these
rows, so 20 d^2 rows in all, made symmetric.  Where it is positive definite, it is the H0 of everything that
follows and pairs are forgotten, as in `MetricLBFGS`; where it is not, or a gradient was not finite, L-BFGS
goes on.

    theta <- base - H g,        H of the last M pairs on top of the inverse of the sample's Hessian
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from asyncqn.algorithms.quasi_newton.exact_gradients import share_of
from asyncqn.algorithms.quasi_newton.growth import FACTOR
from asyncqn.algorithms.quasi_newton.metric_lbfgs import LATER, MetricLBFGS, samples_before_all
from asyncqn.core.stages import Stages, stage_index
from asyncqn.errors import require
from asyncqn.kernels.gram import cholesky, solve, unpack_lower
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Counters, Potential, Rows

ROWS_PER_NUMBER = 20
"""Rows of the Hessian, for every number in theta."""
STEPS = {8: 1e-6, 4: 3e-3}
"""The difference in a number of theta, as a share of it or of 1, by the bytes of a number."""


@dataclass(frozen=True)
class DifferenceLBFGS(MetricLBFGS):
    """L-BFGS on growing samples, then in the metric of a sampled Hessian; it needs gradients alone.

    The parameters of `MetricLBFGS`, but for the renewals; curvature: d (d + 1) / 2 + 1 for d numbers in
    theta; versions: on each sample of less than one row in 16.

    >>> import asyncqn as aq
    >>> problem = aq.LogisticRegression.random(n_data=20_000, dim=5, condition=100, seed=0)
    >>> algorithm = aq.DifferenceLBFGS(blocks=4, curvature=16, samples=2)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, run.passes < 9
    ('converged', True)
    """

    samples: Annotated[int, parameter("How many samples come before all rows", ge=1, le=14)] = 1
    versions: Annotated[
        int, parameter("How many versions each sample of less than one row in 16 serves", ge=2, le=2**31 - 1)
    ] = 20

    requires = ()

    @classmethod
    def example(cls, potential: Potential) -> DifferenceLBFGS:
        """Small parameters that run on any potential, for tests."""
        blocks = min(3, max(1, potential.n_data // FACTOR**2))
        return cls(blocks, curvature_size(potential.dim), samples=1, versions=4)

    @property
    def _dim(self) -> int:
        return (math.isqrt(8 * (self.curvature - 1) + 1) - 1) // 2

    def _versions(self, stage: int) -> int:
        return LATER if stage == self.samples - 1 else self.versions

    def _asks(self, read: int) -> bool:
        stages: Stages = self.stages
        firsts = np.cumsum([0, *(stage.commits for stage in stages[:-1])])
        return read in firsts[-2:]

    def check(self, potential: Potential) -> None:
        size = curvature_size(potential.dim)
        require(size == self.curvature, f"curvature must be {size} for this theta, not {self.curvature}.")
        self._check_parts(potential, "samples")

    def _computed(
        self, potential: Any, theta: Array, rows: Rows, sample: int, g: Array, asked: Array
    ) -> tuple[float, bool]:
        g[...], value, finite = share_of(potential, theta, rows, 1.0)
        if finite and asked.size:
            stride = max(1, sample // (ROWS_PER_NUMBER * theta.size))
            differences(potential, theta, rows[::stride], asked)
        return value, finite

    def _metric(self, commit: Commit) -> Callable[[Array], Any]:
        return inverse_of_hessian

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        rows = super().rows_of(n_data, read, part)
        asked = np.array([self._asks(int(version)) for version in read], bool)
        strides = np.array(self._strides())[[stage_index(self.stages, int(version)) for version in read]]
        taken = np.maximum(1, -(-n_data // strides) // (ROWS_PER_NUMBER * self._dim))
        more: Rows = rows + asked * (self._dim + 1) * -(-rows // taken)
        return more


def curvature_size(dim: int) -> int:
    """The length of a Hessian as it travels: its upper triangle, and whether it is known."""
    return dim * (dim + 1) // 2 + 1


def differences(potential: Potential, theta: Array, rows: Rows, packed: Array) -> None:
    """The Hessian estimated from `rows`, made symmetric; zeros where a gradient is not finite."""
    d = theta.size
    here, there, H = np.empty_like(theta), np.empty_like(theta), np.empty((d, d))
    potential.grad(theta, rows, here)
    moved = theta.copy()
    for j in range(d):
        moved[j] += theta.dtype.type(STEPS[theta.itemsize] * max(1.0, abs(float(theta[j]))))
        potential.grad(moved, rows, there)
        np.subtract(there, here, out=H[j], dtype=np.float64)
        H[j] /= float(moved[j]) - float(theta[j])
        moved[j] = theta[j]
    packed[:-1] = (0.5 * (H + H.T))[np.triu_indices(d)]
    packed[-1] = 1.0
    if not math.isfinite(sum_of_squares(packed)):
        packed[...] = 0.0


@dataclass(frozen=True, eq=False)
class InverseHessian:
    """H0 v = r * (L L')^-1 (r * v)."""

    roots: Array
    factor: Array

    def apply(self, v: Array, out: Array) -> None:
        """out = H0 v."""
        scaled = self.roots * v
        solve(self.factor, scaled)
        scaled *= self.roots
        out[...] = scaled


def inverse_of_hessian(packed: Array) -> InverseHessian | None:
    """H0 of a Hessian that travelled; None where it is not known or not positive definite."""
    d = (math.isqrt(8 * (packed.size - 1) + 1) - 1) // 2
    if not packed[-1] > 1.0 - 1e-9:
        return None
    L = np.zeros((d, d))
    unpack_lower(packed[:-1], L)
    diagonal = L.diagonal().copy()
    if not bool((diagonal > 0.0).all()):
        return None
    roots = 1.0 / np.sqrt(diagonal)
    L *= roots[:, None]
    L *= roots
    return InverseHessian(roots, L) if cholesky(L) else None


def default_difference_algorithm(potential: Potential, workers: int, pieces: int) -> DifferenceLBFGS | None:
    """The rule for a potential without curvature: where 20 d^2 rows are a pass at most; None where not."""
    n, dim = potential.n_data, potential.dim
    samples = samples_before_all(n, dim, workers)
    if samples == 0 or ROWS_PER_NUMBER * dim * dim > n:
        return None
    return DifferenceLBFGS(min(workers, n), curvature_size(dim), samples, pieces=pieces)
