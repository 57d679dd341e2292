"""Exact passes: L-BFGS at the master on gradients of whole passes over the data, with H0 at the workers.

    g = sum_b (n_b / n) grad_b(theta),  s = theta - base,  y = g - g_base
    base <- theta,  theta <- base - H g       H of the last M pairs on top of H0

A new theta is a trial, which `algorithms.safeguard` judges by U, which comes with the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.memory import Memory, clear, softness
from asyncqn.algorithms.quasi_newton.metric_memory import consider_pair, product
from asyncqn.algorithms.safeguard import Trial, advance
from asyncqn.kernels.vectors import add_one, dot, sum_of_squares
from asyncqn.types import Array

MOVED = 0.5
"""A summary that differs by this share from the one in use calls for a new H0."""


class WarmUp(NamedTuple):
    """How the stochastic steps before the passes went."""

    commits: int = 0
    turned: int = 0
    """The commit at which theta was last taken back to the start: answers that read earlier ones are void."""
    gain: float = 1.0
    """A factor on the step size, halved at every turn."""
    starts: int = 0
    """Answers that read theta0."""
    loss: float = 0.0
    """Their mean loss per weight."""


class Iterate(NamedTuple):
    """`base` is the last point kept (theta0 while it warms up), with its gradient and the image of that."""

    theta: Array
    curvature: Array
    base: Array
    at_base: Array  # (2, d): gradient and image
    anchor: Array  # (3, d)
    memory: Memory
    trial: Trial
    warm_up: WarmUp
    blind: bool = False
    """The image of base's gradient belongs to another H0."""


class Update(NamedTuple):
    """Of a batch: estimates for all data; of a block: its share.  `value` is inf where g is not finite."""

    g: Array
    image: Array
    curvature: Array
    value: float
    part: int
    read: int
    rows: int = 0
    """How many rows of the data it was computed from."""


@dataclass
class Images:
    """The memory as `safeguard.Metric`, with H0 g given beside g.

    foreign: this image was made by another H0 than the one in use; blind: two images make no pair.
    """

    iterate: Iterate
    summary: Array
    foreign: bool
    blind: bool

    def direction(self, at: Array, out: Array) -> bool:
        g, image = at
        product(self.iterate.memory, g, image, out)
        if not dot(g, out) > 0.0:  # the blocks' own metrics disagreed
            norm = math.sqrt(sum_of_squares(g))
            out[...] = g * (math.sqrt(sum_of_squares(image)) / norm if norm > 0.0 else 0.0)
        return True

    def learn(self, s: Array, change: Array) -> bool:
        return not self.blind and consider_pair(self.iterate.memory, s, *change)

    def fits(self, s: Array, y: Array) -> bool:
        return False

    def forget(self) -> None:
        clear(self.iterate.memory, 1.0)

    def softness(self) -> float:
        return softness(self.iterate.memory)

    def keep(self) -> None:
        """Where the curvature has changed much, start again."""
        curvature = self.iterate.curvature
        self.blind = self.foreign
        if sum_of_squares(self.summary - curvature) > MOVED**2 * sum_of_squares(curvature):
            curvature[...] = self.summary
            self.forget()
            self.blind = True


def take_pass(
    iterate: Iterate, updates: list[Update], blocks: int, metric_from: Callable[..., Any] | None = None
) -> Iterate:
    """Judge the trial by the exact U and gradient of all blocks, and set the next one.

    metric_from: makes H0 from a summary, where the answers hold no image of their gradient.
    """
    at = np.zeros_like(iterate.at_base)
    summary, value = np.zeros_like(iterate.curvature), 0.0
    for update in updates:
        add_one(at[0], update.g)
        summary += update.curvature
        value += update.value
        if metric_from is None:
            add_one(at[1], update.image)
    whole = len({update.part for update in updates}) == blocks and math.isfinite(value)
    foreign = iterate.curvature[-1] == 0  # every block used its own H0
    if whole and foreign:
        iterate.curvature[...] = summary
    if metric_from is not None and whole:
        metric_from(iterate.curvature).apply(at[0], at[1])
        foreign = False
    warm_up = iterate.warm_up
    lower = whole and value <= warm_up.loss * float(summary[-1])
    if iterate.trial.kept == 0 and warm_up.starts and not lower:
        iterate.theta[...] = iterate.base  # the warm-up did harm: begin again where it began
        iterate.curvature[...] = 0.0
        return iterate._replace(warm_up=warm_up._replace(starts=0))
    metric = Images(iterate, summary, foreign, iterate.blind or foreign)
    trial = advance(iterate, metric, at if whole else None, value, None)
    return iterate._replace(trial=trial, blind=metric.blind)
