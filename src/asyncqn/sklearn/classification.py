"""LogisticRegression for two or more classes, with scikit-learn's conventions.

scikit-learn requires that `__init__` only stores its arguments; `fit` checks them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from sklearn.linear_model._base import LinearClassifierMixin
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


class LogisticRegression(LinearClassifierMixin, LinearEstimator):  # type: ignore[misc]
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

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from asyncqn.sklearn import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression().fit(X, y)
    >>> bool(model.score(X, y) > 0.95), model.coef_.shape
    (True, (3, 4))
    """

    C: float
    penalty: Literal["l2"] | None
    class_weight: Mapping[Any, float] | Literal["balanced"] | None
    _numeric_y = False

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
        self._store(locals())

    def _problem(self, X: Any, y: Numbers, weights: Numbers | None) -> LinearModel:
        check_classification_targets(y)
        # Sorted labels, as in scikit-learn; the second class is the positive one.
        classes, labels = np.unique(y, return_inverse=True)
        require(
            len(classes) > 1,
            f"y has only one class, {classes[0]!s}: LogisticRegression needs rows of at least two classes.",
        )
        if self.class_weight is not None:
            try:
                by_class: Numbers = compute_class_weight(
                    self.class_weight, classes=classes, y=y, sample_weight=weights
                )
            except ValueError as error:
                raise InvalidParameter(f"class_weight: {error}.") from None
            weights = by_class[labels] * (1.0 if weights is None else weights)
        if weights is not None:
            # A row of weight 0 does not count, so that a class may exist in y only by name.
            present = np.unique(labels[weights > 0.0])
            require(
                len(present) > 1,
                "all rows with a positive weight belong to one class: LogisticRegression needs two or more.",
            )
        if not np.array_equal(getattr(self, "classes_", ()), classes):
            # A warm start needs coefficients of the same classes.
            self.__dict__.pop("coef_", None)
        self.classes_ = classes
        # C weighs the data against a penalty of |coef|^2 / 2, so that `prior` is 1 / C.
        prior = 0.0 if self._free else 1.0 / self.C
        # With two classes one vector of coefficients determines both probabilities.
        model = TwoClasses if len(classes) == 2 else ManyClasses
        return model(X, labels, prior, weights=weights, intercept=self.fit_intercept)

    @property
    def _free(self) -> bool:
        """True without a penalty."""
        return self.penalty is None or math.isinf(self.C)

    def _take(self, coef: Numbers, intercept: Numbers) -> None:
        """Set coefficients and intercepts; the part that changes no probability is 0, as in scikit-learn."""
        if len(self.classes_) > 2:
            # A constant added to all classes cancels in softmax; a penalty fixes that of the coefficients.
            intercept -= intercept.mean()
            if self._free:
                coef -= coef.mean(axis=0)
        self.coef_, self.intercept_ = coef, intercept
        self.n_iter_ = np.array([self.run_.nit])

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
