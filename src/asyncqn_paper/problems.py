"""The linear Gaussian problems of the experiments, d = 100, N_Y = 600, sigma_x^2 = 10 as in the paper.

The paper does not publish its rows a_i; it says that they make the posterior strongly correlated.
docs/results/theory.md shows how strong the correlation can be where its table works.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from asyncqn import LinearGaussian

DIM = 100
N_Y = 600
NOISE = 10.0


@cache
def _model(problem: Problem) -> LinearGaussian:
    return LinearGaussian.random(seed=problem.draw, spectrum=problem.eigenvalues())


class Problem:
    """A description of a linear Gaussian model; the model is drawn once per process."""

    draw: int

    def eigenvalues(self) -> npt.NDArray[np.float64]:
        raise NotImplementedError

    def model(self) -> LinearGaussian:
        return _model(self)


@dataclass(frozen=True)
class Spectrum(Problem):
    """A posterior precision with `weak` eigenvalues 1 (the prior alone), `strong` equal to `top`, the
    others evenly (in logarithm) from `low` to `high`.

    Weak directions are what makes a posterior strongly correlated: the data say nothing about some
    combinations of coordinates, so their posterior covariance outweighs all else.
    """

    weak: int = 5
    low: float = 100.0
    high: float = 100.0
    strong: int = 0
    top: float = 1.0
    draw: int = 0

    def eigenvalues(self) -> npt.NDArray[np.float64]:
        bulk = np.geomspace(self.low, self.high, DIM - self.weak - self.strong)
        return np.concatenate(
            [np.full(self.strong, self.top), bulk, np.ones(self.weak)]
        )

    @property
    def largest(self) -> float:
        return self.top if self.strong else self.high


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
    return LinearGaussian(
        A, A @ truth + np.sqrt(NOISE) * rng.standard_normal(N_Y), NOISE
    )


STANDARD = Spectrum()
"""Our reading of the paper's description: d = 100, N_Y = 600, sigma_x^2 = 10, strong posterior correlation
(largest 0.84, multiple correlation 0.88 in the mean); the map of parameters says why 100."""

STIFF = Spectrum(weak=0, low=1.0, high=1.2, strong=1, top=300.0)
"""One direction that all rows share, over a bulk that is little more than the prior: hard for a-SGD."""

PROBLEMS: dict[str, Spectrum] = {
    "linear-gaussian": STANDARD,
    "linear-gaussian-stiff": STIFF,
    "five-weak-10": Spectrum(low=10.0, high=10.0),
    "three-weak-39": Spectrum(weak=3, low=39.0, high=39.0),
}


def described(name: str) -> Spectrum | AlikeRows:
    """Return a problem by its name: one of `PROBLEMS`, or "rows-alike-8" and "five-directions-8" for any top."""
    if name in PROBLEMS:
        return PROBLEMS[name]
    kind, _, top = name.rpartition("-")
    return AlikeRows(float(top), directions=DIRECTIONS[kind])


DIRECTIONS = {"rows-alike": 1, "five-directions": 5}


def largest_mean_correlation(largest: float, dim: int = DIM) -> float:
    """Return the bound on the mean |correlation| where the precision has eigenvalues from 1 to `largest`."""
    return float((largest - 1.0) / (2.0 * np.sqrt(largest * (dim - 1.0))))
