"""Coefficients of a linear model by name, and their standard errors from the Hessian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from asyncqn.columns import Table
from asyncqn.errors import BadInput, require
from asyncqn.models.feature_rows import DenseRows, SparseRows
from asyncqn.models.sampled_metric import DENSE
from asyncqn.models.validation import theta_of
from asyncqn.parameters import checked

if TYPE_CHECKING:
    from asyncqn.models.linear_model import LinearModel


def names_of_columns(
    X: Any, given: Sequence[str] | None, columns: int
) -> tuple[str, ...] | None:
    """Return the given names, or those of the columns of a data frame, or None."""
    names = given
    if names is None and not isinstance(X, (DenseRows, SparseRows)):
        # pandas and polars name their columns so; a NumPy array has no such attribute.
        names = getattr(X, "columns", None)
    if names is None:
        return None
    texts = tuple(str(name) for name in names)
    require(
        len(texts) == columns,
        f"feature_names must have one name per column of X, {columns}, but has {len(texts)}.",
    )
    return texts


class NamedCoefficients:
    """The part of a linear model that names the numbers of theta."""

    intercept: bool

    @property
    def names(self) -> list[str] | None:
        """Names of the numbers of theta by those of the columns, or None where the columns have none."""
        model = cast("LinearModel", self)
        if model.feature_names is None:
            return None
        names = [*model.feature_names, *["(intercept)"] * self.intercept]
        if model._outputs == 1:
            return names
        classes = getattr(self, "classes", ())
        return [f"{name} ({label})" for label in classes for name in names]

    @checked
    def coefficients(
        self,
        run: Any,
        standard_errors: bool = False,
    ) -> Any:
        """Return the coefficients of a run as a table, by the names of the columns.

        Parameters
        ----------
        run : Run or array of dim numbers
            A run of this problem, or a theta.
        standard_errors : bool, default False
            Whether to add standard errors, from the inverse of the Hessian at theta.

        Returns
        -------
        pandas.DataFrame, or Table where pandas is not installed
            A row per number of theta: its `name`, its `coefficient` and, on request, its `standard_error`.
            Softmax regression adds the column `class`.

        Notes
        -----
        A standard error is the square root of a diagonal entry of H^-1, with H the Hessian of U, which
        includes the prior.  For least squares the variance of the noise is estimated as sum_i w_i r_i^2 / (n
        - number of coefficients).

        Examples
        --------
        >>> import numpy as np
        >>> import asyncqn as aq
        >>> X, y = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1.0, 3.0, 2.0, 5.0])
        >>> problem = aq.LeastSquares(X, y, prior=0.0, feature_names=["dose"])
        >>> table = problem.coefficients(aq.minimize(problem), standard_errors=True)
        >>> print(table.round(3).to_string(index=False))
               name  coefficient  standard_error
               dose          1.1           0.436
        (intercept)          0.0           1.195
        """
        model = cast("LinearModel", self)
        table = coefficient_table(model, theta_of(model, run), standard_errors)
        try:
            return table.to_pandas()
        except ImportError:
            return table

    def noise_variance(self, theta: npt.NDArray[Any]) -> float | None:
        """Return the factor that makes H^-1 the covariance of theta, or None if there is none."""
        return None


def coefficient_table(
    problem: LinearModel, theta: npt.NDArray[Any], standard_errors: bool = False
) -> Table:
    """Return the numbers of theta by name, class by class; with standard errors on request."""
    # Arrays have no names; x0, x1, ... number their columns.
    numbered = [f"x{j}" for j in range(problem.X.shape[1])]
    features = problem.feature_names or numbered
    names = [*features, *(["(intercept)"] if problem.intercept else [])]
    columns: dict[str, Any] = {}
    classes = getattr(problem, "classes", None)
    if problem._outputs > 1:
        columns["class"] = np.repeat(np.asarray(classes).astype(str), len(names))
    columns["name"] = np.array(names * problem._outputs)
    columns["coefficient"] = np.asarray(theta, np.float64)
    if standard_errors:
        columns["standard_error"] = _standard_errors(
            problem, np.asarray(theta, problem.dtype)
        )
    return Table(columns)


def _standard_errors(
    problem: LinearModel, theta: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Return the roots of the diagonal of the inverse Hessian of U, times the noise's deviation."""
    variance = problem.noise_variance(theta)
    if variance is None:
        raise BadInput(
            f"{type(problem).__name__} has no standard errors: logistic (two classes), Poisson and least "
            f"squares regression have them.",
        )
    D = problem.dim
    require(
        D <= DENSE,
        f"standard errors need the whole Hessian: at most {DENSE} coefficients, not {D}.",
    )
    # Without the prior, which is added below to the features alone.
    H = np.zeros((D, D))
    problem._second_moments(theta, np.arange(problem.n_data), H)
    # Kernels fill the upper triangle alone.
    H = np.triu(H) + np.triu(H, 1).T
    features = np.arange(problem.X.shape[1])
    H[features, features] += problem.prior
    # Scaled to a unit diagonal, so that the test for singularity does not depend on the units of columns.
    scales = np.sqrt(np.where(H.diagonal() > 0.0, H.diagonal(), 1.0))
    scaled = H / np.outer(scales, scales)
    # Rounding alone gives the smallest eigenvalue an error of about eps times the size.
    least = np.finfo(np.float64).eps * D
    require(
        bool(np.isfinite(H).all() and np.linalg.eigvalsh(scaled)[0] > least),
        "the Hessian is singular at theta: remove columns that depend on others, or raise the prior.",
    )
    variances = variance * np.linalg.inv(scaled).diagonal()
    errors: npt.NDArray[np.float64] = np.sqrt(variances) / scales
    return errors
