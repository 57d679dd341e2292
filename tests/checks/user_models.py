"""Models as a user would write them, sound as they stand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

DTYPES = [np.float64, np.float32]


class Model:
    """U = prior |theta|^2/2 + sum_i loss(x_i'theta, y_i) as a user would write it, without `value_rows`."""

    def __init__(
        self, kind: str, n: int, dim: int, dtype: Any, prior: float = 1.0, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((n, dim)).astype(dtype)
        self.y = np.sign(
            self.X @ rng.standard_normal(dim) + rng.standard_normal(n)
        ).astype(dtype)
        self.kind, self.prior, self.dtype = kind, dtype(prior), np.dtype(dtype)
        self.n_data, self.dim = n, dim
        self.calls: Counter[str] = Counter()

    def loss(self, theta: np.ndarray, rows: Any) -> float:
        z = self.X[rows] @ theta
        if self.kind == "linear":
            return float(((z - self.y[rows]) ** 2).sum(dtype=np.float64) / 2)
        return float(np.logaddexp(0, -self.y[rows] * z).sum(dtype=np.float64))

    def slope(self, theta: np.ndarray, rows: Any) -> np.ndarray:
        X, y = self.X[rows], self.y[rows]
        z = X @ theta
        return X.T @ ((z - y) if self.kind == "linear" else -y / (1 + np.exp(y * z)))

    def value(self, theta: np.ndarray) -> float:
        self.calls["value"] += 1
        return self.loss(theta, slice(None)) + float(self.prior * theta @ theta) / 2

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        self.calls["grad"] += 1
        self.calls["rows"] += len(rows)
        out[:] = self.prior * theta + self.n_data / len(rows) * self.slope(theta, rows)


class WithRows(Model):
    """The same with both extras."""

    def value_rows(self, theta: np.ndarray, rows: np.ndarray) -> float:
        self.calls["value_rows"] += 1
        return (
            self.n_data / len(rows) * self.loss(theta, rows)
            + float(self.prior * theta @ theta) / 2
        )

    def grad_with_value(
        self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray
    ) -> float:
        self.grad(theta, rows, out)
        return self.value_rows(theta, rows)
