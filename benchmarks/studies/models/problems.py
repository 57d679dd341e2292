"""The problems of the study: linear models of many rows, dense and sparse, made from a seed.

Sizes are in the names.  The prior has precision 1 and there is no intercept, so that every library minimises
the same U.  The method's constants were chosen on smaller draws of seeds 0, 1 and 2; those here have a seed
of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import asyncqn as aq

ROWS = 300_000
SEED = 15


def dense(condition: float, correlation: float) -> aq.LogisticRegression:
    return aq.LogisticRegression.random(ROWS, 100, condition, correlation, seed=SEED)


def rare_features() -> aq.LogisticRegression:
    """100 features: half are there in every row, half in one row of 1,000 to 30,000."""
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((ROWS, 100))
    for j, rarity in enumerate(np.geomspace(1e3, 3e4, 50)):
        X[rng.random(ROWS) >= 1.0 / rarity, 50 + j] = 0.0
    return aq.LogisticRegression(X, drawn(X @ rng.choice([-0.3, 0.3], 100), rng))


def power_law(n: int, d: int, entries: int = 30) -> aq.LogisticRegression:
    """Sparse rows of `entries` ones, the j-th most frequent feature drawn in proportion to 1 / j."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(SEED)
    places = np.cumsum(1.0 / np.arange(1, d + 1))
    columns = np.searchsorted(places, rng.random(n * entries) * places[-1])
    X = csr_matrix((np.ones(n * entries), columns, np.arange(n + 1) * entries), (n, d))
    X.sum_duplicates()
    X.data[:] = 1.0
    return aq.LogisticRegression(X, drawn(X @ rng.standard_normal(d) * 0.5, rng))


def drawn(z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0)


PROBLEMS: dict[str, Callable[[], Any]] = {
    "isotropic, 3e5 x 100": lambda: dense(1.0, 0.0),
    "correlated, 3e5 x 100": lambda: dense(10.0, 0.5),
    "ill, 3e5 x 100": lambda: dense(100.0, 0.9),
    "worse, 3e5 x 100": lambda: dense(1000.0, 0.95),
    "Poisson, 3e5 x 100": lambda: aq.PoissonRegression.random(ROWS, 100, 10.0, 0.5, seed=SEED),
    "rare features, 3e5 x 100": rare_features,
    "long, 2e5 x 1000": lambda: aq.LogisticRegression.random(200_000, 1000, 10.0, 0.5, seed=SEED),
    "sparse, 3e4 x 1e4": lambda: power_law(30_000, 10_000),
    "sparse, 3e5 x 1e5": lambda: power_law(300_000, 100_000),
}
