"""Ridge and PoissonRegressor, with scikit-learn's conventions."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from asyncqn.errors import require
from asyncqn.models.least_squares import LeastSquares
from asyncqn.models.linear_model import LinearModel
from asyncqn.models.poisson import PoissonRegression
from asyncqn.parameters import parameter
from asyncqn.sklearn.estimator import (
    EngineOrNone,
    GradientTolerance,
    Jobs,
    LinearEstimator,
    MaxIter,
    Numbers,
    RandomState,
    Verbose,
)
from asyncqn.types import Array


class LinearRegressor(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """A linear model that predicts one number per row.

    Parameters
    ----------
    alpha : float, default 1.0
        Strength of the penalty; 0: none.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        The coefficients.
    intercept_ : float
        The intercept; 0.0 without one.
    n_iter_ : int
        Number of versions of the coefficients in the fit.
    """

    alpha: float

    def __init__(
        self,
        alpha: Annotated[float, parameter(ge=0.0)] = 1.0,
        *,
        fit_intercept: bool = True,
        solver: str | None = None,
        tol: GradientTolerance | None = None,
        max_iter: MaxIter = 1000,
        warm_start: bool = False,
        verbose: Verbose = 0,
        random_state: RandomState = None,
        n_jobs: Jobs = None,
        engine: EngineOrNone = None,
    ) -> None:
        self._store(locals())

    def _take(self, coef: Numbers, intercept: Numbers) -> None:
        self.coef_ = coef[0]
        self.intercept_ = float(intercept[0])
        self.n_iter_ = self.run_.nit

    def predict(self, X: Any) -> Numbers:
        """Return the prediction of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        products = safe_sparse_dot(X, self.coef_, dense_output=True)
        prediction: Numbers = products + self.intercept_
        return prediction


class Ridge(LinearRegressor):
    """Least squares with an l2 penalty.

    It minimises the objective of `sklearn.linear_model.Ridge`, sum_i weight_i residual_i^2 + alpha |coef|^2.

    Parameters
    ----------
    tol : float, optional
        A fit ends when the norm of the gradient is at most `tol` times that of the first.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from asyncqn.sklearn import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(Ridge(alpha=1e-3).fit(X, y).score(X, y), 2)
    0.52
    """

    _usual_tol = 1e-8

    def _problem(self, X: Any, y: Numbers, weights: Numbers | None) -> LinearModel:
        prior, intercept = self.alpha, self.fit_intercept
        # The factor 1/2 of residuals and penalty in `LeastSquares` does not move the minimum.
        return LeastSquares(X, y, prior, weights=weights, intercept=intercept)

    def _limit(self, total: float) -> float | None:
        return None


class PoissonRegressor(LinearRegressor):
    """Poisson regression of counts with an l2 penalty: the mean is exp(x'coef + intercept).

    It minimises the objective of `sklearn.linear_model.PoissonRegressor`, the mean of half the deviances of
    the rows + alpha |coef|^2 / 2.

    Parameters
    ----------
    tol : float, optional
        A fit ends when the norm of the gradient of the objective is at most `tol`.

    Notes
    -----
    For rates, pass counts / exposure as `y` and the exposures as `sample_weight`.

    Examples
    --------
    >>> import numpy as np
    >>> from asyncqn.sklearn import PoissonRegressor
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = PoissonRegressor(alpha=0.0).fit(X, np.array([1, 2, 4, 8]))
    >>> bool(abs(model.coef_[0] - np.log(2.0)) < 1e-3)
    True
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn's checks then pass counts, not numbers of both signs.
        tags.target_tags.positive_only = True
        return tags

    def _problem(self, X: Any, y: Numbers, weights: Numbers | None) -> LinearModel:
        total = len(y) if weights is None else float(weights.sum())
        # scikit-learn penalises the mean loss, and U is a sum.
        prior, intercept = self.alpha * total, self.fit_intercept
        return PoissonRegression(X, y, prior, weights=weights, intercept=intercept)

    def _first(self, problem: LinearModel) -> Array | None:
        """Return the intercept of a model without features, which keeps the first step from overflowing."""
        mean = float(np.average(problem.y, weights=problem.weights))
        require(
            mean > 0.0 or not self.fit_intercept,
            "all counts are 0: the intercept would be minus infinity.",
        )
        if not self.fit_intercept:
            return None
        start = np.zeros(problem.dim, problem.dtype)
        # Features start at 0; the mean of the counts is then predicted for every row.
        start[-1] = np.log(mean)
        return start

    def predict(self, X: Any) -> Numbers:
        """Return the expected count of each row."""
        return np.exp(super().predict(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D^2, the share of the deviance of the counts y that the model explains.

        It is 1.0 for a perfect fit, 0.0 for a model that is no better than the mean; the arguments are those
        of `fit`.
        """
        prediction = self.predict(X)
        score = d2_tweedie_score(y, prediction, sample_weight=sample_weight, power=1)
        return float(score)
