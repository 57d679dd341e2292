"""H0 of a factorization, which only the workers can apply.

H0 is linear: every worker sends its gradient and the image H0 g of it, images add up as gradients do, and
H0 y is the difference of two images.  The compact memory stores H0 y in the place of y, as it does with a
diagonal H0, and

    H v = H0 v + [S, H0 Y] N [S, H0 Y]'v

with the small matrix N of `kernels.memory`.  What H0 is made of, a short summary of the curvature, comes with
every update; it is kept until it has changed much, because pairs are only comparable under one H0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.algorithms.quasi_newton.initial_inverse import ScalarInverse
from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array

MOVED = 0.5
"""A summary that differs by this share from the one in use calls for a new H0."""


class Structured(NamedTuple):
    """The state of `StructuredMetric`, which workers read."""

    curvature: Array
    """The summary that H0 is made of; its last entry is 0 where there is none."""
    blind: npt.NDArray[np.bool_]
    """Shape (1,): the image of base's gradient belongs to another H0, so that two images make no pair."""


@dataclass
class StructuredMetric(ScalarInverse):
    """H0 given by images of gradients: `at` has two rows, g and H0 g.

    Parameters
    ----------
    summary : array
        Of the curvature at the trial.
    foreign : bool
        Whether the image at the trial was made by another H0 than the one in use.
    """

    state: Structured
    summary: Array
    foreign: bool

    requires = ("curvature_size", "grad_with_curvature", "inverse_metric_from")
    slopes_suffice = False

    def __post_init__(self) -> None:
        self.state.blind[0] |= self.foreign

    @classmethod
    def empty(cls, theta0: Array, summary_size: int) -> Structured:
        return Structured(np.zeros(summary_size, theta0.dtype), np.zeros(1, np.bool_))

    def known(self, memory: PairMemory) -> bool:
        return True

    def product(self, memory: PairMemory, at: Array, out: Array) -> None:
        g, image = at
        memory.product(g, out, image=image)
        if not dot(g, out) > 0.0:  # the blocks' own metrics disagreed
            norm = math.sqrt(sum_of_squares(g))
            out[...] = g * (math.sqrt(sum_of_squares(image)) / norm if norm > 0.0 else 0.0)

    def offer(self, memory: PairMemory, s: Array, y: Array) -> bool:
        return not self.state.blind[0]

    def follow(self, memory: PairMemory) -> None:
        """Nothing: H0 has no factor of its own."""

    def accept(self, memory: PairMemory) -> None:
        """Where the curvature has changed much, start again."""
        curvature, blind = self.state
        blind[0] = self.foreign
        if sum_of_squares(self.summary - curvature) > MOVED**2 * sum_of_squares(curvature):
            curvature[...] = self.summary
            memory.forget()
            blind[0] = True
