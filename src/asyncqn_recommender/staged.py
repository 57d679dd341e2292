"""Staged L-BFGS: stochastic steps in the metric of a factorization, then exact quasi-Newton steps.

Warm-up, one commit per batch of rows.  With H0 the structured inverse curvature of the problem, damped for
the batch, the k-th commit is

    theta <- theta - h_k H0 g(theta),    h_k = min(1 / 2, 5 / (2 (k + 1)))

The summary that H0 is made of is averaged meanwhile.  Then exact gradients, one commit per pass over the
data:

    g = sum_b (n_b / n) grad_b(theta),  s = theta - base,  y = g - g_base
    base <- theta,  theta <- base - H g       H of the last M pairs on top of H0

A batch is cut into blocks, as a pass is, and a commit waits for all of its blocks, so that nothing is stale.
Blocks are summed in their own order: no bit of the result depends on the schedule or on the number of
workers.  Only the coordinator applies H0.

Our own choices: the constants, and that a warm-up that did harm is undone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.exact.inverse import InverseHessian
from asyncqn.algorithms.pair_memory import PairMemory, pair_totals
from asyncqn.algorithms.safeguard import Trial, advance, standing
from asyncqn.errors import require
from asyncqn.kernels import add_one, add_scaled, sum_of_squares
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
PER_ITEM = 8
"""Smallest number of ratings per item in a block, if a batch is cut into blocks at all."""

Count = Annotated[int, parameter(ge=1)]


class Update(NamedTuple):
    """A block's share of g, of the curvature and of U, which is infinite where g is not finite."""

    g: Array
    curvature: Array
    value: float
    part: int
    read: int


class Worker(NamedTuple):
    """A worker remembers nothing, so that a worker that is lost loses nothing."""


class Iterate(NamedTuple):
    """The state of the coordinator; all arrays are written in place."""

    theta: Array
    """The trial under way, or the last stochastic iterate."""
    base: Array
    """The last accepted point; the start before there is one."""
    at_base: Array
    """Shape (1, d): the gradient at base."""
    memory: PairMemory
    curvature: Array
    """The summary that H0 is made of."""
    trial: Trial
    """The safeguard's knowledge."""
    gain: float = 1.0
    """A factor on the step size of the warm-up, halved whenever it goes back to the start."""
    loss: float = math.inf
    """Loss per weight at the start; infinite where there is none to compare with."""


@dataclass
class StructuredInverse(InverseHessian):
    """H of the pairs on top of an H0 that is made of a summary of the curvature, its state.

    Parameters
    ----------
    newest : array
        The summary at the trial, which replaces the state when the trial is accepted.
    make : callable
        Makes H0 of a summary.
    """

    newest: Array
    make: Callable[..., Any]

    def known(self) -> bool:
        # H always has a scale, that of H0.
        return True

    def apply(self, v: Array) -> None:
        # H0 does not allow its result in the place of its argument.
        image = np.empty_like(v)
        self.make(self.state).apply(v, image)
        v[...] = image

    def keep(self) -> None:
        self.state[...] = self.newest


@dataclass(frozen=True)
class StagedLBFGS(Checked):
    """Batches in a structured metric, then exact L-BFGS passes; it has no step size and nothing is stale.

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
    memory : int, default 3
        M: largest number of curvature pairs in the memory.
    batch_blocks : int, optional
        Number of blocks of a batch; by default as many as those of an exact pass.
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
    memory: Annotated[int, parameter(ge=1, le=10_000)] = 3
    batch_blocks: Count | None = None
    backup_after: Annotated[float, parameter(gt=0.0, infinite=True)] = 5.0

    # Only the coordinator applies H0, so that workers need nothing but theta.
    sent = ("theta",)
    requires = ("curvature_size", "grad_with_curvature", "inverse_metric_from")

    @classmethod
    def example(cls, problem: Problem) -> StagedLBFGS:
        """Small parameters that run on any problem with a structured metric, for tests."""
        size = extra(problem, "curvature_size")
        return cls(batches=8, warmup=8, blocks=4, curvature=size, batch_blocks=2)

    @property
    def _batch_blocks(self) -> int:
        return self.blocks if self.batch_blocks is None else self.batch_blocks

    @cached_property
    def stages(self) -> Stages:
        """A stage of batches, and one of passes to the end of the run."""
        late = self.backup_after
        batch = aq.stages.AllParts(
            blocks=self._batch_blocks,
            backup_after=late,
            share=1.0 / self.batches,
            commits=self.warmup,
        )
        return batch, aq.stages.AllParts(blocks=self.blocks, backup_after=late)

    def check(self, problem: Problem) -> None:
        own = extra(problem, "curvature_size")
        require(
            self.curvature == own,
            f"curvature must be the problem's {own}, not {self.curvature}.",
        )
        parts = self.batches * self._batch_blocks if self.warmup else 0
        most = max(self.blocks, parts)
        require(
            most <= problem.n_data,
            f"{problem.n_data} data points cannot be cut into {most} parts: use fewer.",
        )

    @checked
    def commits_for(self, epochs: Annotated[float, parameter(gt=0.0)]) -> int:
        """Return how many commits make `epochs` passes over the data: batches first, then whole passes."""
        warm = min(self.warmup, round(epochs * self.batches))
        # 1e-9 keeps the rounding of the quotient from adding a pass.
        passes = math.ceil(epochs - self.warmup / self.batches - 1e-9)
        return max(1, warm + passes)

    # At the workers

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        return Worker()

    def step(self, view: Iterate, local: Worker, problem: Any, task: Task) -> Update:
        assert task.part is not None
        first, last, whole = self._rows(problem.n_data, task.read, task.part)
        g = np.empty_like(view.theta)
        summary = np.empty(self.curvature, g.dtype)
        rows = np.arange(first, last)
        value = problem.grad_with_curvature(view.theta, rows, g, summary)
        if not math.isfinite(value + sum_of_squares(g)):
            # The coordinator must hear of it, to turn back.
            g[...] = 0.0
            summary[...] = 0.0
            return Update(g, summary, math.inf, task.part, task.read)
        # Every block estimates sums over all data, prior included; the shares of the blocks add up to 1.
        share = len(rows) / float(whole)
        g *= g.dtype.type(share)
        summary *= g.dtype.type(share)
        return Update(g, summary, value * share, task.part, task.read)

    def _rows(self, n: int, read: Any, part: Any) -> tuple[Any, Any, Any]:
        """Return first and last row of a part, and of how many rows it is a part, also for many at once."""
        # A commit of the warm-up is a batch, so that the version tells which one.
        warm = read < self.warmup
        batch = read % self.batches
        begin = np.where(warm, batch * n // self.batches, 0)
        end = np.where(warm, (batch + 1) * n // self.batches, n)
        parts = np.where(warm, self._batch_blocks, self.blocks)
        whole = end - begin
        first = begin + part * whole // parts
        last = begin + (part + 1) * whole // parts
        return first, last, whole

    # At the coordinator

    def init(self, theta0: Array) -> Iterate:
        return Iterate(
            # The iterate owns all its arrays, because the coordinator writes them in place.
            theta=theta0.copy(),
            base=theta0.copy(),
            at_base=np.zeros((1, theta0.size), theta0.dtype),
            memory=PairMemory.empty(self.memory, theta0),
            curvature=np.zeros(self.curvature, theta0.dtype),
            # Monotone: beyond rounding, no accepted point lies above the one before.
            trial=Trial((-math.inf,)),
        )

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        read = updates[0].read
        g = np.zeros_like(iterate.theta)
        summary = np.zeros_like(iterate.curvature)
        value = 0.0
        # Sorted, so that sums do not depend on the order of arrival.
        for update in sorted(updates, key=lambda update: update.part):
            add_one(g, update.g)
            summary += update.curvature
            value += update.value
        parts = self._batch_blocks if read < self.warmup else self.blocks
        # A block that is missing makes the sum no estimate of anything.
        if len({update.part for update in updates}) < parts:
            value = math.inf
        make = commit.inverse_metric_from
        assert make is not None
        if read < self.warmup:
            return self._batch(iterate, Update(g, summary, value, 0, read), make)
        # In the same units: the loss at the start times the weight of all rows.
        start = iterate.loss
        limit = start * float(summary[-1]) if start < math.inf else start
        if iterate.trial.kept == 0 and not value <= limit:
            # The warm-up did harm: begin again where it began, with nothing to compare with.
            iterate.theta[...] = iterate.base
            return iterate._replace(loss=math.inf)
        H = StructuredInverse(iterate.memory, iterate.curvature, summary, make)
        # U comes with every gradient, so that the safeguard never has to ask for it.
        at = g[None] if value < math.inf else None
        return iterate._replace(trial=advance(iterate, H, at, value, None))

    def _batch(
        self, iterate: Iterate, update: Update, make: Callable[..., Any]
    ) -> Iterate:
        """Take a stochastic step, in place."""
        k = update.read
        # Per weight (per rating, say), because batches differ in their weights.
        loss = update.value / max(float(update.curvature[-1]), 1e-30)
        # The first batch is computed at the start, whatever became of others.
        if k == 0:
            iterate = iterate._replace(loss=loss)
        # `not <=` also catches NaN; a loss that is infinite at the start ends the run at the first pass.
        if not loss <= HARM * iterate.loss or loss == math.inf:
            iterate.theta[...] = iterate.base
            return iterate._replace(gain=0.5 * iterate.gain)
        # A plain mean at first, then over the last ten or so; the first replaces the zeros of the start.
        weight = max(1.0 / (k + 1), NEWEST_WEIGHT)
        average = iterate.curvature
        average += (update.curvature - average) * average.dtype.type(weight)
        # Half a step of H0 until k + 1 = 5; from there on the noise of the batches averages out.
        h = min(0.5, 2.5 / (k + 1))
        image = np.empty_like(update.g)
        make(average, h * self.batches).apply(update.g, image)
        add_scaled(iterate.theta, -iterate.gain * h, image)
        return iterate

    # What a run asks

    def standing(self, iterate: Iterate) -> Standing | None:
        return standing(iterate)

    def candidates(self, iterate: Iterate) -> tuple[Array, ...]:
        """Return the last accepted point; theta itself is a trial."""
        return (iterate.base,)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        """Return of how many rows each computation takes the gradient."""
        first, last, _ = self._rows(n_data, read, part.astype(np.int64))
        rows: Rows = last - first
        return rows

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return pair_totals([iterate.memory])


def staged_algorithm(
    problem: Any, blocks: int, ratings_per_item: float = math.inf
) -> StagedLBFGS:
    """Return the algorithm for a problem with a structured metric, its passes in so many blocks.

    The warm-up is one pass in 16 batches, fewer if these had less than 8 points each. An update takes time
    for every item besides that for its ratings, so a batch is cut into as many blocks as leave each block
    about eight ratings per item.
    """
    n = int(problem.n_data)
    # Data points are users here, not ratings.
    batches = max(1, min(16, n // 8))
    blocks = min(blocks, n)
    most = min(blocks, n // batches, ratings_per_item / (PER_ITEM * batches))
    return StagedLBFGS(
        batches=batches,
        warmup=batches if batches >= 4 else 0,
        blocks=blocks,
        curvature=int(problem.curvature_size),
        batch_blocks=max(1, int(most)),
    )
