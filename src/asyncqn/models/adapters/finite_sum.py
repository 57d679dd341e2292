"""FiniteSum: a problem defined by two functions instead of a class.

The functions are called once when the object is made, because a mean in the place of a sum is a common
mistake and would give a plausible but wrong result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, require
from asyncqn.models.adapters.row_sums import RowSums
from asyncqn.models.parameters import Dim, Prior, Size
from asyncqn.parameters import Precision, RealArray, checked
from asyncqn.types import Array, Rows


class FiniteSum(RowSums):
    """A sum over data points, given by two functions of theta and rows.

    Parameters
    ----------
    value : callable
        value(theta, rows) returns the sum of f_i(theta) over these rows, a number. It is a sum and not a
        mean: the scaling from a sample to all data is done by this class. A row may occur more than once.
    grad : callable
        grad(theta, rows) returns the gradient of that sum, a vector of `dim` numbers.
    n_data : int
        Number of data points.
    dim : int
        Number of parameters in theta.
    prior : float, default 0.0
        Precision of a Gaussian prior: adds (prior / 2) |theta|^2 once for all data.
    start : array-like of shape (dim,), optional
        The default starting point; without it, zeros.
    dtype : dtype, default float64
        Type of theta, float64 or float32.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> y = np.array([1.0, 2.0, 6.0])
    >>> problem = aq.FiniteSum(
    ...     value=lambda theta, rows: 0.5 * ((theta[0] - y[rows]) ** 2).sum(),
    ...     grad=lambda theta, rows: np.array([(theta[0] - y[rows]).sum()]),
    ...     n_data=3, dim=1,
    ... )
    >>> run = aq.minimize(problem)
    >>> run.status, round(float(run.theta[0]), 6)
    ('converged', 3.0)
    """

    @checked
    def __init__(
        self,
        value: Callable[[Array, Rows], Any],
        grad: Callable[[Array, Rows], Any],
        n_data: Size,
        dim: Dim,
        *,
        prior: Prior = 0.0,
        start: RealArray | None = None,
        dtype: Precision = np.float64,
    ) -> None:
        kind = np.dtype(dtype)
        super().__init__(n_data, dim, kind, prior)
        _check_signature("value", value)
        _check_signature("grad", grad)
        self._value, self._grad = value, grad
        self._start = (
            np.zeros(self.dim, kind) if start is None else np.array(start, kind)
        )
        require(
            self._start.shape == (self.dim,),
            f"start must be a vector of dim = {self.dim} numbers, not of shape {self._start.shape}.",
        )
        self._check_sums()

    def initial(self, rng: np.random.Generator) -> Array:
        """Return the given start, or zeros."""
        return self._start.copy()

    def losses(self, theta: Array, rows: Rows) -> float:
        """Return the user's value, checked to be a number."""
        total = self._value(_read_only(theta), _read_only(rows))
        # A vector here is a loss per row; adding it up silently would hide a mistake in the gradient.
        if np.ndim(total) != 0 or not isinstance(
            total, (int, float, np.number, np.ndarray)
        ):
            raise BadInput(
                f"value must return one number, the sum over the rows, not {_shown(total)}."
            )
        return float(total)

    def losses_with_grad(self, theta: Array, rows: Rows, out: Array) -> None:
        """Write the user's gradient to `out`, checked to be a vector."""
        g = self._grad(_read_only(theta), _read_only(rows))
        if np.shape(g) != (self.dim,):
            raise BadInput(
                f"grad must return the sum of the rows' gradients, a vector of dim = {self.dim} numbers, not "
                f"{_shown(g)}."
            )
        out[:] = g

    def _check_sums(self) -> None:
        """Raise `BadInput` where a row that occurs twice does not count twice: a mean in the place of a sum."""
        once, twice = np.zeros(1, np.int64), np.zeros(2, np.int64)
        g, h = np.empty((2, self.dim), self.dtype)
        self.losses_with_grad(self._start, once, g)
        self.losses_with_grad(self._start, twice, h)
        one, two = self.losses(self._start, once), self.losses(self._start, twice)
        pairs = {"value": (np.array([one]), np.array([two])), "grad": (g, h)}
        for name, (a, b) in pairs.items():
            size = float(np.abs(a).max())
            # A sum of about 0 shows nothing.
            mean = size > 1e-12 and bool(np.abs(b - a).max() <= 1e-6 * size)
            require(
                not mean,
                f"{name} returns a mean over the rows, but must return their sum.",
            )


def _check_signature(name: str, function: Any) -> None:
    """Raise `BadInput` for a function that cannot be called with theta and rows."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # compiled code may have no signature
    try:
        signature.bind(None, None)
    except TypeError:
        raise BadInput(
            f"{name} must take two arguments, theta and rows, and return the sum over these rows, but its "
            f"signature is {signature}."
        ) from None


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"an array of shape {shape}" if shape else f"a {type(value).__name__}"
