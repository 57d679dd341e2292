"""The plan of a centred table: asynchronous steps on a table of gradients, then exact passes.

The rows are cut into P parts.  Each update is a commit: a worker is handed the active part whose newest
update is oldest, and sends its gradient g with the point z where it took it.  The coordinator keeps the last
(g_i, z_i) of every part and steps at once (`centred_table` has the rule and its safeguard).  Nobody waits,
staleness does not shrink the step, and there is no step size.

The sample grows while the run goes on: `first` parts are active at the start; after three updates for each of
them every second update makes one more active, and from a quarter of all parts on every update does.  When
all are active, `sweeps` updates per part follow.  Then exact passes in blocks go on from theta with the same
memory: only they say that a run has converged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from asyncqn.algorithms.pair_memory import PairRule
from asyncqn.algorithms.parts import rows_of_parts, whole_sum
from asyncqn.algorithms.quasi_newton.centred_table import Course, Progress, Table, Update, take_update
from asyncqn.algorithms.quasi_newton.composition import CONJUGACY, Iterate
from asyncqn.algorithms.quasi_newton.initial_inverse import COSINE, InverseHessian, share_of
from asyncqn.algorithms.quasi_newton.samples import Samples
from asyncqn.algorithms.quasi_newton.scatter_inverse import ScatterInverse
from asyncqn.algorithms.safeguard import advance, standing
from asyncqn.core.stages import Growth, Order, Stages, batches
from asyncqn.errors import require
from asyncqn.types import Array, Commit, Counters, Potential, Rows, Standing, Task

LARGEST_TABLE = 2**30
"""Bytes of the table at the coordinator beyond which a number of parts is refused."""
QUICK = 4
"""From one part in so many on, every update makes another active."""
GOLDEN = 0.6180339887498949
PartNumber = TypeVar("PartNumber", int, Rows)


@dataclass(frozen=True)
class TablePlan:
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

    def check(self, problem: Potential) -> None:
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

    def standing(self, iterate: Iterate) -> Standing | None:
        return standing(iterate)

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
