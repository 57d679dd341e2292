"""H0 from differences of gradients, for problems that say nothing of their curvature.

The Hessian of 20 d rows of a sample takes d + 1 gradients of these rows, so 20 d^2 rows in all.  It is made
symmetric, and its inverse is H0 where it is positive definite; where it is not, or a gradient was not finite,
the pairs go on alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from asyncqn.algorithms.quasi_newton.initial_inverse import Sampled, share_of
from asyncqn.algorithms.quasi_newton.sampled_metric import SampledMetric, scaled
from asyncqn.kernels.gram import cholesky, solve, unpack_lower
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.types import Array, Commit, Potential, Rows

ROWS_PER_NUMBER = 20
"""Rows of the Hessian, for every number in theta."""
STEPS = {8: 1e-6, 4: 3e-3}
"""The difference in a number of theta, as a share of it or of 1, by the bytes of a number."""


@dataclass
class DifferencedHessian(SampledMetric):
    """H0 = the inverse Hessian of a sample, by differences of gradients: it needs nothing else."""

    requires: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def _maker(cls, commit: Commit) -> Callable[[Array], Any]:
        return inverse_of_hessian

    @classmethod
    def evaluate(cls, problem: Any, theta: Array, at: Sampled, summary: Array) -> tuple[Array, float, bool]:
        g, value, finite = share_of(problem, theta, at.rows, 1.0)
        if finite and summary.size:
            differences(problem, theta, at.rows[:: stride_of(at.sample, theta.size)], summary)
        return scaled(g, value, finite, at.share, summary)


def stride_of(sample: Any, dim: int) -> Any:
    """Return the stride at which a sample of so many rows gives `ROWS_PER_NUMBER` rows for every number."""
    return np.maximum(1, sample // (ROWS_PER_NUMBER * dim))


def curvature_size(dim: int) -> int:
    """Return the length of a Hessian as it travels: its upper triangle, and whether it is known."""
    return dim * (dim + 1) // 2 + 1


def dim_of(size: int) -> int:
    """Return the inverse of `curvature_size`."""
    return (math.isqrt(8 * (size - 1) + 1) - 1) // 2


def differences(problem: Potential, theta: Array, rows: Rows, packed: Array) -> None:
    """Write the Hessian estimated from `rows`, made symmetric; zeros where a gradient is not finite."""
    d = theta.size
    here, there, H = np.empty_like(theta), np.empty_like(theta), np.empty((d, d))
    problem.grad(theta, rows, here)
    moved = theta.copy()
    for j in range(d):
        moved[j] += theta.dtype.type(STEPS[theta.itemsize] * max(1.0, abs(float(theta[j]))))
        problem.grad(moved, rows, there)
        np.subtract(there, here, out=H[j], dtype=np.float64)
        H[j] /= float(moved[j]) - float(theta[j])
        moved[j] = theta[j]
    packed[:-1] = (0.5 * (H + H.T))[np.triu_indices(d)]
    packed[-1] = 1.0
    if not math.isfinite(sum_of_squares(packed)):
        packed[...] = 0.0


@dataclass(frozen=True, eq=False)
class HessianSolver:
    """H0 v = r * (L L')^-1 (r * v)."""

    roots: Array
    factor: Array

    def apply(self, v: Array, out: Array) -> None:
        """Write H0 v into `out`."""
        scaled = self.roots * v
        solve(self.factor, scaled)
        scaled *= self.roots
        out[...] = scaled


def inverse_of_hessian(packed: Array) -> HessianSolver | None:
    """Return H0 of a Hessian that travelled; None where it is not known or not positive definite."""
    d = dim_of(packed.size)
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
    return HessianSolver(roots, L) if cholesky(L) else None
