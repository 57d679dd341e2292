"""H0 of a summary of the problem's own curvature, which the coordinator applies.

With the updates of some versions comes a summary of the curvature, which adds up over the rows as the
gradient does; `inverse_metric_from(summary)` of the problem makes H0 of it.  H0 may change under the pairs,
which are stored as (s, y).  While there is no summary, H0 = (s'y / y'y) I of the newest pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.algorithms.quasi_newton.initial_inverse import Sampled, ScalarInverse
from asyncqn.kernels.vectors import sum_of_squares
from asyncqn.types import Array, Commit


class Summary(NamedTuple):
    """The state of `SampledMetric`."""

    summary: Array
    """What H0 is made of; its last entry is 0 where there is none."""


@dataclass
class SampledMetric(ScalarInverse):
    """H0 of the newest summary that came with an accepted point.

    Parameters
    ----------
    fresh : array or None
        The summary at the trial under way, used from the moment that the trial is accepted.
    make : callable
        Makes of a summary an object with `apply(v, out)`, or None where the summary is no good.
    """

    state: Summary
    fresh: Array | None
    make: Callable[[Array], Any]

    requires: ClassVar[tuple[str, ...]] = (
        "curvature_size",
        "grad_with_curvature",
        "inverse_metric_from",
        "sampled_metric",
    )
    slopes_suffice = False

    @classmethod
    def empty(cls, theta0: Array, summary_size: int) -> Summary:
        return Summary(np.zeros(summary_size))

    @classmethod
    def _maker(cls, commit: Commit) -> Callable[[Array], Any]:
        assert commit.inverse_metric_from is not None
        return commit.inverse_metric_from

    @classmethod
    def for_commit(
        cls, state: Summary, updates: Sequence[Any], summary: Array | None, commit: Commit
    ) -> SampledMetric:
        make = cls._maker(commit)
        return cls(state, None if summary is None or make(summary) is None else summary, make)

    @classmethod
    def evaluate(cls, problem: Any, theta: Array, at: Sampled, summary: Array) -> tuple[Array, float, bool]:
        g = np.empty_like(theta)
        value = float(problem.grad_with_curvature(theta, at.rows, g, summary, at.sample))
        finite = math.isfinite(value + sum_of_squares(g) + sum_of_squares(summary))
        return scaled(g, value, finite, at.share, summary)

    @property
    def _from_summary(self) -> bool:
        return bool(self.state.summary[-1] > 0.0)

    def known(self, memory: PairMemory) -> bool:
        return self._from_summary or memory.stored > 0

    def apply(self, memory: PairMemory, v: Array) -> None:
        if not self._from_summary:
            super().apply(memory, v)
            return
        image = np.empty_like(v)
        self.make(self.state.summary).apply(v, image)
        v[...] = image

    def accept(self, memory: PairMemory) -> None:
        if self.fresh is not None:
            self.state.summary[...] = self.fresh

    def grow(self, memory: PairMemory) -> None:
        """Remove the pairs: over an H0 that is nearly right, those of a smaller sample do harm."""
        if self.fresh is not None or self._from_summary:
            memory.forget()

    def forget(self, memory: PairMemory) -> None:
        self.state.summary[...] = 0.0


def scaled(g: Array, value: float, finite: bool, share: float, summary: Array) -> tuple[Array, float, bool]:
    """Return a share of what a worker found, zeros where it is not finite; scale the summary in place."""
    if not finite:  # the coordinator must hear of it, to turn back
        g[...], summary[...], value = 0.0, 0.0, 0.0
    g *= g.dtype.type(share)
    summary *= share
    return g, share * value, finite
