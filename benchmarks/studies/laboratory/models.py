"""Models in NumPy, as a user would write them, with gradients by hand: a tenth of torch's time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass
class Rows:
    """A sum over rows with a Gaussian prior; a subclass adds the sums of some rows."""

    X: Array
    y: Array

    prior = 1.0

    @property
    def n_data(self) -> int:
        return len(self.X)

    def value(self, theta: Array) -> float:
        return self.value_rows(theta, np.arange(self.n_data))

    def value_rows(self, theta: Array, rows: Array) -> float:
        return self.grad_with_value(theta, rows, np.empty_like(theta))

    def grad(self, theta: Array, rows: Array, out: Array) -> None:
        self.grad_with_value(theta, rows, out)

    def grad_with_value(self, theta: Array, rows: Array, out: Array) -> float:
        """Return the value; in chunks that stay in the cache, a range of rows without a copy."""
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

    def add(self, theta: Array, X: Array, y: Array, out: Array) -> float:
        """Add the gradient of these rows to `out`, and return their value."""
        raise NotImplementedError


@dataclass
class TanhNetwork(Rows):
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
        y = np.where(rng.random(n_data) < 1.0 / (1.0 + np.exp(-f)), 1.0, -1.0)
        return cls(scale * X, y, hidden)

    @property
    def dim(self) -> int:
        return self.hidden * (self.X.shape[1] + 2)

    def initial(self, rng: np.random.Generator) -> Array:
        return 0.3 * rng.standard_normal(self.dim)

    def add(self, theta: Array, X: Array, y: Array, out: Array) -> float:
        h, p = self.hidden, X.shape[1]
        W, b = theta[: p * h].reshape(p, h), theta[p * h : p * h + h]
        v = theta[p * h + h :]
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
class Robust(Rows):
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

    def initial(self, rng: np.random.Generator) -> Array:
        return rng.standard_normal(self.dim)

    def add(self, theta: Array, X: Array, y: Array, out: Array) -> float:
        e = X @ theta - y
        out += X.T @ (4.0 * e / (3.0 + e * e))
        return float(2.0 * np.log1p(e * e / 3.0).sum())


def softmax_loss(F: Array, y: Array) -> tuple[float, Array]:
    """Return the sum of the cross-entropies of scores F, and its slopes."""
    F = F - F.max(axis=1, keepdims=True)
    P = np.exp(F)
    total = P.sum(axis=1, keepdims=True)
    P /= total
    here = np.arange(len(y))
    value = float(np.log(total).sum() - F[here, y].sum())
    P[here, y] -= 1.0
    return value, P


def square_loss(F: Array, y: Array) -> tuple[float, Array]:
    """Return half the sum of squares of F - y, and its slopes."""
    E = F - y
    return 0.5 * float((E * E).sum()), E


@dataclass
class Layers(Rows):
    """A network of full layers: `sizes` from the inputs to the scores, relu or tanh between them."""

    sizes: tuple[int, ...]
    relu: bool = True
    loss: Callable[[Array, Array], tuple[float, Array]] = softmax_loss
    spread: float = 1.0
    """Factor on the usual random start."""

    def shapes(self) -> list[tuple[int, int]]:
        return list(zip(self.sizes[:-1], self.sizes[1:], strict=True))

    @property
    def dim(self) -> int:
        return sum(p * q + q for p, q in self.shapes())

    def initial(self, rng: np.random.Generator) -> Array:
        gain = 2.0 if self.relu else 1.0
        start = []
        for p, q in self.shapes():
            start.append(rng.standard_normal(p * q) * np.sqrt(gain / p))
            start.append(np.zeros(q))
        return self.spread * np.concatenate(start)

    def add(self, theta: Array, X: Array, y: Array, out: Array) -> float:
        weights, inputs, at = [], [X], 0
        for p, q in self.shapes():
            W = theta[at : at + p * q].reshape(p, q)
            b = theta[at + p * q : at + p * q + q]
            weights.append((W, at))
            F = inputs[-1] @ W + b
            at += p * q + q
            if at < theta.size:
                inputs.append(np.maximum(F, 0.0) if self.relu else np.tanh(F))
        value, E = self.loss(F, y)
        while weights:
            W, at = weights.pop()
            Z = inputs.pop()
            out[at : at + W.size] += (Z.T @ E).ravel()
            out[at + W.size : at + W.size + W.shape[1]] += E.sum(axis=0)
            if weights:
                E = (E @ W.T) * ((Z > 0.0) if self.relu else 1.0 - Z * Z)
        return value


@dataclass
class Rosenbrock(Rows):
    """Rows of 10 (t2 - a t1^2)^2 + (1 - b t1)^2 along pairs of coordinates, with noise in a and b.

    X holds the first coordinate of the pair of a row, a and b.
    """

    dim: int
    prior = 0.0

    @classmethod
    def random(cls, n_data: int, dim: int, seed: int) -> Rosenbrock:
        rng = np.random.default_rng(seed)
        pair = rng.integers(0, dim - 1, n_data).astype(float)
        a, b = 1.0 + 0.1 * rng.standard_normal((2, n_data))
        return cls(np.column_stack((pair, a, b)), np.zeros(n_data), dim)

    def initial(self, rng: np.random.Generator) -> Array:
        return np.where(np.arange(self.dim) % 2 == 0, -1.2, 1.0)

    def add(self, theta: Array, X: Array, y: Array, out: Array) -> float:
        at = X[:, 0].astype(int)
        low, high = theta[at], theta[at + 1]
        bend = high - X[:, 1] * low * low
        rest = 1.0 - X[:, 2] * low
        np.add.at(out, at, -40.0 * bend * X[:, 1] * low - 2.0 * X[:, 2] * rest)
        np.add.at(out, at + 1, 20.0 * bend)
        return float((10.0 * bend * bend + rest * rest).sum())
