"""Target: U and its exact gradient at float64 points, counted, whatever the problem's own precision."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.types import Array, Problem, extra


class Target:
    """U over all data as a function of a float64 vector.

    A problem in float32 is asked at the rounded point.  The gradient there is one fixed function of the
    vector, so that leapfrog steps stay reversible and Metropolis exact for exp(-U(rounded theta)).

    gradients: how many gradients, or values in their place, were computed.
    """

    def __init__(self, problem: Problem, dtype: Any) -> None:
        self.problem, self.dtype = problem, np.dtype(dtype)
        self.dim, self.n_data = int(problem.dim), int(problem.n_data)
        self._rows = np.arange(self.n_data)
        # One pass over the data instead of two, where the problem offers it.
        self._both = extra(problem, "grad_with_value")
        self._g = np.empty(self.dim, self.dtype)
        self.gradients = 0
        self.recent: deque[tuple[Array, Array]] | None = None
        """Where set, the points and gradients seen last."""

    def value(self, x: Array) -> float:
        self.gradients += 1
        return float(self.problem.value(x.astype(self.dtype)))

    def grad(self, x: Array, rows: Any, out: Array) -> None:
        """As a problem's; `rows` is ignored: all of them are used."""
        self.gradients += 1
        self.problem.grad(x.astype(self.dtype), self._rows, self._g)
        out[...] = self._g
        if self.recent is not None:
            self.recent.append((np.array(x, np.float64), np.array(out, np.float64)))

    def value_and_grad(self, x: Array, out: Array) -> float:
        """U and its gradient; U is infinite where either is not finite."""
        self.gradients += 1
        point = x.astype(self.dtype)
        if self._both is None:
            self.problem.grad(point, self._rows, self._g)
            value = float(self.problem.value(point))
        else:
            value = float(self._both(point, self._rows, self._g))
        out[...] = self._g
        return (
            value
            if math.isfinite(value) and math.isfinite(sum_of_squares(out))
            else math.inf
        )
