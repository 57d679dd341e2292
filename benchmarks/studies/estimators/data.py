"""The data of the comparison: sets of scikit-learn's wheel, larger ones made of them, and synthetic ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import asyncqn.sklearn as ours


class Case(NamedTuple):
    """A problem of the comparison: the estimator that fits it, and how its data are made."""

    estimator: type[Any]
    make: Callable[[], tuple[Any, np.ndarray]]
    solvers: tuple[str, ...]
    """Those of scikit-learn's estimator of the same name; "" where it has one alone."""
    parameters: dict[str, Any] = {}


def breast_cancer(rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """569 x 30, standardised; or so many rows drawn from them, each with a tenth of noise."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return _drawn((X - X.mean(axis=0)) / X.std(axis=0), y, rows, 0.1)


def digits(rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """1797 x 64 in [0, 1], ten classes; or so many rows drawn from them, each with some noise."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return _drawn(X / 16.0, y, rows, 0.2)


def _drawn(X: np.ndarray, y: np.ndarray, rows: int | None, noise: float) -> tuple[np.ndarray, np.ndarray]:
    if rows is None:
        return X, y
    rng = np.random.default_rng(0)
    which = rng.integers(0, len(X), rows)
    return X[which] + noise * rng.standard_normal((rows, X.shape[1])), y[which]


def synthetic(rows: int, columns: int, response: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns of neighbouring correlation 0.5, whose deviations fall from 1 to 0.1."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((rows, columns))
    for j in range(1, columns):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
    truth = 2.0 / np.sqrt(columns) * rng.choice([-1.0, 1.0], columns)
    z = X @ truth
    X *= np.geomspace(1.0, 0.1, columns)
    return X, _responses(z, response, rng)


def sparse_rows(rows: int, columns: int) -> tuple[Any, np.ndarray]:
    """About 30 features per row, of which few are frequent, as words are."""
    from scipy import sparse

    rng = np.random.default_rng(2)
    per_row = 30
    indices = np.minimum((columns ** rng.random(rows * per_row)).astype(np.int64), columns - 1)
    indptr = np.arange(0, rows * per_row + 1, per_row)
    X = sparse.csr_matrix((np.ones(rows * per_row), indices, indptr), shape=(rows, columns))
    X.sum_duplicates()
    truth = rng.standard_normal(columns)
    return X, _responses(X @ truth / np.sqrt(per_row) * 2.0, "labels", rng)


def _responses(z: np.ndarray, kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind == "labels":
        return (rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z))).astype(int)
    if kind == "counts":
        return rng.poisson(np.exp(np.minimum(0.5 * z, 5.0)))
    return z + rng.standard_t(2.0, len(z))


LOGISTIC = ("lbfgs", "newton-cholesky", "newton-cg", "sag", "saga")
CASES: dict[str, Case] = {
    "breast cancer, 569 x 30": Case(ours.LogisticRegression, breast_cancer, LOGISTIC),
    "digits, 1797 x 64, 10 classes": Case(ours.LogisticRegression, digits, LOGISTIC),
    "breast cancer drawn, 1e5 x 30": Case(ours.LogisticRegression, lambda: breast_cancer(100_000), LOGISTIC),
    "digits drawn, 1e5 x 64, 10 classes": Case(ours.LogisticRegression, lambda: digits(100_000), LOGISTIC),
    "logistic, 1e4 x 100": Case(ours.LogisticRegression, lambda: synthetic(10_000, 100, "labels"), LOGISTIC),
    "logistic, 1e5 x 100": Case(ours.LogisticRegression, lambda: synthetic(100_000, 100, "labels"), LOGISTIC),
    "logistic, 1e6 x 100": Case(
        ours.LogisticRegression, lambda: synthetic(1_000_000, 100, "labels"), LOGISTIC
    ),
    "logistic, sparse 3e4 x 1e4": Case(
        ours.LogisticRegression, lambda: sparse_rows(30_000, 10_000), ("lbfgs", "newton-cg", "sag", "saga")
    ),
    "logistic, sparse 3e5 x 1e5": Case(
        ours.LogisticRegression, lambda: sparse_rows(300_000, 100_000), ("lbfgs", "newton-cg", "sag", "saga")
    ),
    "ridge, 1e5 x 100": Case(
        ours.Ridge,
        lambda: synthetic(100_000, 100, "numbers"),
        ("cholesky", "svd", "lsqr", "sparse_cg", "sag", "saga"),
    ),
    "Poisson, 1e5 x 100": Case(
        ours.PoissonRegressor,
        lambda: synthetic(100_000, 100, "counts"),
        ("lbfgs", "newton-cholesky"),
        {"alpha": 1e-5},
    ),
}
