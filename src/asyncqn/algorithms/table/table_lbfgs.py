"""Table L-BFGS: asynchronous quasi-Newton steps on a centred table of gradients; nobody ever waits.

The rows are cut into P parts.  Each update is a commit: a worker receives the active part whose newest
update is oldest, and sends its gradient g with the point z where it took it.  The coordinator keeps the last
(g_i, z_i) of every part and steps at once.  With means over the parts that have sent an update,

    theta = mean z - min(1, radius / |H mean g|) H mean g     after every update
    S += z - z_i,  Y += g - g_i,  (g_i, z_i) <- (g, z)        an update (g, z) of part i
    H learns (S, Y) / count                                   when count parts have moved; then S = Y = 0

Where U is a quadratic with Hessian B the error of the new point is (I - H B) times the mean error of the z_i:
staleness does not shrink the step, for the step does not start at theta but at the points where the gradients
are right.  The gradients of a pair are of the same rows at both ends, so it measures curvature without the
noise of sampling.  Before the first pair H = P F^-1 with F the scatter of the updates (`exact.scatter`).

The length of steps, and the stochastic start where rows are few, follow one rule: see `steps`.

growth
    `first` parts are active at the start; after three updates for each of them every second update makes one
    more active, and from a quarter of all parts on every update does.
holding
    To judge a point exactly theta stays until every part has sent an update taken at it.  Then the entries
    are the exact gradient and U.  No worker waits, and the schedule does not depend on the numbers.  Only a
    held point can say that a run has converged (docs/explanation/convergence.md).

A point is held when |mean g| has become small.  Where U has fallen there the table continues from it.
Otherwise theta returns to the last held point, and an *exact phase* begins: the safeguard's trials are held
one after the other, until 5, 10, 20, ... of them were accepted.  After 50 updates per part without a held
point, or 10, 20, ... after the first exact phase, one is held in any case, and exact steps follow.
A table of fewer than `MIN_TABLE_PARTS` parts never leaves the exact phase.

The idea of a centred table is that of incremental Newton methods (Rodomanov and Kropotov 2016; Mokhtari,
Eisen and Ribeiro 2018, who keep a Hessian per part).  One H from pairs of sums over parts, the rule for the
length of steps, the growth, the scatter, holding and the safeguard are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeVar

import numpy as np

from asyncqn.algorithms.exact.inverse import InverseHessian
from asyncqn.algorithms.exact.scatter import ScatterMatrix
from asyncqn.algorithms.pair_memory import PairMemory, pair_totals
from asyncqn.algorithms.parameters import PairedMemorySize, Parts
from asyncqn.algorithms.parts import rows_of_parts, share_of
from asyncqn.algorithms.safeguard import (
    LESS,
    ROUNDING,
    Trial,
    accept_as_base,
    advance,
    aim_from_base,
    standing,
)
from asyncqn.algorithms.table.state import GradientTable, Hold, Iterate, Pace, Update
from asyncqn.algorithms.table.steps import (
    FIRST_RATE,
    aim,
    close_window,
    go_back,
    inverse_of,
    set_rate,
    stochastic_step,
    window_is_full,
)
from asyncqn.core.stages import EachUpdate, Growth, Stages
from asyncqn.errors import require
from asyncqn.kernels.table import MOVED, SEEN
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import Checked, parameter
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Standing, Task

LARGEST_TABLE = 2**30
"""Largest size of the table at the coordinator, in bytes; more parts than fit are refused."""
QUICK_GROWTH_DIVISOR = 4
"""Once one part in this number is active, every update activates another one."""
GOLDEN_RATIO = 0.6180339887498949
"""(sqrt 5 - 1) / 2: multiples of this share of a circle cover it about evenly, however few they are."""
SLOPE = 1e-2
"""A point is held where |mean g| is this share of |g| at the last point held, and of its square of the first
|mean g|, which is that of a sample."""
FIRST_CHECK, FIRST_PHASE = 50, 5
"""Updates per part after which a point is held in any case and exact steps follow, and the points accepted in
the first exact phase.  Each further one accepts twice as many, and the table before it has as many updates per
part."""
MIN_TABLE_PARTS = 8
"""With fewer parts the steps are exact throughout."""
PartNumber = TypeVar("PartNumber", int, Rows)


@dataclass(frozen=True)
class TableLBFGS(Checked):
    """Asynchronous L-BFGS on a centred table of gradients: no step size, and no worker ever waits.

    Parameters
    ----------
    parts : int
        P: number of parts into which the rows are cut. The master stores 2 P dim numbers, and an update has
        2 dim.
    first : int
        Number of parts that are active at the start. Best is the number of workers, or more, so that the
        active parts have ten rows for every number in theta.
    memory : int, default 20
        M: largest number of curvature pairs in the memory.
    stochastic : bool, default False
        Whether the run starts with stochastic steps, whose size is learned.
    every : int, default 1
        Number of updates from one step of the master to the next. With many workers the master is the
        bottleneck, and theta hardly changes from one update to the next.

    Notes
    -----
    `table_algorithm(problem, workers)` sets all parameters, and `minimize(problem, waits=False)` uses it.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LogisticRegression.random(n_data=4000, dim=5, seed=0)
    >>> algorithm = aq.TableLBFGS(parts=80, first=8)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status
    'converged'
    """

    parts: Parts
    first: Annotated[int, parameter(ge=1)]
    memory: PairedMemorySize = 20
    stochastic: bool = False
    every: Annotated[int, parameter(ge=1)] = 1

    # Workers receive theta alone: base, pairs and table would cost many times as much to send.
    sent = ("theta",)

    @classmethod
    def example(cls, problem: Problem) -> TableLBFGS:
        """Small parameters that run on any problem, for tests."""
        parts = min(8, problem.n_data)
        return cls(
            parts=parts,
            first=min(3, parts),
            memory=5,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.first <= self.parts,
            f"first must be at most the {self.parts} parts, not {self.first}: all are active then.",
        )

    @cached_property
    def stages(self) -> Stages:
        """Batches by age; a table of few parts has all of them from the start, which is held."""
        first = self.parts if self.parts < MIN_TABLE_PARTS else self.first
        quick = max(first, self.parts // QUICK_GROWTH_DIVISOR)
        growth = Growth(first, quick=quick)
        return (EachUpdate(blocks=self.parts, order="age", growth=growth),)

    @property
    def evaluate_every(self) -> int:
        """Commits between two evaluations: P commits are about a pass, which is what one costs."""
        return max(25, self.parts)

    def check(self, problem: Problem) -> None:
        n, d = int(problem.n_data), int(problem.dim)
        require(
            self.parts <= n,
            f"{n} data points cannot be cut into {self.parts} parts: use fewer.",
        )
        # g and z, 8 bytes a number; a table in float32 needs half of it.
        require(
            16 * self.parts * d <= LARGEST_TABLE,
            f"a table of {self.parts} gradients and points of {d} numbers is too large for the master: "
            "use fewer parts.",
        )

    # At the workers

    def init_worker(self, problem: Problem, theta0: Array) -> tuple[()]:
        # A worker remembers nothing, so that a worker that is lost loses nothing.
        return ()

    def step(self, view: Any, local: tuple[()], problem: Any, task: Task) -> Update:
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

    # At the coordinator

    def init(self, theta0: Array) -> Iterate:
        hold = Hold()
        if self.parts < MIN_TABLE_PARTS:
            hold = Hold(since=0, exact=True, until=math.inf)
        return Iterate(
            # The iterate owns all its arrays, because the coordinator writes them in place.
            theta=theta0.copy(),
            base=theta0.copy(),
            at_base=np.zeros((1, theta0.size), theta0.dtype),
            memory=PairMemory.empty(self.memory, theta0),
            initial=ScatterMatrix.empty(theta0),
            squares=np.zeros(theta0.size),
            trial=Trial(),
            begin=theta0.copy(),
            table=GradientTable.empty(self.parts, theta0),
            pace=Pace(rate=FIRST_RATE if self.stochastic else 0.0),
            hold=hold,
        )

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        """Enter the update, which is alone in its commit, and set theta, unless theta is held."""
        for update in updates:
            if iterate.hold.since >= 0:
                iterate = self._take_held(iterate, update, commit)
            else:
                iterate = self._take(iterate, update, commit.version)
        return iterate

    def _take(self, it: Iterate, update: Update, version: int) -> Iterate:
        """Enter an update, set theta, and see whether it is to be held."""
        table, pace = it.table, it.pace
        # Overtaken updates count too: `updates` is a measure of time.
        hold = it.hold._replace(updates=it.hold.updates + 1, judged=False)
        it = it._replace(hold=hold)
        if update.read < int(table.read[update.part]):
            return it
        if update.finite:
            table.enter(update)
            it.initial.note_deviation(update.g)
            full = window_is_full(it, self.first)
            if full and pace.rate > 0.0:
                pace = set_rate(it, pace, version)
            elif full:
                pace = close_window(it, pace, version, update.read)
            if pace.rate > 0.0:
                pace = stochastic_step(it, pace, update, version)
            # The product with H is the dearest part of a commit; all other updates only enter the table.
            elif table.tally[SEEN] >= 2.0 and not version % self.every:
                pace = aim(it, pace)
        else:
            pace = go_back(it, pace, version, update.read)
        it = it._replace(pace=pace)
        # While parts are missing |mean g| is that of a sample, which may be small far from the minimum.
        return self._hold_if_due(it, version) if table.whole else it

    def _hold_if_due(self, it: Iterate, version: int) -> Iterate:
        """Hold theta where the slope has become small, or where the table has continued for long."""
        hold, slope = it.hold, it.hold.slope
        if math.isnan(slope):
            slope = SLOPE * SLOPE * it.pace.first_norm
        # Equal times for both kinds of steps, once exact ones were needed.
        most = FIRST_PHASE * 2**hold.phases if hold.phases else FIRST_CHECK
        long = hold.updates >= most * self.parts
        if it.pace.norm > slope and not long:
            return it
        held = hold._replace(since=version, arrived=0, trial=False, exact=long)
        # A point that was judged is a better place for the table than for stochastic steps.
        return it._replace(hold=held, pace=it.pace._replace(rate=0.0))

    # Points that are held

    def _take_held(self, it: Iterate, update: Update, commit: Commit) -> Iterate:
        """Count an update at the point that is held, and judge that once all parts have arrived."""
        table, hold = it.table, it.hold._replace(judged=False)
        # Taken before the hold, or a second update of the same part at the same point.
        late = update.read < hold.since or int(table.read[update.part]) >= hold.since
        if not late and update.finite:
            if not hold.trial:
                it.initial.note_deviation(update.g)
            table.enter(update)
            hold = hold._replace(arrived=hold.arrived + 1)
        it = it._replace(hold=hold)
        if late or (update.finite and hold.arrived < self.parts):
            return it
        # One update that is not finite decides at once: the others cannot make the sum finite.
        at, value = table.exact() if update.finite else (None, math.nan)
        # The next point to be held is theta of this version; where the table continues, -1 replaces it.
        hold = hold._replace(judged=True, since=commit.version, arrived=0, updates=0)
        it = it._replace(hold=hold)
        judge = self._judge_trial if hold.trial else self._judge_arrival
        return judge(it, at, value, commit)

    def _judge_trial(
        self, it: Iterate, at: Array | None, value: float, commit: Commit
    ) -> Iterate:
        """Judge a trial of the safeguard; at the end of an exact phase the table continues."""
        before, trial = it.trial.kept, advance(it, _exact(it), at, value, commit.value)
        it = it._replace(trial=trial)
        if not before < trial.kept >= it.hold.until:
            return it
        # S and Y hold the changes between trials, of which `advance` has made its own pairs.
        it.table.next_window()
        pace = it.pace._replace(radius=trial.stride, longest=0.0, norm=math.inf)
        slope = SLOPE * _norm(it.at_base[0])
        hold = it.hold._replace(since=-1, exact=False, slope=slope)
        return it._replace(pace=pace, hold=hold)

    def _judge_arrival(
        self, it: Iterate, at: Array | None, value: float, commit: Commit
    ) -> Iterate:
        """Judge the point to which the table's steps have led."""
        # Values decide below, so U is computed where it does not come with the gradient.
        if at is not None and math.isnan(value):
            value = commit.value(it.theta)
        if at is None or not math.isfinite(value):
            at, value = None, math.inf
        gained = _gained(it, at, value)
        if it.trial.kept == 0:
            it = it._replace(trial=it.trial._replace(first_norm=it.pace.first_norm))
            if at is None and it.theta.tobytes() == it.base.tobytes():
                # U is not finite at the start: the master ends the run.
                it.theta[...] = math.nan
                return it
            if _above_start(it, value, commit):
                # The start is held next.  It is not above itself, so exact steps follow from it.
                it.theta[...] = it.base
                _exact(it).forget()
                return it._replace(hold=it.hold._replace(exact=True))
            gained = True
        if gained and at is not None:
            it = it._replace(trial=accept_as_base(it, _exact(it), at, value))
        if gained and not it.hold.exact:
            return self._go_on(it, commit.version)
        # From the point just accepted or, without gain, from the one before it, to which theta returns.
        trial, hold = aim_from_base(it, _exact(it)), it.hold
        hold = hold._replace(
            exact=True,
            trial=True,
            until=max(hold.until, trial.kept + FIRST_PHASE * 2**hold.phases),
            phases=hold.phases + 1,
        )
        return it._replace(trial=trial, hold=hold)

    def _go_on(self, it: Iterate, version: int) -> Iterate:
        """Continue with the table from the point that was held, at which all entries are."""
        pace = it.pace
        # The window under way ends here, because every entry has now been taken at the held point.
        if it.table.tally[MOVED] >= 2.0:
            pace = close_window(it, pace, version, version)
        # mean z is the base, so this is an ordinary quasi-Newton step with the exact gradient.
        pace = aim(it, pace)
        slope = SLOPE * _norm(it.at_base[0])
        return it._replace(pace=pace, hold=it.hold._replace(since=-1, slope=slope))

    # What a run asks

    def standing(self, iterate: Iterate) -> Standing | None:
        """Return where the method stands after a point was judged; None between two of them."""
        return standing(iterate) if iterate.hold.judged else None

    def candidates(self, iterate: Iterate) -> tuple[Array, ...]:
        """The last point that was held and accepted, the mean of the table's points, and the start."""
        table = iterate.table
        mean = table.sums[1] / max(float(table.tally[SEEN]), 1.0)
        return iterate.base, mean.astype(iterate.theta.dtype), iterate.begin

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        """Return of how many rows each computation takes the gradient."""
        places = place_of(part.astype(np.int64), self.parts)
        return rows_of_parts(n_data, self.parts, places)

    def counters(
        self, iterate: Iterate, locals_: Sequence[tuple[()]]
    ) -> dict[str, int]:
        return pair_totals([iterate.memory])


def _norm(g: Array) -> float:
    return math.sqrt(sum_of_squares(g))


def _exact(it: Iterate) -> InverseHessian:
    """Return H for exact steps."""
    # Without the caution and the early belief of the table's steps: the safeguard judges each step by itself.
    return inverse_of(it, it.pace, cautious=False)


def _above_start(it: Iterate, value: float, commit: Commit) -> bool:
    """Return whether U is higher at theta, to which the table's steps have led, than at the start.

    U at the start is evaluated only where an estimate, or the lack of one, leaves a doubt: it costs a pass.
    """
    at_start = it.theta.tobytes() == it.base.tobytes()
    # `first_value` is NaN where no values come; the comparison is then false, and U decides.
    if at_start or value <= it.pace.first_value:
        return False
    return not (value < math.inf and value <= commit.value(it.base))


def _gained(it: Iterate, at: Array | None, value: float) -> bool:
    """Return whether a held point is better than the one before."""
    if at is None:
        return False
    # Close to a minimum U is equal within rounding, and only a smaller gradient shows a gain.
    rounding = ROUNDING * float(np.finfo(it.theta.dtype).eps) * abs(it.trial.value)
    flatter = _norm(at[0]) < LESS * _norm(it.at_base[0])
    lower = it.trial.value - value
    return lower > rounding or (lower >= -rounding and flatter)


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
