"""Block L-BFGS: exact gradients from fixed blocks of the data, quasi-Newton steps at the master.

The data lie in fixed blocks, and each block in pieces b.  A version is one point theta; every
piece's gradient is asked for once, and when all are there

    g = sum_b (n_b / n) grad_b(theta)                     exact: the prior is counted once
    s = theta - base,  y = g - g_base                     made conjugate to the stored pairs
    base <- theta,  theta <- base - H g                   H of the last M pairs, scaled by s'y / y'y

No gradient is stale, and there is no step size.  Pieces are summed in their own order, so that the
cluster decides when a number is known, never what it is: every bit is the same for any number of
workers, any delays, backups and deaths.  What makes the method fast is the schedule, in which idle
workers take pieces from the end of late blocks (`types.Blocks`).

A new theta is a trial.  It is kept when U falls by 1e-4 of what the slope promised, below the
largest of the last five kept values.  U comes from the potential's `value_rows`; where it has none,
the change of U is taken as the mean of the slopes at both ends, which is exact for a quadratic.
After a trial that fails, the next one starts from the same base with the new pair in memory: on a
quadratic that is the point the method would have gone to anyway, for H y = s.  From the third failure
on the step shrinks.  This safeguard and the length of the first step are our own choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.checks import check_positive
from asyncqn.algorithms.memory import (
    COUNT,
    Memory,
    PairRule,
    check_memory,
    clear,
    consider_pair,
    empty_memory,
    pair_totals,
    product,
)
from asyncqn.errors import require
from asyncqn.kernels.conjugation import conjugate
from asyncqn.kernels.vectors import add_one, dot, sum_of_squares
from asyncqn.types import Array, Blocks, Commit, Counters, Potential, Rows, Task, extra

_SUFFICIENT = 1e-4
_KEPT_VALUES = 5
_NEW_DIRECTIONS, _GIVE_UP = 2, 20
"""Failures in a row after which the step only shrinks, and after which the memory is emptied."""
LONGEST = 10.0
"""A step is at most this times the longest so far, or times |theta|."""
_FIRST = 0.01
"""The first step has this share of |theta|'s length, or promises to lower U by 1, if that is more."""
_RULE = PairRule(1e-30, 1e-5)
"""Pairs of any scale are welcome, so the cautious rule stands on the cosine alone."""

KEPT, FAILURES, VALUE, SLOPE, STRIDE = range(5)


class Iterate(NamedTuple):
    """`theta` is the trial under way, `base` the last point kept, with its gradient and the memory.

    judge = [points kept, failures in a row, U(base), slope g_base'(theta - base), longest step].
    """

    theta: Array
    base: Array
    g_base: Array
    memory: Memory
    work: Array  # (3, d): g, step, y
    judge: Array
    values: Array  # of the last points kept


class Update(NamedTuple):
    """A piece's share of the gradient and of U (NaN: the potential does not say)."""

    g: Array
    value: float
    part: int
    finite: bool


class Worker(NamedTuple):
    """A worker remembers nothing."""


@dataclass(frozen=True)
class BlockLBFGS:
    """blocks: into how many the data are cut, best as many as there are workers; memory: M.

    pieces: into how many each block is cut, so that others can help with it; every piece costs an
    answer of theta's length.  backup_after: see `types.Blocks`; None: 3 for blocks in one piece, 2 for
    others, because a piece in vain costs less.  conjugacy: how far from symmetric pairs may be to be
    made conjugate (0: never).
    """

    blocks: int
    memory: int = 5
    backup_after: float | None = None
    conjugacy: float = 0.03
    pieces: int = 1

    sent = ("theta",)

    @classmethod
    def example(cls, potential: Potential) -> BlockLBFGS:
        """Small parameters that run on any potential, for tests."""
        return cls(blocks=min(4, potential.n_data))

    def __post_init__(self) -> None:
        for name, count in (("blocks", self.blocks), ("pieces", self.pieces)):
            whole = isinstance(count, int) and count >= 1
            require(whole, f"{name} must be an integer of at least 1, not {count!r}.")
        check_memory(self.memory, "pair", _RULE)
        require(self.memory >= 1, "memory must be at least 1: without pairs there is no step size.")
        check_positive(backup_after=3.0 if self.backup_after is None else self.backup_after)
        require(0.0 <= self.conjugacy <= 1.0, f"conjugacy must lie between 0 and 1, not {self.conjugacy!r}.")

    @property
    def pattern(self) -> Blocks:
        chosen = 3.0 if self.pieces == 1 else 2.0
        backup_after = chosen if self.backup_after is None else float(self.backup_after)
        return Blocks(self.blocks, backup_after, 1.0, self.pieces)

    def check(self, potential: Potential) -> None:
        n, parts = potential.n_data, self.blocks * self.pieces
        require(parts <= n, f"{n} data points cannot be cut into {parts} parts: use fewer.")

    def init(self, theta0: Array) -> Iterate:
        return Iterate(
            theta=theta0.copy(),
            base=theta0.copy(),
            g_base=np.zeros_like(theta0),
            memory=empty_memory(self.memory, "pair", None, theta0),
            work=np.zeros((3, theta0.size), theta0.dtype),
            judge=np.zeros(5),
            values=np.full(_KEPT_VALUES, -np.inf),
        )

    def init_worker(self, potential: Potential, theta0: Array) -> Worker:
        return Worker()

    def step(self, view: Iterate, local: Worker, potential: Potential, task: Task) -> Update:
        n, parts = potential.n_data, self.blocks * self.pieces
        part = task.part % parts  # MPI looks at a sample of an update, of no part
        first, last = part * n // parts, (part + 1) * n // parts
        g, value, finite = share_of(potential, view.theta, np.arange(first, last), (last - first) / n)
        return Update(g, value, task.part, finite)

    def learn(self, view: Iterate, local: Worker, potential: Potential, task: Task) -> Worker:
        return local

    def forget(self, local: Worker) -> Worker:
        return local

    def apply(self, iterate: Iterate, updates: Sequence[Update], commit: Commit) -> Iterate:
        theta, base, g_base, memory, work, judge, values = iterate
        g, step, y = work
        g[...] = 0.0
        value = 0.0
        for update in sorted(updates, key=lambda update: update.part):
            add_one(g, update.g)
            value += update.value
        parts = {update.part for update in updates if update.finite}
        whole = len(parts) == self.blocks * self.pieces
        if judge[KEPT] == 0:
            if whole:
                self._keep(iterate, 0.0 if math.isnan(value) else value)
                self._aim(iterate, math.inf)
            else:  # not finite even at the start: the master's guard ends the run
                theta[...] = math.nan
            return iterate
        np.subtract(theta, base, out=step)
        length, slope = math.sqrt(sum_of_squares(step)), dot(g, step)
        paired = whole and self._pair(memory, step, np.subtract(g, g_base, out=y))
        if whole:
            risen = 0.5 * (judge[SLOPE] + slope)
            # Where rounding would drown the difference of two values, the slopes still tell.
            if not math.isnan(value):
                drowned = abs(value - judge[VALUE]) <= 100 * np.finfo(theta.dtype).eps * abs(value)
                value = judge[VALUE] + risen if drowned else value
            else:
                value = judge[VALUE] + risen
            if value <= values.max() + _SUFFICIENT * judge[SLOPE]:
                judge[STRIDE] = max(judge[STRIDE], length)
                self._keep(iterate, value)
                far = max(judge[STRIDE], math.sqrt(sum_of_squares(base)))
                # The step after the first is the first that knows any curvature: let it go.
                self._aim(iterate, LONGEST * far if judge[KEPT] > 2 else math.inf)
                return iterate
        judge[FAILURES] += 1
        if paired and judge[FAILURES] <= _NEW_DIRECTIONS:
            self._aim(iterate, length)
            return iterate
        if judge[FAILURES] == _GIVE_UP:
            clear(memory, "pair")
            judge[STRIDE] = 0.1 * length
            self._aim(iterate, 0.1 * length)
            return iterate
        bend = slope - judge[SLOPE]
        shrink = min(max(-judge[SLOPE] / bend, 0.1), 0.5) if whole and bend > 0.0 else 0.1
        np.subtract(theta, base, out=step)
        step *= shrink
        judge[SLOPE] *= shrink
        np.add(base, step, out=theta)
        return iterate

    def _keep(self, iterate: Iterate, value: float) -> None:
        """Make the trial the base."""
        judge, values = iterate.judge, iterate.values
        iterate.base[...] = iterate.theta
        iterate.g_base[...] = iterate.work[0]
        values[int(judge[KEPT]) % values.size] = value
        judge[VALUE] = value
        judge[KEPT] += 1
        judge[FAILURES] = 0

    def _pair(self, memory: Memory, s: Array, y: Array) -> bool:
        """Offer the pair to the memory; s and y may be changed."""
        if self.conjugacy > 0.0:
            least = math.sqrt(np.finfo(s.dtype).eps)
            conjugate(memory.pairs, memory.gram, s, y, self.conjugacy, least)
        zero = np.zeros_like(s)
        return consider_pair(memory, _RULE, "pair", s, zero, y, zero)

    def _aim(self, iterate: Iterate, longest: float) -> None:
        """Set the next trial: theta = base - H g_base, or a first step along -g_base."""
        base, g_base, memory, judge = iterate.base, iterate.g_base, iterate.memory, iterate.judge
        step = iterate.work[1]
        norm = math.sqrt(sum_of_squares(g_base))
        if norm == 0.0:
            iterate.theta[...] = base
            return
        if memory.ring[COUNT] == 0:
            np.multiply(g_base, -1.0 / norm, out=step)
            length = max(1.0 / norm, _FIRST * math.sqrt(sum_of_squares(base)))
            longest = min(longest, max(length, 2.0 * judge[STRIDE]) if judge[STRIDE] else length)
            step *= longest
        else:
            product(memory, g_base, step)
            length = math.sqrt(sum_of_squares(step))
            step *= -min(1.0, longest / length)
            if not dot(g_base, step) < 0.0:  # rounding in a long memory: H is positive definite
                clear(memory, "pair")
                self._aim(iterate, longest)
                return
        judge[SLOPE] = dot(g_base, step)
        np.add(base, step, out=iterate.theta)

    def answers(self, iterate: Iterate) -> tuple[Array, ...]:
        """The last point kept: theta itself is a trial that nobody has judged."""
        return (iterate.base,)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        return rows_of_parts(n_data, self.blocks * self.pieces, part)

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return pair_totals([iterate.memory])


def rows_of_parts(n_data: Any, parts: Any, part: Counters) -> Rows:
    """How many of n_data rows lie in each of the given parts."""
    first = part.astype(np.int64)
    rows: Rows = (first + 1) * n_data // parts - first * n_data // parts
    return rows


def share_of(potential: Any, theta: Array, rows: Rows, share: float) -> tuple[Array, float, bool]:
    """`share` of the estimates of the gradient and of U from `rows`, and whether they are finite.

    U is NaN where the potential does not say.
    """
    g, value = np.empty_like(theta), math.nan
    both, value_rows = (extra(potential, name) for name in ("grad_with_value", "value_rows"))
    if both is not None:
        value = share * float(both(theta, rows, g))
    else:
        potential.grad(theta, rows, g)
        if value_rows is not None:
            value = share * float(value_rows(theta, rows))
    g *= share
    silent = both is None and value_rows is None
    finite = math.isfinite(sum_of_squares(g)) and (silent or math.isfinite(value))
    if not finite:  # the master must hear of it, to turn back
        g[...] = 0.0
    return g, value, finite
