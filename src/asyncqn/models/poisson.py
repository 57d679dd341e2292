"""Poisson regression with a Gaussian prior: counts whose mean is exp(x'theta).

    U(theta) = sum_i w_i [exp(z_i) - y_i z_i - (y_i - y_i log y_i)] + (prior / 2) |theta|^2
    z_i = x_i'theta + offset_i

This is -log p minus its value for a perfect fit, which is half the deviance, plus the prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require
from asyncqn.kernels.losses import POISSON
from asyncqn.models.feature_rows import Loss, Vector
from asyncqn.models.held_out import d2
from asyncqn.models.linear_model import LinearModel
from asyncqn.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class PoissonRegression(LinearModel):
    """Poisson regression of counts, with a logarithmic link and a Gaussian prior.

    Notes
    -----
    With z_i = x_i'theta + offset_i,

        U(theta) = sum_i weight_i (exp(z_i) - y_i z_i) + (prior / 2) |coefficients|^2,

    less the minimum of each term over z_i, so that a perfect fit without a prior has U = 0.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> counts = rng.poisson(np.exp(1.0 + X @ np.array([0.5, -0.5])))
    >>> run = aq.minimize(aq.PoissonRegression(X, counts))
    >>> run.status, bool(np.abs(run.theta - [0.5, -0.5, 1.0]).max() < 0.1)
    ('converged', True)
    """

    kind: ClassVar[str] = "poisson-regression"
    convex: ClassVar[bool] = True
    score_name: ClassVar[str] = "d2"

    def log_likelihood(self, theta: npt.NDArray[Any]) -> Vector:
        """Return log p(y_i | theta) of each row, without weights."""
        z = self.predictors(theta)
        factorials = np.array([math.lgamma(y + 1.0) for y in self.y])
        terms: Vector = self.y * z - np.exp(z) - factorials
        return terms

    def predicted(self, theta: npt.NDArray[Any], rng: np.random.Generator) -> Vector:
        """Draw a count for each row."""
        # NumPy draws no counts whose mean is beyond int64.
        mean = np.exp(np.minimum(self.predictors(theta), 40.0))
        return rng.poisson(mean).astype(np.float64)

    @property
    def _loss(self) -> Loss:
        return POISSON, 1.0

    @property
    def _typical_weight(self) -> float:
        if self.offset is not None:
            # With exposures, y are rates and the weights their exposures.
            return float(np.average(self._y, weights=self._weights)) or 1.0
        return self._mean_label or 1.0

    @cached_property
    def _mean_label(self) -> float:
        return float(self.y.mean())

    def _responses(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        require(
            bool((y >= 0).all()),
            "counts must not be negative: remove or fix those rows.",
        )
        return y

    def _score(self, z: Vector, y: Vector) -> float:
        return d2(z, y)

    def noise_variance(self, theta: Array) -> float | None:
        """Return 1: the mean of a count determines its variance."""
        return 1.0

    @staticmethod
    def _without_offset(
        y: Vector, weights: Vector, offset: Vector
    ) -> tuple[Vector, Vector]:
        """Return rates, and exposures as weights: exp(z + o) - y z = exp(o) [exp(z) - (y / exp(o)) z]."""
        with np.errstate(over="ignore"):
            exposure = np.exp(offset)
        sound = bool(np.isfinite(exposure).all() and (exposure > 0.0).all())
        require(
            sound,
            "exp(offset) overflows or is 0: an offset must be the logarithm of an exposure.",
        )
        return y / exposure, weights * exposure if weights.size else exposure

    @classmethod
    def _drawn(cls, z: Vector, rng: np.random.Generator) -> npt.NDArray[Any]:
        # Halved and bounded, so that drawn counts stay moderate.
        return rng.poisson(np.exp(np.minimum(0.5 * z, 20.0)))
