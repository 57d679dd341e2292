"""Logistic regression of two classes with a Gaussian prior.

Labels y_i = -1 or 1, rows x_i, prior precision `prior`:

    U(theta) = sum_i w_i log(1 + exp(-y_i x_i'theta)) + (prior / 2) |theta|^2
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require
from asyncqn.kernels.losses import LOGISTIC
from asyncqn.models.feature_rows import Loss, Vector
from asyncqn.models.labels import classes_of, places_of
from asyncqn.models.linear_model import LinearModel
from asyncqn.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class LogisticRegression(LinearModel):
    """Logistic regression of two classes with a Gaussian prior.

    Notes
    -----
    With y_i of 0 and 1 for the first and the second label in sorted order, and z_i = x_i'theta,

        U(theta) = sum_i weight_i (log(1 + exp(z_i)) - y_i z_i) + (prior / 2) |coefficients|^2.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> y = X @ np.array([2.0, -1.0, 0.0]) + rng.standard_normal(200) > 0
    >>> run = aq.minimize(aq.LogisticRegression(X, y))
    >>> run.status, len(run.theta), bool(run.theta[0] > 1 and run.theta[1] < -0.5)
    ('converged', 4, True)
    """

    classes: npt.NDArray[Any] = field(init=False, repr=False)
    """The two labels in order; the second is the one whose logarithmic odds are x'theta."""

    kind: ClassVar[str] = "logistic-regression"
    convex: ClassVar[bool] = True
    score_name: ClassVar[str] = "accuracy"

    @property
    def _loss(self) -> Loss:
        return LOGISTIC, 1.0

    @property
    def _typical_weight(self) -> float:
        # The largest second derivative, at z = 0.
        return 0.25

    def _checked_responses(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        classes, numbers = classes_of(y)
        # Labels that are all 1, or all -1 or 0, are those of a part of the rows.
        alone = len(classes) == 1 and y.dtype.kind in "biuf"
        if alone and classes[0] in (-1, 0, 1):
            object.__setattr__(self, "classes", np.array([min(classes[0], 0), 1]))
            return np.where(classes[0] == 1, 1.0, -1.0) * np.ones(len(y))
        require(
            len(classes) == 2,
            f"logistic regression needs labels with two different values, not {len(classes)}: use softmax "
            f"regression for more classes.",
        )
        object.__setattr__(self, "classes", classes)
        return 2.0 * numbers - 1.0

    def log_likelihood(self, theta: npt.NDArray[Any]) -> Vector:
        """Return log p(y_i | theta) of each row, without weights."""
        terms: Vector = -np.logaddexp(0.0, -self.y * self.predictors(theta))
        return terms

    def predicted(self, theta: npt.NDArray[Any], rng: np.random.Generator) -> Vector:
        """Draw a label for each row: 0 for the first class, 1 for the second."""
        return 0.5 * (1.0 + self._drawn(self.predictors(theta), rng))

    def _known(self, y: npt.NDArray[Any]) -> Vector:
        return np.where(places_of(y, self.classes) == 1, 1.0, -1.0)

    def _score(self, z: Vector, y: Vector) -> float:
        return float(((z > 0.0) == (y > 0.0)).mean())

    def noise_variance(self, theta: Array) -> float | None:
        """Return 1: the probability of a label determines its variance."""
        return 1.0

    @classmethod
    def _drawn(cls, z: Vector, rng: np.random.Generator) -> npt.NDArray[Any]:
        return np.where(rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0)
