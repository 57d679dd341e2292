"""The endless table: asynchronous quasi-Newton steps from the first update to the last, judged by holding.

Each update is a commit, and the steps are those of `centred_table`.  On top of them:

start
    Where U may not be convex, a stochastic phase comes first (`stochastic_phase`).
growth
    `first` parts are active at the start; after three updates for each of them (one where the steps are
    stochastic) every second update makes one more active, and from a quarter of all parts on every update
    does.
trust
    Where values and slopes disagreed in the last window, U bends, and a step is at most twice as long as the
    longest of that window.
recovery
    Every turn halves the steps; every fifth window without harm takes one halving back.
holding
    To judge a point exactly the coordinator leaves theta unchanged until every part has sent an update taken
    at it.  Then the entries of the table are the exact gradient and U.  No worker waits, and the schedule
    does not depend on the numbers.  Only a held point can say that a run has converged.

A point is held when |mean g| has become small, and after 50, 100, 200, ... updates per part.  Where U has
fallen there the table continues from it.  Where U has risen theta returns to the last held point, and where
neither U nor |g| fell it stays: an *exact phase* begins, in which the safeguard's trials are held one after
the other, until 5, 10, 20, ... of them were accepted.  An exact phase also begins after more than `TURNS`
turns before the first held point, and at every turn after it.  It begins as well where a point is held for
the number of updates and there was a turn before it.  So both kinds of steps get their time, whichever is the
better one.  A turn empties the table and the memory; close to a minimum exact steps regain faster than the
table what it lost.  A table of fewer than `MIN_TABLE_PARTS` parts never leaves the exact phase.

The scatter may mislead, as where a prior has most of the curvature.  Every pair compares F^-1 with I, and
where I fits better for long, H0 = c I.  Where 4 updates per part bring no pair at all, the scatter is dropped
and the table turns back.

All of it, the constants included, is our own choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from asyncqn.algorithms.exact.inverse import COSINE, InverseHessian
from asyncqn.algorithms.exact.scatter import ScatterInverse
from asyncqn.algorithms.pair_memory import PairRule
from asyncqn.algorithms.parts import rows_of_parts, share_of
from asyncqn.algorithms.quasi_newton.centred_table import (
    FADING,
    TURNS,
    Progress,
    Table,
    Update,
    above_start,
    aim,
    close,
    enter,
    harmful,
    initial_of,
    may_step,
    turn_back,
    window_is_full,
)
from asyncqn.algorithms.quasi_newton.composition import Iterate, Plan
from asyncqn.algorithms.quasi_newton.stochastic_phase import Phase, stochastic_step
from asyncqn.algorithms.safeguard import (
    LESS,
    ROUNDING,
    accept_as_base,
    advance,
    aim_from_base,
)
from asyncqn.algorithms.safeguard import standing as safeguard_standing
from asyncqn.core.stages import Growth, Order, Stages, batches
from asyncqn.errors import require
from asyncqn.kernels.table import MOVED, SEEN, UNPAIRED, UPDATES
from asyncqn.kernels.vectors import add_one, sum_of_squares
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Standing, Task

LARGEST_TABLE = 2**30
"""Largest size of the table at the coordinator, in bytes; more parts than fit are refused."""
QUICK_GROWTH_DIVISOR = 4
"""Once one part in this number is active, every update activates another one: see `core.stages.Growth`."""
ROUNDS, STOCHASTIC_ROUNDS = 3, 1
"""Updates of each part that is active at the start, before others join: the table's steps need the curvature
of a sample first, while stochastic steps fit the sample too well."""
GOLDEN_RATIO = 0.6180339887498949
"""(sqrt 5 - 1) / 2: multiples of this share of a circle cover it about evenly, however few they are."""
MAX_DISAGREEMENT = 1e-4
"""U bends where values and slopes differ by more than this share of the slopes; on a quadratic they differ
by rounding alone."""
STRETCH = 2.0
"""Where U bends, a step is at most this number of times as long as the longest of the last window."""
WINDOWS_PER_HALVING = 5
"""Windows without harm that take back one halving of the steps."""
FIRST_SLOPE, NEXT_SLOPE = 1e-4, 1e-2
"""A point is held where |mean g| is this share of the first, and that share of |g| at the last point held."""
FIRST_CHECK = 50
"""Updates per part after which a point is held in any case; the next time twice as many."""
FIRST_PHASE = 5
"""Points accepted in the first exact phase; in the next twice as many."""
MIN_TABLE_PARTS = 8
"""With fewer parts the steps are exact throughout."""
MAX_UNPAIRED = 4
"""Updates per part without a pair after which the scatter is dropped."""
PartNumber = TypeVar("PartNumber", int, Rows)


class Hold(NamedTuple):
    """Knowledge of the point that is held, and the rule for when the next one will be."""

    since: int = -1
    """The version whose theta is held; -1: none is."""
    arrived: int = 0
    """Parts whose update at it has arrived."""
    exact: bool = False
    """Whether an exact phase is under way, or begins with this point."""
    trial: bool = False
    """Whether the point is a trial of the safeguard; else the table's steps have led to it."""
    judged: bool = False
    """Whether the last commit completed a point."""
    until: int = 0
    """The exact phase ends when `Trial.kept` has reached this number."""
    phases: int = 0
    """Exact phases so far."""
    checks: int = 0
    """How often a point was held because of the number of updates."""
    turns: int = 0
    """Turns since a point was last held."""
    slope: float = math.nan
    """A point is held where |mean g| is at most this; NaN: none was held yet."""


class Course(NamedTuple):
    """The state of the plan."""

    table: Table
    progress: Progress
    hold: Hold
    phase: Phase


@dataclass(frozen=True)
class EndlessTable(Plan):
    """A table of `parts` parts, of which `first` are active at the start.

    Parameters
    ----------
    parts, first : int
        See `TableLBFGS`.
    stochastic : bool
        Whether the run begins with stochastic steps (`stochastic_phase`).
    every : int
        Updates from one step of the table to the next.
    """

    parts: int
    first: int
    stochastic: bool
    every: int = 1

    @cached_property
    def stages(self) -> Stages:
        # A point is judged when all parts have been evaluated at it: exact steps must not wait for growth.
        first = self.parts if self.parts < MIN_TABLE_PARTS else self.first
        growth = growth_of(
            self.parts, first, STOCHASTIC_ROUNDS if self.stochastic else ROUNDS
        )
        return (batches(self.parts, None, Order.BY_AGE, growth),)

    def check(self, problem: Problem) -> None:
        check_table(problem, self.parts, self.parts)

    def course(self, theta0: Array) -> Course:
        exact = self.parts < MIN_TABLE_PARTS
        # Version 0 is theta0: a table with few parts holds the start.
        hold = Hold(since=0, exact=True) if exact else Hold()
        phase = Phase(active=self.stochastic and not exact)
        return Course(Table.empty(self.parts, theta0), Progress(), hold, phase)

    def step(self, method: Any, view: Iterate, problem: Any, task: Task) -> Update:
        n, part = problem.n_data, task.part
        assert part is not None
        place = place_of(part, self.parts)
        # Parts differ by one row where P does not divide n.  The weight of a part is its number of rows over
        # n / P, so that the mean over all parts is exactly the gradient.
        first, last = place * n // self.parts, (place + 1) * n // self.parts
        share = (last - first) * self.parts / n
        g, value, finite = share_of(problem, view.theta, np.arange(first, last), share)
        # An update owns its z, because the arrays of an iterate are written in place.
        return Update(g, view.theta.copy(), value, part, finite, task.read)

    def apply(
        self, method: Any, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        # One update per commit in this stage; a hold may begin or end with any of them.
        for update in updates:
            if iterate.course.hold.since >= 0:
                iterate = self._take_held(iterate, update, commit)
            else:
                iterate = self._take(iterate, update, commit)
        return iterate

    # The table's steps

    def _take(self, iterate: Iterate, update: Update, commit: Commit) -> Iterate:
        """Enter an update, set theta, and see whether it is to be held."""
        table, progress, hold, phase = course = iterate.course
        version = commit.version
        # Void and overtaken updates count too: `updates` is a measure of time.
        table.tally[UPDATES] += 1.0
        if update.read >= max(
            progress.turned, int(table.read[update.part])
        ):  # else void or overtaken
            if phase.active:
                progress, phase = self._stochastic_step(
                    iterate, progress, phase, update, version
                )
            else:
                progress = self._step(iterate, progress, update, version)
        if hold.judged:
            hold = hold._replace(judged=False)
        # Only `turn_back` in this very commit sets `turned` to its version.
        if progress.turned == version:
            hold = hold._replace(turns=hold.turns + 1)
            if hold.turns > (TURNS if iterate.trial.kept == 0 else 0):
                # Theta is the harmless point now.  It is held, and exact steps start from it once judged.
                hold = hold._replace(
                    since=version, arrived=0, exact=True, trial=False, turns=0
                )
        # While parts are still missing |mean g| is that of a sample, which may be small far from the minimum.
        elif table.tally[SEEN] == self.parts:
            hold = self._hold_if_due(table, progress, hold, version)
        if (
            progress is course.progress
            and hold is course.hold
            and phase is course.phase
        ):
            return iterate  # the update was entered into the table, in place, and that is all
        return iterate._replace(course=Course(table, progress, hold, phase))

    def _stochastic_step(
        self,
        iterate: Iterate,
        progress: Progress,
        phase: Phase,
        update: Update,
        version: int,
    ) -> tuple[Progress, Phase]:
        """Enter an update and take a stochastic step, in place; return how it goes."""
        table: Table = iterate.course.table
        if not update.finite:
            return turn_back(iterate, table, progress, version), phase
        iterate.initial.note_deviation(update.g)
        enter(table, update)
        return stochastic_step(
            iterate, table, progress, phase, update, version, self.first
        )

    def _step(
        self, iterate: Iterate, progress: Progress, update: Update, version: int
    ) -> Progress:
        """Enter an update and set theta, in place; return how it goes."""
        table: Table = iterate.course.table
        if not update.finite:
            return turn_back(iterate, table, progress, version)
        iterate.initial.note_deviation(update.g)
        moved, seen = enter(table, update)
        table.tally[UNPAIRED] += 1.0
        if window_is_full(iterate, moved, seen, self.first):
            # The window before the first pair is not judged: that pair corrects the error of P F^-1.
            if iterate.memory.stored > 0 and harmful(iterate, table.counts):
                return turn_back(iterate, table, progress, version)
            progress = self._close(iterate, progress)
        # Windows have passed without an admissible pair: the scatter is suspected of leading theta astray.
        if table.tally[UNPAIRED] > MAX_UNPAIRED * self.parts:
            iterate.initial.drop()
            return turn_back(iterate, table, progress, version)
        # The product with H is the dearest part of a commit; all other updates only enter the table.
        if version % self.every or not may_step(seen, self.first):
            return progress
        trusted = progress.bent and progress.last_stride > 0.0
        return aim(
            iterate,
            table,
            progress,
            version,
            STRETCH * progress.last_stride if trusted else math.inf,
        )

    def _close(self, iterate: Iterate, progress: Progress) -> Progress:
        """Close a window that did no harm."""
        table: Table = iterate.course.table
        tally = table.counts
        count, longest = tally.moved, progress.longest
        bent = tally.bend > MAX_DISAGREEMENT * tally.slopes
        # Before `close`, which sets S and Y to zero.
        gain = initial_of(iterate, progress).gain(table.S / count, table.Y / count)
        progress, admitted = close(iterate, table, progress)
        # A refused pair says nothing of curvature, so it does not test the scatter either.
        if admitted:
            progress = _with_lead(iterate, progress, FADING * progress.lead + gain)
            # Runs across windows until a pair is admitted.
            table.tally[UNPAIRED] = 0.0
        forgiven = progress.windows + 1 >= WINDOWS_PER_HALVING
        return progress._replace(
            bent=bent,
            last_stride=longest,
            windows=0 if forgiven else progress.windows + 1,
            turns=max(0, progress.turns - 1) if forgiven else progress.turns,
        )

    def _hold_if_due(
        self, table: Table, progress: Progress, hold: Hold, version: int
    ) -> Hold:
        """Hold theta where the slope has become small, or where the table has continued for long."""
        slope = (
            FIRST_SLOPE * progress.first_norm if math.isnan(hold.slope) else hold.slope
        )
        long = bool(table.tally[UPDATES] >= FIRST_CHECK * 2**hold.checks * self.parts)
        if progress.norm > slope and not long:
            return hold
        table.tally[UPDATES] = 0.0
        return hold._replace(
            since=version,
            arrived=0,
            # A table that took this long and turned on the way gives exact steps their time.
            exact=long and hold.turns > 0,
            trial=False,
            checks=hold.checks + long,
            turns=0,
        )

    # Points that are held

    def _take_held(self, iterate: Iterate, update: Update, commit: Commit) -> Iterate:
        """Count an update at the point that is held, and judge that once all parts have arrived."""
        table, progress, hold, phase = iterate.course
        hold = hold._replace(judged=False)
        # Taken before the hold, or a second update of the same part at the same point.
        late = update.read < hold.since or int(table.read[update.part]) >= hold.since
        if not late and update.finite:
            if not hold.exact:
                iterate.initial.note_deviation(update.g)
            enter(table, update)
            hold = hold._replace(arrived=hold.arrived + 1)
        iterate = iterate._replace(course=Course(table, progress, hold, phase))
        if late or (update.finite and hold.arrived < self.parts):
            return iterate
        # One update that is not finite decides at once: the others cannot make the sum finite.
        at, value = _whole(table) if update.finite else (None, math.nan)
        # The next point to be held is theta of this version; where the table continues, -1 replaces it.
        hold = hold._replace(judged=True, since=commit.version, arrived=0)
        # A point that was judged is a better start for the table than for stochastic steps.
        iterate = iterate._replace(
            course=Course(table, progress, hold, phase._replace(active=False))
        )
        return (self._judge_trial if hold.trial else self._judge_arrival)(
            iterate, at, value, commit
        )

    def _judge_trial(
        self, iterate: Iterate, at: Array | None, value: float, commit: Commit
    ) -> Iterate:
        """Judge a trial of the safeguard; at the end of an exact phase the table continues."""
        table, progress, hold, phase = iterate.course
        before = iterate.trial.kept
        trial = advance(iterate, _exact_inverse(iterate), at, value, commit.value)
        accepted = trial.kept > before
        if accepted and trial.kept >= hold.until and self.parts >= MIN_TABLE_PARTS:
            # S and Y hold the changes between trials, of which `advance` has made its own pairs.
            table.next_window()
            table.tally[UNPAIRED] = table.tally[UPDATES] = 0.0
            table.harmless[...] = iterate.base
            # All entries were taken at the base.  The halvings end here (turns = 0), but updates from before
            # the last turn stay void.
            progress = Progress(
                stride=trial.stride,
                first_norm=progress.first_norm,
                first_value=progress.first_value,
                turned=progress.turned,
                lead=progress.lead,
            )
            hold = hold._replace(
                since=-1, exact=False, slope=NEXT_SLOPE * _norm(iterate.at_base[0])
            )
        return iterate._replace(
            trial=trial, course=Course(table, progress, hold, phase)
        )

    def _judge_arrival(
        self, iterate: Iterate, at: Array | None, value: float, commit: Commit
    ) -> Iterate:
        """Judge the point to which the table's steps have led."""
        table, progress, hold, phase = iterate.course
        trial, inverse = iterate.trial, _exact_inverse(iterate)
        # Values decide below, so U is computed where it does not come with the gradient.
        if at is not None and math.isnan(value):
            value = commit.value(iterate.theta)
        finite = at is not None and math.isfinite(value)
        if trial.kept == 0:
            trial = trial._replace(first_norm=progress.first_norm)
            iterate = iterate._replace(trial=trial)
            if not finite and iterate.theta.tobytes() == iterate.start.tobytes():
                iterate.theta[...] = (
                    math.nan
                )  # U is not finite at the start: the master ends the run
                return iterate
            # The start is held next, as an arrival.  It is not above itself, so exact steps follow from it.
            if not finite or above_start(iterate, progress, finite, value, commit):
                iterate.theta[...] = table.harmless[...] = iterate.start
                inverse.forget()
                return iterate._replace(
                    course=Course(table, progress, hold._replace(exact=True), phase)
                )
            gained = True
        else:
            # Close to a minimum U is equal within rounding, and only a smaller gradient shows a gain.
            rounding = (
                ROUNDING * float(np.finfo(iterate.theta.dtype).eps) * abs(trial.value)
            )
            lower = finite and value < trial.value - rounding
            flatter = at is not None and _norm(at[0]) < LESS * _norm(iterate.at_base[0])
            gained = lower or (finite and value <= trial.value + rounding and flatter)
        if gained and at is not None:
            trial = accept_as_base(iterate, inverse, at, value)
            iterate = iterate._replace(trial=trial)
        if gained and not hold.exact:
            return self._go_on(iterate, commit.version)
        # From the point just accepted or, without gain, from the one before it, to which theta returns.
        trial = aim_from_base(iterate, inverse)
        hold = hold._replace(
            exact=True,
            trial=True,
            until=trial.kept + FIRST_PHASE * 2**hold.phases,
            phases=hold.phases + 1,
        )
        return iterate._replace(
            trial=trial, course=Course(table, progress, hold, phase)
        )

    def _go_on(self, iterate: Iterate, version: int) -> Iterate:
        """Continue with the table from the point that was held, at which all entries are."""
        table, progress, hold, phase = iterate.course
        # The window under way ends here, because every entry has now been taken at the held point.
        if table.tally[MOVED] >= 2.0:
            progress = self._close(iterate, progress)
        table.harmless[...] = iterate.base
        # mean z is the base, so this is an ordinary quasi-Newton step with the exact gradient.
        bound = (
            STRETCH * progress.last_stride
            if progress.bent and progress.last_stride > 0.0
            else math.inf
        )
        progress = aim(iterate, table, progress, version, bound)
        table.tally[UPDATES] = 0.0
        hold = hold._replace(since=-1, slope=NEXT_SLOPE * _norm(iterate.at_base[0]))
        return iterate._replace(course=Course(table, progress, hold, phase))

    def standing(self, iterate: Iterate) -> Standing | None:
        """Return where the method stands after a point was judged; None between two of them."""
        return safeguard_standing(iterate) if iterate.course.hold.judged else None

    def candidates(self, iterate: Iterate) -> tuple[Array, ...]:
        """The last point that was held and accepted, the last mean that did no harm, and the start."""
        return iterate.base, iterate.course.table.harmless, iterate.start

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        return rows_of_parts(
            n_data, self.parts, place_of(part.astype(np.int64), self.parts)
        )


def _norm(g: Array) -> float:
    return math.sqrt(sum_of_squares(g))


def _with_lead(iterate: Iterate, progress: Progress, lead: float) -> Progress:
    """Note how well the scatter fits; where it comes into use or goes out of it, c is that of another H0."""
    changed = progress._replace(lead=lead)
    # c F^-1 and c I have c of different units, so c is taken whole from the newest pair, without caution.
    if changed.scattered != progress.scattered:
        ScatterInverse(iterate.initial, trusted=changed.scattered).follow(
            iterate.memory
        )
    return changed


def _exact_inverse(iterate: Iterate) -> InverseHessian:
    """Return H for exact steps; where they keep failing, it may be the scatter's fault."""
    # Without the caution and the early belief of the table's steps: the safeguard judges each step by itself.
    initial = ScatterInverse(
        iterate.initial, at_fault=True, trusted=iterate.course.progress.scattered
    )
    return InverseHessian(iterate.memory, initial, PairRule(0.0, COSINE))


def _whole(table: Table) -> tuple[Array, float]:
    """Return the gradient and U, summed in the parts' own order; the sums of the table are renewed."""
    # The running sums have gathered rounding errors, which depend on the order in which updates arrived; the
    # verdict on a point must not.
    parts = len(table.read)
    table.g_sum[:], table.z_sum[:] = 0.0, 0.0
    for g, z in zip(table.g, table.z, strict=True):
        add_one(table.g_sum, g)
        add_one(table.z_sum, z)
    value = 0.0
    for each in table.values.tolist():
        value += each
    return (table.g_sum / parts).astype(table.g.dtype)[None], value / parts


def growth_of(parts: int, first: int, rounds: int) -> Growth:
    """Return how the parts of a table become active."""
    return Growth(first, rounds, quick=max(first, parts // QUICK_GROWTH_DIVISOR))


def check_table(problem: Problem, parts: int, most: int) -> None:
    """Raise `BadInput` where the rows cannot be cut into `most` parts, or the table does not fit."""
    n, d = int(problem.n_data), int(problem.dim)
    require(most <= n, f"{n} data points cannot be cut into {most} parts: use fewer.")
    # g and z, 8 bytes a number; a table in float32 needs half of it.
    require(
        16 * parts * d <= LARGEST_TABLE,
        f"a table of {parts} gradients and points of {d} numbers is too large for the master: use "
        "fewer parts.",
    )


def place_of(part: PartNumber, parts: int) -> PartNumber:
    """Return where the rows of a part lie.

    Parts with consecutive numbers lie far apart, so that the first few are a sample of all rows even where
    these are sorted.
    """
    # A stride without a common divisor with P visits every place once: the map is a permutation.
    stride = max(1, round(GOLDEN_RATIO * parts))
    while math.gcd(stride, parts) > 1:
        stride += 1
    return part * stride % parts
