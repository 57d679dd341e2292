"""Table L-BFGS: asynchronous quasi-Newton steps on a centred table of gradients, then exact passes.

    theta = mean z - H mean g,        H learns (S, Y) / count,  S = sum (z - z_i),  Y = sum (g - g_i)

with H0 from the scatter of the updates (`scatter_inverse`).  `table_plan` has the stages, `centred_table` the
rule and its safeguard.

The idea of a centred table is that of incremental Newton methods (Rodomanov and Kropotov 2016; Mokhtari,
Eisen and Ribeiro 2018, who keep a Hessian per part); one H from pairs of sums over parts, the growth, the
scatter and the safeguard are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from asyncqn.algorithms.parameters import BackupAfter, Blocks, PairedMemorySize, Parts, Pieces
from asyncqn.algorithms.quasi_newton.composition import GROWING_EVALUATE, Iterate, QuasiNewton, Worker
from asyncqn.algorithms.quasi_newton.samples import ALL_ROWS, Samples
from asyncqn.algorithms.quasi_newton.scatter_inverse import ScatterInverse
from asyncqn.algorithms.quasi_newton.table_plan import LARGEST_TABLE, TablePlan
from asyncqn.errors import require
from asyncqn.parameters import Workers, checked, parameter
from asyncqn.types import Potential


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
    def example(cls, potential: Potential) -> TableLBFGS:
        """Small parameters that run on any potential, for tests."""
        parts = min(8, potential.n_data)
        return cls(parts=parts, first=min(3, parts), blocks=min(3, potential.n_data), memory=5)

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
    potential: Annotated[Potential, parameter("What is minimised")],
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
    n, d = int(potential.n_data), int(potential.dim)
    rows = max(1.0, MESSAGES * message, MASTERS * workers * master, 16.0 * n * d / LARGEST_TABLE)
    parts = max(1, min(n, int(n / rows)))
    first = max(workers, math.ceil(ROWS_PER_NUMBER * d * parts / n))
    pieces = 1 if workers == 1 else max(1, min(4, n // (3 * workers)))
    return TableLBFGS(parts, min(first, parts), min(workers, n), pieces=pieces)
