"""LogisticRegression for two or more classes, with scikit-learn's conventions.

scikit-learn requires that `__init__` only stores its arguments; `fit` checks them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.extmath import softmax
from sklearn.utils.multiclass import check_classification_targets

from asyncqn.errors import require
from asyncqn.models.linear_model import LinearModel
from asyncqn.models.logistic import LogisticRegression as TwoClasses
from asyncqn.models.softmax import SoftmaxRegression as ManyClasses
from asyncqn.parameters import parameter
from asyncqn.sklearn.estimator import (
    EngineOrNone,
    GradientTolerance,
    InvalidParameter,
    Jobs,
    LinearEstimator,
    MaxIter,
    Numbers,
    RandomState,
    Verbose,
)
from asyncqn.types import Array


class LogisticRegression(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Logistic regression of two or more classes with an l2 penalty.

    It minimises the objective of `sklearn.linear_model.LogisticRegression`,
    sum_i weight_i loss_i + |coef|^2 / (2 C), with the multinomial loss for more than two classes.

    Parameters
    ----------
    C : float, default 1.0
        Inverse of the strength of the penalty; infinity: no penalty.
    penalty : "l2" or None, default "l2"
        None: no penalty, whatever C is.
    class_weight : mapping from label to weight, or "balanced", optional
        Factor of the weights of the rows of each class; "balanced" makes all classes weigh the same.
    tol : float, default 1e-4
        A fit ends when the norm of the gradient of the mean loss, with its share of the penalty, is at most
        `tol`.

    Attributes
    ----------
    coef_ : array of shape (1, n_features), or (n_classes, n_features) for more than two classes
        The coefficients.
    intercept_ : array of shape (1,) or (n_classes,)
        The intercepts, which sum to 0 over more than two classes.
    classes_ : array of shape (n_classes,)
        The labels, in order.
    n_iter_ : array of shape (1,)
        Number of versions of the coefficients in the fit.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array of shape (n_features_in_,)
        Names of the columns, where X was a data frame.
    run_ : asyncqn.Run
        The run; `asyncqn.replay(model.run_)` computes it again, bit for bit.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from asyncqn.sklearn import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression().fit(X, y)
    >>> bool(model.score(X, y) > 0.95), model.coef_.shape
    (True, (3, 4))
    """

    def __init__(
        self,
        C: Annotated[float, parameter(gt=0.0, infinite=True)] = 1.0,
        *,
        penalty: Literal["l2"] | None = "l2",
        fit_intercept: bool = True,
        solver: str | None = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        tol: GradientTolerance = 1e-4,
        max_iter: MaxIter = 1000,
        warm_start: bool = False,
        verbose: Verbose = 0,
        random_state: RandomState = None,
        n_jobs: Jobs = None,
        engine: EngineOrNone = None,
    ) -> None:
        self.C = C
        self.penalty = penalty
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.engine = engine

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features), dense or sparse, or a data frame
            The features.
        y : array of n_samples labels
            Numbers, texts or booleans.
        sample_weight : array of n_samples numbers, optional
            Weight of each row; None: all rows weigh the same.

        Returns
        -------
        LogisticRegression
            The estimator itself.
        """
        self._check_parameters()
        X, y, weights = self._training_data(X, y, sample_weight)
        check_classification_targets(y)
        # Sorted labels, as in scikit-learn; the second class is the positive one.
        classes, labels = np.unique(y, return_inverse=True)
        require(
            len(classes) > 1,
            f"y has only one class, {classes[0]!s}: LogisticRegression needs rows of at least two classes.",
        )
        weights = self._with_class_weights(classes, y, labels, weights)
        if weights is not None:
            # A row of weight 0 does not count, so that a class may exist in y only by name.
            present = np.unique(labels[weights > 0.0])
            require(
                len(present) > 1,
                "all rows with a positive weight belong to one class: LogisticRegression needs two or more.",
            )
        # C weighs the data against a penalty of |coef|^2 / 2, so that `prior` is 1 / C.
        penalty = 0.0 if self._free else 1.0 / self.C
        # With two classes one vector of coefficients determines both probabilities.
        model = TwoClasses if len(classes) == 2 else ManyClasses
        problem = model(
            X, labels, penalty, weights=weights, intercept=self.fit_intercept
        )
        total = len(labels) if weights is None else float(weights.sum())
        # scikit-learn's `tol` refers to the mean loss, and U is a sum.
        self.run_ = self._minimise(
            problem, self._start(classes, problem), self._tol * total
        )
        self.classes_ = classes
        self._take(self.run_.theta.reshape(-1, problem._columns), X.shape[1])
        self.n_iter_ = np.array([self.run_.nit])
        return self

    @property
    def _free(self) -> bool:
        """True without a penalty."""
        return self.penalty is None or math.isinf(self.C)

    def _with_class_weights(
        self, classes: Numbers, y: Numbers, labels: Numbers, weights: Numbers | None
    ) -> Numbers | None:
        if self.class_weight is None:
            return weights
        try:
            by_class: Numbers = compute_class_weight(
                self.class_weight, classes=classes, y=y, sample_weight=weights
            )
        except ValueError as error:
            raise InvalidParameter(f"class_weight: {error}.") from None
        return by_class[labels] if weights is None else weights * by_class[labels]

    def _start(self, classes: Numbers, problem: LinearModel) -> Array | None:
        """Return the coefficients of the last fit for a warm start, if they fit the data."""
        known = (
            self.warm_start
            and hasattr(self, "coef_")
            and np.array_equal(self.classes_, classes)
        )
        if not known or self.coef_.shape[1] != problem.X.shape[1]:
            return None
        # theta has one row per class, the intercept behind the coefficients, as `_take` reads it.
        parts = (
            (self.coef_, self.intercept_[:, None])
            if self.fit_intercept
            else (self.coef_,)
        )
        return np.hstack(parts).reshape(-1).astype(problem.dtype)

    def _take(self, theta: Numbers, d: int) -> None:
        """Set coefficients and intercepts; the part that changes no probability is 0, as in scikit-learn."""
        coef, intercept = theta[:, :d].copy(), np.zeros(len(theta), theta.dtype)
        if self.fit_intercept:
            intercept = theta[:, d].copy()
        if len(self.classes_) > 2:
            # A constant added to all classes cancels in softmax; a penalty fixes that of the coefficients.
            intercept -= intercept.mean()
            if self._free:
                coef -= coef.mean(axis=0)
        self.coef_, self.intercept_ = coef, intercept

    # -- predictions

    def decision_function(self, X: Any) -> Numbers:
        """Return the scores x'coef + intercept: one per row, or one per row and class beyond two classes."""
        scores = self._scores(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Numbers:
        """Return the most likely label of each row."""
        scores = self.decision_function(X)
        chosen = (
            (scores > 0.0).astype(np.intp)
            if scores.ndim == 1
            else scores.argmax(axis=1)
        )
        labels: Numbers = self.classes_[chosen]
        return labels

    def predict_proba(self, X: Any) -> Numbers:
        """Return the probability of each class, in the order of `classes_`, for each row."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            # The first class has the score 0, so that softmax gives the logistic function for the second.
            scores = np.column_stack([np.zeros_like(scores), scores])
        probabilities: Numbers = softmax(scores)
        return probabilities

    def predict_log_proba(self, X: Any) -> Numbers:
        """Return the logarithms of `predict_proba`."""
        # A probability that underflows has the logarithm -inf, which is right and needs no warning.
        with np.errstate(divide="ignore"):
            logarithms: Numbers = np.log(self.predict_proba(X))
        return logarithms
