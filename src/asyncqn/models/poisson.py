"""Poisson regression with a Gaussian prior: counts whose mean is exp(x'theta).

    U(theta) = sum_i w_i [exp(z_i) - y_i z_i - (y_i - y_i log y_i)] + (prior / 2) |theta|^2
    z_i = x_i'theta + offset_i

which is -log p less the value of a perfect fit: half the deviance, and the prior.
"""

from __future__ import annotations

from dataclasses import dataclass
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

    Rows `X`, `prior`, `weights` and `intercept` as in `LogisticRegression`; `y`: counts, or other numbers
    that are not negative.  offset: the logarithm of each row's exposure, such as its time under observation,
    which is added to x'theta.

    >>> import numpy as np
    >>> import asyncqn as aq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> counts = rng.poisson(np.exp(1.0 + X @ np.array([0.5, -0.5])))
    >>> run = aq.minimize(aq.PoissonRegression(X, counts, intercept=True))
    >>> run.status, bool(np.abs(run.theta - [0.5, -0.5, 1.0]).max() < 0.1)
    ('converged', True)
    """

    kind: ClassVar[str] = "poisson-regression"
    score_name: ClassVar[str] = "d2"

    @property
    def _loss(self) -> Loss:
        return POISSON, 1.0

    @property
    def _typical_weight(self) -> float:
        if self.offset is not None:
            return float(np.average(self._y, weights=self._weights)) or 1.0
        return float(self.y.mean()) or 1.0

    def _responses(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        require(bool((y >= 0).all()), "counts must not be negative: remove or fix those rows.")
        return y

    def _score(self, z: Vector, y: Vector) -> float:
        return d2(z, y)

    def noise_variance(self, theta: Array) -> float | None:
        """1: a count has the variance that its mean says."""
        return 1.0

    @staticmethod
    def _without_offset(y: Vector, weights: Vector, offset: Vector) -> tuple[Vector, Vector]:
        """exp(o) [exp(z) - (y / exp(o)) z] in the place of exp(z + o) - y z: rates, weighted by exposures."""
        with np.errstate(over="ignore"):
            exposure = np.exp(offset)
        sound = bool(np.isfinite(exposure).all() and (exposure > 0.0).all())
        require(sound, "exp(offset) leaves the range of numbers: an offset is the logarithm of an exposure.")
        return y / exposure, weights * exposure if weights.size else exposure

    @classmethod
    def _drawn(cls, z: Vector, rng: np.random.Generator) -> npt.NDArray[Any]:
        return rng.poisson(np.exp(np.minimum(0.5 * z, 20.0)))
