"""A centred table that hands over to exact passes: how `TableLBFGS` ran before its table became endless.

The table's steps end when all parts are active and `sweeps` updates per part have followed, or after too many
turns.  Exact passes in blocks go on from there with the same memory.  The plan is kept because saved runs of
it are replayed bit by bit; `endless_table` is faster and never waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.pair_memory import PairRule
from asyncqn.algorithms.parts import rows_of_parts, whole_sum
from asyncqn.algorithms.quasi_newton.centred_table import (
    TURNS,
    Progress,
    Table,
    Update,
    above_start,
    aim,
    close,
    enter,
    harmful,
    may_step,
    turn_back,
    window_is_full,
)
from asyncqn.algorithms.quasi_newton.composition import CONJUGACY, Iterate, Plan
from asyncqn.algorithms.quasi_newton.endless_table import check_table, growth_of, place_of
from asyncqn.algorithms.quasi_newton.initial_inverse import COSINE, InverseHessian, share_of
from asyncqn.algorithms.quasi_newton.samples import Samples
from asyncqn.algorithms.quasi_newton.scatter_inverse import ScatterInverse
from asyncqn.algorithms.safeguard import advance
from asyncqn.core.stages import Order, Stages, batches
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Task


class Course(NamedTuple):
    """The state of the plan."""

    table: Table
    progress: Progress


@dataclass(frozen=True)
class TableThenPasses(Plan):
    """A table of `parts` parts, of which `first` are active at the start, and then `passes`.

    Parameters
    ----------
    parts, first, sweeps : int
        See `TableLBFGS`.
    passes : Samples
        Exact gradients on all rows.
    """

    parts: int
    first: int
    sweeps: int
    passes: Samples

    @cached_property
    def table_commits(self) -> int:
        """Return how many commits there are before the exact passes."""
        return growth_of(self.parts, self.first).answers(self.parts) + self.sweeps * self.parts

    @cached_property
    def stages(self) -> Stages:
        growth = growth_of(self.parts, self.first)
        return (batches(self.parts, self.table_commits, Order.BY_AGE, growth), *self.passes.stages)

    def check(self, problem: Problem) -> None:
        check_table(problem, self.parts, max(self.parts, self.passes.parts))

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
            progress = self._take_update(iterate, progress, update, commit.version)
        return iterate._replace(course=Course(table, progress))

    def _take_update(self, iterate: Iterate, progress: Progress, update: Update, version: int) -> Progress:
        """Enter an update and set theta, in place; return how it goes."""
        table: Table = iterate.course.table
        if update.read < max(progress.turned, int(table.read[update.part])) or progress.turns > TURNS:
            return progress  # void, or older than what another worker sent
        if not update.finite:
            return turn_back(iterate, table, progress, version)
        iterate.initial.note_deviation(update.g)
        progress = enter(table, progress, update)
        if window_is_full(iterate, progress, self.first):
            if iterate.memory.stored > 0 and harmful(iterate, progress):
                return turn_back(iterate, table, progress, version)
            progress, _ = close(iterate, table, progress)
        return aim(iterate, table, progress, version) if may_step(progress, self.first) else progress

    def _take_pass(self, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        """Judge the trial by the exact gradient; the first one is where the table's steps have led."""
        at, value = whole_sum(updates, self.passes.parts)
        trial, progress = iterate.trial, iterate.course.progress
        if trial.kept == 0:
            trial = trial._replace(first_norm=progress.first_norm)
            if above_start(iterate, progress, at is not None, value, commit):
                iterate.theta[...] = iterate.course.table.harmless[...] = iterate.start
                iterate.memory.forget()
                return iterate
        iterate = iterate._replace(trial=trial)
        # Where steps keep failing, it may be the scatter's fault.
        initial = ScatterInverse(iterate.initial, at_fault=True)
        inverse = InverseHessian(iterate.memory, initial, PairRule(0.0, COSINE, CONJUGACY))
        return iterate._replace(trial=advance(iterate, inverse, at, value, commit.value))

    def candidates(self, iterate: Iterate) -> tuple[Array, ...]:
        """The last accepted point, or the last mean that did no harm, and the start."""
        last = iterate.base if iterate.trial.kept else iterate.course.table.harmless
        return last, iterate.start

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        table = read < self.table_commits
        place = np.where(table, place_of(part.astype(np.int64), self.parts), part)
        return rows_of_parts(n_data, np.where(table, self.parts, self.passes.parts), place)
