"""Logistic regression with a Gaussian prior: the model from which users with many rows may start.

Labels y_i = -1 or 1, rows x_i (a column of ones makes an intercept), prior precision `prior`:

    U(theta) = sum_i log(1 + exp(-y_i x_i'theta)) + (prior / 2) |theta|^2

Value and gradient come from one pass over the rows (`grad_with_value`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.streams import check_seed
from asyncqn.errors import BadInput, require
from asyncqn.kernels import logistic as kernels
from asyncqn.types import Array, Rows

_CHUNK = 65_536


@dataclass(frozen=True, eq=False)
class LogisticRegression:
    """Logistic regression with a Gaussian prior.

    Rows `X` (n_data x dim, float64 or float32, which is theta's type too), labels `y` of -1 and 1.

    >>> import numpy as np
    >>> import asyncqn as aq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> y = np.sign(X @ np.array([2.0, -1.0, 0.0]) + rng.standard_normal(200))
    >>> run = aq.minimize(aq.LogisticRegression(X, y))
    >>> bool(run.theta[0] > 1 and run.theta[1] < -0.5)
    True
    """

    X: Array = field(repr=False)
    y: Array = field(repr=False)
    prior: float = 1.0
    recipe: dict[str, Any] | None = None
    """The arguments of `random` that made it, from which a saved run can make it again."""

    def __post_init__(self) -> None:
        X, y = np.ascontiguousarray(self.X), np.asarray(self.y)
        require(X.ndim == 2 and X.size > 0, f"X must be a non-empty matrix, not of shape {X.shape}.")
        require(X.dtype in (np.float64, np.float32), f"X must be float64 or float32, not {X.dtype}.")
        require(
            y.shape == (X.shape[0],),
            f"y must have one label per row of X, {X.shape[0]}, but has shape {y.shape}.",
        )
        require(bool(np.isin(y, (-1, 1)).all()), "labels must be -1 or 1: map yours to these.")
        require(bool(np.isfinite(X).all()), "X contains NaN or infinity: remove or fix those rows.")
        require(0.0 <= self.prior < np.inf, f"prior must be finite and not negative, not {self.prior!r}.")
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "prior", float(self.prior))
        object.__setattr__(self, "y", np.ascontiguousarray(y, np.float64))

    @classmethod
    def random(
        cls,
        n_data: int = 10_000,
        dim: int = 20,
        condition: float = 10.0,
        correlation: float = 0.5,
        signal: float = 2.0,
        scale: float = 1.0,
        prior: float = 1.0,
        seed: int = 0,
        dtype: npt.DTypeLike = np.float64,
    ) -> LogisticRegression:
        """Correlated Gaussian features, and labels from the model.

        Neighbouring features have the given `correlation`, as in an autoregression; standard deviations
        fall from `scale` to scale / condition over the columns.  The true theta gives x'theta the standard
        deviation `signal`, shared evenly by the columns.
        """
        for name, count in (("n_data", n_data), ("dim", dim)):
            require(
                isinstance(count, int) and not isinstance(count, bool) and count >= 1,
                f"{name} must be an integer of at least 1, not {count!r}.",
            )
        require(condition >= 1.0, f"condition must be at least 1, not {condition!r}.")
        require(abs(correlation) < 1.0, f"correlation must lie between -1 and 1, not {correlation!r}.")
        require(scale > 0.0 and signal > 0.0, f"scale and signal must be positive: {scale!r}, {signal!r}.")
        recipe: dict[str, Any] = {
            "n_data": n_data, "dim": dim, "condition": condition, "correlation": correlation,
            "signal": signal, "scale": scale, "prior": prior, "seed": seed, "dtype": np.dtype(dtype).name,
        }  # fmt: skip
        rng = np.random.Generator(np.random.Philox(key=[check_seed(seed), 0x106]))
        spread = scale * np.geomspace(1.0, 1.0 / condition, dim) if dim > 1 else np.array([scale])
        truth = signal / np.sqrt(dim) * rng.choice([-1.0, 1.0], dim)  # of features with spread 1
        X, y = np.empty((n_data, dim), dtype), np.empty(n_data)
        for first in range(0, n_data, _CHUNK):
            last = min(first + _CHUNK, n_data)
            Z = rng.standard_normal((last - first, dim))
            for j in range(1, dim):
                Z[:, j] = correlation * Z[:, j - 1] + np.sqrt(1.0 - correlation**2) * Z[:, j]
            chance = 1.0 / (1.0 + np.exp(-(Z * truth).sum(axis=1)))
            y[first:last] = np.where(rng.random(last - first) < chance, 1.0, -1.0)
            X[first:last] = Z * spread
        return cls(X, y, prior, recipe)

    @classmethod
    def example(cls, dtype: str = "float64") -> LogisticRegression:
        """A small one, for tests."""
        return cls.random(60, 5, seed=3, dtype=dtype)

    @property
    def dim(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_data(self) -> int:
        return int(self.X.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.X.dtype

    def value(self, theta: Array) -> float:
        return self.value_rows(theta, np.arange(self.n_data))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """The estimate of U(theta) from `rows`, the prior counted once."""
        fits, value = kernels.value(self.X, self.y, self.prior, theta, rows)
        return self._checked(fits, value)

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        self.grad_with_value(theta, rows, out)

    def grad_with_value(self, theta: Array, rows: Rows, out: Array) -> float:
        """Write the gradient's estimate from `rows` into `out`, return that of U."""
        fits, value = kernels.value_and_gradient(self.X, self.y, self.prior, theta, rows, out)
        return self._checked(fits, value)

    def _checked(self, fits: bool, value: float) -> float:
        if not fits:
            raise BadInput(
                f"theta and out must hold dim = {self.dim} numbers, and rows lie between 0 and "
                f"n_data - 1 = {self.n_data - 1}."
            )
        return float(value)

    def reference(self) -> dict[str, Any] | None:
        return None if self.recipe is None else {"kind": "logistic-regression", **self.recipe}
