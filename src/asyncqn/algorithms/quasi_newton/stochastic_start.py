"""The plan of a stochastic start: stale steps in the problem's own metric, then exact passes.

Warm-up, one commit per batch of rows.  With H0 the structured inverse curvature of the problem, damped for
the batch, and l the staleness of the k-th commit,

    theta <- theta - h_k H0 g(theta_read),    h_k = min(1 / (2 (1 + l)), 5 / (2 (k + 1)))

The summary that H0 is made of is averaged meanwhile.  Then exact gradients, one commit per pass over the
data, from blocks that are summed in their own order:

    g = sum_b (n_b / n) grad_b(theta),  s = theta - base,  y = g - g_base
    base <- theta,  theta <- base - H g       H of the last M pairs on top of H0

In step, a batch of the warm-up is cut into blocks, as a pass is, and its commit waits for all of them:
nothing is stale, and as blocks are summed in their own order, no bit of the result depends on the schedule:
it is the same on any number of workers.  The coordinator then makes the images, one a commit.

Our own choices: the constants; gradients of the warm-up are stale, those of the passes never; a warm-up that
did harm is undone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.algorithms.parts import rows_of_parts
from asyncqn.algorithms.quasi_newton.composition import Iterate, Plan
from asyncqn.algorithms.quasi_newton.initial_inverse import SUMMARIES, InverseHessian, ScalarInverse
from asyncqn.algorithms.safeguard import advance
from asyncqn.core.stages import Stages, batches, blocks
from asyncqn.errors import require
from asyncqn.kernels.vectors import add_one, add_scaled, dot, sum_of_squares
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task

HARM = 4.0
"""A batch whose loss is this many times the loss at the start shows that the warm-up has gone astray."""
NEWEST_WEIGHT = 0.1
"""The least weight of the newest summary in the average."""


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
    """H0 of a factorization, which only the workers can apply: `at` has two rows, g and its image H0 g.

    H0 is linear: images add up as gradients do, and H0 y is the difference of two images.  The compact memory
    stores H0 y in the place of y, as it does with a diagonal H0, and

        H v = H0 v + [S, H0 Y] N [S, H0 Y]'v

    with the small matrix N of `kernels.memory`.  What H0 is made of, a short summary of the curvature, comes
    with every update; it is kept until it has changed much, because pairs are only comparable under one H0.

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

    requires = SUMMARIES
    vectors = 2
    slopes_suffice = False

    def __post_init__(self) -> None:
        self.state.blind[0] |= self.foreign

    @classmethod
    def empty(cls, theta0: Array, summary_size: int) -> Structured:
        return Structured(np.zeros(summary_size, theta0.dtype), np.zeros(1, np.bool_))

    @classmethod
    def empty_memory(cls, size: int, theta0: Array) -> PairMemory:
        return PairMemory.compact(size, theta0)

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


class WarmUp(NamedTuple):
    """How the stochastic steps before the passes went."""

    commits: int = 0
    turned: int = 0
    """The commit at which theta last went back to the start: updates that read earlier ones are void."""
    gain: float = 1.0
    """A factor on the step size, halved at every turn."""
    starts: int = 0
    """Updates that read theta0."""
    loss: float = 0.0
    """Their mean loss per weight."""


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


@dataclass(frozen=True)
class StochasticStart(Plan):
    """`warmup` commits on `batches` batches, then passes in `blocks` blocks.

    Parameters
    ----------
    batches, warmup, blocks : int
        See above.
    delay : int
        The staleness to reckon with.
    in_step : bool
        Whether a commit of the warm-up waits for all blocks of its batch.
    batch_blocks : int
        Into how many blocks a batch is cut, in step.
    backup_after : float
        See `core.stages`.
    """

    batches: int
    warmup: int
    blocks: int
    delay: int
    in_step: bool
    batch_blocks: int
    backup_after: float

    @cached_property
    def stages(self) -> Stages:
        passes = blocks(self.blocks, self.backup_after)
        if not self.in_step:
            return batches(self.batches, commits=self.warmup), passes
        batch = blocks(self.batch_blocks, self.backup_after)
        return replace(batch, commits=self.warmup, share=1.0 / self.batches), passes

    def check(self, problem: Problem) -> None:
        n, most = problem.n_data, max(self.batches, self.blocks)
        if self.in_step and self.warmup:
            most = max(self.blocks, self.batches * self.batch_blocks)
        require(most <= n, f"{n} data points cannot be cut into {most} parts: use fewer.")

    def course(self, theta0: Array) -> WarmUp:
        return WarmUp()

    def step(self, method: Any, view: Iterate, problem: Any, task: Task) -> Update:
        exact, part, average = task.read >= self.warmup, task.part, view.initial.curvature
        assert part is not None
        first, last, n = self._rows(problem.n_data, task.read, part)
        g = np.empty_like(view.theta)
        image: Array = np.empty(0, g.dtype) if self.in_step else np.empty_like(g)
        curvature = np.empty_like(average)
        value = problem.grad_with_curvature(view.theta, np.arange(first, last), g, curvature)
        if not math.isfinite(value + sum_of_squares(g)):
            g[...] = image[...] = curvature[...] = 0.0  # the coordinator must hear of it, to turn back
            return Update(g, image, curvature, math.inf, part, task.read, last - first)
        if not exact and not self.in_step:
            h = self._step_size(task.read, self.delay)
            known = _averaged(average, curvature, task.read)
            problem.inverse_metric_from(known, h, last - first).apply(g, image)
            return Update(g, image, curvature, value, part, task.read, last - first)
        if not self.in_step:
            problem.inverse_metric_from(average if average[-1] > 0 else curvature).apply(g, image)
        share = (last - first) / n
        for shared in (g, image, curvature):
            shared *= shared.dtype.type(share)
        return Update(g, image, curvature, value * share, part, task.read, last - first)

    def _rows(self, n_data: int, read: int, part: int) -> tuple[int, int, int]:
        """Return first and last row of a part, and of how many rows it is a part."""
        begin, end, parts = 0, n_data, self.blocks
        if read < self.warmup and self.in_step:
            batch = read % self.batches
            begin, end = batch * n_data // self.batches, (batch + 1) * n_data // self.batches
            parts = self.batch_blocks
        elif read < self.warmup:
            parts = self.batches
        n = end - begin
        return begin + part * n // parts, begin + (part + 1) * n // parts, n

    def apply(self, method: Any, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        if updates[0].read >= self.warmup:
            return self._take_pass(method, iterate, sorted(updates, key=lambda u: u.part), commit)
        if self.in_step:
            updates = [self._batch(iterate, sorted(updates, key=lambda update: update.part), commit)]
        for update in updates:
            iterate = iterate._replace(course=self._warm_up(iterate, update))
        return iterate

    def _batch(self, iterate: Iterate, blocks: Sequence[Update], commit: Commit) -> Update:
        """Return the blocks of a batch as one update."""
        average = iterate.initial.curvature
        g, curvature = np.zeros_like(iterate.theta), np.zeros_like(average)
        whole = len({block.part for block in blocks}) == self.batch_blocks
        value = sum(block.value for block in blocks) if whole else math.inf
        for block in blocks:
            add_one(g, block.g)
            curvature += block.curvature
        image, k = np.zeros_like(g), iterate.course.commits
        if value < math.inf:
            assert commit.inverse_metric_from is not None
            rows = sum(block.rows for block in blocks)
            known = _averaged(average, curvature, k)
            commit.inverse_metric_from(known, self._step_size(k, 0), rows).apply(g, image)
        return Update(g, image, curvature, value, 0, blocks[0].read)

    def _step_size(self, k: int, staleness: int) -> float:
        return min(0.5 / (1 + max(staleness, self.delay)), 2.5 / (k + 1))

    def _warm_up(self, iterate: Iterate, update: Update) -> WarmUp:
        """Take a stochastic step, in place; return how it went."""
        curvature = iterate.initial.curvature
        warm_up: WarmUp = iterate.course
        k = warm_up.commits
        warm_up = warm_up._replace(commits=k + 1)
        if update.read < warm_up.turned:
            return warm_up  # from a theta that was given up
        loss = update.value / max(float(update.curvature[-1]), 1e-30)
        if update.read == 0 and loss < math.inf:
            starts = warm_up.starts + 1
            warm_up = warm_up._replace(starts=starts, loss=warm_up.loss + (loss - warm_up.loss) / starts)
        elif not loss <= HARM * warm_up.loss:
            iterate.theta[...] = iterate.base
            return warm_up._replace(gain=0.5 * warm_up.gain, turned=k + 1)
        if loss == math.inf:
            return warm_up
        curvature[...] = _averaged(curvature, update.curvature, k)
        h = warm_up.gain * self._step_size(k, k - update.read)
        add_scaled(iterate.theta, -h, update.image)
        return warm_up

    def _take_pass(self, method: Any, iterate: Iterate, updates: list[Update], commit: Commit) -> Iterate:
        """Judge the trial by the exact U and gradient of all blocks, and set the next one."""
        curvature, warm_up = iterate.initial.curvature, iterate.course
        at, summary, value = np.zeros_like(iterate.at_base), np.zeros_like(curvature), 0.0
        for update in updates:
            add_one(at[0], update.g)
            summary += update.curvature
            value += update.value
            if not self.in_step:
                add_one(at[1], update.image)
        whole = len({update.part for update in updates}) == self.blocks and math.isfinite(value)
        foreign = curvature[-1] == 0  # every block used its own H0
        if whole and foreign:
            curvature[...] = summary
        if self.in_step and whole:
            assert commit.inverse_metric_from is not None
            commit.inverse_metric_from(curvature).apply(at[0], at[1])
            foreign = False
        lower = whole and value <= warm_up.loss * float(summary[-1])
        if iterate.trial.kept == 0 and warm_up.starts and not lower:
            iterate.theta[...] = iterate.base  # the warm-up did harm: begin again where it began
            curvature[...] = 0.0
            return iterate._replace(course=warm_up._replace(starts=0))
        initial = StructuredMetric(iterate.initial, summary, bool(foreign))
        inverse = InverseHessian(iterate.memory, initial, method.rule)
        return iterate._replace(trial=advance(iterate, inverse, at if whole else None, value, None))

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        if self.in_step:
            batch = rows_of_parts(n_data, np.full_like(read, self.batches), read % self.batches)
            warm = read < self.warmup
            parts = np.where(warm, self.batch_blocks, self.blocks)
            return rows_of_parts(np.where(warm, batch, n_data), parts, part)
        parts = np.where(read < self.warmup, self.batches, self.blocks)
        return rows_of_parts(n_data, parts, part)


def _averaged(average: Array, newest: Array, k: int) -> Array:
    """Return the average after the k-th summary: a plain mean at first, then over the last ten or so."""
    weight = max(1.0 / (k + 1), NEWEST_WEIGHT)
    return average + (newest - average) * newest.dtype.type(weight)
