"""Rows that a fit has not seen, and the quality of their prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.models.feature_rows import DenseRows, SparseRows, Vector


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows and responses that were held out of a problem, to be predicted."""

    rows: DenseRows | SparseRows
    y: Vector
    """Responses as the loss takes them; a class that the problem does not know is -1."""
    offset: Vector | None = None

    def predictors(self, theta: npt.NDArray[Any], outputs: int) -> Vector:
        """Return x'theta + intercept + offset of each row, with a column for each of several classes."""
        d = self.rows.shape[1]
        by_class = np.asarray(theta, np.float64).reshape(outputs, -1)
        # `rest` is the intercept, or empty.
        slopes, rest = by_class[:, :d], by_class[:, d:]
        if isinstance(self.rows, DenseRows):
            # einsum without optimisation does not call BLAS, so scores have the same bits everywhere.
            z = np.einsum("ij,kj->ik", self.rows.X, slopes)
        else:
            z = np.asarray(self.rows.matrix @ slopes.T)
        if rest.shape[1]:
            z = z + rest[:, 0]
        if self.offset is not None:
            z = z + self.offset[:, None]
        return np.asarray(z if outputs > 1 else z[:, 0])


def r2(z: Vector, y: Vector) -> float:
    """Return the share of the squares around the mean that the predictor explains."""
    residual = float(np.square(y - z).sum())
    return _explained(residual, float(np.square(y - y.mean()).sum()))


def d2(z: Vector, y: Vector) -> float:
    """Return the share of the Poisson deviance that the predictor explains."""
    # Counts that are all 0 leave nothing to explain.
    if not y.any():
        return float("nan")
    means = np.exp(z), np.full(len(y), y.mean())
    # y log y is 0 at y = 0, where the logarithm itself is not finite.
    logs = [np.log(np.where(y > 0.0, y / mean, 1.0)) for mean in means]
    deviances = [(y * log - y + mean).sum() for log, mean in zip(logs, means)]
    return _explained(float(deviances[0]), float(deviances[1]))


def _explained(rest: float, whole: float) -> float:
    # Responses that are all equal leave nothing to explain.
    return 1.0 - rest / whole if whole > 0.0 else float("nan")
