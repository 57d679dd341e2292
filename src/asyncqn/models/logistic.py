"""Logistic regression of two classes with a Gaussian prior.

Labels y_i = -1 or 1, rows x_i, prior precision `prior`:

    U(theta) = sum_i w_i log(1 + exp(-y_i x_i'theta)) + (prior / 2) |theta|^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require
from asyncqn.kernels.losses import LOGISTIC
from asyncqn.models.feature_rows import Loss, Vector
from asyncqn.models.linear_model import LinearModel
from asyncqn.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class LogisticRegression(LinearModel):
    """Logistic regression of two classes with a Gaussian prior.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_data, n_features)
        The rows, one per data point; NumPy, pandas, polars or SciPy. float32 is kept, and is then the type
        of theta.
    y : array-like of shape (n_data,)
        The labels: 0 and 1, -1 and 1, booleans.
    prior : float, default 1.0
        Precision of the Gaussian prior of the coefficients, in units of curvature; 0 means no prior.
    recipe : dict, optional
        The arguments from which a saved run rebuilds the problem; set by `random` and by readers of files.
    weights : array-like of shape (n_data,), optional
        Weight of each row; without it, all rows weigh 1.
    intercept : bool, default False
        Whether theta ends with an intercept, to which the prior does not apply.
    offset : array-like of shape (n_data,), optional
        Not supported; it must be None.
    feature_names : sequence of str, optional
        Names of the columns of X; without it, those of a data frame.

    Notes
    -----
    With labels y_i of 0 and 1 and z_i = x_i'theta,

        U(theta) = sum_i weight_i (log(1 + exp(z_i)) - y_i z_i) + (prior / 2) |coefficients|^2.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> y = X @ np.array([2.0, -1.0, 0.0]) + rng.standard_normal(200) > 0
    >>> run = aq.minimize(aq.LogisticRegression(X, y, intercept=True))
    >>> run.status, len(run.theta), bool(run.theta[0] > 1 and run.theta[1] < -0.5)
    ('converged', 4, True)
    """

    kind: ClassVar[str] = "logistic-regression"
    convex: ClassVar[bool] = True
    score_name: ClassVar[str] = "accuracy"
    _numbers_wanted: ClassVar[str] = "map your labels to 0 and 1."

    @property
    def _loss(self) -> Loss:
        return LOGISTIC, 1.0

    @property
    def _typical_weight(self) -> float:
        # The largest second derivative, at z = 0.
        return 0.25

    def _responses(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # Labels that are all 1 satisfy both; they stay as they are.
        signs = bool(np.isin(y, (-1, 1)).all())
        bits = bool(np.isin(y, (0, 1)).all())
        require(
            signs or bits,
            "labels must all be 0 or 1, or all be -1 or 1: map yours to these.",
        )
        return y if signs else np.where(y == 1, 1.0, -1.0)

    @classmethod
    def _labels(cls, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Map two labels of any type to 0 and 1; the second in sorted order is 1."""
        classes = np.unique(y)
        require(
            len(classes) == 2,
            f"logistic regression needs labels with two different values, not {len(classes)}: use "
            f"softmax-regression for more classes.",
        )
        return np.where(y == classes[1], 1.0, 0.0)

    def _score(self, z: Vector, y: Vector) -> float:
        return float(((z > 0.0) == (y > 0.0)).mean())

    def noise_variance(self, theta: Array) -> float | None:
        """Return 1: the probability of a label determines its variance."""
        return 1.0

    @classmethod
    def _drawn(cls, z: Vector, rng: np.random.Generator) -> npt.NDArray[Any]:
        return np.where(rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0)
