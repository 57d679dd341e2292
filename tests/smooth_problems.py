"""Smooth functions as sums over rows, convex and not, on which a safeguard must be sound."""

from __future__ import annotations

from typing import Any

import numpy as np


class Smooth:
    """U(theta) = prior / 2 |theta|^2 + sum over rows of `terms`, in the type of theta."""

    prior = 0.0
    dim = 6
    n_data = 12

    def __init__(self, dtype: Any = np.float64, valued: bool = True) -> None:
        self.dtype = np.dtype(dtype)
        if valued:
            self.value_rows = self._value_rows

    def terms(self, theta: Any, rows: Any) -> tuple[Any, Any]:
        """The value and the gradient of the sum over `rows`."""
        raise NotImplementedError

    def _value_rows(self, theta: Any, rows: Any) -> float:
        with np.errstate(all="ignore"):
            value, _ = self.terms(theta, rows)
            return float(
                self.prior / 2 * (theta @ theta) + self.n_data / len(rows) * value
            )

    def value(self, theta: Any) -> float:
        return self._value_rows(theta, np.arange(self.n_data))

    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        with np.errstate(all="ignore"):
            _, g = self.terms(theta, rows)
            out[...] = self.prior * theta + self.n_data / len(rows) * g


class Rosenbrock(Smooth):
    """Banana valleys between neighbouring coordinates, one per row."""

    n_data = 5

    def terms(self, theta: Any, rows: Any) -> tuple[Any, Any]:
        a, b = theta[rows], theta[rows + 1]
        g = np.zeros_like(theta)
        np.add.at(g, rows, -400 * a * (b - a * a) - 2 * (1 - a))
        np.add.at(g, rows + 1, 200 * (b - a * a))
        return np.sum(100 * (b - a * a) ** 2 + (1 - a) ** 2), g


class Cliff(Smooth):
    """U = n sum(exp(theta) - theta): linear on one side, beyond the numbers on the other."""

    def terms(self, theta: Any, rows: Any) -> tuple[Any, Any]:
        return len(rows) * np.sum(np.exp(theta) - theta), len(rows) * (
            np.exp(theta) - 1
        )


class _Rows(Smooth):
    """A model of rows X and answers y."""

    n_data = 30

    def __init__(self, dtype: Any = np.float64, valued: bool = True) -> None:
        super().__init__(dtype, valued)
        rng = np.random.default_rng(5)
        X = rng.standard_normal((self.n_data, self.dim)) * np.geomspace(
            1.0, 0.1, self.dim
        )
        self.X, self.y = X.astype(dtype), self.answers(X, rng).astype(dtype)

    def answers(self, X: Any, rng: Any) -> Any:
        return rng.standard_normal(self.n_data)


class Quartic(_Rows):
    """Fourth powers of residuals: the curvature vanishes where a residual does."""

    prior = 1e-3

    def terms(self, theta: Any, rows: Any) -> tuple[Any, Any]:
        r = self.X[rows] @ theta - self.y[rows]
        return np.sum(r**4), 4 * self.X[rows].T @ r**3


class Poisson(_Rows):
    """Poisson regression: exp overflows not far from the minimum."""

    prior = 0.1

    def answers(self, X: Any, rng: Any) -> Any:
        return rng.poisson(np.exp(X @ np.ones(self.dim) * 0.5))

    def terms(self, theta: Any, rows: Any) -> tuple[Any, Any]:
        z = self.X[rows] @ theta
        return np.sum(np.exp(z) - self.y[rows] * z), self.X[rows].T @ (
            np.exp(z) - self.y[rows]
        )


class Logistic(_Rows):
    """Logistic regression with a weak prior: flat far away."""

    prior = 1e-2

    def answers(self, X: Any, rng: Any) -> Any:
        return np.where(
            rng.random(self.n_data) < 1 / (1 + np.exp(-2 * X @ np.ones(self.dim))),
            1.0,
            -1.0,
        )

    def terms(self, theta: Any, rows: Any) -> tuple[Any, Any]:
        z = -self.y[rows] * (self.X[rows] @ theta)
        chance = np.exp(z - np.logaddexp(0, z))
        return np.sum(np.logaddexp(0, z)), -self.X[rows].T @ (self.y[rows] * chance)


class TanhNetwork(_Rows):
    """One hidden layer of three: saddles, plateaus, several minima."""

    hidden = 3
    inputs = 4
    dim = 15
    n_data = 30
    prior = 1e-2

    def answers(self, X: Any, rng: Any) -> Any:
        return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]

    def terms(self, theta: Any, rows: Any) -> tuple[Any, Any]:
        cut = self.inputs * self.hidden
        X, W, v = (
            self.X[rows, : self.inputs],
            theta[:cut].reshape(self.inputs, self.hidden),
            theta[cut:],
        )
        Z = np.tanh(X @ W)
        r = Z @ v - self.y[rows]
        E = np.outer(r, v) * (1 - Z * Z)
        return np.sum(r * r) / 2, np.concatenate([(X.T @ E).ravel(), Z.T @ r])


PROBLEMS = (Rosenbrock, Cliff, Quartic, Poisson, Logistic, TanhNetwork)
