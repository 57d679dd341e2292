"""Table L-BFGS: asynchronous quasi-Newton steps on a centred table of gradients; nobody ever waits.

    theta = mean z - H mean g,        H learns (S, Y) / count,  S = sum (z - z_i),  Y = sum (g - g_i)

with H0 from the scatter of the updates (`scatter_inverse`).

The rows are cut into P parts.  Each update is a commit: a worker receives the active part whose newest
update is oldest, and sends its gradient g with the point z where it took it.  The coordinator keeps the last
(g_i, z_i) of every part and steps at once (`centred_table`).  Staleness does not shrink the step, and there
is no step size.  Where U may not be convex, the first steps are stochastic ones (`stochastic_phase`).  To
judge a point exactly, the coordinator holds theta until every part has sent an update taken at it
(`endless_table`); only such a point says that a run has converged.

The idea of a centred table is that of incremental Newton methods (Rodomanov and Kropotov 2016; Mokhtari,
Eisen and Ribeiro 2018, who keep a Hessian per part); one H from pairs of sums over parts, the growth, the
scatter, holding and the safeguard are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from asyncqn.algorithms.exact.scatter import ScatterInverse
from asyncqn.algorithms.parameters import PairedMemorySize, Parts
from asyncqn.algorithms.quasi_newton.composition import (
    GROWING_EVALUATE,
    Iterate,
    QuasiNewton,
    Worker,
)
from asyncqn.algorithms.quasi_newton.endless_table import LARGEST_TABLE, EndlessTable
from asyncqn.errors import require
from asyncqn.parameters import Workers, checked, parameter
from asyncqn.types import Problem, extra


@dataclass(frozen=True)
class TableLBFGS(QuasiNewton):
    """Asynchronous L-BFGS on a centred table of gradients: no step size, and no worker ever waits.

    Parameters
    ----------
    parts : int
        P: number of parts into which the rows are cut. The master stores 2 P dim numbers, and an update has
        2 dim. Parts whose gradient takes about four times as long as a message were best; `table_algorithm`
        chooses so.
    first : int
        Number of parts that are active at the start. Best is the number of workers, or more, so that the
        active parts have ten rows for every number in theta.
    memory : int, default 20
        M: largest number of curvature pairs in the memory.
    stochastic : bool, default False
        Whether the run begins with stochastic steps, whose size is learned. They leave plateaus and saddles
        sooner; on a convex problem they cost a few passes.

    every : int, default 1
        Number of updates from one step of the master to the next. With many workers the master is the
        bottleneck, and theta hardly changes from one update to the next; `table_algorithm` makes 40 steps in
        the time in which every worker sends an update.

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

    # Only the state of H0 comes from here: `centred_table.initial_of` sets the belief and the caution.
    initial_inverse = ScatterInverse

    @classmethod
    def example(cls, problem: Problem) -> TableLBFGS:
        """Small parameters that run on any problem, for tests."""
        parts = min(8, problem.n_data)
        return cls(parts=parts, first=min(3, parts), memory=5)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.first <= self.parts,
            f"first must be at most the {self.parts} parts, not {self.first}: all are active then.",
        )

    @cached_property
    def plan(self) -> EndlessTable:
        return EndlessTable(self.parts, self.first, self.stochastic, self.every)

    @property
    def evaluate_every(self) -> int:
        # P commits are about a pass, which is what an evaluation costs.
        return max(GROWING_EVALUATE, self.parts)

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return {
            **super().counters(iterate, locals_),
            "turns": iterate.course.progress.turns,
        }


MESSAGES_PER_PART, ROUNDS_PER_PART = 4.0, 1.0
"""Least time of a part's gradient: this number of messages, so that workers compute most of the time; and
this number of rounds at the master, each an update of all W workers, so that none waits for the master."""
ROWS_PER_NUMBER = 10
"""Rows of the active parts for every number in theta, so that the scatter says something about curvature."""
MIN_ROWS = 25
"""Rows for every number in theta from which on growth pays.  With fewer it helps little, and stochastic steps
come first where U may not be convex.  On the laboratory's network, which has 330 rows for every number,
they made the first levels no faster, and the last one slower (draw 0)."""
MAX_SWEEP = 3.0
"""Most passes in which the master takes an update of every part; where it is the bottleneck, parts grow.
On the laboratory's network with W = 400 (draw 0), 652 parts reach 5 % in 33 passes, 434 in 40 and 1,086 in
47."""
STEPS_PER_ROUND = 40
"""Steps of the master in the time in which every worker sends an update."""
STOCHASTIC_DIVISOR = 12
"""Where the first steps are stochastic, one part in this number is active at the start, beside one for each
worker: a sample large enough not to be fitted too well, and small enough that its parts soon send second
updates, which tell the step."""
MIN_PARTS, PARTS_PER_WORKER = 64, 4
"""Stochastic steps, and the table as the default method, need at least this many parts, in all and per
worker: with fewer, updates are older than a quarter of a pass.  A table has `PARTS_PER_WORKER` parts per
worker even where messages ask for fewer and longer ones.  In the laboratory with messages of 1000 rows (draw
0, W = 40), linear and logistic models reach 5 % with four parts per worker, and do not with one."""
MessageCost = Annotated[float, parameter(unit="row gradients", ge=0.0)]
MasterCost = Annotated[float, parameter(unit="row gradients", ge=0.0)]


def worthwhile_parts(n_data: int, workers: int, message: float, master: float) -> int:
    """Return into how many parts rows can be cut so that each is worth its message and its commit."""
    # The largest of these is the least number of rows of a part, in units of one row's gradient.
    return int(
        n_data
        / max(1.0, MESSAGES_PER_PART * message, ROUNDS_PER_PART * workers * master)
    )


def enough_parts(parts: int, workers: int) -> bool:
    """Return whether updates are young enough: see `MIN_PARTS`."""
    return parts >= max(MIN_PARTS, PARTS_PER_WORKER * workers)


@checked
def table_algorithm(
    problem: Problem,
    workers: Workers,
    message: MessageCost = 10.0,
    master: MasterCost = 0.1,
) -> TableLBFGS:
    """Return `TableLBFGS` with all parameters set for a problem and a number of workers.

    Parameters
    ----------
    problem : Problem
        The problem to minimise.
    workers : int
        Number of workers, W.
    message : float, default 10.0
        Time of a message to the master and back, in units of one row's gradient.
    master : float, default 0.1
        Time that the master takes for an update, in the same units.

    Returns
    -------
    TableLBFGS
        The algorithm with all parameters set. It begins with stochastic steps where there are fewer than 25
        rows for every number in theta, unless the problem states that it is convex (`convex = True`) or
        has too few parts for them.

    Examples
    --------
    >>> import asyncqn as aq
    >>> algorithm = aq.table_algorithm(aq.LogisticRegression.random(n_data=10_000, dim=20, seed=0), workers=8)
    >>> algorithm.parts, algorithm.first
    (250, 8)
    """
    n, d = int(problem.n_data), int(problem.dim)
    worthwhile = worthwhile_parts(n, workers, message, master)
    # 16 bytes: a number of g and one of z, in double precision, as in `endless_table.check_table`.
    most = min(n, LARGEST_TABLE // (16 * max(1, d)))
    # More than `worthwhile` where updates would be too old otherwise, as far as the master can keep up.
    swept = MAX_SWEEP * n / (workers * master) if master > 0.0 else math.inf
    parts = max(1, workers, worthwhile, int(min(PARTS_PER_WORKER * workers, swept)))
    parts = min(parts, most)
    every = max(1, workers // STEPS_PER_ROUND)
    if (
        enough_parts(parts, workers)
        and n < MIN_ROWS * d
        and not extra(problem, "convex")
    ):
        # Rows are so few that the rule below would activate more than two fifths of all parts at the start.
        first = min(workers + parts // STOCHASTIC_DIVISOR, parts)
        return TableLBFGS(parts, first, stochastic=True, every=every)
    # The active parts have first n / P rows, which are then `ROWS_PER_NUMBER` d at least.
    first = max(workers, math.ceil(ROWS_PER_NUMBER * d * parts / n))
    return TableLBFGS(parts, min(first, parts), every=every)
