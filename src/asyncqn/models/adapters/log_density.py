"""LogDensity: a problem from one function that returns a log density and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncqn.errors import BadInput, require
from asyncqn.models.one_line import one_line
from asyncqn.models.parameters import Dim
from asyncqn.parameters import RealArray, checked
from asyncqn.types import Array, Rows


class LogDensity:
    """A whole log density as a problem: U(theta) = -logp(theta), of one data point.

    Parameters
    ----------
    logp_and_grad : callable
        logp_and_grad(theta) returns log p(theta), a number, up to a constant, and its gradient, a vector of `dim`
        numbers.  Both may be NumPy or JAX arrays, or torch tensors.
    dim : int
        Number of parameters in theta.
    names : sequence of str, optional
        Name of every parameter in tables and in ArviZ; `beta[0]`, `beta[1]` become one array there.
    start : array-like of shape (dim,), optional
        The point around which searches begin; without it, zeros, in `Constrained` the zeros of its real line.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> def logp_and_grad(theta):
    ...     return -0.5 * theta @ theta, -theta
    >>> problem = aq.LogDensity(logp_and_grad, 2, names=["a", "b"])
    >>> samples = aq.sample(problem, draws=2000, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> samples.names, bool(abs(samples["a"].mean()) < 0.2)
    (['a', 'b'], True)

    With JAX, pass `jax.jit(jax.value_and_grad(logp))`.
    """

    n_data = 1

    @checked
    def __init__(
        self,
        logp_and_grad: Callable[[Array], tuple[Any, Any]],
        dim: Dim,
        *,
        names: Sequence[str] | None = None,
        start: RealArray | None = None,
    ) -> None:
        require(
            callable(logp_and_grad),
            "logp_and_grad must be a function of theta that returns a number and a vector.",
        )
        self.dim = dim
        self._function = logp_and_grad
        self._start = None if start is None else np.array(start, np.float64)
        first = np.zeros(dim) if self._start is None else self._start
        require(
            first.shape == (dim,),
            f"start must be a vector of dim = {dim} numbers, not of shape {first.shape}.",
        )
        if names is not None:
            self.names = list(names)
            require(
                len(self.names) == dim,
                f"there are {dim} parameters, but {len(self.names)} names: pass one for each.",
            )
        # Zeros may lie on the edge of the support, for example of a standard deviation.
        with np.errstate(all="ignore"):
            self._evaluate(first)

    def __repr__(self) -> str:
        return one_line(self)

    @property
    def initial(self) -> Callable[[np.random.Generator], Array] | None:
        # None where no start is given: `Constrained` then begins inside its bounds, where zeros may not lie.
        start = self._start
        return None if start is None else lambda rng: start.copy()

    def value(self, theta: Array) -> float:
        """Return U(theta)."""
        return -self._evaluate(theta)[0]

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        """Write the gradient of U to `out`; `rows` is ignored, for the density has one part."""
        out[:] = -self._evaluate(theta)[1]

    def grad_with_value(self, theta: Array, rows: Rows, out: Array) -> float:
        """Write the gradient of U to `out`, and return U."""
        log_density, gradient = self._evaluate(theta)
        out[:] = -gradient
        return -log_density

    def _evaluate(self, theta: Array) -> tuple[float, Array]:
        """Call the user's function, and check what it returns."""
        pair = self._function(theta)
        try:
            log_density, gradient = map(_detached, pair)
            number = np.asarray(log_density, np.float64)
            vector = np.asarray(gradient, np.float64)
        except (TypeError, ValueError, RuntimeError):
            raise BadInput(
                "logp_and_grad must return two things, a number and a vector of NumPy, JAX or torch numbers, "
                f"not {type(pair).__name__}."
            ) from None
        require(
            number.size == 1,
            f"the log density must be one number, not an array of shape {number.shape}.",
        )
        require(
            vector.shape == (self.dim,),
            f"the gradient must be a vector of dim = {self.dim} numbers, not of shape {vector.shape}.",
        )
        return float(number.reshape(())), vector


def _detached(part: Any) -> Any:
    """Return a torch tensor without its graph, and anything else as it is."""
    detach = getattr(part, "detach", None)
    return part if detach is None else detach()
