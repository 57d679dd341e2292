"""Staged L-BFGS: stale stochastic steps in the potential's own metric, then exact quasi-Newton steps.

Warm-up, one commit per batch of rows.  With H0 the potential's structured inverse curvature, damped for
the batch, and l the staleness of the k-th commit,

    theta <- theta - h_k H0 g(theta_read),    h_k = min(1 / (2 (1 + l)), 5 / (2 (k + 1)))

Then exact gradients, one commit per pass over the data, from blocks that are summed in their own order:

    g = sum_b (n_b / n) grad_b(theta),  s = theta - base,  y = g - g_base
    base <- theta,  theta <- base - H g       H of the last M pairs on top of H0

The master has no data, so it cannot apply H0.  But H0 is linear: every worker sends its gradient and
the image of it, images add up as gradients do, and H0 y is the difference of two images.  What H0 is
made of, a short summary of the curvature, comes with every answer; it is averaged while the method warms
up and then kept until it has changed much, because pairs are only comparable under one H0.

In step (`in_step`), a batch of the warm-up is cut into blocks, as a pass is, and its commit waits for all of
them: nothing is stale, and as blocks are summed in their own order, the result depends on the schedule in
no bit: it is the same on any number of workers.  The master then makes the images, one a commit.

Our own choices: the constants; gradients of the warm-up are stale, those of the passes never; a trial
theta is judged by `algorithms.safeguard`, U coming with the gradient; a warm-up that did harm is undone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from asyncqn.algorithms.memory import empty_memory
from asyncqn.algorithms.parameters import BackupAfter, Blocks, CurvatureSize, PairedMemorySize
from asyncqn.algorithms.quasi_newton.exact_gradients import ExactGradients, Worker, rows_of_parts
from asyncqn.algorithms.quasi_newton.exact_passes import Iterate, Update, WarmUp, take_pass
from asyncqn.algorithms.safeguard import Trial
from asyncqn.core.stages import Stages, batches, blocks
from asyncqn.errors import require
from asyncqn.kernels.vectors import add_one, add_scaled, sum_of_squares
from asyncqn.parameters import checked, parameter
from asyncqn.types import Array, Commit, Counters, Potential, Rows, Task, extra

_HARM = 4.0
"""A batch whose loss is this many times the loss at the start shows that the warm-up has gone astray."""
_LATEST = 0.1
"""The least weight of the newest summary in the average."""
_PER_ITEM = 8
"""The fewest ratings for every item in a block of a batch, where a batch is cut at all."""
STEP_BLOCKS = 8
"""Blocks of a pass in step, however many workers there are."""


@dataclass(frozen=True)
class StagedLBFGS(ExactGradients):
    """Stale steps in a structured metric, then exact L-BFGS passes; it has no step size.

    batches: parts of the data in the warm-up; warmup: its commits; blocks: parts of an exact pass.

    curvature: the potential's `curvature_size`; delay: the staleness to reckon with, W - 1; memory:
    M; in_step: see above; batch_blocks: parts of a batch in step, None: as many as of a pass; backup_after:
    see `core.stages`.

    >>> import asyncqn as aq
    >>> from asyncqn_recommender import ProfiledFactorization
    >>> problem = ProfiledFactorization.example()
    >>> algorithm = aq.default_algorithm(problem, workers=4)      # a StagedLBFGS, with all parameters set
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status
    'converged'
    """

    batches: Annotated[int, parameter("Into how many batches the rows are cut in the warm-up", ge=1)]
    warmup: Annotated[int, parameter("Commits of the warm-up", ge=0)]
    blocks: Blocks
    curvature: CurvatureSize
    delay: Annotated[int, parameter("The staleness to reckon with: W - 1", unit="commits", ge=0)] = 0
    memory: PairedMemorySize = 3
    in_step: Annotated[bool, parameter("Whether the warm-up waits for all blocks of a batch")] = False
    batch_blocks: Annotated[
        Blocks | None, parameter("Blocks of a batch in step; None: as many as of a pass")
    ] = None
    backup_after: BackupAfter = 5.0

    sent = ("theta", "curvature")
    requires = ("curvature_size", "grad_with_curvature", "inverse_metric_from")

    @classmethod
    def example(cls, potential: Potential) -> StagedLBFGS:
        """Small parameters that run on any potential with a structured metric, for tests."""
        return cls(batches=8, warmup=8, blocks=4, curvature=extra(potential, "curvature_size"), delay=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.blocks
        require(
            self.batch_blocks is None or self.batch_blocks <= most,
            f"batch_blocks must be at most blocks = {most}: use fewer.",
        )

    @property
    def _of_batch(self) -> int:
        return self.blocks if self.batch_blocks is None else self.batch_blocks

    @property
    def stages(self) -> Stages:
        passes = blocks(self.blocks, self.backup_after)
        if not self.in_step:
            return batches(self.batches, commits=self.warmup), passes
        batch = blocks(self._of_batch, self.backup_after)
        return replace(batch, commits=self.warmup, share=1.0 / self.batches), passes

    @checked
    def commits_for(self, epochs: Annotated[float, parameter("Passes over the data", gt=0.0)]) -> int:
        """How many commits make `epochs` passes over the data: batches first, then whole passes."""
        warm = min(self.warmup, round(epochs * self.batches))
        return max(1, warm + math.ceil(epochs - self.warmup / self.batches - 1e-9))

    def check(self, potential: Potential) -> None:
        size = extra(potential, "curvature_size")
        require(size == self.curvature, f"curvature must be the potential's {size}, not {self.curvature}.")
        n, most = potential.n_data, max(self.batches, self.blocks)
        if self.in_step and self.warmup:
            most = max(self.blocks, self.batches * self._of_batch)
        require(most <= n, f"{n} data points cannot be cut into {most} parts: use fewer.")

    def init(self, theta0: Array) -> Iterate:
        return Iterate(
            theta=theta0.copy(),
            curvature=np.zeros(self.curvature, theta0.dtype),
            base=theta0.copy(),
            at_base=np.zeros((2, theta0.size), theta0.dtype),
            anchor=np.zeros((3, theta0.size), theta0.dtype),
            memory=empty_memory(self.memory, 1.0, None, theta0),
            trial=Trial((-math.inf,)),
            warm_up=WarmUp(),
        )

    def step(self, view: Iterate, local: Worker, potential: Any, task: Task) -> Update:
        exact, part = task.read >= self.warmup, task.part
        assert part is not None
        first, last, n = self._rows(potential.n_data, task.read, part)
        g = np.empty_like(view.theta)
        image: Array = np.empty(0, g.dtype) if self.in_step else np.empty_like(g)
        curvature = np.empty_like(view.curvature)
        value = potential.grad_with_curvature(view.theta, np.arange(first, last), g, curvature)
        if not math.isfinite(value + sum_of_squares(g)):
            g[...] = image[...] = curvature[...] = 0.0  # the master must hear of it, to turn back
            return Update(g, image, curvature, math.inf, part, task.read, last - first)
        if not exact and not self.in_step:
            h = self._step_size(task.read, self.delay)
            known = view.curvature + (curvature - view.curvature) * curvature.dtype.type(_weight(task.read))
            potential.inverse_metric_from(known, h, last - first).apply(g, image)
            return Update(g, image, curvature, value, part, task.read, last - first)
        if not self.in_step:
            kept = view.curvature if view.curvature[-1] > 0 else curvature
            potential.inverse_metric_from(kept).apply(g, image)
        share = (last - first) / n
        for shared in (g, image, curvature):
            shared *= shared.dtype.type(share)
        return Update(g, image, curvature, value * share, part, task.read, last - first)

    def _rows(self, n_data: int, read: int, part: int) -> tuple[int, int, int]:
        """First and last row of a part, and of how many rows it is a part."""
        begin, end, parts = 0, n_data, self.blocks
        if read < self.warmup and self.in_step:
            batch = read % self.batches
            begin, end = batch * n_data // self.batches, (batch + 1) * n_data // self.batches
            parts = self._of_batch
        elif read < self.warmup:
            parts = self.batches
        n = end - begin
        return begin + part * n // parts, begin + (part + 1) * n // parts, n

    def apply(self, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        if updates[0].read >= self.warmup:
            metric_from = commit.inverse_metric_from if self.in_step else None
            return take_pass(iterate, sorted(updates, key=lambda u: u.part), self.blocks, metric_from)
        if self.in_step:
            updates = [self._batch(iterate, sorted(updates, key=lambda update: update.part), commit)]
        for update in updates:
            iterate = iterate._replace(warm_up=self._warm_up(iterate, update))
        return iterate

    def _batch(self, iterate: Iterate, blocks: Sequence[Update], commit: Commit) -> Update:
        """The blocks of a batch as one answer."""
        g, curvature = np.zeros_like(iterate.theta), np.zeros_like(iterate.curvature)
        whole = len({block.part for block in blocks}) == self._of_batch
        value = sum(block.value for block in blocks) if whole else math.inf
        for block in blocks:
            add_one(g, block.g)
            curvature += block.curvature
        image, k = np.zeros_like(g), iterate.warm_up.commits
        if value < math.inf:
            assert commit.inverse_metric_from is not None
            known = iterate.curvature + (curvature - iterate.curvature) * curvature.dtype.type(_weight(k))
            rows = sum(block.rows for block in blocks)
            commit.inverse_metric_from(known, self._step_size(k, 0), rows).apply(g, image)
        return Update(g, image, curvature, value, 0, blocks[0].read)

    def _step_size(self, k: int, staleness: int) -> float:
        return min(0.5 / (1 + max(staleness, self.delay)), 2.5 / (k + 1))

    def _warm_up(self, iterate: Iterate, update: Update) -> WarmUp:
        """Take a stochastic step, in place; returns how it went."""
        warm_up, curvature = iterate.warm_up, iterate.curvature
        k = warm_up.commits
        warm_up = warm_up._replace(commits=k + 1)
        if update.read < warm_up.turned:
            return warm_up  # from a theta that was given up
        loss = update.value / max(float(update.curvature[-1]), 1e-30)
        if update.read == 0 and loss < math.inf:
            starts = warm_up.starts + 1
            warm_up = warm_up._replace(starts=starts, loss=warm_up.loss + (loss - warm_up.loss) / starts)
        elif not loss <= _HARM * warm_up.loss:
            iterate.theta[...] = iterate.base
            return warm_up._replace(gain=0.5 * warm_up.gain, turned=k + 1)
        if loss == math.inf:
            return warm_up
        curvature += (update.curvature - curvature) * curvature.dtype.type(_weight(k))
        h = warm_up.gain * self._step_size(k, k - update.read)
        add_scaled(iterate.theta, -h, update.image)
        return warm_up

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        if self.in_step:
            batch = rows_of_parts(n_data, np.full_like(read, self.batches), read % self.batches)
            warm = read < self.warmup
            parts = np.where(warm, self._of_batch, self.blocks)
            return rows_of_parts(np.where(warm, batch, n_data), parts, part)
        parts = np.where(read < self.warmup, self.batches, self.blocks)
        return rows_of_parts(n_data, parts, part)


def _weight(k: int) -> float:
    """Of the newest summary: a plain mean at first, then an average over the last ten or so."""
    return max(1.0 / (k + 1), _LATEST)


def default_factorization_algorithm(potential: Any, workers: int) -> StagedLBFGS:
    """The rule for a potential with a structured metric and W workers, nothing else given.

    One pass of warm-up in 32 W batches, beyond W = 5 in max(160, 16 W), and fewer where that leaves
    less than 8 points each; then exact passes in as many blocks as workers.
    """
    n = int(potential.n_data)
    batches = max(1, min(max(min(32 * workers, 160), 16 * workers), n // 8))
    return StagedLBFGS(
        batches=batches,
        warmup=batches if batches > 2 * workers else 0,
        blocks=min(workers, n),
        curvature=int(potential.curvature_size),
        delay=workers - 1,
    )


def in_step_algorithm(potential: Any, ratings_per_item: float = math.inf) -> StagedLBFGS:
    """The same for a result that does not depend on the number of workers: one pass of warm-up in 16
    batches, fewer where that leaves less than 8 points each, then passes in eight blocks.

    An answer costs time for every item besides that for its ratings, so a batch is cut into no more blocks,
    up to eight, than leave each about eight ratings for every item.
    """
    n = int(potential.n_data)
    batches = max(1, min(16, n // 8))
    most = min(STEP_BLOCKS, n, ratings_per_item / (_PER_ITEM * batches))
    return StagedLBFGS(
        batches=batches,
        warmup=batches if batches >= 4 else 0,
        blocks=min(STEP_BLOCKS, n),
        curvature=int(potential.curvature_size),
        in_step=True,
        batch_blocks=max(1, int(most)),
    )
