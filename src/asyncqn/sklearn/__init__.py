"""Linear models as scikit-learn estimators, fitted by asyncqn.

May import: errors, parameters, types, core, cluster, algorithms, models, runs, engines, minimize.

`LogisticRegression`, `Ridge` and `PoissonRegressor` minimise the objectives of the
estimators of the same names in `sklearn.linear_model`, whose parameters keep their names and their meaning.
This package is the only one that imports scikit-learn for estimators; it needs the extra `sklearn`.
"""

from asyncqn.errors import MissingExtra

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError:
    raise MissingExtra("scikit-learn", "sklearn", "asyncqn.sklearn") from None

from asyncqn.sklearn.classification import LogisticRegression
from asyncqn.sklearn.regression import PoissonRegressor, Ridge

__all__ = ["LogisticRegression", "PoissonRegressor", "Ridge"]
