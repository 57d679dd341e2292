"""The two non-convex problems of the title's experiment, in plain NumPy: both have a planted minimum.

A Gaussian mixture whose K centres are unknown, x_i ~ (1/K) sum_k N(c_k, I), with the prior N(0, scale^2 I) of
the centres; theta holds the centres one after the other, and constants are left out:

    U(theta) = -sum_i log (1/K) sum_k exp(-|x_i - theta_k|^2 / 2) + |theta|^2 / (2 scale^2)

If two centres share a cluster and another lies between two clusters, every small move increases U.

Phase retrieval, the recovery of a vector x from squared measurements y_i = (a_i'x)^2 without noise:

    U(theta) = sum_i ((a_i'theta)^2 - y_i)^2 / 4,        U* = 0 at theta = x and theta = -x

With few more measurements than unknowns U has local minima above zero, in which descent from a random start
usually ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from asyncqn.errors import require
from asyncqn.types import Array, Rows


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of Gaussians with equal weights, variance 1 and unknown centres.

    Parameters
    ----------
    X : array of shape (n_data, d)
        The data points.
    centres : array of shape (K, d)
        The centres around which the data were drawn; only their number is used.
    scale : float
        Standard deviation of the prior of the centres.
    """

    X: Array = field(repr=False)
    centres: Array = field(repr=False)
    scale: float

    @classmethod
    def random(
        cls,
        components: int = 6,
        n_data: int = 300,
        width: float = 20.0,
        gap: float = 5.0,
        seed: int = 0,
    ) -> Mixture:
        """Make equal clusters in the plane, with centres drawn uniformly from a square of side `width`.

        A centre closer than `gap` to an earlier one is drawn again; the prior's scale is `width`.
        """
        require(
            components * gap**2 <= width**2,
            f"{components} centres {gap:g} apart do not fit into a square of side {width:g}: raise width.",
        )
        rng = np.random.Generator(np.random.Philox(key=[seed, 0x313]))
        centres: Array = np.empty((0, 2))
        # All centres are drawn again if 10,000 points did not suffice.
        while len(centres) < components:
            points = rng.uniform(-width / 2, width / 2, (10_000, 2))
            centres = _apart(points, components, gap)
        # Equal numbers of points per cluster; the permutation below mixes their order.
        X = centres[np.arange(n_data) % components] + rng.standard_normal((n_data, 2))
        return cls(rng.permutation(X), centres, float(width))

    @property
    def dim(self) -> int:
        return int(self.centres.size)

    @property
    def n_data(self) -> int:
        return len(self.X)

    def value(self, theta: Array) -> float:
        return self.value_rows(theta, np.arange(self.n_data))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of U(theta) from `rows`; the prior counts once."""
        nearest, masses = self._masses(theta, self.X[rows])
        # -log mean_k exp(-d_k) = nearest - log(sum_k exp(nearest - d_k) / K), where the sum is at least 1.
        losses = nearest - np.log(masses.sum(axis=1) / len(self.centres))
        prior = 0.5 * float(np.square(theta).sum()) / self.scale**2
        return self.n_data / len(rows) * float(losses.sum()) + prior

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        x, centres = self.X[rows], theta.reshape(self.centres.shape)
        _, masses = self._masses(theta, x)
        responsibilities = masses / masses.sum(axis=1, keepdims=True)
        # sum_i r_ik (theta_k - x_i) for every centre; einsum calls no BLAS, so bits are the same everywhere.
        pulls = responsibilities.sum(axis=0)[:, None] * centres
        pulls -= np.einsum("ik,ij->kj", responsibilities, x)
        out[:] = theta / self.scale**2 + self.n_data / len(rows) * pulls.ravel()

    def initial(self, rng: np.random.Generator) -> Array:
        """Return K of the data points, as is usual for mixtures."""
        # Different points, so that no two centres start together.
        return self.X[rng.choice(self.n_data, len(self.centres), replace=False)].ravel()

    def _masses(self, theta: Array, x: Array) -> tuple[Array, Array]:
        """Return each row's least |x - theta_k|^2 / 2, and exp(least - |x - theta_k|^2 / 2) by centre."""
        centres = theta.reshape(self.centres.shape)
        distances = 0.5 * np.square(x[:, None, :] - centres).sum(axis=2)
        # Relative to the nearest centre, so that the exponentials do not underflow together.
        nearest = distances.min(axis=1)
        return nearest, np.exp(nearest[:, None] - distances)


def _apart(points: Array, count: int, gap: float) -> Array:
    """Return the first `count` points that keep the gap to all before them, or fewer."""
    chosen = points[:0]
    # In the order of the draws, so that the centres follow from the seed alone.
    for point in points:
        if len(chosen) == count:
            break
        if (np.hypot(*(chosen - point).T) >= gap).all():
            chosen = np.vstack([chosen, point])
    return chosen


@dataclass(frozen=True, eq=False)
class PhaseRetrieval:
    """Recovery of a signal from squared linear measurements: many minima, of which the best is 0.

    Parameters
    ----------
    A : array of shape (n_data, dim)
        The rows a_i of the measurements.
    signal : array of shape (dim,)
        The signal x that made the measurements y = (A x)^2.
    """

    A: Array = field(repr=False)
    signal: Array = field(repr=False)
    y: Array = field(init=False, repr=False)

    optimum = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "y", np.einsum("ij,j->i", self.A, self.signal) ** 2)

    @classmethod
    def random(cls, dim: int = 10, n_data: int = 25, seed: int = 0) -> PhaseRetrieval:
        """Make a problem with standard normal A, and a signal in a random direction with |x|^2 = dim."""
        rng = np.random.Generator(np.random.Philox(key=[seed, 0x9A5E]))
        A = rng.standard_normal((n_data, dim))
        x = rng.standard_normal(dim)
        return cls(A, x * np.sqrt(dim / (x @ x)))

    @property
    def dim(self) -> int:
        return int(self.A.shape[1])

    @property
    def n_data(self) -> int:
        return len(self.A)

    def value(self, theta: Array) -> float:
        return self.value_rows(theta, np.arange(self.n_data))

    def value_rows(self, theta: Array, rows: Rows) -> float:
        """Return the estimate of U(theta) from `rows`."""
        z = np.einsum("ij,j->i", self.A[rows], theta)
        squares = np.square(z * z - self.y[rows])
        return 0.25 * self.n_data / len(rows) * float(squares.sum())

    def grad(self, theta: Array, rows: Rows, out: Array) -> None:
        a = self.A[rows]
        z = np.einsum("ij,j->i", a, theta)
        # The derivative of (z^2 - y)^2 / 4 in z is (z^2 - y) z.
        slopes = self.n_data / len(rows) * (z * z - self.y[rows]) * z
        out[:] = np.einsum("ij,i->j", a, slopes)

    def initial(self, rng: np.random.Generator) -> Array:
        """Draw from N(0, I), which is about as long as the signal of `random`."""
        return rng.standard_normal(self.dim)
