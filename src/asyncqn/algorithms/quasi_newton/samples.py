"""The plan of exact gradients: all rows, or samples that grow to all rows, in blocks.

A sample holds one row of every `stride` consecutive ones, drawn anew for every stride by the seed, and serves
a number of versions that is fixed beforehand.  It is cut into blocks, and each block into pieces b.  A
version is one point theta; the gradient of every piece is asked for once, and when all are there

    g = sum_b (n_b / n) grad_b(theta)                     exact on the sample: the prior is counted once
    s = theta - base,  y = g - g_base                     a pair for the memory
    base <- theta,  theta <- base - H g                   if the safeguard accepts theta

No gradient is stale, and there is no step size.  Pieces are summed in their own order, so that the cluster
decides when a number is known, never what it is: every bit is the same for any number of workers, any delays,
backups and deaths.  The schedule makes the method fast: idle workers take pieces from the end of late blocks
(`kernels.block_rule`).

When the sample grows, U and its gradient are asked for once more at the last accepted point, now on the
larger sample.  U of a sample S is prior + (n / |S|) sum_{i in S} U_i, an estimate of U itself, so that what
was learned on the smaller sample is nearly right on the larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from asyncqn.algorithms.parts import rows_of_parts, whole_sum
from asyncqn.algorithms.quasi_newton.composition import Iterate, Plan
from asyncqn.algorithms.quasi_newton.initial_inverse import InverseHessian, Sampled
from asyncqn.algorithms.safeguard import Trial, advance, rebase, standing
from asyncqn.core.stages import Stages, blocks, last_versions, stage_index
from asyncqn.errors import require
from asyncqn.kernels.shuffling import fill_strata
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Standing, Task

# U over all rows at a point, as the coordinator evaluates it.
Ask: TypeAlias = Callable[[Array], float]
GROWTH = 4
"""Factor by which a sample grows.  With four, all smaller samples together cost a third of the next one."""


class Sample(NamedTuple):
    """One row of every `stride`, and what is asked for on it."""

    stride: int = 1
    commits: int | None = None
    """How many versions it serves; None: all that are left."""
    renewals: tuple[int, ...] = ()
    """Its versions at which updates bring a summary of the curvature."""
    period: int | None = None
    """They also bring one at every version that is a multiple of this."""

    def asks(self, version: int) -> bool:
        """Return whether the updates on its version bring a summary of the curvature."""
        # `version` counts from the first version on this sample.
        return version in self.renewals or (
            self.period is not None and version % self.period == 0
        )


ALL_ROWS = Sample()


class Update(NamedTuple):
    """A piece's share of the gradient, of U (NaN: the problem does not say) and of the curvature."""

    g: Array
    value: float
    part: int
    finite: bool
    read: int
    summary: Array
    """Zeros where it is not asked for."""


class Course(NamedTuple):
    """Progress through the samples: the state of the plan."""

    stage: int = -1
    """The stage on whose sample `base` was judged; -1: none yet."""
    first_value: float = math.nan
    """U at the start, as the first sample says it; NaN where that does not say U."""


@dataclass(frozen=True)
class Samples(Plan):
    """Exact gradients on samples in a row, of which the last is all rows.

    Parameters
    ----------
    samples : tuple of Sample
        One stage each.
    blocks : int
        Into how many blocks a sample is cut.
    pieces : int
        Into how many pieces a block is cut, so that others can help with it.
    backup_after : float or None
        See `core.stages`; None: 3 for blocks in one piece, 2 for others, because a piece in vain costs less.
    """

    samples: tuple[Sample, ...]
    blocks: int
    pieces: int = 1
    backup_after: float | None = None
    too_small: str = "use fewer."
    """What to do where a sample has fewer rows than parts."""

    @property
    def parts(self) -> int:
        return self.blocks * self.pieces

    @cached_property
    def stages(self) -> Stages:
        # A piece computed in vain costs less than a whole block, so backups may start earlier.
        chosen = 3.0 if self.pieces == 1 else 2.0
        late = chosen if self.backup_after is None else self.backup_after
        # `share` tells a simulator that a computation takes that part of the time of one on all rows.
        return tuple(
            blocks(
                self.blocks,
                late,
                self.pieces,
                share=1.0 / sample.stride,
                commits=sample.commits,
            )
            for sample in self.samples
        )

    @cached_property
    def _begins(self) -> list[int]:
        """The first version of every stage."""
        # Without the last entry, which is infinite: the stage of all rows has no end.
        return [0, *(int(version) for version in last_versions(self.stages)[:-1])]

    def asks(self, read: int) -> bool:
        """Return whether the updates on version `read` bring a summary of the curvature."""
        stage = stage_index(self.stages, read)
        return self.samples[stage].asks(read - self._begins[stage])

    def check(self, problem: Problem) -> None:
        # The first sample is the smallest.  Rounded down, where `rows` rounds up: where the last stratum is
        # short, this refuses one part that would still have a row.
        n = problem.n_data // self.samples[0].stride
        what = "a sample of " if len(self.samples) > 1 else ""
        require(
            self.parts <= n,
            f"{what}{n} data points cannot be cut into {self.parts} parts: {self.too_small}",
        )

    def course(self, theta0: Array) -> Course:
        return Course()

    def rows(self, n: int, task: Task) -> Sampled:
        """Return the rows of a task's part."""
        stride, part = (
            self.samples[stage_index(self.stages, task.read)].stride,
            task.part,
        )
        # Rounded up: the last stratum may be shorter than the others.
        sample = -(-n // stride)
        assert part is not None
        first, last = part * sample // self.parts, (part + 1) * sample // self.parts
        # Numbers of rows where all are used; otherwise numbers of strata, which are overwritten below.
        rows = np.arange(first, last)
        if stride > 1:
            # One random row of every stratum, by the seed alone: all workers agree on the sample without a
            # message.
            fill_strata(task.stream.seed, stride, first, n, rows)
        return Sampled(rows, sample)

    def step(self, method: Any, view: Iterate, problem: Any, task: Task) -> Update:
        # Updates of a method have one size, so that a summary which is not asked for travels as zeros; the
        # empty view tells `evaluate` to leave it out.
        summary = np.zeros(method.summary_size)
        asked = summary if self.asks(task.read) else summary[:0]
        at = self.rows(problem.n_data, task)
        g, value, finite = method.initial_inverse.evaluate(
            problem, view.theta, at, asked
        )
        assert task.part is not None
        return Update(g, value, task.part, finite, task.read, summary)

    def apply(
        self, method: Any, iterate: Iterate, updates: Sequence[Update], commit: Commit
    ) -> Iterate:
        """Judge the trial by the gradient and U on the sample of the version read; set the next one."""
        # All updates of a commit are of one version: it closes when every part has arrived.
        read = updates[0].read
        # None where a part was not finite: the safeguard then takes theta for a failure.
        at, value = whole_sum(updates, self.parts)
        summary: Any = None
        # Summed in the order of the parts, so that the bits do not depend on the order of arrival.
        if at is not None and self.asks(read):
            summary = sum(
                update.summary
                for update in sorted(updates, key=lambda update: update.part)
            )
        initial = method.initial_inverse.for_commit(
            iterate.initial, updates, summary, commit
        )
        inverse = InverseHessian(iterate.memory, initial, method.rule)
        stage, course, trial = (
            stage_index(self.stages, read),
            iterate.course,
            iterate.trial,
        )
        # The coordinator can evaluate U on all rows, but not on a sample.
        ask = commit.value if stage == len(self.stages) - 1 else None
        # Set once, on the first sample: after a return to the start `kept` is 0 again, but the value stays.
        if trial.kept == 0 and math.isnan(course.first_value):
            course = course._replace(first_value=value)
        # A trial on the sample on which its base was judged, or the start, of which there is no base yet.
        if stage == course.stage or trial.kept == 0:
            course = course._replace(stage=stage)
            iterate = iterate._replace(
                course=course, trial=advance(iterate, inverse, at, value, ask)
            )
        # The sample has grown: this version was the accepted point, evaluated again on the larger sample.
        elif iterate.theta.tobytes() == iterate.base.tobytes():
            # Before the next step is aimed, which must not use pairs that do not serve any more.
            initial.grow(iterate.memory)
            iterate = _grown(iterate, inverse, at, value, ask)
            # Where it was not finite, the stage stays, so that the point halfway back is evaluated next.
            if at is not None:
                iterate = iterate._replace(course=course._replace(stage=stage))
        # The next version is on a larger sample: evaluate the accepted point there before any new trial.
        if stage_index(self.stages, read + 1) != iterate.course.stage:
            iterate.theta[...] = iterate.base
        return iterate

    def standing(self, iterate: Iterate) -> Standing | None:
        """Once all rows were used; the first |g| is the largest at any stage's start: samples estimate U."""
        return (
            standing(iterate) if iterate.course.stage == len(self.stages) - 1 else None
        )

    def candidates(self, iterate: Iterate) -> tuple[Array, ...]:
        """The last accepted point; after samples also the start, which a run never does worse than."""
        return (
            (iterate.base, iterate.start) if len(self.samples) > 1 else (iterate.base,)
        )

    def sample_sizes(self, n_data: int, read: Counters) -> Rows:
        """Return how many rows the sample of each version has."""
        # `stage_index` for many versions at once.
        stage = np.searchsorted(self._begins[1:], read, "right")
        stride = np.array([sample.stride for sample in self.samples])[stage]
        sizes: Rows = -(-n_data // stride)
        return sizes

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        return rows_of_parts(self.sample_sizes(n_data, read), self.parts, part)


def _grown(
    iterate: Iterate, H: InverseHessian, at: Array | None, value: float, ask: Ask | None
) -> Iterate:
    """Return the iterate on a larger sample.

    at, value: the gradient and U at the base; ask: U over all rows, where the sample is that.

    Where the larger sample is not finite at the base, the base moves halfway back to the start.  Where U
    there is above what it was at the start, the smaller sample was fitted too closely, or its slopes led
    uphill: the start is taken up, with an empty trial.
    """
    if at is None:
        iterate.base[...] = 0.5 * (iterate.base + iterate.start)
        return iterate
    # Without a value only the last sample, all rows, can be compared.  Two evaluations of U, once in a run; a
    # U that is NaN counts as worse.
    if math.isnan(value):
        worse = ask is not None and not ask(iterate.base) <= ask(iterate.start)
    else:
        worse = value > iterate.course.first_value  # never where that is not known: NaN
    if not worse:
        return iterate._replace(trial=rebase(iterate, H, at, value, ask))
    iterate.theta[...] = iterate.base[...] = iterate.start
    # The pairs led here.  `first_norm` stays: the tolerance is relative to the largest |g| of any start.
    H.forget()
    recent = (-math.inf,) * len(iterate.trial.recent)
    return iterate._replace(trial=Trial(recent, first_norm=iterate.trial.first_norm))
