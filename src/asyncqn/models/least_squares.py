"""Least squares with a Gaussian prior (ridge regression), for dense and sparse rows.

U(theta) = sum_i (w_i / 2) (x_i'theta - y_i)^2 + (prior / 2) |theta|^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require
from asyncqn.kernels.losses import SQUARES
from asyncqn.models.feature_rows import Loss, Vector
from asyncqn.models.linear_model import LinearModel
from asyncqn.types import Array

_SMALLEST = 1e-140
"""A response below has a square that vanishes beside rounding, and so has its gradient."""


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquares(LinearModel):
    """Ridge regression: squared residuals with noise of variance 1, and a Gaussian prior.

    Notes
    -----
    U(theta) = sum_i weight_i (x_i'theta + offset_i - y_i)^2 / 2 + (prior / 2) |coefficients|^2.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    >>> run = aq.minimize(aq.LeastSquares(X, np.array([1.0, 4.0, 3.0]), prior=0.0, intercept=False))
    >>> [round(float(number), 6) for number in run.theta]
    [1.0, 2.0]
    """

    kind: ClassVar[str] = "least-squares"
    convex: ClassVar[bool] = True

    @property
    def _loss(self) -> Loss:
        return SQUARES, 1.0

    def _responses(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        largest = float(np.abs(y.astype(np.float64)).max(initial=0.0))
        require(
            largest == 0.0 or _SMALLEST < largest < 1.0 / _SMALLEST,
            f"y is of size {largest:.1e}, whose square is no number of the computer: choose another unit.",
        )
        return y

    def noise_variance(self, theta: Array) -> float | None:
        """Return sum_i w_i r_i^2 / (n - dim), the estimate of the variance of the noise."""
        free = self.n_data - self.dim
        require(
            free > 0,
            f"standard errors need more rows than the {self.dim} coefficients.",
        )
        # U is half the weighted squares and the prior; the prior is taken off again.
        squares = 2.0 * self.value(theta) - self.prior * float(
            np.square(theta[: self.X.shape[1]]).sum()
        )
        return squares / free

    @staticmethod
    def _without_offset(
        y: Vector, weights: Vector, offset: Vector
    ) -> tuple[Vector, Vector]:
        return y - offset, weights

    @classmethod
    def _drawn(cls, z: Vector, rng: np.random.Generator) -> npt.NDArray[Any]:
        return z + rng.standard_normal(len(z))
