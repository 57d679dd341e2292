"""Robust regression with a Gaussian prior: squares for small residuals, absolute values for outliers.

The loss is the smooth form of Huber's, with r = x'theta - y:

    loss(r) = width^2 (sqrt(1 + (r / width)^2) - 1),   about r^2 / 2 below width, width |r| above it

It has a second derivative everywhere, unlike Huber's own loss at |r| = width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from asyncqn.kernels.losses import ROBUST
from asyncqn.models.feature_rows import Loss, Vector
from asyncqn.models.linear_model import LinearModel
from asyncqn.parameters import parameter


@dataclass(frozen=True, eq=False, repr=False)
class RobustRegression(LinearModel):
    """Regression that tolerates outliers: the pseudo-Huber loss of known width, and a Gaussian prior.

    Parameters
    ----------
    width : float, default 1.0
        Residual, in units of y, beyond which the loss grows linearly instead of quadratically.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> y = X @ np.array([2.0, -1.0]) + 0.1 * rng.standard_normal(300)
    >>> y[::10] += 100.0
    >>> run = aq.minimize(aq.RobustRegression(X, y, width=0.3, intercept=False))
    >>> run.status, [round(float(number), 1) for number in run.theta]
    ('converged', [2.0, -1.0])
    """

    width: Annotated[float, parameter(gt=0.0)] = field(default=1.0, kw_only=True)

    kind: ClassVar[str] = "robust-regression"

    @property
    def _chosen(self) -> tuple[str, ...]:
        return (f"width {self.width:g}",)

    @property
    def _loss(self) -> Loss:
        return ROBUST, float(self.width)

    @staticmethod
    def _without_offset(
        y: Vector, weights: Vector, offset: Vector
    ) -> tuple[Vector, Vector]:
        return y - offset, weights

    @classmethod
    def _drawn(cls, z: Vector, rng: np.random.Generator) -> npt.NDArray[Any]:
        # Heavy tails: Student's t with two degrees of freedom has no variance.
        return z + rng.standard_t(2.0, len(z))
