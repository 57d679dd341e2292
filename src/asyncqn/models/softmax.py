"""Softmax (multinomial logistic) regression with a Gaussian prior: labels of two or more classes.

    U(theta) = sum_i w_i [log sum_k exp(z_ik) - z_i,y_i] + (prior / 2) |theta|^2,   z_ik = x_i'theta_k

theta holds the numbers of the first class, then those of the second, and so on, each with its intercept last.
The curvature is one matrix for all classes, scaled to the diagonal of each (`sampled_metric`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require
from asyncqn.kernels import gram, softmax_rows
from asyncqn.models.feature_rows import DenseRows, Vector
from asyncqn.models.labels import classes_of, places_of
from asyncqn.models.linear_model import LinearModel
from asyncqn.types import Array, Rows


@dataclass(frozen=True, eq=False, repr=False)
class SoftmaxRegression(LinearModel):
    """Softmax regression of two or more classes with a Gaussian prior.

    Notes
    -----
    `classes` lists the labels in order. `by_class(theta)` has one row of coefficients for each of them, the
    intercept last.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> labels = np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    >>> problem = aq.SoftmaxRegression(X, labels)
    >>> run = aq.minimize(problem)
    >>> theta = problem.by_class(run.theta)
    >>> guess = problem.classes[(X @ theta[:, :2].T + theta[:, 2]).argmax(axis=1)]
    >>> run.status, theta.shape, bool((guess == labels).mean() > 0.9)
    ('converged', (3, 3), True)
    """

    classes: npt.NDArray[Any] = field(init=False, repr=False)

    kind: ClassVar[str] = "softmax-regression"
    convex: ClassVar[bool] = True
    score_name: ClassVar[str] = "accuracy"

    def _checked_responses(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        classes, numbers = classes_of(y)
        require(
            len(classes) >= 2,
            f"all labels are {classes[0]!s}, but there must be at least two classes.",
        )
        object.__setattr__(self, "classes", classes)
        return numbers

    def _known(self, y: npt.NDArray[Any]) -> Vector:
        return places_of(y, self.classes)

    def _score(self, z: Vector, y: Vector) -> float:
        return float((z.argmax(axis=1) == y).mean())

    @property
    def _outputs(self) -> int:
        return len(self.classes)

    @property
    def _typical_weight(self) -> float:
        # p (1 - p) K / (K - 1) of equally likely classes.
        return 1.0 / len(self.classes)

    def by_class(self, theta: Array) -> Array:
        """Return `theta` as a matrix with a row for each of `classes`."""
        require(
            np.size(theta) == self.dim,
            f"theta must hold dim = {self.dim} numbers, not {np.size(theta)}.",
        )
        return np.reshape(theta, (self._outputs, -1))

    def _kernel_sums(
        self, theta: Array, rows: Rows, out: Array, diagonal: Vector
    ) -> tuple[bool, float]:
        result: tuple[bool, float]
        K, D = self._outputs, self._columns
        data = self._rows
        # Views, so that the kernel writes into the caller's arrays; an empty `out` stays empty.
        outputs = out.reshape(-1, D), diagonal.reshape(-1, D)
        sums = (
            (self.y, self._weights, self.prior),
            self.by_class(theta),
            rows,
            *outputs,
        )
        # Without a diagonal its scratch space is empty.
        classes = K if diagonal.size else 0
        if isinstance(data, DenseRows):
            room = np.zeros((K, D)), np.zeros((classes, D)), *self._chances()
            result = softmax_rows.dense_sums(data.X, *sums, room)
        else:
            room = np.zeros((D, K)), np.zeros((D, classes)), *self._chances()
            columns = np.empty((D, K))
            result = softmax_rows.sparse_sums(data.arrays, *sums, columns, room)
        return result

    def _chances(self) -> tuple[Vector, Vector]:
        """Return scratch space for a score and a probability of each class."""
        return np.empty(self._outputs), np.empty(self._outputs)

    def _second_moments(self, theta: Array, rows: Rows, S: Vector) -> None:
        data, D = self._rows, self._columns
        sums = (self.y, self._weights, self.prior), self.by_class(theta), rows, S
        if isinstance(data, DenseRows):
            x, wx = np.empty((2, D, gram.CHUNK), theta.dtype)
            softmax_rows.dense_moments(data.X, *sums, x, wx, self._chances())
        else:
            columns = np.empty((D, self._outputs))
            softmax_rows.sparse_moments(data.arrays, *sums, columns, self._chances())

    @classmethod
    def _drawn(cls, z: Vector, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Draw from three classes with the scores -z, 0 and z."""
        # Scaled by the largest, so that no exponential overflows.
        least = np.exp(-np.abs(z))
        chance = np.cumsum(
            np.stack([np.exp(-z), np.ones_like(z), np.exp(z)]) * least, axis=0
        )
        # Inversion of the cumulative probabilities, not normalised.
        drawn: npt.NDArray[Any] = (rng.random(len(z)) * chance[-1] > chance).sum(axis=0)
        return drawn
