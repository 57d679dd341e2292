"""What methods on growing samples share: the rows of a sample, and the growth.

A sample holds one row of every `stride` consecutive ones, drawn anew for every stride by the seed.  When it
grows, U and its gradient are asked for once more at the last point kept, now on the larger sample.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from asyncqn.algorithms.quasi_newton.block_lbfgs import BlockLBFGS
from asyncqn.algorithms.quasi_newton.exact_gradients import ExactGradients, rows_of_parts
from asyncqn.algorithms.safeguard import Metric, Trial, advance, rebase, standing
from asyncqn.core.stages import Stages, stage_index
from asyncqn.errors import require
from asyncqn.kernels.shuffling import fill_strata
from asyncqn.types import Array, Commit, Counters, Potential, Rows, Standing, Task

Ask: TypeAlias = Callable[[Array], float]
FACTOR = 4
"""How much a sample grows."""


class Iterate(NamedTuple):
    """The fields of `block_lbfgs.Iterate`, the start, and the stage whose sample `base` was judged on."""

    theta: Array
    base: Array
    at_base: Array
    anchor: Array
    memory: Any
    trial: Trial
    start: Array
    stage: int = -1
    """-1: none yet."""
    first_value: float = math.nan
    """U at the start, as the first sample says it; NaN where that does not say U."""


class GrowingSamples(ExactGradients, ABC):
    """Base of the methods that minimise on samples and then on all rows, which are the last stage."""

    blocks: int
    pieces: int

    @property
    @abstractmethod
    def stages(self) -> Stages:
        """One per sample, and all rows."""

    @abstractmethod
    def _exact(self) -> BlockLBFGS:
        """The method on all rows."""

    @abstractmethod
    def _strides(self) -> list[int]:
        """One row of so many is in the sample, stage by stage."""

    def _forget_at_growth(self, pairs: Any) -> None:
        """What of the memory does not serve on a larger sample."""

    @property
    def growing_versions(self) -> int:
        """How many versions there are before those on all rows."""
        return sum(stage.commits or 0 for stage in self.stages)

    def _check_parts(self, potential: Potential, growths: str) -> None:
        """Refuse samples that cannot be cut into as many parts; growths: the parameter that counts them."""
        n, parts = potential.n_data // self._strides()[0], self.blocks * self.pieces
        require(
            parts <= n,
            f"a sample of {n} data points cannot be cut into {parts} parts: use fewer {growths} or blocks.",
        )

    def _rows(self, n: int, task: Task) -> tuple[Rows, int]:
        """The rows of a task's part, and how many its sample has."""
        stride = self._strides()[stage_index(self.stages, task.read)]
        sample, parts, part = -(-n // stride), self.blocks * self.pieces, task.part
        assert part is not None
        first, last = part * sample // parts, (part + 1) * sample // parts
        rows = np.arange(first, last)
        if stride > 1:
            fill_strata(task.stream.seed, stride, first, n, rows)
        return rows, sample

    def _judged(
        self, iterate: Iterate, pairs: Metric, at: Array | None, value: float, read: int, commit: Commit
    ) -> Iterate:
        """Judge the trial by the gradient `at` and U on the sample of version `read`; set the next one."""
        stages = self.stages
        stage = stage_index(stages, read)
        ask = commit.value if stage == len(stages) - 1 else None  # nobody else knows U of a sample
        if iterate.trial.kept == 0 and math.isnan(iterate.first_value):
            iterate = iterate._replace(first_value=value)
        if stage == iterate.stage or iterate.trial.kept == 0:
            iterate = iterate._replace(trial=advance(iterate, pairs, at, value, ask), stage=stage)
        elif iterate.theta.tobytes() == iterate.base.tobytes():
            self._forget_at_growth(pairs)
            iterate = self._grown(iterate, pairs, at, value, ask, stage)
        if stage_index(stages, read + 1) != iterate.stage:
            iterate.theta[...] = iterate.base
        return iterate

    def _grown(
        self, iterate: Iterate, pairs: Metric, at: Array | None, value: float, ask: Ask | None, stage: int
    ) -> Iterate:
        """The iterate on the larger sample of `stage`, at whose base the gradient is `at` and U is `value`.

        ask: U over all rows, where the sample is that.  Where the larger sample is not finite at the base,
        this moves halfway back to the start.  Where U there is above what it was at the start, the smaller
        sample was fitted too closely, or its slopes led uphill: the start is taken up, with an empty trial.
        """
        if at is None:
            iterate.base[...] = 0.5 * (iterate.base + iterate.start)
            return iterate
        if math.isnan(value):
            worse = ask is not None and not ask(iterate.base) <= ask(iterate.start)
        else:
            worse = value > iterate.first_value  # never where that is not known: NaN
        if not worse:
            return iterate._replace(trial=rebase(iterate, pairs, at, value, ask), stage=stage)
        iterate.theta[...] = iterate.base[...] = iterate.start
        pairs.forget()
        empty = self._exact().init(iterate.start).trial
        return iterate._replace(trial=empty._replace(first_norm=iterate.trial.first_norm), stage=stage)

    def standing(self, iterate: Iterate) -> Standing | None:
        """Once all rows were used; the first |g| is the largest at any stage's start: samples estimate U."""
        return standing(iterate) if iterate.stage == len(self.stages) - 1 else None

    def answers(self, iterate: Iterate) -> tuple[Array, ...]:
        """The last point kept, and the start, which a run never does worse than."""
        return iterate.base, iterate.start

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        ends = np.cumsum([stage.commits for stage in self.stages[:-1]])
        stride = np.array(self._strides())[np.searchsorted(ends, read, "right")]
        return rows_of_parts(-(-n_data // stride), self.blocks * self.pieces, part)
