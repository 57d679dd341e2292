"""Staged L-BFGS: stale stochastic steps in the problem's own metric, then exact quasi-Newton steps.

The plan is `StochasticStart`, H0 the `StructuredMetric` of a factorization, both in `stochastic_start`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from asyncqn.algorithms.parameters import (
    BackupAfter,
    Blocks,
    CurvatureSize,
    PairedMemorySize,
)
from asyncqn.algorithms.quasi_newton.composition import QuasiNewton
from asyncqn.algorithms.quasi_newton.stochastic_start import (
    StochasticStart,
    StructuredMetric,
)
from asyncqn.errors import require
from asyncqn.parameters import checked, parameter
from asyncqn.types import Problem, extra


@dataclass(frozen=True)
class StagedLBFGS(QuasiNewton):
    """Stale steps in a structured metric, then exact L-BFGS passes; it has no step size.

    `default_algorithm` sets all parameters for a problem that offers such a metric.

    Parameters
    ----------
    batches : int
        Number of batches into which the rows are cut during the warm-up.
    warmup : int
        Commits of the warm-up.
    blocks : int
        Number of blocks into which the rows are cut in an exact pass; best is the number of workers.
    curvature : int
        The problem's `curvature_size`: length of the summary of curvature that comes with a gradient.
    delay : int, default 0
        Expected staleness in commits, W - 1.
    memory : int, default 3
        M: largest number of curvature pairs in the memory.
    in_step : bool, default False
        Whether the warm-up waits for all blocks of a batch before it takes the step.
    batch_blocks : int, optional
        Blocks of a batch where `in_step` is True; by default as many as those of an exact pass.
    backup_after : float, default 5.0
        Idle workers receive a block, too, once it is this many times later than usual; infinity means
        never.

    Examples
    --------
    >>> import asyncqn as aq
    >>> from asyncqn_recommender import ProfiledFactorization
    >>> problem = ProfiledFactorization.example()
    >>> algorithm = aq.default_algorithm(problem, workers=4)      # a StagedLBFGS, with all parameters set
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status
    'converged'
    """

    batches: Annotated[int, parameter(ge=1)]
    warmup: Annotated[int, parameter(ge=0)]
    blocks: Blocks
    curvature: CurvatureSize
    delay: Annotated[int, parameter(unit="commits", ge=0)] = 0
    memory: PairedMemorySize = 3
    in_step: bool = False
    batch_blocks: Blocks | None = None
    backup_after: BackupAfter = 5.0

    # Workers apply H0, so that its state travels with theta.
    sent = ("theta", "initial")
    initial_inverse = StructuredMetric
    # Monotone: beyond rounding, no accepted point lies above the one before.
    recent_values = 1

    @classmethod
    def example(cls, problem: Problem) -> StagedLBFGS:
        """Small parameters that run on any problem with a structured metric, for tests."""
        return cls(
            batches=8,
            warmup=8,
            blocks=4,
            curvature=extra(problem, "curvature_size"),
            delay=1,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.blocks
        require(
            self.batch_blocks is None or self.batch_blocks <= most,
            f"batch_blocks must be at most blocks = {most}: use fewer.",
        )

    def check(self, problem: Problem) -> None:
        own = extra(problem, "curvature_size")
        require(
            self.curvature == own,
            f"curvature must be the problem's {own}, not {self.curvature}.",
        )
        super().check(problem)

    @cached_property
    def plan(self) -> StochasticStart:
        batch_blocks = self.blocks if self.batch_blocks is None else self.batch_blocks
        return StochasticStart(
            self.batches,
            self.warmup,
            self.blocks,
            self.delay,
            self.in_step,
            batch_blocks,
            self.backup_after,
        )

    @checked
    def commits_for(self, epochs: Annotated[float, parameter(gt=0.0)]) -> int:
        """Return how many commits make `epochs` passes over the data: batches first, then whole passes."""
        # During the warm-up a commit is a batch, afterwards a whole pass.  1e-9 keeps the rounding of the
        # quotient from adding a pass.
        warm = min(self.warmup, round(epochs * self.batches))
        return max(1, warm + math.ceil(epochs - self.warmup / self.batches - 1e-9))


def default_factorization_algorithm(problem: Any, workers: int) -> StagedLBFGS:
    """The rule for a problem with a structured metric and W workers, nothing else given.

    One pass of warm-up in 32 W batches, beyond W = 5 in max(160, 16 W), and fewer where that leaves
    less than 8 points each; then exact passes in as many blocks as workers.
    """
    n = int(problem.n_data)
    # 32 W up to W = 5, then 160 up to W = 10, then 16 W.  W - 1 commits of staleness are thus at most a
    # sixteenth of a pass, unless rows are few.
    batches = max(1, min(max(min(32 * workers, 160), 16 * workers), n // 8))
    return StagedLBFGS(
        batches=batches,
        # The first W updates all read theta0: of 2 W batches or fewer, that is half of the warm-up or more.
        warmup=batches if batches > 2 * workers else 0,
        blocks=min(workers, n),
        curvature=int(problem.curvature_size),
        delay=workers - 1,
    )
