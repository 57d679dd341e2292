"""Exact L-BFGS: quasi-Newton steps from exact gradients, in blocks that the workers share.

The rows, or a sample of them, are cut into blocks, and each block into pieces b.  A version is one point
theta; the gradient of every piece is asked for once, and when all are there

    g = sum_b (n_b / n) grad_b(theta)                     exact on the sample: the prior is counted once
    s = theta - base,  y = g - g_base                     a pair for the memory
    base <- theta,  theta <- base - H g                   if the safeguard accepts theta

No gradient is stale, and there is no step size.  Pieces are summed in their own order, so that the cluster
decides when a number is known, never what it is: every bit is the same for any number of workers, any delays,
backups and deaths.  The schedule makes the method fast: idle workers take pieces from the end of late blocks.
After a trial that fails the next starts from the same base with the new pair in memory: on a quadratic that
is the point the method would have gone to anyway, for H y = s.

When the sample grows (`samples`), U and its gradient are asked for once more at the last accepted point, now
on the larger sample.  U of a sample S is prior + (n / |S|) sum_{i in S} U_i, an estimate of U itself, so that
what was learned on the smaller sample is nearly right on the larger.  What a run returns minimises U: its
last stage uses all rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from asyncqn.algorithms.exact.inverse import (
    InverseHessian,
    LearnedDiagonal,
    SampledMetric,
)
from asyncqn.algorithms.exact.samples import Sample, timetable, wants_summary
from asyncqn.algorithms.exact.scatter import ScatterInverse
from asyncqn.algorithms.pair_memory import PairMemory, pair_totals
from asyncqn.algorithms.parameters import (
    BackupAfter,
    Blocks,
    PairedMemorySize,
    Pieces,
)
from asyncqn.algorithms.parts import rows_of_parts, share_of, whole_sum
from asyncqn.algorithms.safeguard import Ask, Trial, advance, rebase, standing
from asyncqn.core.stages import AllParts, Stages, first_versions, stage_index
from asyncqn.errors import require
from asyncqn.kernels.shuffling import fill_strata
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.parameters import Checked, parameter
from asyncqn.types import (
    Array,
    Commit,
    Counters,
    Problem,
    Rows,
    Standing,
    Task,
    extra,
)

INVERSES: dict[str, type[InverseHessian]] = {
    "pairs": LearnedDiagonal,
    "scatter": ScatterInverse,
    "metric": SampledMetric,
}
"""The kinds of H0, by the name of the parameter `inverse`."""
LATE = (3.0, 2.0)
"""How many usual durations late a block is before idle workers compute it too: whole ones, and those cut into
pieces, because a piece in vain costs less."""
GROWING_EVALUATE = 25
"""Commits between two evaluations while samples grow: an evaluation uses all rows, and so costs as much as
many versions on a small sample."""


class Update(NamedTuple):
    """A piece's share of the gradient, of U (NaN: the problem does not say) and of the curvature."""

    g: Array
    value: float
    part: int
    finite: bool
    read: int
    summary: Array
    """Zeros where it is not asked for."""


class Worker(NamedTuple):
    """A worker remembers nothing, so that a worker that is lost loses nothing."""


class Iterate(NamedTuple):
    """The state of the coordinator; all arrays are written in place."""

    theta: Array
    """The trial under way."""
    base: Array
    """The last accepted point; the start before there is one."""
    at_base: Array
    """Shape (1, d): the gradient at base."""
    memory: PairMemory
    initial: Any
    """The state of H0."""
    trial: Trial
    """The safeguard's knowledge."""
    start: Array
    """A copy of theta0, to which theta returns where smaller samples led astray."""
    stage: int = -1
    """The stage on whose sample `base` was judged; -1: none yet."""
    first_value: float = math.nan
    """U at the start, as the first sample says it; NaN where that does not say U."""


@dataclass(frozen=True)
class ExactLBFGS(Checked):
    """L-BFGS on exact gradients, of which each worker computes a block; it has no step size.

    Parameters
    ----------
    blocks : int
        Number of blocks into which the rows are cut; best is the number of workers.
    pieces : int, default 1
        Number of pieces into which each block is cut, so that idle workers can help with a slow block.
        Every piece costs one update of theta's length.
    samples : int, default 0
        Number of samples before all rows are used; each has four times the rows of the one before.
    inverse : "pairs", "scatter" or "metric", default "pairs"
        What H0 is made of: the stored pairs; the scatter of the pieces' gradients, for problems that are
        cut into many pieces; or the curvature of the model, where the problem has a sampled metric.
    memory : int, default 20
        M: largest number of curvature pairs in the memory.
    curvature : int, default 0
        With `inverse="metric"` the problem's `curvature_size`: length of the summary of curvature that
        comes with a gradient. Otherwise 0.
    backup_after : float, optional
        How many usual durations late a block is before idle workers compute it, too; infinity means never.
        By default 3, and 2 where blocks are cut into pieces.

    Notes
    -----
    `exact_algorithm(problem, workers)` sets all parameters. With one block it is a serial L-BFGS.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, aq.ExactLBFGS(blocks=4), engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, abs(run.fun - problem.optimum) < 1e-6 * problem.optimum
    ('converged', True)
    """

    blocks: Blocks
    pieces: Pieces = 1
    # 4^15 is a thousand million: no data set leaves the first of 15 samples more than a few rows.
    samples: Annotated[int, parameter(ge=0, le=14)] = 0
    inverse: Literal["pairs", "scatter", "metric"] = "pairs"
    memory: PairedMemorySize = 20
    curvature: Annotated[int, parameter(ge=0)] = 0
    backup_after: BackupAfter | None = field(default=None, repr=False)

    # Workers receive theta alone: base and pairs would cost many times as much to send.
    sent = ("theta",)

    @classmethod
    def example(cls, problem: Problem) -> ExactLBFGS:
        """Small parameters that run on any problem, for tests."""
        # A block needs at least one row.
        return cls(blocks=min(4, problem.n_data))

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            (self.inverse == "metric") == (self.curvature > 0),
            "curvature must be the problem's curvature_size with inverse='metric', and 0 without.",
        )

    @property
    def requires(self) -> tuple[str, ...]:
        """Extras that the problem must offer."""
        return INVERSES[self.inverse].requires

    @property
    def evaluate_every(self) -> int:
        """Commits between two evaluations where the user does not say."""
        return GROWING_EVALUATE if self.samples else 1

    @cached_property
    def timetable(self) -> tuple[Sample, ...]:
        """The samples, one stage each."""
        return timetable(self.samples, self.inverse == "metric")

    @cached_property
    def stages(self) -> Stages:
        """The message pattern: blocks on one sample after the other."""
        late = self.backup_after or LATE[self.pieces > 1]
        # `share` tells a simulator that a computation takes that part of the time of one on all rows.
        return tuple(
            AllParts(
                blocks=self.blocks,
                backup_after=late,
                pieces=self.pieces,
                share=1.0 / stride,
                commits=versions,
            )
            for stride, versions in self.timetable
        )

    @cached_property
    def _begins(self) -> list[int]:
        return first_versions(self.stages)

    @property
    def _parts(self) -> int:
        return self.blocks * self.pieces

    @property
    def _last(self) -> int:
        return len(self.stages) - 1

    def _wants_summary(self, read: int, dim: int) -> bool:
        """Return whether the updates on version `read` bring a summary of the curvature."""
        if self.inverse != "metric":
            return False
        stage = stage_index(self.stages, read)
        first, last = stage == 0, stage == self._last
        version = read - self._begins[stage]
        return wants_summary(version, first, last, self.curvature, dim)

    def check(self, problem: Problem) -> None:
        if self.inverse == "metric":
            own = extra(problem, "curvature_size")
            require(
                self.curvature == own,
                f"curvature must be the problem's {own}, not {self.curvature}.",
            )
        # The first sample is the smallest.  Rounded down, where `_rows` rounds up: where the last stratum is
        # short, this refuses one part that would still have a row.
        n = problem.n_data // self.timetable[0].stride
        what = f"a sample of {n}" if self.samples else f"{n}"
        remedy = "use fewer samples or blocks." if self.samples else "use fewer."
        require(
            self._parts <= n,
            f"{what} data points cannot be cut into {self._parts} parts: {remedy}",
        )

    # At the workers

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        return Worker()

    def step(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Update:
        theta, part = view.theta, task.part
        assert part is not None
        rows, sample = self._rows(problem.n_data, task)
        # The shares of all parts of a sample sum to 1, so that the prior, which is in every estimate, counts
        # once.
        share = rows.size / sample
        # Updates of a method have one size, so that a summary which is not asked for travels as zeros.
        summary = np.zeros(self.curvature)
        if self.inverse != "metric":
            g, value, finite = share_of(problem, theta, rows, share)
            return Update(g, value, part, finite, task.read, summary)
        g = np.empty_like(theta)
        # The empty view says that none is asked for.
        asked = summary if self._wants_summary(task.read, theta.size) else summary[:0]
        value = extra(problem, "grad_with_curvature")(theta, rows, g, asked, sample)
        # One test for all three: whichever is infinite or NaN, so is the sum.
        finite = math.isfinite(value + sum_of_squares(g) + sum_of_squares(asked))
        if not finite:  # the coordinator must hear of it, to turn back
            g[...] = 0.0
            summary[...] = 0.0
            value = 0.0
        g *= g.dtype.type(share)
        summary *= share
        return Update(g, share * float(value), part, finite, task.read, summary)

    def _rows(self, n: int, task: Task) -> tuple[Rows, int]:
        """Return the rows of a task's part, and how many rows the sample has."""
        stride = self.timetable[stage_index(self.stages, task.read)].stride
        part = task.part
        assert part is not None
        # Rounded up: the last stratum may be shorter than the others.
        sample = -(-n // stride)
        first = part * sample // self._parts
        last = (part + 1) * sample // self._parts
        # Numbers of rows where all are used; otherwise numbers of strata, which are overwritten below.
        rows = np.arange(first, last)
        if stride > 1:
            # One random row of every stratum, by the seed alone: all workers agree on the sample without a
            # message.
            fill_strata(task.stream.seed, stride, first, n, rows)
        return rows, sample

    # At the coordinator

    def init(self, theta0: Array) -> Iterate:
        return Iterate(
            # The iterate owns all its arrays, because the coordinator writes them in place.
            theta=theta0.copy(),
            base=theta0.copy(),
            at_base=np.zeros((1, theta0.size), theta0.dtype),
            memory=PairMemory.empty(self.memory, theta0),
            initial=INVERSES[self.inverse].empty(theta0, self.curvature),
            trial=Trial(),
            start=theta0.copy(),
        )

    def apply(
        self, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        """Judge the trial by the gradient and U on the sample of the version read; set the next one."""
        # All updates of a commit are of one version: it closes when every part has arrived.
        read = updates[0].read
        # In the order of the parts, not of arrival, so that no bit depends on the speed of workers.
        updates = sorted(updates, key=lambda update: update.part)
        # None where a part was not finite: the safeguard then takes theta for a failure.
        at, value = whole_sum(updates, self._parts)
        summary: Any = None
        if at is not None and self._wants_summary(read, iterate.theta.size):
            summary = sum(update.summary for update in updates)
        kind = INVERSES[self.inverse]
        memory, initial = iterate.memory, iterate.initial
        H = kind.for_commit(memory, initial, updates, summary, commit)
        stage = stage_index(self.stages, read)
        # The coordinator can evaluate U on all rows, but not on a sample.
        ask = commit.value if stage == self._last else None
        # Set once, on the first sample: after a return to the start `kept` is 0 again, but the value stays.
        if iterate.trial.kept == 0 and math.isnan(iterate.first_value):
            iterate = iterate._replace(first_value=value)
        # A trial on the sample on which its base was judged, or the start, of which there is no base yet.
        if stage == iterate.stage or iterate.trial.kept == 0:
            trial = advance(iterate, H, at, value, ask)
            iterate = iterate._replace(trial=trial, stage=stage)
        # The sample has grown: this version was the accepted point, evaluated again on the larger sample.
        elif iterate.theta.tobytes() == iterate.base.tobytes():
            # Before the next step is aimed, which must not use pairs that do not serve any more.
            H.grow()
            if at is None:
                # The stage stays, so that the point halfway back to the start is evaluated next.
                iterate.base[...] = 0.5 * (iterate.base + iterate.start)
            else:
                trial = self._grown(iterate, H, at, value, ask)
                iterate = iterate._replace(trial=trial, stage=stage)
        # The next version is on a larger sample: evaluate the accepted point there before any new trial.
        if stage_index(self.stages, read + 1) != iterate.stage:
            iterate.theta[...] = iterate.base
        return iterate

    def _grown(
        self,
        iterate: Iterate,
        H: InverseHessian,
        at: Array,
        value: float,
        ask: Ask | None,
    ) -> Trial:
        """Continue on a larger sample; at, value: the gradient and U at the base.

        Where U there is above what it was at the start, the smaller sample was fitted too closely, or its
        slopes led uphill: the start is taken up, with an empty trial.
        """
        # Without a value only the last sample, all rows, can be compared.  Two evaluations of U, once in a
        # run; a U that is NaN counts as worse.
        if math.isnan(value):
            worse = ask is not None and not ask(iterate.base) <= ask(iterate.start)
        else:
            # Never where the first value is not known: NaN.
            worse = value > iterate.first_value
        if not worse:
            return rebase(iterate, H, at, value, ask)
        iterate.theta[...] = iterate.start
        iterate.base[...] = iterate.start
        # The pairs led here.  `first_norm` stays: the tolerance is relative to the largest |g| of any start.
        H.forget()
        return Trial(first_norm=iterate.trial.first_norm)

    # What a run asks

    def standing(self, iterate: Iterate) -> Standing | None:
        """Once all rows were used; the first |g| is the largest at any stage's start: samples estimate U."""
        return standing(iterate) if iterate.stage == self._last else None

    def candidates(self, iterate: Iterate) -> tuple[Array, ...]:
        """The last accepted point; after samples also the start, which a run never does worse than."""
        return (iterate.base, iterate.start) if self.samples else (iterate.base,)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        """Return of how many rows each computation takes the gradient."""
        # `stage_index` for many versions at once.
        stage = np.searchsorted(self._begins[1:], read, "right")
        stride = np.array([sample.stride for sample in self.timetable])[stage]
        return rows_of_parts(-(-n_data // stride), self._parts, part)

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return pair_totals([iterate.memory])
