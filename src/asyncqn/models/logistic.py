"""Logistic regression with a Gaussian prior: the model from which users with many rows may start.

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
    """Logistic regression with a Gaussian prior.

    Rows `X` (n_data x n_features, dense or a sparse matrix; float32 is kept, and is theta's type then),
    labels `y` of 0 and 1, -1 and 1 (which they become), or booleans; `prior`: the precision of theta.
    weights: of rows, 1 where not given; intercept: theta has one number more, the last, outside the prior.

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
    score_name: ClassVar[str] = "accuracy"
    _numbers_wanted: ClassVar[str] = "map your labels to 0 and 1."

    @property
    def _loss(self) -> Loss:
        return LOGISTIC, 1.0

    @property
    def _typical_weight(self) -> float:
        return 0.25

    def _responses(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        signs = bool(np.isin(y, (-1, 1)).all())
        bits = bool(np.isin(y, (0, 1)).all())
        require(signs or bits, "labels must be 0 or 1, or all of them -1 or 1: map yours to these.")
        return y if signs else np.where(y == 1, 1.0, -1.0)

    @classmethod
    def _labels(cls, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Two labels of any kind; the second in order is 1."""
        classes = np.unique(y)
        require(
            len(classes) == 2,
            f"logistic regression needs a label of two different values, not of {len(classes)}: "
            f"softmax-regression is for more.",
        )
        return np.where(y == classes[1], 1.0, 0.0)

    def _score(self, z: Vector, y: Vector) -> float:
        return float(((z > 0.0) == (y > 0.0)).mean())

    def noise_variance(self, theta: Array) -> float | None:
        """1: a label has the variance that its probability says."""
        return 1.0

    @classmethod
    def _drawn(cls, z: Vector, rng: np.random.Generator) -> npt.NDArray[Any]:
        return np.where(rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0)
