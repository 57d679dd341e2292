"""Table L-BFGS: asynchronous quasi-Newton steps on a centred table of gradients, then exact passes.

    theta = mean z - H mean g,        H learns (S, Y) / count,  S = sum (z - z_i),  Y = sum (g - g_i)

with H0 from the scatter of the updates (`scatter_inverse`).

The rows are cut into P parts.  Each update is a commit: a worker is handed the active part whose newest
update is oldest, and sends its gradient g with the point z where it took it.  The coordinator keeps the last
(g_i, z_i) of every part and steps at once (`centred_table` has the rule and its safeguard).  Nobody waits,
staleness does not shrink the step, and there is no step size.

The sample grows while the run goes on: `first` parts are active at the start; after three updates for each of
them every second update makes one more active, and from a quarter of all parts on every update does.  When
all are active, `sweeps` updates per part follow.  Then exact passes in blocks go on from theta with the same
memory: only they say that a run has converged.

The idea of a centred table is that of incremental Newton methods (Rodomanov and Kropotov 2016; Mokhtari,
Eisen and Ribeiro 2018, who keep a Hessian per part); one H from pairs of sums over parts, the growth, the
scatter and the safeguard are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeVar

import numpy as np

from asyncqn.algorithms.pair_memory import PairRule
from asyncqn.algorithms.parameters import BackupAfter, Blocks, PairedMemorySize, Parts, Pieces
from asyncqn.algorithms.parts import rows_of_parts, whole_sum
from asyncqn.algorithms.quasi_newton.centred_table import Course, Progress, Table, Update, take_update
from asyncqn.algorithms.quasi_newton.composition import (
    CONJUGACY,
    GROWING_EVALUATE,
    Iterate,
    Plan,
    QuasiNewton,
    Worker,
)
from asyncqn.algorithms.quasi_newton.initial_inverse import COSINE, InverseHessian, share_of
from asyncqn.algorithms.quasi_newton.samples import ALL_ROWS, Samples
from asyncqn.algorithms.quasi_newton.scatter_inverse import ScatterInverse
from asyncqn.algorithms.safeguard import advance
from asyncqn.core.stages import Growth, Order, Stages, batches
from asyncqn.errors import require
from asyncqn.parameters import Workers, checked, parameter
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task

LARGEST_TABLE = 2**30
"""Bytes of the table at the coordinator beyond which a number of parts is refused."""
QUICK = 4
"""From one part in so many on, every update makes another active."""
GOLDEN = 0.6180339887498949
PartNumber = TypeVar("PartNumber", int, Rows)


@dataclass(frozen=True)
class TablePlan(Plan):
    """A table of `parts` parts, of which `first` are active at the start, and then `passes`.

    Parameters
    ----------
    parts, first, sweeps : int
        See above.
    passes : Samples
        Exact gradients on all rows.
    """

    parts: int
    first: int
    sweeps: int
    passes: Samples

    @cached_property
    def _growth(self) -> Growth:
        return Growth(self.first, quick=max(self.first, self.parts // QUICK))

    @cached_property
    def table_commits(self) -> int:
        """How many commits there are before the exact passes."""
        return self._growth.answers(self.parts) + self.sweeps * self.parts

    @cached_property
    def stages(self) -> Stages:
        return (batches(self.parts, self.table_commits, Order.BY_AGE, self._growth), *self.passes.stages)

    def check(self, problem: Problem) -> None:
        n, d = int(problem.n_data), int(problem.dim)
        most = max(self.parts, self.passes.parts)
        require(most <= n, f"{n} data points cannot be cut into {most} parts: use fewer.")
        require(
            16 * self.parts * d <= LARGEST_TABLE,
            f"a table of {self.parts} gradients and points of {d} numbers is too large for the master: use "
            "fewer parts.",
        )

    def course(self, theta0: Array) -> Course:
        return Course(Table.empty(self.parts, theta0), Progress())

    def step(self, method: Any, view: Iterate, problem: Any, task: Task) -> Update:
        n, part = problem.n_data, task.part
        assert part is not None
        table = task.read < self.table_commits
        parts = self.parts if table else self.passes.parts
        place = place_of(part, parts) if table else part
        first, last = place * n // parts, (place + 1) * n // parts
        share = (last - first) * parts / n if table else (last - first) / n
        g, value, finite = share_of(problem, view.theta, np.arange(first, last), share)
        return Update(g, view.theta.copy(), value, part, finite, task.read)

    def apply(self, method: Any, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        if updates[0].read >= self.table_commits:
            return self._take_pass(iterate, updates, commit)
        table, progress = iterate.course
        for update in updates:
            progress = take_update(iterate, progress, update, commit.version, self.first)
        return iterate._replace(course=Course(table, progress))

    def _take_pass(self, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        """Judge the trial by the exact gradient; the first one is where the table's steps have led."""
        at, value = whole_sum(updates, self.passes.parts)
        trial = iterate.trial
        if trial.kept == 0:
            trial = trial._replace(first_norm=iterate.course.progress.first_norm)
            if self._did_harm(iterate, at is not None, value, commit):
                iterate.theta[...] = iterate.base[...] = iterate.start  # begin where it began
                iterate.memory.forget()
                return iterate
        iterate = iterate._replace(trial=trial)
        # Where steps keep failing, it may be the scatter's fault.
        initial = ScatterInverse(iterate.initial, at_fault=True)
        inverse = InverseHessian(iterate.memory, initial, PairRule(0.0, COSINE, CONJUGACY))
        return iterate._replace(trial=advance(iterate, inverse, at, value, commit.value))

    def _did_harm(self, iterate: Iterate, finite: bool, value: float, commit: Commit) -> bool:
        """Whether U is higher where the table's steps have led than at the start.

        It is asked for at the start only where an estimate, or the lack of one, leaves a doubt.
        """
        theta, start = iterate.theta, iterate.start
        if theta.tobytes() == start.tobytes() or value <= iterate.course.progress.first_value:
            return False
        value = value if finite and not math.isnan(value) else commit.value(theta)
        return not (finite and value <= commit.value(start))

    def candidates(self, iterate: Iterate) -> tuple[Array, ...]:
        """The last accepted point, or the last mean that did no harm, and the start."""
        return iterate.base, iterate.start

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        table = read < self.table_commits
        place = np.where(table, place_of(part.astype(np.int64), self.parts), part)
        return rows_of_parts(n_data, np.where(table, self.parts, self.passes.parts), place)


def place_of(part: PartNumber, parts: int) -> PartNumber:
    """Return where the rows of a part lie.

    Parts with consecutive numbers lie far apart, so that the first few are a sample of all rows even where
    these are sorted.
    """
    stride = max(1, round(GOLDEN * parts))
    while math.gcd(stride, parts) > 1:
        stride += 1
    return part * stride % parts


@dataclass(frozen=True)
class TableLBFGS(QuasiNewton):
    """Asynchronous L-BFGS on a centred table of gradients, then exact passes; it has no step size.

    parts: P, of the table; the master holds 2 P dim numbers, and an answer has 2 dim.  Parts whose gradient
    takes about four times as long as a message were best (`table_algorithm` chooses).
    first: how many are active at the start, best as many as there are workers, or more, so that they have ten
    rows for every number in theta.  sweeps: answers per part once all are active.

    blocks, pieces, backup_after, memory: as in `BlockLBFGS`, for the exact passes.

    >>> import asyncqn as aq
    >>> problem = aq.LogisticRegression.random(n_data=4000, dim=5, seed=0)
    >>> algorithm = aq.TableLBFGS(parts=80, first=8, blocks=4)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status
    'converged'
    """

    parts: Parts
    first: Annotated[int, parameter("How many parts are active at the start", ge=1)]
    blocks: Blocks
    sweeps: Annotated[int, parameter("Answers per part once all are active", ge=0)] = 1
    memory: PairedMemorySize = 20
    pieces: Pieces = 1
    backup_after: BackupAfter | None = None

    initial_inverse = ScatterInverse

    @classmethod
    def example(cls, problem: Problem) -> TableLBFGS:
        """Small parameters that run on any problem, for tests."""
        parts = min(8, problem.n_data)
        return cls(parts=parts, first=min(3, parts), blocks=min(3, problem.n_data), memory=5)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.first <= self.parts,
            f"first must be at most the {self.parts} parts, not {self.first}: all are active then.",
        )

    @cached_property
    def plan(self) -> TablePlan:
        passes = Samples((ALL_ROWS,), self.blocks, self.pieces, self.backup_after)
        return TablePlan(self.parts, self.first, self.sweeps, passes)

    @property
    def table_commits(self) -> int:
        """How many commits there are before the exact passes."""
        return self.plan.table_commits

    @property
    def evaluate_every(self) -> int:
        return max(GROWING_EVALUATE, self.parts // 4)

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return {**super().counters(iterate, locals_), "turns": iterate.course.progress.turns}


MESSAGES, MASTERS = 4.0, 1.0
"""The time of a part's gradient: so many messages, and so many times what the master needs for W answers."""
ROWS_PER_NUMBER = 10


@checked
def table_algorithm(
    problem: Annotated[Problem, parameter("What is minimised")],
    workers: Workers,
    message: Annotated[float, parameter("Of a message there and back", unit="row gradients", ge=0.0)] = 10.0,
    master: Annotated[float, parameter("Of an answer at the master", unit="row gradients", ge=0.0)] = 0.1,
) -> TableLBFGS:
    """`TableLBFGS` with all parameters set, for W workers.

    message: how long a message takes there and back, and master: how long the master takes for an answer,
    both in units of the time of a row's gradient.

    >>> import asyncqn as aq
    >>> aq.table_algorithm(aq.LogisticRegression.random(n_data=10_000, dim=20, seed=0), workers=8)
    TableLBFGS(parts=250, first=8, blocks=8, sweeps=1, memory=20, pieces=4, backup_after=None)
    """
    n, d = int(problem.n_data), int(problem.dim)
    rows = max(1.0, MESSAGES * message, MASTERS * workers * master, 16.0 * n * d / LARGEST_TABLE)
    parts = max(1, min(n, int(n / rows)))
    first = max(workers, math.ceil(ROWS_PER_NUMBER * d * parts / n))
    pieces = 1 if workers == 1 else max(1, min(4, n // (3 * workers)))
    return TableLBFGS(parts, min(first, parts), min(workers, n), pieces=pieces)
