"""Phase retrieval: recover a vector from squared measurements; non-convex, with a known global minimum.

y_i = (a_i'x)^2 without noise, a_i ~ N(0, I), and

    U(theta) = sum_i ((a_i'theta)^2 - y_i)^2 / 4,        U* = 0 at theta = x and theta = -x.

The prior is flat.  With few more measurements than unknowns U has local minima above zero, in which descent
from a random start usually ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from asyncqn.errors import require
from asyncqn.kernels import phase_retrieval as kernels
from asyncqn.models.one_line import one_line
from asyncqn.models.parameters import Dim, Recipe, Size
from asyncqn.models.validation import misfit
from asyncqn.parameters import REAL, Checked, Seed, checked
from asyncqn.types import Array, Rows


@dataclass(frozen=True, eq=False, repr=False)
class PhaseRetrieval(Checked):
    """Recovery of a signal from squared linear measurements: many minima, of which the best is 0.

    Parameters
    ----------
    A : array-like of shape (n_data, dim)
        The rows a_i of the measurements, as float64.
    signal : array-like of shape (dim,)
        The signal x that made the measurements y = (A x)^2.
    recipe : dict, optional
        The arguments from which a saved run rebuilds the problem; set by `random` and by readers of files.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.PhaseRetrieval.random(dim=5, n_data=20, seed=0)
    >>> problem.value(problem.signal) < 1e-20                            # zero but for rounding
    True
    """

    A: Annotated[Array, REAL] = field(repr=False)
    signal: Annotated[Array, REAL] = field(repr=False)
    recipe: Recipe = None
    """The arguments of `random`, from which a saved run can rebuild the problem."""
    y: Array = field(init=False, repr=False)

    optimum = 0.0

    def __repr__(self) -> str:
        return one_line(self)

    def __post_init__(self) -> None:
        super().__post_init__()
        A, x = (
            np.ascontiguousarray(self.A, np.float64),
            np.ascontiguousarray(self.signal, np.float64),
        )
        require(
            A.ndim == 2 and A.size > 0,
            f"A must be a non-empty matrix, not of shape {A.shape}.",
        )
        require(
            x.shape == (A.shape[1],),
            f"signal must have one entry per column of A, {A.shape[1]}.",
        )
        require(
            bool(np.isfinite(A).all() and np.isfinite(x).all()),
            "A and signal must be finite numbers.",
        )
        object.__setattr__(self, "A", A)
        object.__setattr__(self, "signal", x)
        object.__setattr__(self, "y", np.einsum("ij,j->i", A, x) ** 2)

    @classmethod
    @checked
    def random(cls, dim: Dim = 10, n_data: Size = 25, seed: Seed = 0) -> PhaseRetrieval:
        """Make a problem with standard normal A, and a signal in a random direction with |x|^2 = dim.

        Parameters
        ----------
        dim : int, default 10
            Number of entries of the signal.
        n_data : int, default 25
            Number of measurements.
        seed : int, default 0
            Seed of A and the signal.
        """
        rng = np.random.Generator(np.random.Philox(key=[seed, 0x9A5E]))
        A, x = rng.standard_normal((n_data, dim)), rng.standard_normal(dim)
        x *= np.sqrt(dim / (x @ x))
        return cls(A, x, {"dim": dim, "n_data": n_data, "seed": seed})

    @classmethod
    def example(cls, dtype: str = "float64") -> PhaseRetrieval:
        """Return a small problem for tests; its data and theta are float64."""
        require(dtype == "float64", f"PhaseRetrieval computes in float64, not {dtype}.")
        return cls.random(6, 30, seed=3)

    @property
    def dim(self) -> int:
        return int(self.A.shape[1])

    @property
    def n_data(self) -> int:
        return int(self.A.shape[0])

    def value(self, theta: Array) -> float:
        return self.value_rows(theta, np.arange(self.n_data))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of U(theta) from `rows`."""
        require(
            theta.shape == (self.dim,),
            f"theta must be a vector of dim = {self.dim} numbers.",
        )
        return float(kernels.value(self.A, self.y, theta, rows))

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        if not kernels.gradient(self.A, self.y, theta, rows, out):
            raise misfit(self)

    def initial(self, rng: np.random.Generator) -> Array:
        """Draw from N(0, I), which is about as long as the signal of `random`."""
        return rng.standard_normal(self.dim)

    def metrics(self, theta: Array) -> dict[str, float]:
        """Return the `distance` of theta from x or -x, whichever is nearer, relative to |x|."""
        # The measurements do not determine the sign of the signal.
        off = min(
            float(np.linalg.norm(theta - self.signal)),
            float(np.linalg.norm(theta + self.signal)),
        )
        return {"distance": off / max(float(np.linalg.norm(self.signal)), 1e-300)}

    def reference(self) -> dict[str, Any] | None:
        return (
            None if self.recipe is None else {"kind": "phase-retrieval", **self.recipe}
        )
