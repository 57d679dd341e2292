"""Exact passes: L-BFGS at the master on gradients of whole passes over the data, with H0 at the workers.

    g = sum_b (n_b / n) grad_b(theta),  s = theta - base,  y = g - g_base
    base <- theta,  theta <- base - H g       H of the last M pairs on top of H0

A new theta is a trial, which `algorithms.safeguard` judges by U, which comes with the gradient.

Only workers can apply H0: the master is given y and H0 y together, and the memory keeps H0 y in the place of
y, as it does with a diagonal H0.  H v = H0 v + [S, H0 Y] N [S, H0 Y]'v with the small matrix N of
`kernels.memory`, by inner products, pair by pair: a pass asks once, and nothing more is compiled for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.memory import Memory, clear, softness
from asyncqn.algorithms.quasi_newton.stored_pairs import COSINE
from asyncqn.algorithms.safeguard import Trial, advance
from asyncqn.kernels.ring import COUNT, REJECTED, next_slot
from asyncqn.kernels.vectors import add_one, add_scaled, dot, sum_of_squares
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


def consider_pair(memory: Memory, s: Array, y: Array, image: Array) -> bool:
    """Admit the pair (s, y), image = H0 y, if it shows positive curvature; the oldest makes room."""
    ring, (S, images) = memory.ring, memory.pairs
    sy = dot(s, y)
    size = math.sqrt(dot(s, s) * dot(y, y))
    if not (0.0 < size < math.inf and sy > COSINE * size and 0.0 < dot(y, image) < math.inf):
        ring[REJECTED] += 1
        return False
    slot = next_slot(ring, len(S))
    S[slot], images[slot] = s, image
    for j in range(len(S)):
        memory.gram[0, j, slot] = dot(S[j], y)
        memory.gram[1, j, slot] = memory.gram[1, slot, j] = dot(images[j], y)
    _renew(memory, int(ring[COUNT]), slot)
    return True


def _renew(memory: Memory, count: int, newest: int) -> None:
    """The small matrix N after a change of the Gram matrices: `kernels.pairs.factor`, without compiling.

    `np.einsum` calls no BLAS, whose bits change with its threads.
    """
    m = len(memory.gram[0])
    slots = (newest - count + 1 + np.arange(count)) % m  # the oldest first
    R, inner = (gram[np.ix_(slots, slots)] for gram in memory.gram)
    inner += np.diag(R.diagonal())
    inverse = np.zeros((count, count))  # R^-1, upper triangular
    for j in range(count):
        inverse[j, j] = 1.0 / R[j, j]
        inverse[:j, j] = -np.einsum("iq,q->i", inverse[:j, :j], R[:j, j]) / R[j, j]
    corner = np.einsum("ia,ib->ab", inverse, np.einsum("iq,qb->ib", inner, inverse))
    memory.middle[:] = 0.0
    memory.middle[np.ix_(slots, slots)] = corner
    memory.middle[np.ix_(slots, m + slots)] = -inverse.T
    memory.middle[np.ix_(m + slots, slots)] = -inverse


def product(memory: Memory, v: Array, image: Array, out: Array) -> Array:
    """out = H v, where image = H0 v."""
    vectors = memory.pairs.reshape(-1, v.size)
    shares = np.einsum("ij,j->i", memory.middle, np.array([dot(x, v) for x in vectors]))
    out[:] = image
    for x, share in zip(vectors, shares):
        if share:
            add_scaled(out, share, x)
    return out


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
