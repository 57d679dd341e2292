"""Target: U and its exact gradient at float64 points, counted, whatever the problem's own precision."""

from __future__ import annotations

import math
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
        self.problem = problem
        self.dtype = np.dtype(dtype)
        self.dim = int(problem.dim)
        self.n_data = int(problem.n_data)
        self.gradients = 0
        self._rows = np.arange(self.n_data)
        # One pass over the data instead of two, where the problem offers it.
        self._both = extra(problem, "grad_with_value")
        self._g = np.empty(self.dim, self.dtype)

    def value(self, x: Array) -> float:
        """Return U, and infinity where it is not a finite number."""
        self.gradients += 1
        value = float(self.problem.value(x.astype(self.dtype)))
        return value if math.isfinite(value) else math.inf

    def grad(self, x: Array, rows: Any, out: Array) -> None:
        """Write the gradient, as a problem does; `rows` is ignored: all of them are used."""
        self.gradients += 1
        self.problem.grad(x.astype(self.dtype), self._rows, self._g)
        out[...] = self._g

    def value_and_grad(self, x: Array, out: Array) -> float:
        """Write the gradient and return U, which is infinite where either is not finite."""
        self.gradients += 1
        point = x.astype(self.dtype)
        if self._both is None:
            self.problem.grad(point, self._rows, self._g)
            value = float(self.problem.value(point))
        else:
            value = float(self._both(point, self._rows, self._g))
        out[...] = self._g
        finite = math.isfinite(value) and math.isfinite(sum_of_squares(out))
        return value if finite else math.inf
