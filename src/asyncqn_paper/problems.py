"""The linear Gaussian problems of the experiments, d = 100, N_Y = 600, sigma_x^2 = 10 as in the paper.

The paper does not publish its rows a_i; it says that they make the posterior strongly correlated.
docs/results/theory.md shows how strong the correlation can be where its table works.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from asyncqn import LinearGaussian

DIM = 100
N_Y = 600
NOISE = 10.0


@dataclass(frozen=True)
class WeakDirections:
    """A posterior precision with `weak` eigenvalues 1 (the prior alone) and the others equal to `high`.

    Weak directions make a posterior strongly correlated: the data say nothing about some combinations of
    coordinates, so their posterior covariance outweighs all else.
    """

    weak: int
    high: float
    draw: int = 0

    def model(self) -> LinearGaussian:
        """Return the model."""
        strong = np.full(DIM - self.weak, self.high)
        spectrum = np.concatenate([strong, np.ones(self.weak)])
        return LinearGaussian.random(seed=self.draw, spectrum=spectrum)


@dataclass(frozen=True)
class AlikeRows:
    """Rows that nearly coincide: a_i = v + 0.1 z_i / sqrt(d) with v = (e_1 + e_2) / sqrt(2), z_i ~ N(0, I),
    scaled so that the largest eigenvalue of A'A / sigma_x^2 is `top`.

    Two rows then measure the curvature of all, and theta_1, theta_2 are strongly correlated.  With more
    `directions` the rows take turns: v is (e_3 + e_4) / sqrt(2) for the second, and so on.
    """

    top: float
    draw: int = 0
    directions: int = 1

    def model(self) -> LinearGaussian:
        """Return the model; it is drawn once per process."""
        return _alike(self)


@cache
def _alike(problem: AlikeRows) -> LinearGaussian:
    rng = np.random.Generator(np.random.Philox(key=[problem.draw, 0xA11CE]))
    # Rows differ by a tenth: without it A has rank one and all other directions only the prior.
    A = 0.1 * rng.standard_normal((N_Y, DIM)) / np.sqrt(DIM)
    for k in range(problem.directions):
        A[k :: problem.directions, 2 * k : 2 * k + 2] += np.sqrt(0.5)
    # The noise of the rows changes the largest eigenvalue a little; the scale makes it exact.
    A *= np.sqrt(problem.top * NOISE / np.linalg.eigvalsh(A.T @ A)[-1])
    truth = rng.standard_normal(DIM)
    y = A @ truth + np.sqrt(NOISE) * rng.standard_normal(N_Y)
    return LinearGaussian(A, y, NOISE)


WEAK = {
    "five-weak-10": WeakDirections(5, 10.0),
    "three-weak-39": WeakDirections(3, 39.0),
}
DIRECTIONS = {"rows-alike": 1, "five-directions": 5}


def described(name: str) -> WeakDirections | AlikeRows:
    """Return a problem by its name: one of `WEAK`, or "rows-alike-8" and "five-directions-8" for any top."""
    if name in WEAK:
        return WEAK[name]
    kind, _, top = name.rpartition("-")
    return AlikeRows(float(top), directions=DIRECTIONS[kind])
