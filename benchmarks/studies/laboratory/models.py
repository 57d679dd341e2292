"""Two non-convex models with many rows, in NumPy, as a user would write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class _Rows:
    X: np.ndarray
    y: np.ndarray

    @property
    def n_data(self) -> int:
        return len(self.X)

    def value(self, theta: np.ndarray) -> float:
        return self.value_rows(theta, np.arange(self.n_data))

    def value_rows(self, theta: np.ndarray, rows: np.ndarray) -> float:
        return self.grad_with_value(theta, rows, np.empty_like(theta))

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        self.grad_with_value(theta, rows, out)

    def grad_with_value(
        self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray
    ) -> float:
        """In chunks that stay in the cache; a range of rows is not copied."""
        out[...] = 0.0
        value = 0.0
        for first in range(0, len(rows), 4096):
            some: Any = rows[first : first + 4096]
            if some[-1] - some[0] == len(some) - 1 and (np.diff(some) == 1).all():
                some = slice(int(some[0]), int(some[-1]) + 1)
            value += self.add(theta, self.X[some], self.y[some], out)
        weight = self.n_data / len(rows)
        out *= weight
        out += self.prior * theta
        return float(weight * value + 0.5 * self.prior * theta @ theta)

    prior = 1.0

    def add(
        self, theta: np.ndarray, X: np.ndarray, y: np.ndarray, out: np.ndarray
    ) -> float:
        raise NotImplementedError


@dataclass
class TanhNetwork(_Rows):
    """Labels -1 and 1 from one layer of `hidden` tanh units, as a smaller such network drew them."""

    hidden: int

    @classmethod
    def random(
        cls,
        n_data: int,
        inputs: int = 20,
        hidden: int = 10,
        scale: float = 1.0,
        seed: int = 0,
    ) -> TanhNetwork:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n_data, inputs)) * np.geomspace(1.0, 0.2, inputs)
        f = np.tanh(X @ (1.5 * rng.standard_normal((inputs, 4)))) @ (
            2.0 * rng.standard_normal(4)
        )
        return cls(
            scale * X,
            np.where(rng.random(n_data) < 1.0 / (1.0 + np.exp(-f)), 1.0, -1.0),
            hidden,
        )

    @property
    def dim(self) -> int:
        return self.hidden * (self.X.shape[1] + 2)

    def initial(self, rng: np.random.Generator) -> np.ndarray:
        return 0.3 * rng.standard_normal(self.dim)

    def add(
        self, theta: np.ndarray, X: np.ndarray, y: np.ndarray, out: np.ndarray
    ) -> float:
        h, p = self.hidden, X.shape[1]
        W, b, v = (
            theta[: p * h].reshape(p, h),
            theta[p * h : p * h + h],
            theta[p * h + h :],
        )
        Z = np.tanh(X @ W + b)
        margin = y * (Z @ v)
        small = np.exp(-np.abs(margin))
        slope = -y * np.where(margin < 0, 1.0, small) / (1.0 + small)
        E = (slope[:, None] * v) * (1.0 - Z * Z)
        out[: p * h] += (X.T @ E).ravel()
        out[p * h : p * h + h] += E.sum(axis=0)
        out[p * h + h :] += Z.T @ slope
        return float((np.log1p(small) + np.maximum(-margin, 0.0)).sum())


@dataclass
class Robust(_Rows):
    """Linear regression with Student's t noise of three degrees of freedom; a fifth are outliers."""

    prior = 0.01

    @classmethod
    def random(
        cls, n_data: int, dim: int = 50, scale: float = 1.0, seed: int = 0
    ) -> Robust:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n_data, dim)) * np.geomspace(1.0, 0.1, dim)
        y = X @ (2.0 * rng.standard_normal(dim)) + 0.5 * rng.standard_normal(n_data)
        outliers = rng.random(n_data) < 0.2
        y[outliers] += 20.0 * rng.standard_normal(outliers.sum())
        return cls(scale * X, y)

    @property
    def dim(self) -> int:
        return int(self.X.shape[1])

    def initial(self, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal(self.dim)

    def add(
        self, theta: np.ndarray, X: np.ndarray, y: np.ndarray, out: np.ndarray
    ) -> float:
        e = X @ theta - y
        out += X.T @ (4.0 * e / (3.0 + e * e))
        return float(2.0 * np.log1p(e * e / 3.0).sum())
