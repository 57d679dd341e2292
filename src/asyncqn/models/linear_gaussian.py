"""The linear Gaussian model: theta ~ N(0, I), Y_i ~ N(a_i'theta, noise_var), with its optimum in closed form.

U(theta) = |theta|^2 / 2 + sum_i (y_i - a_i'theta)^2 / (2 noise_var)   (+ constants, left out)
P = I + A'A / noise_var,   theta* = P^-1 A'y / noise_var
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from asyncqn.errors import require
from asyncqn.kernels import linear_gaussian as kernels
from asyncqn.models.one_line import one_line
from asyncqn.models.parameters import Dim, Recipe, Size, recipe_of
from asyncqn.models.validation import chosen, is_vector, misfit
from asyncqn.parameters import (
    REAL,
    Checked,
    Precision,
    RealArray,
    Seed,
    checked,
    parameter,
)
from asyncqn.types import Array, Rows

NoiseVariance = Annotated[float, parameter(gt=0.0)]
Eigenvalue = Annotated[float, parameter(ge=1.0)]


@dataclass(frozen=True, eq=False, repr=False)
class LinearGaussian(Checked):
    """Bayesian linear regression, whose minimum and posterior are known in closed form.

    Parameters
    ----------
    A : array-like of shape (n_data, dim)
        The rows a_i; float64 or float32, which is then the type of theta.
    y : array-like of shape (n_data,)
        The observations, one per row.
    noise_var : float
        Variance of an observation, in units of y^2.
    recipe : dict, optional
        The arguments from which a saved run rebuilds the problem; set by `random` and by readers of files.

    Notes
    -----
    U(theta) = |theta|^2 / 2 + |A theta - y|^2 / (2 noise_var).

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> abs(problem.value(problem.optimum_theta) - problem.optimum) < 1e-9
    True
    """

    A: Annotated[Array, REAL] = field(repr=False)
    y: Annotated[Array, REAL] = field(repr=False)
    noise_var: NoiseVariance
    recipe: Recipe = None
    """The arguments of `random`, from which a saved run can rebuild the problem."""
    precision: npt.NDArray[np.float64] = field(init=False, repr=False)
    optimum_theta: npt.NDArray[np.float64] = field(init=False, repr=False)
    optimum: float = field(init=False)
    convex: ClassVar[bool] = True

    def __repr__(self) -> str:
        return one_line(self, f"noise variance {self.noise_var:g}")

    def __post_init__(self) -> None:
        super().__post_init__()
        A, y = np.ascontiguousarray(self.A), np.ascontiguousarray(self.y)
        require(
            A.ndim == 2 and A.size > 0,
            f"A must be a non-empty matrix, not of shape {A.shape}.",
        )
        require(
            A.dtype in (np.float64, np.float32),
            f"A must be float64 or float32, not {A.dtype}.",
        )
        require(
            y.shape == (A.shape[0],),
            f"y must have one entry per row of A, {A.shape[0]}, but has shape {y.shape}.",
        )
        for name, array in (("A", A), ("y", y)):
            require(
                bool(np.isfinite(array).all()),
                f"{name} contains NaN or infinity: remove or fix those rows.",
            )
        y = y.astype(A.dtype)
        # Computed once: the optimum gives every run the column `error`.
        P, b = kernels.normal_equations(A, y, self.noise_var)
        theta = kernels.cholesky_solve(P.copy(), b)
        optimum = kernels.value(A, y, self.noise_var, theta.astype(A.dtype))
        # The dataclass is frozen.
        self.__dict__.update(A=A, y=y, precision=P)
        self.__dict__.update(optimum_theta=theta, optimum=float(optimum))

    @classmethod
    @checked
    def random(
        cls,
        dim: Dim = 100,
        n_data: Size = 600,
        noise_var: NoiseVariance = 10.0,
        seed: Seed = 0,
        *,
        dominant: Annotated[int | None, parameter(ge=0)] = None,
        top: Eigenvalue = 1.0,
        bulk: Sequence[Eigenvalue] = (100.0, 100.0),
        spectrum: RealArray | None = None,
        dtype: Precision = np.float64,
    ) -> LinearGaussian:
        """Make a model whose posterior precision P has a given spectrum in random directions.

        A = sqrt(noise_var) V diag(sqrt(lambda - 1)) Q',
        with V and Q random with orthonormal columns; theta is drawn from N(0, I), and y from the model.

        With the defaults the prior alone determines five of a hundred directions.  They carry most of the
        posterior's variance, so coordinates are strongly correlated (up to 0.84,
        each with all others 0.88 on average).  A few stiff directions instead, such as dominant=5, top=1000,
        bulk=(25, 120), make harder problems with weakly correlated coordinates.

        Parameters
        ----------
        dim : int, default 100
            Number of parameters in theta.
        n_data : int, default 600
            Number of observations, at least `dim`.
        noise_var : float, default 10.0
            Variance of the noise of an observation.
        seed : int, default 0
            Seed of A, theta and y.
        dominant : int, optional
            Number of eigenvalues equal to `top`; None: one in twenty.
        top : float, default 1.0
            The dominant eigenvalues, at least 1: the prior alone contributes 1 to each eigenvalue.
        bulk : tuple of two floats, default (100.0, 100.0)
            Ends of the other eigenvalues, which are spaced evenly in logarithm.
        spectrum : array of shape (dim,), optional
            All eigenvalues, instead of `dominant`, `top` and `bulk`.
        dtype : float64 or float32
            Type of A, y and theta.
        """
        require(len(bulk) == 2, "bulk must be the two ends of the other eigenvalues.")
        if dominant is None:
            dominant = max(1, dim // 20)
        recipe = recipe_of(locals())
        require(
            n_data >= dim,
            f"n_data must be an integer of at least dim = {dim}, not {n_data!r}.",
        )
        if spectrum is None:
            require(
                dominant <= dim,
                f"dominant must lie between 0 and dim = {dim}, not {dominant!r}.",
            )
            lambdas = np.concatenate(
                [
                    np.full(dominant, float(top)),
                    np.geomspace(bulk[0], bulk[1], dim - dominant),
                ]
            )
        else:
            lambdas = np.asarray(spectrum, np.float64)
            require(
                lambdas.shape == (dim,),
                f"spectrum must list dim = {dim} eigenvalues, not {lambdas.shape}.",
            )
        require(
            bool(np.all(lambdas >= 1.0) and np.all(np.isfinite(lambdas))),
            "every eigenvalue of the posterior precision must be at least 1, the prior's share.",
        )
        # The second word of the key separates this stream from others with the same seed.
        rng = np.random.Generator(np.random.Philox(key=[seed, 0x11AEA2]))
        A = np.zeros((n_data, dim))
        # diag(sqrt(noise_var (lambda - 1))) on top of zeros: A'A / noise_var has the eigenvalues lambda - 1,
        # and the prior adds 1.
        A[np.arange(dim), np.arange(dim)] = np.sqrt(noise_var * (lambdas - 1.0))
        # Products of reflections: random orthogonal matrices without a factorization.
        A = kernels.rotate(
            A, rng.standard_normal((dim, n_data)), rng.standard_normal((dim, dim))
        )
        # A draw from the prior, so that the data are typical of the model.
        truth = rng.standard_normal(dim)
        y = np.add.reduce(A * truth, axis=1) + np.sqrt(noise_var) * rng.standard_normal(
            n_data
        )
        return cls(A.astype(dtype), y.astype(dtype), float(noise_var), recipe)

    @classmethod
    def example(cls, dtype: str = "float64") -> LinearGaussian:
        """Return a small problem for tests."""
        return cls.random(12, 60, seed=3, dtype=dtype)

    @property
    def dim(self) -> int:
        return int(self.A.shape[1])

    @property
    def n_data(self) -> int:
        return int(self.A.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.A.dtype

    def value(self, theta: Array) -> float:
        if not (is_vector(theta) and theta.size == self.dim):
            raise misfit(self)
        return float(kernels.value(self.A, self.y, self.noise_var, theta))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of U(theta) from `rows`; the prior counts once."""
        fits = is_vector(theta) and theta.size == self.dim and is_vector(rows, "iu")
        if not fits or len(rows) == 0:
            raise misfit(self)
        some = chosen(rows, self.n_data)
        # Counting a row n / |rows| times equals dividing its noise variance.
        noise_var = self.noise_var * (len(rows) / self.n_data)
        return float(kernels.value(self.A[some], self.y[some], noise_var, theta))

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        if not kernels.gradient(self.A, self.y, self.noise_var, theta, rows, out):
            raise misfit(self)

    def initial(self, rng: np.random.Generator) -> Array:
        """Draw from the prior N(0, I)."""
        return rng.standard_normal(self.dim).astype(self.dtype)

    def curvature_diagonal(self, theta: Array) -> Array:
        """Return the diagonal of P, which is constant."""
        return np.diag(self.precision).astype(self.dtype)

    def reference(self) -> dict[str, Any] | None:
        recipe = self.recipe
        return None if recipe is None else {"kind": "linear-gaussian", **recipe}
