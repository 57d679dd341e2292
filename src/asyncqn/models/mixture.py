"""A Gaussian mixture whose K centres are unknown: non-convex, with local minima that miss a cluster.

x_i ~ (1/K) sum_k N(c_k, I); theta holds the centres one after the other, with the prior N(0, scale^2 I):

    U(theta) = -sum_i log (1/K) sum_k exp(-|x_i - theta_k|^2 / 2) + |theta|^2 / (2 scale^2)

(constants left out).  If two centres share a cluster and another lies between two clusters, every small move
increases U; the number of such minima grows quickly with K.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from asyncqn.errors import require
from asyncqn.kernels import mixture as kernels
from asyncqn.models.one_line import one_line
from asyncqn.models.parameters import Recipe, Size
from asyncqn.models.validation import misfit
from asyncqn.parameters import REAL, Checked, Seed, checked, parameter
from asyncqn.types import Array, Rows


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(Checked):
    """A mixture of Gaussians with equal weights, variance 1 and unknown centres: a problem with many minima.

    Parameters
    ----------
    X : array-like of shape (n_data, d)
        The data points, as float64.
    centres : array-like of shape (K, d)
        The centres around which the data were drawn; only their number is used.
    scale : float
        Standard deviation of the prior of the centres.
    recipe : dict, optional
        The arguments from which a saved run rebuilds the problem; set by `random` and by readers of files.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.Mixture.random(seed=0)
    >>> problem.dim == problem.centres.size
    True
    """

    X: Annotated[Array, REAL] = field(repr=False)
    centres: Annotated[Array, REAL] = field(repr=False)
    scale: Annotated[float, parameter(gt=0.0)]
    recipe: Recipe = None
    """The arguments of `random`, from which a saved run can rebuild the problem."""

    def __repr__(self) -> str:
        return one_line(self, f"scale {self.scale:g}")

    def __post_init__(self) -> None:
        super().__post_init__()
        X, centres = (
            np.ascontiguousarray(self.X, np.float64),
            np.ascontiguousarray(self.centres, np.float64),
        )
        require(
            X.ndim == 2 and X.size > 0,
            f"X must be a non-empty matrix, not of shape {X.shape}.",
        )
        require(
            centres.ndim == 2 and len(centres) >= 1 and centres.shape[1] == X.shape[1],
            f"centres must be a matrix with {X.shape[1]} columns, as X has, not of shape {centres.shape}.",
        )
        require(
            bool(np.isfinite(X).all() and np.isfinite(centres).all()),
            "X and centres must be finite.",
        )
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "centres", centres)

    @classmethod
    @checked
    def random(
        cls,
        components: Annotated[int, parameter(ge=1, le=10_000)] = 6,
        n_data: Size = 300,
        width: Annotated[float, parameter(gt=0.0)] = 20.0,
        gap: Annotated[float, parameter(ge=0.0)] = 5.0,
        seed: Seed = 0,
    ) -> Mixture:
        """Make equal clusters in the plane, with centres drawn uniformly from a square of side `width`.

        Parameters
        ----------
        components : int, default 6
            Number of clusters.
        n_data : int, default 300
            Number of points, of all clusters together.
        width : float, default 20.0
            Side of the square, and scale of the prior.
        gap : float, default 5.0
            Least distance of two centres; a closer one is drawn again.
        seed : int, default 0
            Seed of centres and points.
        """
        require(
            components * gap**2 <= width**2,
            f"{components} centres {gap:g} apart do not fit into a square of side {width:g}: raise width.",
        )
        rng = np.random.Generator(np.random.Philox(key=[seed, 0x313]))
        centres = np.empty((0, 2))
        # All centres are drawn again if 10,000 points did not suffice.
        while len(centres) < components:
            new = rng.uniform(-width / 2, width / 2, (10_000, 2))
            centres = np.empty((0, 2))
            # In the order of the draws, so that the centres follow from the seed alone.
            for point in new:
                if (
                    len(centres) < components
                    and (np.hypot(*(centres - point).T) >= gap).all()
                ):
                    centres = np.vstack([centres, point])
        # Equal numbers of points per cluster; the permutation below mixes their order.
        X = centres[np.arange(n_data) % components] + rng.standard_normal((n_data, 2))
        recipe = {
            "components": components,
            "n_data": n_data,
            "width": width,
            "gap": gap,
            "seed": seed,
        }
        return cls(rng.permutation(X), centres, float(width), recipe)

    @classmethod
    def example(cls, dtype: str = "float64") -> Mixture:
        """Return a small problem for tests; its data and theta are float64."""
        require(dtype == "float64", f"Mixture computes in float64, not {dtype}.")
        return cls.random(3, 40, width=10.0, gap=4.0, seed=3)

    @property
    def dim(self) -> int:
        return int(self.centres.size)

    @property
    def n_data(self) -> int:
        return int(self.X.shape[0])

    def value(self, theta: Array) -> float:
        return self.value_rows(theta, np.arange(self.n_data))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of U(theta) from `rows`; the prior counts once."""
        require(
            theta.shape == (self.dim,),
            f"theta must be a vector of dim = {self.dim} numbers.",
        )
        return float(kernels.value(self.X, self.scale, theta, rows))

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        if theta.size != self.dim or not kernels.gradient(
            self.X, self.scale, theta, rows, out
        ):
            raise misfit(self)

    def initial(self, rng: np.random.Generator) -> Array:
        """Return K of the data points, as is usual for mixtures."""
        # Different points, so that no two centres start together.
        return self.X[rng.choice(self.n_data, len(self.centres), replace=False)].ravel()

    def reference(self) -> dict[str, Any] | None:
        return None if self.recipe is None else {"kind": "mixture", **self.recipe}
