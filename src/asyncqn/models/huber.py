"""Huber regression with an estimated scale: outliers are recognised in units of the noise.

theta holds the coefficients w, the intercept c if there is one, and v, which gives the scale sigma:

    U(theta) = sum_i w_i [sigma + sigma H(r_i / sigma)] + (prior / 2) |w|^2,   r_i = x_i'w + c - y_i
    H(u) = u^2 where |u| <= epsilon, and 2 epsilon |u| - epsilon^2 elsewhere

This is the objective of scikit-learn's `HuberRegressor` with prior = 2 alpha, after Huber (1981).  There
sigma has a lower bound; here sigma = least + v^2, with `least` a millionth of the typical scale of y.  If all
rows can be fitted exactly, the objective decreases with sigma down to that bound, and v = 0 is its minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from asyncqn.kernels import huber_rows
from asyncqn.kernels.losses import SQUARES
from asyncqn.models.feature_rows import DenseRows, Vector
from asyncqn.models.linear_model import LinearModel
from asyncqn.parameters import parameter
from asyncqn.types import Array, Rows

_EMPTY: Vector = np.zeros(0)
_MEDIAN_DEVIATION = 0.6744897501960817
"""The median of |x| for a standard normal x."""
_LEAST_SCALE = 1e-6
"""The smallest scale, as a share of the typical scale of y: far below any noise, far above rounding."""


@dataclass(frozen=True, eq=False, repr=False)
class HuberRegression(LinearModel):
    """Regression that tolerates outliers and estimates its scale: Huber's loss and a Gaussian prior.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_data, n_features)
        The rows, one per data point; NumPy, pandas, polars or SciPy. float32 is kept, and is then the type
        of theta.
    y : array-like of shape (n_data,)
        The responses, one per row.
    prior : float, default 1.0
        Precision of the Gaussian prior of the coefficients; it does not apply to intercept and scale.
    recipe : dict, optional
        The arguments from which a saved run rebuilds the problem; set by `random` and by readers of files.
    weights : array-like of shape (n_data,), optional
        Weight of each row; without it, all rows weigh 1.
    intercept : bool, default False
        Whether there is an intercept, the last but one number of theta.
    offset : array-like of shape (n_data,), optional
        Known term that is added to x'theta of each row; without it, 0.
    feature_names : sequence of str, optional
        Names of the columns of X; without it, those of a data frame.
    epsilon : float, default 1.35
        Residuals beyond `epsilon` scales count as outliers.

    Notes
    -----
    The last number of theta is about the square root of the scale; `scale(theta)` returns the scale itself.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> y = X @ np.array([2.0, -1.0]) + 0.1 * rng.standard_normal(300)
    >>> y[::10] += 100.0
    >>> problem = aq.HuberRegression(X, y)
    >>> run = aq.minimize(problem)
    >>> [round(float(number), 1) for number in run.theta[:2]], bool(problem.scale(run.theta) < 0.5)
    ([2.0, -1.0], True)
    """

    epsilon: Annotated[float, parameter("Scales beyond which a residual is an outlier", gt=1.0)] = field(
        default=1.35, kw_only=True
    )

    kind: ClassVar[str] = "huber-regression"

    @property
    def _chosen(self) -> tuple[str, ...]:
        return (f"epsilon {self.epsilon:g}",)

    @property
    def _columns(self) -> int:
        """The number of features, plus the intercept and the scale."""
        return super()._columns + 1

    @property
    def _typical_weight(self) -> float:
        # The curvature of a row that is no outlier, 2 / sigma.
        return 2.0 / self._typical_scale

    @cached_property
    def _typical_scale(self) -> float:
        """The median absolute deviation of y as a standard deviation; if that is 0, the deviation of y."""
        scale = float(np.median(np.abs(self._y - np.median(self._y)))) / _MEDIAN_DEVIATION
        return scale or float(self._y.std()) or 1.0

    @property
    def _least_scale(self) -> float:
        return _LEAST_SCALE * self._typical_scale

    @cached_property
    def _unseen(self) -> Vector:
        unseen = LinearModel._unseen.func(self)  # type: ignore[attr-defined]
        unseen[-1] *= 4.0 * self._typical_scale  # one row adds at most 8 to the curvature in v
        return np.asarray(unseen)

    def initial(self, rng: np.random.Generator) -> Array:
        """Return zeros, with the median of y as the intercept and its median deviation as the scale."""
        theta = np.zeros(self.dim, self.dtype)
        if self.intercept:
            theta[-2] = np.median(self._y)
        # sigma = least + v^2, and `least` is negligible here.
        theta[-1] = np.sqrt(self._typical_scale)
        return theta

    def scale(self, theta: Array) -> float:
        """Return the scale sigma of a theta, in units of y."""
        return self._least_scale + float(theta[-1]) ** 2

    def score(self, run: Any) -> float | None:
        """Return r2 of the held-out rows for a run or a theta; None if there are none."""
        # v at the end of theta is no intercept: it does not enter the prediction.
        return super().score(np.asarray(getattr(run, "theta", run))[:-1])

    def _kernel_sums(
        self, theta: Array, rows: Rows, out: Array, diagonal: Vector, bends: Vector = _EMPTY
    ) -> tuple[bool, float]:
        # U alone is wanted: its gradient costs less than compiling a kernel without it.
        out = out if out.size else np.empty_like(theta)
        given = (float(self.epsilon), self._least_scale)
        sums = (self._y, self._weights, self.prior, theta, rows, out, diagonal, bends)
        room = np.zeros(theta.size + diagonal.size)
        data = self._rows
        found: tuple[bool, float]
        if isinstance(data, DenseRows):
            found = huber_rows.dense_sums(*given, data.X, *sums, room)
        else:
            found = huber_rows.sparse_sums(*given, *data.arrays, *sums, room)
        return found

    def _second_moments(self, theta: Array, rows: Rows, S: Vector) -> None:
        """Add x x' weighted by the curvatures of the rows; the scale is coupled to no other number."""
        bends, diagonal = np.zeros(self.n_data), np.zeros(self.dim)
        self._kernel_sums(theta, rows, np.empty_like(theta), diagonal, bends)
        # The last row and column of S belong to the scale.
        own = np.zeros((len(S) - 1, len(S) - 1))
        # Squares have the second derivative 1, so the curvatures of the rows enter as their weights.
        self._rows.second_moments((SQUARES, 1.0), self._y, bends, theta[:-1], rows, self._block[:-1], own)
        S[:-1, :-1] = own
        # The diagonal is scaled to all rows; S is a sum over `rows`, scaled later.
        S[-1, -1] = diagonal[-1] * len(rows) / self.n_data

    @property
    def further_names(self) -> tuple[str, ...]:
        return (*super().further_names, "(scale)")

    @staticmethod
    def _without_offset(y: Vector, weights: Vector, offset: Vector) -> tuple[Vector, Vector]:
        return y - offset, weights

    @classmethod
    def _drawn(cls, z: Vector, rng: np.random.Generator) -> npt.NDArray[Any]:
        return z + rng.standard_t(2.0, len(z))
