"""Block L-BFGS: exact gradients from fixed blocks of the data, quasi-Newton steps at the master.

The data lie in fixed blocks, and each block in pieces b.  A version is one point theta; every
piece's gradient is asked for once, and when all are there

    g = sum_b (n_b / n) grad_b(theta)                     exact: the prior is counted once
    s = theta - base,  y = g - g_base                     made conjugate to the stored pairs
    base <- theta,  theta <- base - H g                   H of the last M pairs: `scaled_pairs`

No gradient is stale, and there is no step size.  Pieces are summed in their own order, so that the
cluster decides when a number is known, never what it is: every bit is the same for any number of
workers, any delays, backups and deaths.  What makes the method fast is the schedule, in which idle
workers take pieces from the end of late blocks (`kernels.block_rule`).

A new theta is a trial, which `algorithms.safeguard` judges.  After one that fails the next starts from the
same base with the new pair in memory: on a quadratic that is the point the method would have gone to anyway,
for H y = s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from asyncqn.algorithms.parameters import BackupAfter, Blocks, PairedMemorySize, Pieces
from asyncqn.algorithms.quasi_newton import pairs_over_scatter as scatter
from asyncqn.algorithms.quasi_newton import scaled_pairs as scaled
from asyncqn.algorithms.quasi_newton.exact_gradients import (
    ExactGradients,
    Worker,
    rows_of_parts,
    share_of,
    whole_sum,
)
from asyncqn.algorithms.quasi_newton.pairs_over_scatter import Memory as ScatterMemory
from asyncqn.algorithms.quasi_newton.pairs_over_scatter import PairsOverScatter
from asyncqn.algorithms.quasi_newton.scaled_pairs import Memory, Pairs
from asyncqn.algorithms.safeguard import Trial, advance
from asyncqn.algorithms.scatter_metric import note_version
from asyncqn.core.stages import Stages, blocks
from asyncqn.errors import require
from asyncqn.parameters import parameter
from asyncqn.types import Array, Commit, Counters, Potential, Rows, Task

KEPT_VALUES = 5
"""A trial may lie above the last point kept, but not above all of the last five."""


H0 = Annotated[
    Literal["pairs", "scatter"],
    parameter("What H0 is made of: stored pairs, or the scatter of the pieces' gradients"),
]


class Iterate(NamedTuple):
    """The trial under way, the last point kept, what is known there, and the memory."""

    theta: Array
    base: Array
    at_base: Array  # (1, d): its gradient
    anchor: Array  # (2, d): see `safeguard.Walk`
    memory: Memory | ScatterMemory
    trial: Trial


class Update(NamedTuple):
    """A piece's share of the gradient and of U (NaN: the potential does not say)."""

    g: Array
    value: float
    part: int
    finite: bool


@dataclass(frozen=True)
class BlockLBFGS(ExactGradients):
    """L-BFGS on exact gradients, of which each worker computes a block; it has no step size.

    blocks: into how many the data are cut, best as many as there are workers; memory: M.

    pieces: into how many each block is cut, so that others can help with it; every piece costs an
    answer of theta's length.  backup_after: see `core.stages`; None: 3 for blocks in one piece, 2 for
    others, because a piece in vain costs less.  conjugacy: how far from symmetric pairs may be to be
    made conjugate (0: never).  initial_scale: what H0 is made of, "pairs" (`scaled_pairs`) or the "scatter"
    of the pieces' gradients (`algorithms.scatter_metric`): for problems with many pieces.

    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, aq.BlockLBFGS(blocks=4), engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, abs(run.fun - problem.optimum) < 1e-6 * problem.optimum
    ('converged', True)
    """

    blocks: Blocks
    memory: PairedMemorySize = 20
    backup_after: BackupAfter | None = None
    conjugacy: Annotated[
        float, parameter("How far from symmetric pairs may be to be made conjugate", ge=0.0, le=1.0)
    ] = 0.03
    pieces: Pieces = 1
    initial_scale: H0 = "pairs"

    @classmethod
    def example(cls, potential: Potential) -> BlockLBFGS:
        """Small parameters that run on any potential, for tests."""
        return cls(blocks=min(4, potential.n_data))

    @property
    def stages(self) -> Stages:
        chosen = 3.0 if self.pieces == 1 else 2.0
        backup_after = chosen if self.backup_after is None else self.backup_after
        return (blocks(self.blocks, backup_after, self.pieces),)

    def check(self, potential: Potential) -> None:
        n, parts = potential.n_data, self.blocks * self.pieces
        require(parts <= n, f"{n} data points cannot be cut into {parts} parts: use fewer.")

    def init(self, theta0: Array) -> Iterate:
        return Iterate(
            theta=theta0.copy(),
            base=theta0.copy(),
            at_base=np.zeros((1, theta0.size), theta0.dtype),
            anchor=np.zeros((2, theta0.size), theta0.dtype),
            memory=(scatter if self.initial_scale == "scatter" else scaled).empty_memory(self.memory, theta0),
            trial=Trial((-math.inf,) * KEPT_VALUES),
        )

    def step(self, view: Iterate, local: Worker, potential: Potential, task: Task) -> Update:
        n, parts = potential.n_data, self.blocks * self.pieces
        part = task.part
        assert part is not None
        first, last = part * n // parts, (part + 1) * n // parts
        g, value, finite = share_of(potential, view.theta, np.arange(first, last), (last - first) / n)
        return Update(g, value, part, finite)

    def apply(self, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        at, value = whole_sum(updates, self.blocks * self.pieces)
        note_scatter(iterate.memory, updates)
        trial = advance(iterate, metric_of(iterate.memory, self.conjugacy), at, value, commit.value)
        return iterate._replace(trial=trial)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        return rows_of_parts(n_data, self.blocks * self.pieces, part)


def metric_of(memory: Memory | ScatterMemory, conjugacy: float) -> Pairs | PairsOverScatter:
    """The memory as `safeguard.Metric`."""
    return Pairs(memory, conjugacy) if isinstance(memory, Memory) else PairsOverScatter(memory, conjugacy)


def note_scatter(memory: Memory | ScatterMemory, updates: Sequence[Any]) -> None:
    """What the answers of a version tell of their scatter, where H0 is made of it."""
    if isinstance(memory, ScatterMemory) and all(update.finite for update in updates):
        ordered = sorted(updates, key=lambda update: update.part)
        note_version(memory.metric, [update.g for update in ordered])
