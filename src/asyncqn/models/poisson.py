"""Poisson regression with a Gaussian prior: counts whose mean is exp(x'theta).

    U(theta) = sum_i w_i [exp(z_i) - y_i z_i - (y_i - y_i log y_i)] + (prior / 2) |theta|^2
    z_i = x_i'theta + offset_i

This is -log p minus its value for a perfect fit, which is half the deviance, plus the prior.
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

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_data, n_features)
        The rows, one per data point; NumPy, pandas, polars or SciPy. float32 is kept, and is then the type
        of theta.
    y : array-like of shape (n_data,)
        The counts, or other numbers that are not negative.
    prior : float, default 1.0
        Precision of the Gaussian prior of the coefficients, in units of curvature; 0 means no prior.
    recipe : dict, optional
        The arguments from which a saved run rebuilds the problem; set by `random` and by readers of files.
    weights : array-like of shape (n_data,), optional
        Weight of each row; without it, all rows weigh 1.
    intercept : bool, default False
        Whether theta ends with an intercept, to which the prior does not apply.
    offset : array-like of shape (n_data,), optional
        Logarithm of each row's exposure, such as its time under observation, which is added to x'theta;
        without it, 0.
    feature_names : sequence of str, optional
        Names of the columns of X; without it, those of a data frame.

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
    >>> run = aq.minimize(aq.PoissonRegression(X, counts, intercept=True))
    >>> run.status, bool(np.abs(run.theta - [0.5, -0.5, 1.0]).max() < 0.1)
    ('converged', True)
    """

    kind: ClassVar[str] = "poisson-regression"
    convex: ClassVar[bool] = True
    score_name: ClassVar[str] = "d2"

    @property
    def _loss(self) -> Loss:
        return POISSON, 1.0

    @property
    def _typical_weight(self) -> float:
        if self.offset is not None:
            # With exposures, y are rates and the weights their exposures.
            return float(np.average(self._y, weights=self._weights)) or 1.0
        return float(self.y.mean()) or 1.0

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
