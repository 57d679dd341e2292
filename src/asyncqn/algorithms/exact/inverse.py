"""H, the BFGS matrix of the stored pairs on top of an initial inverse H0, with two kinds of H0.

The better H0 approximates the inverse Hessian, the fewer pairs are needed.  An H is made for one commit
around the memory and the state of its H0, a NamedTuple of arrays in the iterate, and writes both in place.

`LearnedDiagonal` uses what the stored pairs say of each coordinate j,

    D_j^2 = sum_i (s_ij^2 / s_i'y_i) / sum_i (y_ij^2 / s_i'y_i),

which is right for D = diag(1 / x_j^2) when the coordinates of theta are measured in units x_j that differ by
orders of magnitude: the method then hardly notices the units.  H0 = c D with c = s'y / y'D y of the newest
pair.  A diagonal is of no use where the curvature does not lie along the coordinates, so every new pair is a
test.  For a matrix D that fits a pair exactly, s = c D y, the quotient

    fit(D) = (s'y)^2 / (s'D^-1 s  y'D y) <= 1

is 1.  D of the earlier pairs is compared with I: the logarithms of fit(D) / fit(I) are summed, older ones
fading, and D = I is used as long as the sum is below `MIN_LEAD`.  D, the test and the constants are our own.

`SampledMetric` uses the curvature of the model itself.  With every update of some versions comes a summary of
the curvature, which adds up over the rows as the gradient does; `problem.inverse_metric_from` makes H0 of it.
Sums of a subsample in the place of the Hessian are those of subsampled Newton methods (Byrd, Chin, Neveitt
and Nocedal 2011; Erdogdu and Montanari 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.pair_memory import PairMemory, PairRule
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array, Commit

__all__ = ["InverseHessian"]

RULE = PairRule(epsilon=0.0, cosine=1e-5)
"""Pairs of any scale are admitted, because epsilon is a curvature, of which no value would suit every problem;
but s and y must not be orthogonal within five digits."""
MIN_LEAD = 3.0
"""Sum of logarithms above which D is used: the pairs together must favour it by e^3, a factor of 20."""
FADING = 0.9
"""Factor on that sum with every new pair: about the last ten pairs count."""
WIDEST = 1e12
"""Largest factor between an entry of D and the geometric mean of all."""
# Without `sampled_metric` the summary of a sample would not serve for all rows.
METRIC_EXTRAS = (
    "curvature_size",
    "grad_with_curvature",
    "inverse_metric_from",
    "sampled_metric",
)
"""What a problem must offer for `SampledMetric`."""


@dataclass
class InverseHessian:
    """H on top of H0 = c I with c of the newest pair: a `safeguard.Inverse`.

    Other kinds of H0 override what differs; c is the memory's `scale`.
    """

    memory: PairMemory
    state: Any

    requires: ClassVar[tuple[str, ...]] = ()
    """Extras that the problem must offer."""

    @classmethod
    def empty(cls, theta0: Array, curvature: int) -> Any:
        """Return the state before anything is known; curvature: the length of a summary."""
        return ()

    @classmethod
    def for_commit(
        cls,
        memory: PairMemory,
        state: Any,
        updates: Sequence[Any],
        summary: Array | None,
        commit: Commit,
    ) -> Self:
        """Return H with what the updates of a commit tell.

        Parameters
        ----------
        memory : PairMemory
            The pairs.
        state : NamedTuple
            As `empty` makes it.
        updates : sequence
            All updates of the commit, in the order of their parts.
        summary : array or None
            The sum of their summaries; None where none was asked for, or where an update was not finite.
        commit : Commit
            What the coordinator knows.
        """
        return cls(memory, state)

    # As the safeguard sees it

    def direction(self, at: Array, out: Array) -> bool:
        """Write H g into `out`; return False where H has no scale yet, for a scaled gradient step."""
        if not self.known():
            return False
        self.memory.product(at[0], out, self.apply)
        return True

    def learn(self, s: Array, change: Array) -> bool:
        """Offer the pair (s, change of `at`); return whether it was admitted."""
        if not self.memory.admit(RULE, s, change[0]):
            return False
        self.follow()
        return True

    def forget(self) -> None:
        """Remove the pairs, and of H0 what may have been at fault: steps kept failing."""
        self.memory.forget()

    def softness(self) -> float:
        """Return the largest s's / s'y in memory; infinite where it is empty."""
        return self.memory.softness()

    def keep(self) -> None:
        """The trial was accepted: the moment to change H0."""

    # What the kinds of H0 override

    def known(self) -> bool:
        """Return whether H has a scale, so that H g is a step."""
        return self.memory.stored > 0

    def apply(self, v: Array) -> None:
        """Replace v by H0 v."""
        # In the precision of v: `scale` is float64.
        v *= v.dtype.type(self.memory.scale[0])

    def times(self, v: Array) -> npt.NDArray[np.float64]:
        """Return H v in double precision."""
        # The recursion computes in the precision of its output.
        product: npt.NDArray[np.float64] = np.empty(v.size)
        self.memory.product(v, product, self.apply)
        return product

    def follow(self) -> None:
        """Take account of the newest pair, which has just been admitted."""
        self.memory.rescale()

    def grow(self) -> None:
        """The sample has grown: drop what does not serve on a larger one."""


class Diagonal(NamedTuple):
    """The state of `LearnedDiagonal`."""

    D: Array
    """Shape (d,)."""
    lead: Array
    """Shape (1,): the sum of the logarithms, which tells whether D is used."""


class LearnedDiagonal(InverseHessian):
    """H0 = c D or c I, as the module explains."""

    @classmethod
    def empty(cls, theta0: Array, curvature: int) -> Diagonal:
        # An array even for the one number, because the state is written in place.
        return Diagonal(np.ones_like(theta0), np.zeros(1))

    @property
    def _in_use(self) -> bool:
        # D is fitted whether it is in use or not: otherwise it could never win the lead.
        return bool(self.state.lead[0] > MIN_LEAD)

    def apply(self, v: Array) -> None:
        super().apply(v)
        if self._in_use:
            v *= self.state.D

    def learn(self, s: Array, change: Array) -> bool:
        # Before the first pair D says nothing that could be tested.
        if self.memory.stored > 0:
            # Before the pair is admitted: a D fitted to it would be favoured by the test.
            self._test(s.astype(np.float64), change[0].astype(np.float64))
        return super().learn(s, change)

    def _test(self, s: Array, y: Array) -> None:
        """Test whether D of the pairs so far fits this one better than I does."""
        D, lead = self.state
        sDs = dot(s / D, s)
        yDy = dot(y * D, y)
        # fit(D) / fit(I): (s'y)^2 cancels.
        usable = sDs > 0.0 and yDy > 0.0
        gain = (dot(s, s) / sDs) * (dot(y, y) / yDy) if usable else 0.0
        # A pair whose products overflow or vanish tells nothing.
        if 0.0 < gain < math.inf:
            lead[0] = FADING * lead[0] + math.log(gain)

    def follow(self) -> None:
        memory, D = self.memory, self.state.D
        # From all stored pairs anew, because the oldest may just have made room.
        D[...] = fitted_diagonal(memory)
        if not self._in_use:
            memory.rescale()
            return
        y = memory.pairs[1, memory.newest].astype(np.float64)
        size = dot(y * D, y)
        # In a tail that is nearly flat y'y underflows, and the pair says nothing about the scale.
        if size > 0.0:
            memory.scale[0] = memory.products[0, memory.newest] / size

    def forget(self) -> None:
        super().forget()
        # D with its lead: it was fitted to the pairs that were just removed.
        self.state.D[...] = 1.0
        self.state.lead[0] = 0.0
        self.memory.scale[0] = 1.0


def fitted_diagonal(memory: PairMemory) -> npt.NDArray[np.float64]:
    """Return D of the formula above over its geometric mean; 1 where the pairs say nothing."""
    own = memory.products[0]
    squares = np.zeros((2, memory.pairs.shape[2]))
    for i in np.flatnonzero(own > 0.0).tolist():
        squares += memory.pairs[:, i].astype(np.float64) ** 2 / own[i]
    # A coordinate that no pair has moved says nothing about its scale.
    known = np.all((squares > 0.0) & (squares < np.inf), axis=0)
    D = np.ones(known.size)
    if known.any():
        # Logarithms, because the ratio of the two sums may overflow.
        logs = np.log(squares[:, known])
        width = 0.5 * (logs[0] - logs[1])
        widest = math.log(WIDEST)
        D[known] = np.exp(np.clip(width - width.mean(), -widest, widest))
    return D


class Curvature(NamedTuple):
    """The state of `SampledMetric`."""

    summary: Array
    """What H0 is made of; its last entry is 0 where there is none."""


@dataclass
class SampledMetric(InverseHessian):
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

    fresh: Array | None
    make: Callable[[Array], Any]

    requires = METRIC_EXTRAS

    @classmethod
    def empty(cls, theta0: Array, curvature: int) -> Curvature:
        # In float64 whatever the precision of theta, because the coordinator factorizes it.
        return Curvature(np.zeros(curvature))

    @classmethod
    def for_commit(
        cls,
        memory: PairMemory,
        state: Any,
        updates: Sequence[Any],
        summary: Array | None,
        commit: Commit,
    ) -> Self:
        # The coordinator's copy of the problem's function remembers its last result, so that H0 is factorized
        # once per summary and not at every product.
        make = commit.inverse_metric_from
        assert make is not None
        # Tested here, because a summary of which no H0 can be made must not replace one that works.
        if summary is not None and make(summary) is None:
            summary = None
        return cls(memory, state, summary, make)

    @property
    def _from_summary(self) -> bool:
        # The last entry counts rows, so that 0 means that there is none.
        return bool(self.state.summary[-1] > 0.0)

    def known(self) -> bool:
        return self._from_summary or super().known()

    def apply(self, v: Array) -> None:
        if not self._from_summary:
            super().apply(v)
            return
        # Into a second array, because a problem's `apply(v, out)` need not allow `out` to be v.
        image = np.empty_like(v)
        self.make(self.state.summary).apply(v, image)
        v[...] = image

    def keep(self) -> None:
        # Not earlier: the summary belongs to the trial, and after a failure the base needs its own H0.
        if self.fresh is not None:
            self.state.summary[...] = self.fresh

    def grow(self) -> None:
        """Remove the pairs: over an H0 that is nearly right, those of a smaller sample do harm."""
        # Without an H0 of summaries the pairs are all that is known, and they stay.
        if self.fresh is not None or self._from_summary:
            self.memory.forget()

    def forget(self) -> None:
        super().forget()
        # H0 may have been at fault; until the next summary the pairs build on a scalar.
        self.state.summary[...] = 0.0
