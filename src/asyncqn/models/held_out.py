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
            # The row number of every stored entry; `bincount` then adds the products of each row, without
            # SciPy.
            indptr, indices, data, _ = self.rows.arrays
            row = np.repeat(np.arange(self.rows.shape[0]), np.diff(indptr))
            z = np.stack(
                [
                    np.bincount(row, data * own[indices], self.rows.shape[0])
                    for own in slopes
                ],
                axis=1,
            )
        if rest.shape[1]:
            z = z + rest[:, 0]
        if self.offset is not None:
            z = z + self.offset[:, None]
        return np.asarray(z if outputs > 1 else z[:, 0])


def r2(z: Vector, y: Vector) -> float:
    """Return the share of the squares around the mean that the predictor explains."""
    return _explained(
        float(np.square(y - z).sum()), float(np.square(y - y.mean()).sum())
    )


def d2(z: Vector, y: Vector) -> float:
    """Return the share of the Poisson deviance that the predictor explains."""

    def deviance(mean: Vector) -> float:
        # y log y is 0 at y = 0, where the logarithm itself is not finite.
        logs = np.log(np.where(y > 0.0, y, 1.0) / np.where(y > 0.0, mean, 1.0))
        return float((y * logs - y + mean).sum())

    mean = float(y.mean())
    return _explained(
        deviance(np.exp(z)), deviance(np.full(len(y), mean)) if mean > 0.0 else 0.0
    )


def _explained(left: float, all_of_it: float) -> float:
    # Responses that are all equal leave nothing to explain.
    return 1.0 - left / all_of_it if all_of_it > 0.0 else float("nan")
