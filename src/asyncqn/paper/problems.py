"""The linear Gaussian problems of the experiments, by description."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from asyncqn.potentials.linear_gaussian import LinearGaussian


@dataclass(frozen=True)
class Spectrum:
    """A posterior precision with `weak` eigenvalues 1 (the prior alone), `strong` equal to `top`, the
    others evenly (in logarithm) from `low` to `high`, in random directions.

    Weak directions are what makes a posterior strongly correlated: the data say nothing about some
    combinations of coordinates, so their posterior covariance outweighs all else.
    """

    weak: int = 5
    low: float = 100.0
    high: float = 100.0
    strong: int = 0
    top: float = 1.0
    draw: int = 0

    def potential(self) -> LinearGaussian:
        return _potential(self)

    @property
    def label(self) -> str:
        bulk = f"{self.low:g}" if self.low == self.high else f"{self.low:g}–{self.high:g}"
        strong = f"{self.strong} × {self.top:g} over " if self.strong else ""
        return f"{strong}{bulk}" + (f", {self.weak} weak" if self.weak else "")


@cache
def _potential(spectrum: Spectrum) -> LinearGaussian:
    s = spectrum
    bulk = np.geomspace(s.low, s.high, 100 - s.weak - s.strong)
    eigenvalues = np.concatenate([np.full(s.strong, s.top), bulk, np.ones(s.weak)])
    return LinearGaussian.random(seed=s.draw, spectrum=eigenvalues)


STANDARD = Spectrum()
"""Our reading of the paper's description: d = 100, N_Y = 600, sigma_x^2 = 10, strong posterior correlation
(largest 0.84, multiple correlation 0.88 in the mean); the map of parameters says why 100."""

STIFF = Spectrum(weak=0, low=1.0, high=1.2, strong=1, top=300.0)
"""One direction that all rows share, over a bulk that is little more than the prior: hard for a-SGD."""

PROBLEMS = {"linear-gaussian": STANDARD, "linear-gaussian-stiff": STIFF}
