"""Staged L-BFGS: stale stochastic steps in the metric of a factorization, then exact quasi-Newton steps.

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
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

import asyncqn as aq
from asyncqn.algorithms.pair_memory import (
    PairRule,
    RecursiveMemory,
    Ring,
    pair_totals,
)
from asyncqn.algorithms.safeguard import Trial, advance, standing
from asyncqn.errors import require
from asyncqn.kernels import add_one, add_scaled, dot, sum_of_squares
from asyncqn.parameters import Checked, checked, parameter
from asyncqn.types import (
    Array,
    Commit,
    Counters,
    Problem,
    Rows,
    Stages,
    Standing,
    Task,
    extra,
)

HARM = 4.0
"""A batch whose loss is this many times the loss at the start shows that the warm-up has gone astray."""
NEWEST_WEIGHT = 0.1
"""The least weight of the newest summary in the average."""
MAX_CHANGE = 0.5
"""A summary that differs by more than this share from the one in use calls for a new H0."""
RULE = PairRule(epsilon=0.0, cosine=1e-5)
"""Pairs of any scale are admitted, as in `ExactLBFGS`; 1e-5: least cosine of the angle between s and y."""

Count = Annotated[int, parameter(ge=1)]


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
        """The number of pairs stored."""
        return self.pairs.stored

    @property
    def ring(self) -> Ring:
        """The slots of the pairs."""
        return self.pairs.ring

    def admit(self, s: Array, y: Array, image: Array) -> bool:
        """Admit the pair (s, y) with H0 y if the rule allows it; return whether it was admitted."""
        # Rounding, or a map that is not quite linear, can make y'H0 y negative; such a pair would break H.
        if not 0.0 < dot(y, image) < math.inf:
            self.ring.refuse()
            return False
        if not self.pairs.admit(RULE, s, y):
            return False
        self.images[self.pairs.newest] = image
        return True

    def product(self, v: Array, image: Array, out: Array) -> None:
        """Write H v into `out`; image: H0 v.

        The two-loop recursion, with the images of all that the first loop subtracts from v.
        """
        S, Y = self.pairs.pairs
        own, size = self.pairs.products[0], len(self.images)
        newest = self.pairs.newest
        slots = [(newest - age) % size for age in range(self.stored)]
        rest, shares = v.copy(), {}
        out[...] = image
        for i in slots:
            shares[i] = dot(S[i], rest) / own[i]
            add_scaled(rest, -shares[i], Y[i])
            add_scaled(out, -shares[i], self.images[i])
        for i in reversed(slots):
            share = shares[i] - dot(Y[i], out) / own[i]
            add_scaled(out, share, S[i])


class Structured(NamedTuple):
    """The state of H0, which workers read."""

    curvature: Array
    """The summary that H0 is made of; its last entry is 0 where there is none."""
    blind: npt.NDArray[np.bool_]
    """Shape (1,): the image of base's gradient belongs to another H0, so that two images make no pair."""


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


class Iterate(NamedTuple):
    """The state of the coordinator; all arrays are written in place."""

    theta: Array
    """The trial under way, or the last stochastic iterate."""
    base: Array
    """The last accepted point; the start before there is one."""
    at_base: Array
    """Shape (2, d): the gradient at base and its image under H0."""
    memory: ImageMemory
    initial: Structured
    trial: Trial
    """The safeguard's knowledge."""
    warm_up: WarmUp


class Update(NamedTuple):
    """Estimates for all data from a batch, or a block's share.  `value` is inf where g is not finite."""

    g: Array
    image: Array
    curvature: Array
    value: float
    part: int
    read: int
    rows: int
    """How many rows of the data it was computed from."""


class Worker(NamedTuple):
    """A worker remembers nothing, so that a worker that is lost loses nothing."""


@dataclass
class StructuredInverse:
    """H of the pairs on top of the H0 of a factorization: a `Metric` of the safeguard.

    Only workers can apply H0, so that `at` has two rows, g and its image H0 g.  H0 is linear: images add up as
    gradients do, and H0 y is the difference of two images.  What H0 is made of, a short summary of the
    curvature, comes with every update; it is kept until it has changed much, because pairs are only comparable
    under one H0.

    Parameters
    ----------
    memory : ImageMemory
        The pairs.
    state : Structured
        The state of H0.
    summary : array
        Of the curvature at the trial.
    foreign : bool
        Whether the image at the trial was made by another H0 than the one in use.
    """

    memory: ImageMemory
    state: Structured
    summary: Array
    foreign: bool

    def __post_init__(self) -> None:
        # `|=`, because base or trial alone suffices to spoil the pair.
        self.state.blind[0] |= self.foreign

    def direction(self, at: Array, out: Array) -> bool:
        """Write H g into `out`; H has a scale at once, for the image H0 g comes with every gradient."""
        g, image = at
        self.memory.product(g, image, out)
        if not dot(g, out) > 0.0:  # the blocks' own metrics disagreed
            # Down the gradient, as far as the image is long: the sum of images under different H0 need not
            # be a direction of descent.
            norm = math.sqrt(sum_of_squares(g))
            length = math.sqrt(sum_of_squares(image))
            out[...] = g * (length / norm if norm > 0.0 else 0.0)
        return True

    def learn(self, s: Array, change: Array) -> bool:
        """Offer the pair (s, change of `at`); return whether it was admitted."""
        # A pair that is not offered does not count as refused.
        return not self.state.blind[0] and self.memory.admit(s, *change)

    def forget(self) -> None:
        """Remove all pairs."""
        self.memory.pairs.forget()

    def softness(self) -> float:
        """Return the largest s's / s'y in memory; infinite without any pair."""
        return self.memory.pairs.softness()

    def keep(self) -> None:
        """The trial was accepted: start again with a new H0 where the curvature has changed much."""
        curvature, blind = self.state
        # The trial becomes the base, and its image the one with which the next pair is formed.
        blind[0] = self.foreign
        change = sum_of_squares(self.summary - curvature)
        if change > MAX_CHANGE**2 * sum_of_squares(curvature):
            curvature[...] = self.summary
            # The stored H0 y and the image at the new base were made by the old H0.
            self.forget()
            blind[0] = True


@dataclass(frozen=True)
class StagedLBFGS(Checked):
    """Stale steps in a structured metric, then exact L-BFGS passes; it has no step size.

    `aq.minimize` sets all parameters for a problem that offers such a metric, `ProfiledFactorization`.

    Parameters
    ----------
    batches : int
        Number of batches into which the rows are cut during the warm-up.
    warmup : int
        Commits of the warm-up.
    blocks : int
        Number of blocks into which the rows are cut in an exact pass; best is the number of workers.
    curvature : int
        The problem's `curvature_size`: length of the summary of curvature that comes with a gradient.
    delay : int, default 0
        Expected staleness in commits, W - 1.
    memory : int, default 3
        M: largest number of curvature pairs in the memory.
    in_step : bool, default False
        Whether the warm-up waits for all blocks of a batch before it takes the step.
    batch_blocks : int, optional
        Blocks of a batch where `in_step` is True; by default as many as those of an exact pass.
    backup_after : float, default 5.0
        Idle workers receive a block, too, once it is this many times later than usual; infinity means
        never.

    Examples
    --------
    >>> import asyncqn as aq
    >>> from asyncqn_recommender import ProfiledFactorization, StagedLBFGS
    >>> problem = ProfiledFactorization.example()
    >>> algorithm = aq.default_algorithm(problem, workers=4)      # a StagedLBFGS, with all parameters set
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> isinstance(algorithm, StagedLBFGS), run.status
    (True, 'converged')
    """

    batches: Count
    warmup: Annotated[int, parameter(ge=0)]
    blocks: Count
    curvature: Count
    delay: Annotated[int, parameter(unit="commits", ge=0)] = 0
    memory: Annotated[int, parameter(ge=1, le=10_000)] = 3
    in_step: bool = False
    batch_blocks: Count | None = None
    backup_after: Annotated[float, parameter(gt=0.0, infinite=True)] = 5.0

    # Workers apply H0, so that its state travels with theta.
    sent = ("theta", "initial")
    requires = ("curvature_size", "grad_with_curvature", "inverse_metric_from")

    @classmethod
    def example(cls, problem: Problem) -> StagedLBFGS:
        """Small parameters that run on any problem with a structured metric, for tests."""
        size = extra(problem, "curvature_size")
        return cls(batches=8, warmup=8, blocks=4, curvature=size, delay=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.batch_blocks is None or self.batch_blocks <= self.blocks,
            f"batch_blocks must be at most blocks = {self.blocks}: use fewer.",
        )

    @property
    def _batch_blocks(self) -> int:
        return self.blocks if self.batch_blocks is None else self.batch_blocks

    @cached_property
    def stages(self) -> Stages:
        """A stage of batches, and one of passes to the end of the run."""
        late = self.backup_after
        passes = aq.stages.AllParts(blocks=self.blocks, backup_after=late)
        batch: aq.stages.Stage
        if self.in_step:
            share = 1.0 / self.batches
            warm, commits = self._batch_blocks, self.warmup
            batch = aq.stages.AllParts(
                blocks=warm, backup_after=late, share=share, commits=commits
            )
        else:
            batch = aq.stages.EachUpdate(blocks=self.batches, commits=self.warmup)
        return batch, passes

    def check(self, problem: Problem) -> None:
        own = extra(problem, "curvature_size")
        require(
            self.curvature == own,
            f"curvature must be the problem's {own}, not {self.curvature}.",
        )
        n, most = problem.n_data, max(self.batches, self.blocks)
        # In step the parts are blocks of batches, of which each needs a row.
        if self.in_step and self.warmup:
            most = max(self.blocks, self.batches * self._batch_blocks)
        require(
            most <= n, f"{n} data points cannot be cut into {most} parts: use fewer."
        )

    @checked
    def commits_for(self, epochs: Annotated[float, parameter(gt=0.0)]) -> int:
        """Return how many commits make `epochs` passes over the data: batches first, then whole passes."""
        # During the warm-up a commit is a batch, afterwards a whole pass.  1e-9 keeps the rounding of the
        # quotient from adding a pass.
        warm = min(self.warmup, round(epochs * self.batches))
        passes = math.ceil(epochs - self.warmup / self.batches - 1e-9)
        return max(1, warm + passes)

    # At the workers

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        return Worker()

    def step(self, view: Iterate, local: Worker, problem: Any, task: Task) -> Update:
        # `read` is the version and also the number of commits so far: it tells the stage.
        exact, part = task.read >= self.warmup, task.part
        average = view.initial.curvature
        assert part is not None
        first, last, n = self._rows(problem.n_data, task.read, part)
        g = np.empty_like(view.theta)
        # In step the coordinator makes the image, and an update has about half the length.
        image: Array = np.empty(0, g.dtype) if self.in_step else np.empty_like(g)
        summary = np.empty_like(average)
        value = problem.grad_with_curvature(
            view.theta, np.arange(first, last), g, summary
        )
        if not math.isfinite(value + sum_of_squares(g)):
            # The coordinator must hear of it, to turn back.
            for array in (g, image, summary):
                array[...] = 0.0
            return Update(g, image, summary, math.inf, part, task.read, last - first)
        if not exact and not self.in_step:
            # A worker cannot know how stale its update will be, nor the gain: the damping of H0 uses the step
            # size that is expected, and the coordinator scales the step by the true one.
            h = self._step_size(task.read, self.delay)
            # With its own summary in the average, which is zeros before the first commit.
            average = _averaged(average, summary, task.read)
            problem.inverse_metric_from(average, h, last - first).apply(g, image)
            return Update(g, image, summary, value, part, task.read, last - first)
        if not self.in_step:
            # Not damped, for the gradient is exact.  The average is the same for all blocks, a block's own
            # summary is not: images of the latter kind are `foreign`.
            average = average if average[-1] > 0 else summary
            problem.inverse_metric_from(average).apply(g, image)
        # Every block estimates sums over all data, prior included; the shares of the blocks add up to 1.
        share = (last - first) / n
        for shared in (g, image, summary):
            shared *= shared.dtype.type(share)
        return Update(g, image, summary, value * share, part, task.read, last - first)

    def _rows(self, n_data: int, read: int, part: int) -> tuple[int, int, int]:
        """Return first and last row of a part, and of how many rows it is a part."""
        if read >= self.warmup:
            return *_part(0, n_data, part, self.blocks), n_data
        if not self.in_step:
            return *_part(0, n_data, part, self.batches), n_data
        # In step a commit is a batch, so that the version tells which one, and the part is a block of it.
        begin, end = _part(0, n_data, read % self.batches, self.batches)
        return *_part(begin, end, part, self._batch_blocks), end - begin

    def _step_size(self, k: int, staleness: int) -> float:
        # Half a step of H0, shared by the 1 + l updates under way, until k + 1 = 5 (1 + l); from there on
        # falling as 1 / (k + 1), so that the noise of the batches averages out.
        under_way = 1 + max(staleness, self.delay)
        return min(0.5 / under_way, 2.5 / (k + 1))

    # At the coordinator

    def init(self, theta0: Array) -> Iterate:
        return Iterate(
            # The iterate owns all its arrays, because the coordinator writes them in place.
            theta=theta0.copy(),
            base=theta0.copy(),
            at_base=np.zeros((2, theta0.size), theta0.dtype),
            memory=ImageMemory.empty(self.memory, theta0),
            initial=Structured(
                np.zeros(self.curvature, theta0.dtype), np.zeros(1, np.bool_)
            ),
            # Monotone: beyond rounding, no accepted point lies above the one before.
            trial=Trial((-math.inf,)),
            warm_up=WarmUp(),
        )

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        # Sorted, so that sums do not depend on the order of arrival.
        updates = sorted(updates, key=lambda update: update.part)
        if updates[0].read >= self.warmup:
            return self._take_pass(iterate, updates, commit)
        if self.in_step:
            updates = [self._batch(iterate, updates, commit)]
        for update in updates:
            iterate = iterate._replace(warm_up=self._warm_up(iterate, update))
        return iterate

    def _batch(
        self, iterate: Iterate, blocks: Sequence[Update], commit: Commit
    ) -> Update:
        """Return the blocks of a batch as one update."""
        average, k = iterate.initial.curvature, iterate.warm_up.commits
        g, summary = np.zeros_like(iterate.theta), np.zeros_like(average)
        whole = len({block.part for block in blocks}) == self._batch_blocks
        # Infinite where any block's is, and then the step is not taken.
        value = sum(block.value for block in blocks) if whole else math.inf
        rows = sum(block.rows for block in blocks)
        for block in blocks:
            add_one(g, block.g)
            summary += block.curvature
        image = np.zeros_like(g)
        if value < math.inf:
            assert commit.inverse_metric_from is not None
            # Staleness 0: `_step_size` still takes `delay` where that is larger.
            h = self._step_size(k, 0)
            average = _averaged(average, summary, k)
            commit.inverse_metric_from(average, h, rows).apply(g, image)
        return Update(g, image, summary, value, 0, blocks[0].read, rows)

    def _warm_up(self, iterate: Iterate, update: Update) -> WarmUp:
        """Take a stochastic step, in place; return how it went."""
        curvature, warm_up = iterate.initial.curvature, iterate.warm_up
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
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        """Judge the trial by the exact U and gradient of all blocks, and set the next one."""
        curvature, warm_up = iterate.initial.curvature, iterate.warm_up
        at, summary = np.zeros_like(iterate.at_base), np.zeros_like(curvature)
        value = 0.0
        for update in updates:
            value += update.value
            add_one(at[0], update.g)
            summary += update.curvature
            if not self.in_step:
                add_one(at[1], update.image)
        parts = {update.part for update in updates}
        whole = len(parts) == self.blocks and math.isfinite(value)
        foreign = bool(curvature[-1] == 0)  # every block used its own H0
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
            # The warm-up did harm: begin again where it began.
            iterate.theta[...] = iterate.base
            curvature[...] = 0.0
            # Without `starts` the next pass, which is at theta0 itself, is not judged by the warm-up again.
            return iterate._replace(warm_up=warm_up._replace(starts=0))
        H = StructuredInverse(iterate.memory, iterate.initial, summary, foreign)
        # U comes with every gradient, so that the safeguard never has to ask for it.
        trial = advance(iterate, H, at if whole else None, value, None)
        return iterate._replace(trial=trial)

    # What a run asks

    def standing(self, iterate: Iterate) -> Standing | None:
        return standing(iterate)

    def candidates(self, iterate: Iterate) -> tuple[Array, ...]:
        """Return the last accepted point; theta itself is a trial."""
        return (iterate.base,)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        """Return of how many rows each computation takes the gradient."""
        # `_rows` for many computations at once.
        warm = read < self.warmup
        begin, end = np.zeros_like(read), np.full_like(read, n_data)
        parts = np.where(warm, self.batches, self.blocks)
        if self.in_step:
            batch = _part(0, n_data, read % self.batches, self.batches)
            begin = np.where(warm, batch[0], begin)
            end = np.where(warm, batch[1], end)
            parts = np.where(warm, self._batch_blocks, self.blocks)
        first, last = _part(begin, end, part.astype(np.int64), parts)
        rows: Rows = last - first
        return rows

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return pair_totals([iterate.memory.ring])


def asynchronous_algorithm(problem: Any, workers: int) -> StagedLBFGS:
    """Return the algorithm for a problem with a structured metric and W workers, nothing else given.

    One pass of warm-up in 32 W batches, beyond W = 5 in max(160, 16 W), and fewer where that leaves
    less than 8 points each; then exact passes in as many blocks as workers.
    """
    n = int(problem.n_data)
    # 32 W up to W = 5, then 160 up to W = 10, then 16 W.  W - 1 commits of staleness are thus at most a
    # sixteenth of a pass, unless rows are few.
    wanted = max(min(32 * workers, 160), 16 * workers)
    batches = max(1, min(wanted, n // 8))
    return StagedLBFGS(
        batches=batches,
        # The first W updates all read theta0: of 2 W batches or fewer, that is half of the warm-up or more.
        warmup=batches if batches > 2 * workers else 0,
        blocks=min(workers, n),
        curvature=int(problem.curvature_size),
        delay=workers - 1,
    )


PER_ITEM = 8
"""Smallest number of ratings per item in a block, if a batch is cut into blocks at all."""
STEP_BLOCKS = 8
"""Blocks of a pass, whatever the number of workers: the sums then have the same order everywhere."""


def in_step_algorithm(problem: Any, ratings_per_item: float = math.inf) -> StagedLBFGS:
    """Return the algorithm of a fit, whose result does not depend on the number of workers.

    The warm-up is one pass in 16 batches, fewer if these had less than 8 points each; passes in eight blocks
    follow. An update takes time for every item besides that for its ratings, so a batch is cut into as many
    blocks, up to eight, as leave each block about eight ratings per item.
    """
    n = int(problem.n_data)
    # Data points are users here, not ratings.
    batches = max(1, min(16, n // 8))
    most = min(STEP_BLOCKS, n, ratings_per_item / (PER_ITEM * batches))
    return StagedLBFGS(
        batches=batches,
        warmup=batches if batches >= 4 else 0,
        blocks=min(STEP_BLOCKS, n),
        curvature=int(problem.curvature_size),
        in_step=True,
        batch_blocks=max(1, int(most)),
    )


def _part(begin: Any, end: Any, part: Any, parts: Any) -> tuple[Any, Any]:
    """Return first and last row of a part of the rows from `begin` to `end`."""
    n = end - begin
    first = begin + part * n // parts
    last = begin + (part + 1) * n // parts
    return first, last


def _averaged(average: Array, newest: Array, k: int) -> Array:
    """Return the average after the k-th summary: a plain mean at first, then over the last ten or so."""
    # The summary of commit 0 has weight 1, and so replaces the zeros of the start.
    weight = max(1.0 / (k + 1), NEWEST_WEIGHT)
    return average + (newest - average) * newest.dtype.type(weight)
