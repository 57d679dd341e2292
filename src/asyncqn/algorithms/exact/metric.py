"""H0 from the curvature of the model itself, summed over the rows of a sample.

With every update of some versions comes a summary of the curvature, which adds up over the rows as the
gradient does; `problem.inverse_metric_from` makes H0 of it.  Sums of a subsample in the place of the Hessian
are those of subsampled Newton methods (Byrd, Chin, Neveitt and Nocedal 2011; Erdogdu and Montanari 2015).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from asyncqn.algorithms.exact.inverse import InitialInverse
from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.types import Array, Commit

# Without `sampled_metric` the summary of a sample would not serve for all rows.
METRIC_EXTRAS = (
    "curvature_size",
    "grad_with_curvature",
    "inverse_metric_from",
    "sampled_metric",
)
"""What a problem must offer."""


class Curvature(NamedTuple):
    """The state of `SampledMetric`."""

    summary: Array
    """What H0 is made of; its last entry is 0 where there is none."""


@dataclass
class SampledMetric(InitialInverse):
    """H0 of the newest summary that came with an accepted point, which the coordinator applies.

    H0 may change under the pairs, which are stored as (s, y).  While there is no summary, H0 = (s'y / y'y) I
    of the newest pair.

    Parameters
    ----------
    fresh : array or None
        The summary at the trial under way, used from the moment that the trial is accepted.
    make : callable
        Makes of a summary an object with `apply(v, out)`, or None where the summary is no good.
    """

    state: Curvature
    fresh: Array | None
    make: Callable[[Array], Any]

    requires = METRIC_EXTRAS

    @classmethod
    def empty(cls, theta0: Array, curvature: int) -> Curvature:
        # In float64 whatever the precision of theta, because the coordinator factorizes it.
        return Curvature(np.zeros(curvature))

    @classmethod
    def for_commit(
        cls, state: Any, updates: Sequence[Any], summary: Array | None, commit: Commit
    ) -> Self:
        # The coordinator's copy of the problem's function remembers its last result, so that H0 is factorized
        # once per summary and not at every product.
        make = commit.inverse_metric_from
        assert make is not None
        # Tested here, because a summary of which no H0 can be made must not replace one that works.
        if summary is not None and make(summary) is None:
            summary = None
        return cls(state, summary, make)

    @property
    def _from_summary(self) -> bool:
        # The last entry counts rows, so that 0 means that there is none.
        return bool(self.state.summary[-1] > 0.0)

    def known(self, memory: PairMemory) -> bool:
        return self._from_summary or memory.stored > 0

    def apply(self, memory: PairMemory, v: Array) -> None:
        if not self._from_summary:
            super().apply(memory, v)
            return
        # Into a second array, because a problem's `apply(v, out)` need not allow `out` to be v.
        image = np.empty_like(v)
        self.make(self.state.summary).apply(v, image)
        v[...] = image

    def accept(self, memory: PairMemory) -> None:
        # Not earlier: the summary belongs to the trial, and after a failure the base needs its own H0.
        if self.fresh is not None:
            self.state.summary[...] = self.fresh

    def grow(self, memory: PairMemory) -> None:
        """Remove the pairs: over an H0 that is nearly right, those of a smaller sample do harm."""
        # Without an H0 of summaries the pairs are all that is known, and they stay.
        if self.fresh is not None or self._from_summary:
            memory.forget()

    def forget(self, memory: PairMemory) -> None:
        # H0 may have been at fault; until the next summary the pairs build on a scalar.
        self.state.summary[...] = 0.0
