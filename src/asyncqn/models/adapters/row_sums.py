"""The base of problems that users bring: sums over rows, scaled to all data, and a prior that counts once.

    U(theta) = sum_i f_i(theta) + (prior / 2) |theta|^2

The prior is one precision, or one for each number of theta.
A subclass defines how the f_i of some rows are summed; estimates from a sample, and values together with
gradients, follow from that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn.errors import require
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.models.one_line import one_line
from asyncqn.types import Array, Rows


class RowSums:
    """A problem defined by `losses` and `losses_with_grad`."""

    def __init__(
        self, n_data: int, dim: int, dtype: np.dtype[Any], prior: float | Array
    ) -> None:
        require(
            n_data >= 1, f"n_data must be an integer of at least 1, not {n_data!r}."
        )
        self.n_data = n_data
        self.dim = dim
        self.dtype = dtype
        self.prior = prior
        self._has_prior = bool(np.any(prior))

    def __repr__(self) -> str:
        words = "a prior per parameter" if np.ndim(self.prior) else ""
        if self._has_prior and not words:
            words = f"prior {self.prior:g}"
        return one_line(self, *self._words(), words)

    def _words(self) -> tuple[str, ...]:
        """Return a description of what is summed."""
        return ()

    def losses(self, theta: Array, rows: Rows) -> float:
        """Return the sum of f_i(theta) over `rows`."""
        raise NotImplementedError

    def losses_with_grad(self, theta: Array, rows: Rows, out: Array) -> float | None:
        """Return the same, with its gradient in `out`; None if the value would cost another pass."""
        raise NotImplementedError

    def value(self, theta: Array) -> float:
        """Return U(theta) over all rows."""
        return self.value_rows(theta, np.arange(self.n_data))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of U(theta) from `rows`; the prior counts once."""
        return self._scaled(theta, rows, self.losses(theta, rows))

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        """Write the gradient of that estimate to `out`."""
        self._with_grad(theta, rows, out)

    def _with_grad(self, theta: Array, rows: Rows, out: Array) -> float | None:
        total = self.losses_with_grad(theta, rows, out)
        # The scaling applies to the data alone: the prior below counts once, whatever the sample.
        out *= self.n_data / len(rows)
        if self._has_prior:
            out += self.prior * theta
        return total

    def _scaled(self, theta: Array, rows: Rows, total: float) -> float:
        # Not computed without a prior, which most users' problems have not.
        scaled = self.n_data / len(rows) * total
        if not self._has_prior:
            return scaled
        if isinstance(self.prior, np.ndarray):
            squares = sum_of_squares(np.sqrt(self.prior) * theta)
            return scaled + 0.5 * float(squares)
        return scaled + 0.5 * self.prior * float(sum_of_squares(theta))


class RowSumsWithValue(RowSums):
    """A problem whose value comes together with the gradient."""

    def grad_with_value(self, theta: Array, rows: Rows, out: Array) -> float:
        """Write the gradient's estimate from `rows` to `out`, and return that of U, in one pass over the
        rows."""
        total = self._with_grad(theta, rows, out)
        assert total is not None
        return self._scaled(theta, rows, total)
