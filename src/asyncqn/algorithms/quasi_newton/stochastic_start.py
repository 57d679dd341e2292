"""The plan of a stochastic start: stale steps in the problem's own metric, then exact passes.

Warm-up, one commit per batch of rows.  With H0 the structured inverse curvature of the problem, damped for
the batch, and l the staleness of the k-th commit,

    theta <- theta - h_k H0 g(theta_read),    h_k = min(1 / (2 (1 + l)), 5 / (2 (k + 1)))

The summary that H0 is made of is averaged meanwhile.  Then exact gradients, one commit per pass over the
data, from blocks that are summed in their own order:

    g = sum_b (n_b / n) grad_b(theta),  s = theta - base,  y = g - g_base
    base <- theta,  theta <- base - H g       H of the last M pairs on top of H0

In step, a batch of the warm-up is cut into blocks, as a pass is, and its commit waits for all of them, so
that nothing is stale.  Blocks are summed in their own order: no bit of the result depends on the schedule or
on the number of workers.  The coordinator then computes the images H0 g, one per commit.

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

from asyncqn.algorithms.exact.inverse import InitialInverse, InverseHessian
from asyncqn.algorithms.pair_memory import PairRule, RecursiveMemory
from asyncqn.algorithms.parts import rows_of_parts
from asyncqn.algorithms.quasi_newton.composition import Iterate, Plan
from asyncqn.algorithms.safeguard import advance
from asyncqn.core.stages import Stages, batches, blocks
from asyncqn.errors import require
from asyncqn.kernels.vectors import add_one, add_scaled, dot, sum_of_squares
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task

HARM = 4.0
"""A batch whose loss is this many times the loss at the start shows that the warm-up has gone astray."""
NEWEST_WEIGHT = 0.1
"""The least weight of the newest summary in the average."""


MAX_CHANGE = 0.5
"""A summary that differs by more than this share from the one in use calls for a new H0."""


class Structured(NamedTuple):
    """The state of `StructuredMetric`, which workers read."""

    curvature: Array
    """The summary that H0 is made of; its last entry is 0 where there is none."""
    blind: npt.NDArray[np.bool_]
    """Shape (1,): the image of base's gradient belongs to another H0, so that two images make no pair."""


class ImageMemory(NamedTuple):
    """Pairs on top of an H0 that only workers can apply: every pair brings the image H0 y."""

    pairs: RecursiveMemory
    images: Array
    """Shape (M, d): H0 y of every slot."""

    @classmethod
    def empty(cls, size: int, theta0: Array) -> ImageMemory:
        """Return a memory for `size` pairs."""
        images = np.zeros((size, theta0.size), theta0.dtype)
        return cls(RecursiveMemory.empty(size, theta0), images)

    @property
    def stored(self) -> int:
        """How many pairs are stored."""
        return self.pairs.stored

    @property
    def ring(self) -> Any:
        """The slots of the pairs."""
        return self.pairs.ring

    def admit(self, rule: PairRule, s: Array, y: Array, image: Array) -> bool:
        """Admit the pair (s, y) with H0 y if the rule allows it; return whether it was admitted."""
        # Rounding, or a map that is not quite linear, can make y'H0 y negative; such a pair would break H.
        if not 0.0 < dot(y, image) < math.inf:
            self.ring.refuse()
            return False
        if not self.pairs.admit(rule, s, y):
            return False
        self.images[self.pairs.newest] = image
        return True

    def product(self, v: Array, image: Array, out: Array) -> None:
        """Write H v into `out`; image: H0 v.

        The two-loop recursion, with the images of all that the first loop subtracts from v.
        """
        S, Y = self.pairs.pairs
        own, size = self.pairs.products[0], len(self.images)
        slots = [(self.pairs.newest - age) % size for age in range(self.stored)]
        rest, shares = v.copy(), {}
        out[...] = image
        for i in slots:
            shares[i] = dot(S[i], rest) / own[i]
            add_scaled(rest, -shares[i], Y[i])
            add_scaled(out, -shares[i], self.images[i])
        for i in reversed(slots):
            add_scaled(out, shares[i] - dot(Y[i], out) / own[i], S[i])

    def softness(self) -> float:
        """Return the largest s's / s'y in memory; infinite without any pair."""
        return self.pairs.softness()

    def forget(self) -> None:
        """Remove all pairs."""
        self.pairs.forget()


@dataclass
class StructuredMetric(InitialInverse):
    """H0 of a factorization, which only the workers can apply: `at` has two rows, g and its image H0 g.

    H0 is linear: images add up as gradients do, and H0 y is the difference of two images.  What H0 is made
    of, a short summary of the curvature, comes with every update; it is kept until it has changed much,
    because pairs are only comparable under one H0.

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
    vectors = 2

    def __post_init__(self) -> None:
        # `|=`, because base or trial alone suffices to spoil the pair.
        self.state.blind[0] |= self.foreign

    @classmethod
    def empty(cls, theta0: Array, curvature: int) -> Structured:
        return Structured(np.zeros(curvature, theta0.dtype), np.zeros(1, np.bool_))

    @classmethod
    def empty_memory(cls, size: int, theta0: Array) -> Any:
        return ImageMemory.empty(size, theta0)

    def known(self, memory: Any) -> bool:
        # The image H0 g comes with every gradient.
        return True

    def product(self, memory: Any, at: Array, out: Array) -> None:
        g, image = at
        memory.product(g, image, out)
        if not dot(g, out) > 0.0:  # the blocks' own metrics disagreed
            # Down the gradient, as far as the image is long: the sum of images under different H0 need not
            # be a direction of descent.
            norm = math.sqrt(sum_of_squares(g))
            out[...] = g * (
                math.sqrt(sum_of_squares(image)) / norm if norm > 0.0 else 0.0
            )

    def offer(self, memory: Any, s: Array, y: Array) -> bool:
        return not self.state.blind[0]

    def follow(self, memory: Any) -> None:
        """Nothing: H0 has no factor of its own."""

    def accept(self, memory: Any) -> None:
        """Start again with a new H0 where the curvature has changed much."""
        curvature, blind = self.state
        # The trial becomes the base, and its image the one with which the next pair is formed.
        blind[0] = self.foreign
        if sum_of_squares(self.summary - curvature) > MAX_CHANGE**2 * sum_of_squares(
            curvature
        ):
            curvature[...] = self.summary
            # The stored H0 y and the image at the new base were made by the old H0.
            memory.forget()
            blind[0] = True


class WarmUp(NamedTuple):
    """Record of the stochastic steps before the passes."""

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
    """Estimates for all data from a batch, or a block's share.  `value` is inf where g is not finite."""

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
        # In step the parts are blocks of batches, of which each needs a row.
        if self.in_step and self.warmup:
            most = max(self.blocks, self.batches * self.batch_blocks)
        require(
            most <= n, f"{n} data points cannot be cut into {most} parts: use fewer."
        )

    def course(self, theta0: Array) -> WarmUp:
        return WarmUp()

    def step(self, method: Any, view: Iterate, problem: Any, task: Task) -> Update:
        # `read` is the version and also the number of commits so far: it tells the stage.
        exact, part, average = (
            task.read >= self.warmup,
            task.part,
            view.initial.curvature,
        )
        assert part is not None
        first, last, n = self._rows(problem.n_data, task.read, part)
        g = np.empty_like(view.theta)
        # In step the coordinator makes the image, and an update has about half the length.
        image: Array = np.empty(0, g.dtype) if self.in_step else np.empty_like(g)
        curvature = np.empty_like(average)
        value = problem.grad_with_curvature(
            view.theta, np.arange(first, last), g, curvature
        )
        if not math.isfinite(value + sum_of_squares(g)):
            g[...] = image[...] = curvature[...] = (
                0.0  # the coordinator must hear of it, to turn back
            )
            return Update(g, image, curvature, math.inf, part, task.read, last - first)
        if not exact and not self.in_step:
            # A worker cannot know how stale its update will be, nor the gain: the damping of H0 uses the step
            # size that is expected, and the coordinator scales the step by the true one.
            h = self._step_size(task.read, self.delay)
            # With its own summary in the average, which is zeros before the first commit.
            known = _averaged(average, curvature, task.read)
            problem.inverse_metric_from(known, h, last - first).apply(g, image)
            return Update(g, image, curvature, value, part, task.read, last - first)
        if not self.in_step:
            # Not damped, for the gradient is exact.  The average is the same for all blocks, a block's own
            # summary is not: images of the latter kind are `foreign`.
            problem.inverse_metric_from(
                average if average[-1] > 0 else curvature
            ).apply(g, image)
        # Every block estimates sums over all data, prior included; the shares of the blocks add up to 1.
        share = (last - first) / n
        for shared in (g, image, curvature):
            shared *= shared.dtype.type(share)
        return Update(g, image, curvature, value * share, part, task.read, last - first)

    def _rows(self, n_data: int, read: int, part: int) -> tuple[int, int, int]:
        """Return first and last row of a part, and of how many rows it is a part."""
        begin, end, parts = 0, n_data, self.blocks
        if read < self.warmup and self.in_step:
            # In step a commit is a batch, so that the version tells which one, and the part is a block of it.
            batch = read % self.batches
            begin, end = (
                batch * n_data // self.batches,
                (batch + 1) * n_data // self.batches,
            )
            parts = self.batch_blocks
        elif read < self.warmup:
            parts = self.batches
        n = end - begin
        return begin + part * n // parts, begin + (part + 1) * n // parts, n

    def apply(
        self, method: Any, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        if updates[0].read >= self.warmup:
            return self._take_pass(
                method, iterate, sorted(updates, key=lambda u: u.part), commit
            )
        # Sorted, so that sums do not depend on the order of arrival.
        if self.in_step:
            updates = [
                self._batch(
                    iterate, sorted(updates, key=lambda update: update.part), commit
                )
            ]
        for update in updates:
            iterate = iterate._replace(course=self._warm_up(iterate, update))
        return iterate

    def _batch(
        self, iterate: Iterate, blocks: Sequence[Update], commit: Commit
    ) -> Update:
        """Return the blocks of a batch as one update."""
        average = iterate.initial.curvature
        g, curvature = np.zeros_like(iterate.theta), np.zeros_like(average)
        whole = len({block.part for block in blocks}) == self.batch_blocks
        # Infinite where any block's is, and then the step is not taken.
        value = sum(block.value for block in blocks) if whole else math.inf
        for block in blocks:
            add_one(g, block.g)
            curvature += block.curvature
        image, k = np.zeros_like(g), iterate.course.commits
        if value < math.inf:
            assert commit.inverse_metric_from is not None
            rows = sum(block.rows for block in blocks)
            # Staleness 0: `_step_size` still takes `delay` where that is larger.
            known = _averaged(average, curvature, k)
            commit.inverse_metric_from(known, self._step_size(k, 0), rows).apply(
                g, image
            )
        return Update(g, image, curvature, value, 0, blocks[0].read)

    def _step_size(self, k: int, staleness: int) -> float:
        # Half a step of H0, shared by the 1 + l updates under way, until k + 1 = 5 (1 + l); from there on
        # falling as 1 / (k + 1), so that the noise of the batches averages out.
        return min(0.5 / (1 + max(staleness, self.delay)), 2.5 / (k + 1))

    def _warm_up(self, iterate: Iterate, update: Update) -> WarmUp:
        """Take a stochastic step, in place; return how it went."""
        curvature = iterate.initial.curvature
        warm_up: WarmUp = iterate.course
        k = warm_up.commits
        warm_up = warm_up._replace(commits=k + 1)
        if update.read < warm_up.turned:
            return warm_up  # from a theta that was given up
        # Per weight (per rating, say), because batches differ in their weights; an update that is not finite
        # has an infinite loss.
        loss = update.value / max(float(update.curvature[-1]), 1e-30)
        # The first W updates or so read theta0: their mean is the yardstick for all later ones.
        if update.read == 0 and loss < math.inf:
            starts = warm_up.starts + 1
            warm_up = warm_up._replace(
                starts=starts, loss=warm_up.loss + (loss - warm_up.loss) / starts
            )
        # `not <=` also catches NaN.
        elif not loss <= HARM * warm_up.loss:
            iterate.theta[...] = iterate.base
            # Updates under way were computed where theta no longer is: `turned` makes them void.
            return warm_up._replace(gain=0.5 * warm_up.gain, turned=k + 1)
        if loss == math.inf:
            return warm_up
        curvature[...] = _averaged(curvature, update.curvature, k)
        # Commit numbers and versions agree in the warm-up, so that k - read is the staleness.
        h = warm_up.gain * self._step_size(k, k - update.read)
        add_scaled(iterate.theta, -h, update.image)
        return warm_up

    def _take_pass(
        self, method: Any, iterate: Iterate, updates: list[Update], commit: Commit
    ) -> Iterate:
        """Judge the trial by the exact U and gradient of all blocks, and set the next one."""
        curvature, warm_up = iterate.initial.curvature, iterate.course
        at, summary, value = (
            np.zeros_like(iterate.at_base),
            np.zeros_like(curvature),
            0.0,
        )
        for update in updates:
            add_one(at[0], update.g)
            summary += update.curvature
            value += update.value
            if not self.in_step:
                add_one(at[1], update.image)
        whole = len(
            {update.part for update in updates}
        ) == self.blocks and math.isfinite(value)
        foreign = curvature[-1] == 0  # every block used its own H0
        # From the next pass on all blocks use the summary of all rows.
        if whole and foreign:
            curvature[...] = summary
        if self.in_step and whole:
            assert commit.inverse_metric_from is not None
            commit.inverse_metric_from(curvature).apply(at[0], at[1])
            # The sum of the gradients was mapped by one H0.
            foreign = False
        # In the same units: the mean loss at the start times the weight of all rows.
        lower = whole and value <= warm_up.loss * float(summary[-1])
        if iterate.trial.kept == 0 and warm_up.starts and not lower:
            iterate.theta[...] = (
                iterate.base
            )  # the warm-up did harm: begin again where it began
            curvature[...] = 0.0
            # Without `starts` the next pass, which is at theta0 itself, is not judged by the warm-up again.
            return iterate._replace(course=warm_up._replace(starts=0))
        initial = StructuredMetric(iterate.initial, summary, bool(foreign))
        inverse = InverseHessian(iterate.memory, initial)
        # U comes with every gradient, so that the safeguard never has to ask for it.
        return iterate._replace(
            trial=advance(iterate, inverse, at if whole else None, value, None)
        )

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        # `_rows` for many computations at once.
        if self.in_step:
            batch = rows_of_parts(
                n_data, np.full_like(read, self.batches), read % self.batches
            )
            warm = read < self.warmup
            parts = np.where(warm, self.batch_blocks, self.blocks)
            return rows_of_parts(np.where(warm, batch, n_data), parts, part)
        parts = np.where(read < self.warmup, self.batches, self.blocks)
        return rows_of_parts(n_data, parts, part)


def _averaged(average: Array, newest: Array, k: int) -> Array:
    """Return the average after the k-th summary: a plain mean at first, then over the last ten or so."""
    # The summary of commit 0 has weight 1, and so replaces the zeros of `StructuredMetric.empty`.
    weight = max(1.0 / (k + 1), NEWEST_WEIGHT)
    return average + (newest - average) * newest.dtype.type(weight)
