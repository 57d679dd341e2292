"""Table L-BFGS: asynchronous quasi-Newton steps on a centred table of gradients; nobody ever waits.

    theta = mean z - H mean g,        H learns (S, Y) / count,  S = sum (z - z_i),  Y = sum (g - g_i)

with H0 from the scatter of the updates (`scatter_inverse`).

The rows are cut into P parts.  Each update is a commit: a worker is handed the active part whose newest
update is oldest, and sends its gradient g with the point z where it took it.  The coordinator keeps the last
(g_i, z_i) of every part and steps at once (`centred_table`).  Staleness does not shrink the step, and there
is no step size.  To judge a point exactly the coordinator holds theta until every part has answered at it
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

from asyncqn.algorithms.parameters import BackupAfter, Blocks, PairedMemorySize, Parts, Pieces
from asyncqn.algorithms.quasi_newton.composition import GROWING_EVALUATE, Iterate, QuasiNewton, Worker
from asyncqn.algorithms.quasi_newton.endless_table import LARGEST_TABLE, EndlessTable
from asyncqn.algorithms.quasi_newton.samples import ALL_ROWS, Samples
from asyncqn.algorithms.quasi_newton.scatter_inverse import ScatterInverse
from asyncqn.algorithms.quasi_newton.table_then_passes import TableThenPasses
from asyncqn.errors import require
from asyncqn.parameters import Workers, checked, parameter
from asyncqn.types import Problem


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
    sweeps : int, optional
        Updates per part, once all parts are active, before exact passes follow. This is for runs of earlier
        versions, which are replayed so; by default the table is used to the end.
    blocks : int, default 1
        Number of blocks of those exact passes; without `sweeps` it has no effect.
    pieces : int, default 1
        Pieces of a block of those exact passes; without `sweeps` it has no effect.
    backup_after : float, optional
        As in `BlockLBFGS`, for those exact passes; without `sweeps` it has no effect.

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
    first: Annotated[int, parameter("How many parts are active at the start", ge=1)]
    memory: PairedMemorySize = 20
    sweeps: Annotated[
        int | None, parameter("Updates per part before exact passes; None: no such passes", ge=0)
    ] = None
    blocks: Blocks = 1
    pieces: Pieces = 1
    backup_after: BackupAfter | None = None

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
    def plan(self) -> EndlessTable | TableThenPasses:
        if self.sweeps is None:
            return EndlessTable(self.parts, self.first)
        passes = Samples((ALL_ROWS,), self.blocks, self.pieces, self.backup_after)
        return TableThenPasses(self.parts, self.first, self.sweeps, passes)

    @property
    def evaluate_every(self) -> int:
        return max(GROWING_EVALUATE, self.parts if self.sweeps is None else self.parts // 4)

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return {**super().counters(iterate, locals_), "turns": iterate.course.progress.turns}


MESSAGES, MASTERS = 4.0, 1.0
"""The time of a part's gradient: so many messages, and so many times what the master needs for W updates."""
ROWS_PER_NUMBER = 10
MessageCost = Annotated[float, parameter("Of a message there and back", unit="row gradients", ge=0.0)]
MasterCost = Annotated[float, parameter("Of an update at the master", unit="row gradients", ge=0.0)]


@checked
def table_algorithm(
    problem: Annotated[Problem, parameter("What is minimised")],
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
        The algorithm with all parameters set.

    Examples
    --------
    >>> import asyncqn as aq
    >>> algorithm = aq.table_algorithm(aq.LogisticRegression.random(n_data=10_000, dim=20, seed=0), workers=8)
    >>> algorithm.parts, algorithm.first
    (250, 8)
    """
    n, d = int(problem.n_data), int(problem.dim)
    rows = max(1.0, MESSAGES * message, MASTERS * workers * master)
    wanted = max(int(n / rows), workers)  # with fewer parts than workers, some would compute in vain
    parts = max(1, min(n, wanted, LARGEST_TABLE // (16 * max(1, d))))
    first = max(workers, math.ceil(ROWS_PER_NUMBER * d * parts / n))
    return TableLBFGS(parts, min(first, parts))
