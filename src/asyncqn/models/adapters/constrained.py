"""Constrained: a problem in bounded parameters, as a problem on the whole real space.

A bounded parameter phi is a function of a real number theta:

    low < phi         phi = low + exp(theta)                     |dphi/dtheta| = exp(theta)
    phi < high        phi = high - exp(theta)                    |dphi/dtheta| = exp(theta)
    low < phi < high  phi = low + (high - low) p                 |dphi/dtheta| = (high - low) p (1 - p)

with p = 1 / (1 + exp(-theta)).

The density of theta is that of phi times |dphi/dtheta|, so U(theta) = U(phi) - sum log |dphi/dtheta|.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np

from asyncqn.core.problem import read_only
from asyncqn.errors import require
from asyncqn.models import reference_of
from asyncqn.models.one_line import one_line
from asyncqn.parameters import Checked, checked, parameter
from asyncqn.types import Array, Problem, Rows, extra


@dataclass(frozen=True)
class Bounded(Checked):
    """A named parameter, or several of one name, with its bounds.

    Parameters
    ----------
    name : str
        Name in tables and in ArviZ.
    size : int, optional
        Number of entries, named `name[0]`, `name[1]` and so on; without it, one number, `name`.
    low : float, default -inf
        Lower bound of the open interval; -inf where there is none.
    high : float, default inf
        Upper bound of the open interval; inf where there is none.

    Examples
    --------
    >>> import asyncqn as aq
    >>> aq.Bounded("beta", 2).names, aq.Bounded("sigma", low=0.0).names
    (['beta[0]', 'beta[1]'], ['sigma'])
    """

    name: Annotated[str, parameter(pattern="^[^\\[\\]]+$")]
    size: Annotated[int | None, parameter(ge=1, le=2**31 - 1)] = None
    low: Annotated[float, parameter(infinite=True)] = -math.inf
    high: Annotated[float, parameter(infinite=True)] = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.low < self.high,
            f"{self.name}: low = {self.low:g} must lie below high = {self.high:g}.",
        )

    @property
    def names(self) -> list[str]:
        """The name of every entry."""
        if self.size is None:
            return [self.name]
        return [f"{self.name}[{i}]" for i in range(self.size)]


class Constrained:
    """A problem in bounded parameters phi, transformed to one in unbounded theta.

    Parameters
    ----------
    problem : Problem
        U as a function of phi, with its gradient in phi: minus the logarithm of the density of phi.
    parameters : sequence of Bounded
        All parameters, in the order of phi.

    Notes
    -----
    `constrain` turns draws of theta into draws of phi; `sample` does this by itself, and names them. The
    minimum of this problem is the mode of theta's density, not of phi's, because the density of theta
    includes the Jacobian.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> class Gamma:                                                     # of shape 3
    ...     dim = n_data = 1
    ...     def value(self, phi):
    ...         return phi[0] - 2.0 * np.log(phi[0])
    ...     def grad(self, phi, rows, out):
    ...         out[:] = 1.0 - 2.0 / phi
    >>> model = aq.Constrained(Gamma(), [aq.Bounded("rate", low=0.0)])
    >>> samples = aq.sample(model, chains=4, draws=2000, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> bool(abs(samples.summary()["mean"][0] - 3.0) < 0.2)
    True
    """

    @checked
    def __init__(
        self,
        problem: Problem,
        parameters: Sequence[Bounded],
    ) -> None:
        self.names: list[str] = [name for one in parameters for name in one.names]
        require(
            len(self.names) == int(problem.dim),
            f"the problem has dim = {problem.dim}, but the parameters have {len(self.names)} entries in all.",
        )
        require(
            len({one.name for one in parameters}) == len(parameters),
            "two parameters have the same name: rename one of them.",
        )
        # The user's object is kept for its reference; the run calls the guarded one.
        self.problem, self._inner = problem, read_only(problem)
        self.parameters = list(parameters)
        self.dim, self.n_data = int(problem.dim), int(problem.n_data)
        low = np.array([one.low for one in parameters for _ in one.names])
        high = np.array([one.high for one in parameters for _ in one.names])
        bounded_below, bounded_above = np.isfinite(low), np.isfinite(high)
        # Masks instead of a loop over parameters: `constrain` is called for every gradient.
        self._below = bounded_below & ~bounded_above
        self._above = bounded_above & ~bounded_below
        self._between = bounded_below & bounded_above
        self._low = np.where(bounded_below, low, 0.0)
        self._high = np.where(bounded_above, high, 0.0)
        self._width = np.where(self._between, self._high - self._low, 1.0)

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:4]) + (", ..." if len(self.names) > 4 else "")
        return one_line(self, shown, f"of {self.problem!r}")

    @property
    def users_problem(self) -> Problem:
        """The user's problem, which messages name."""
        return self.problem

    @property
    def dtype(self) -> Any:
        return extra(self.problem, "dtype")

    @property
    def initial(self) -> Callable[[np.random.Generator], Array] | None:
        start = extra(self.problem, "initial")
        # A property and not a method: where the inner problem lacks a member, this one must lack it too.
        return None if start is None else lambda rng: self.unconstrain(start(rng))

    @property
    def value_rows(self) -> Callable[[Array, Rows], float] | None:
        return None if extra(self.problem, "value_rows") is None else self._value_rows

    @property
    def grad_with_value(self) -> Callable[[Array, Rows, Array], float] | None:
        inside = extra(self.problem, "grad_with_value")
        return None if inside is None else self._grad_with_value

    def constrain(self, theta: Array) -> Array:
        """Return phi for theta; many theta may be stacked along the last axis."""
        theta = np.asarray(theta)
        with np.errstate(over="ignore"):
            # tanh instead of 1 / (1 + exp(-theta)): it does not overflow. exp may, and infinity is then the
            # right limit.
            grown, logistic = np.exp(theta), 0.5 + 0.5 * np.tanh(0.5 * theta)
        phi = np.where(self._below, self._low + grown, theta)
        phi = np.where(self._above, self._high - grown, phi)
        phi = np.where(self._between, self._low + self._width * logistic, phi)
        return phi.astype(theta.dtype)

    def unconstrain(self, phi: Array) -> Array:
        """Return theta for phi, which must lie inside its bounds; for a `theta0`."""
        phi = np.asarray(phi, np.float64)
        with np.errstate(all="ignore"):
            inside = (phi - self._low) / self._width
            theta = np.where(self._below, np.log(phi - self._low), phi)
            theta = np.where(self._above, np.log(self._high - phi), theta)
            theta = np.where(self._between, np.log(inside) - np.log1p(-inside), theta)
        # A point on or beyond a bound has an infinite or undefined logarithm, so finiteness is the test.
        outside = [self.names[i] for i in np.flatnonzero(~np.isfinite(theta))]
        require(
            not outside, f"{', '.join(outside)} must lie strictly inside the bounds."
        )
        return theta

    def reference(self) -> dict[str, Any] | None:
        """Return the reference of the inner problem, with the bounds; None if the inner problem has none."""
        inside = reference_of(self.problem)
        if inside is None:
            return None
        # Without None, and without infinity, which JSON has not: both are defaults.
        bounds = [
            {
                k: v
                for k, v in asdict(one).items()
                if v not in (None, -math.inf, math.inf)
            }
            for one in self.parameters
        ]
        return {"kind": "constrained", "problem": inside, "parameters": bounds}

    def value(self, theta: Array) -> float:
        value = float(self._inner.value(self.constrain(theta)))
        return value - self._log_jacobian(theta)

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        self._inner.grad(self.constrain(theta), rows, out)
        self._to_theta(theta, out)

    def _value_rows(self, theta: Array, rows: Rows) -> float:
        value = float(self._inner.value_rows(self.constrain(theta), rows))
        return value - self._log_jacobian(theta)

    def _grad_with_value(self, theta: Array, rows: Rows, out: Array) -> float:
        value = float(self._inner.grad_with_value(self.constrain(theta), rows, out))
        self._to_theta(theta, out)
        return value - self._log_jacobian(theta)

    def _log_jacobian(self, theta: Array) -> float:
        size = np.abs(theta)
        # log p (1 - p) = -|theta| - 2 log(1 + exp(-|theta|)), which cannot overflow.
        logistic = np.log(self._width) - size - 2.0 * np.log1p(np.exp(-size))
        terms = np.where(self._below | self._above, theta, 0.0)
        return float(np.where(self._between, logistic, terms).sum())

    def _to_theta(self, theta: Array, out: Array) -> None:
        """Convert a gradient in phi to one in theta, in place."""
        tanh = np.tanh(0.5 * theta)
        with np.errstate(over="ignore"):
            grown = np.exp(theta)
        # dphi/dtheta: p (1 - p) = (1 - tanh^2(theta / 2)) / 4.
        slope = np.where(self._between, 0.25 * self._width * (1.0 - tanh * tanh), 1.0)
        slope = np.where(self._below, grown, np.where(self._above, -grown, slope))
        out *= slope.astype(out.dtype)
        # The derivative of log |dphi/dtheta|: 1 - 2 p = -tanh(theta / 2) between two bounds, 1 at one bound.
        bend = np.where(self._below | self._above, 1.0, 0.0)
        out -= np.where(self._between, -tanh, bend).astype(out.dtype)
