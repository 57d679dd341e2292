"""H0, the matrix on which the curvature pairs build, and H, both together as the safeguard uses them.

An L-BFGS matrix is the BFGS update of an initial inverse H0 by the stored pairs.  The better H0 approximates
the inverse Hessian, the fewer pairs are needed.  The kinds of H0:

- `ScalarInverse` (in this file): c I, from the newest pair.
- `LearnedDiagonal` (in this file): c D, from all stored pairs.
- `ScatterInverse` (`scatter_inverse`): c F^-1, from differences of the updates.
- `SampledMetric` (`metric_lbfgs`): from the curvature of the model, summed over a sample.
- `StructuredMetric` (`stochastic_start`): from the curvature of a factorization; the workers apply it.

A kind states what it needs: of a problem (`requires`), and of an update (`summary_size` numbers beside the
gradient, which `evaluate` computes at the worker).  Its state is a NamedTuple in the iterate; an object of
the kind is made for one commit from that state and the updates, and writes the state in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from asyncqn.algorithms.pair_memory import PairRule, RecursiveMemory
from asyncqn.errors import require
from asyncqn.kernels.two_loop import fit_diagonal, weighed
from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array, Commit, Rows, extra

COSINE = 1e-5
"""Least cosine of the angle between s and y.  Pairs of any scale are admitted, so this alone decides."""
# The pairs together must favour D by e^3, a factor of 20; with a decay of 0.9 about the last ten pairs count.
MIN_LEAD, LEAD_DECAY = 3.0, 0.9
"""Value of the sum of logarithms above which D is used, and its decay with every new pair."""
MAX_RATIO = 1e12
"""Largest factor between an entry of D and the geometric mean of all."""


SUMMARIES: tuple[str, ...] = (
    "curvature_size",
    "grad_with_curvature",
    "inverse_metric_from",
)
"""Extras of a problem whose curvature comes in summaries."""
Updates = Sequence[Any]
Evaluated = tuple[Array, float, bool]
"""The gradient, U, and whether they are finite."""


class Sampled(NamedTuple):
    """Rows that a worker evaluates: `rows`, a `share` of a sample of `sample` rows."""

    rows: Rows
    sample: int

    @property
    def share(self) -> float:
        # The shares of all parts of a sample sum to 1, so that the prior, which is in every estimate, counts
        # once.
        return self.rows.size / self.sample


class NoState(NamedTuple):
    """The state of an H0 that the pairs alone determine."""


@dataclass
class ScalarInverse:
    """H0 = c I, c = s'y / y'y of the newest pair; and the interface of every other kind of H0.

    Methods that a kind does not override do what suits c I.  `memory` is the pair memory on top of this H0;
    its `scale` is c.
    """

    state: Any

    requires: ClassVar[tuple[str, ...]] = ()
    """Extras that the problem must offer."""
    vectors: ClassVar[int] = 1
    """How many vectors it needs of a point: the gradient, and perhaps its image."""

    @classmethod
    def empty(cls, theta0: Array, summary_size: int) -> Any:
        """Return the state before anything is known."""
        return NoState()

    @classmethod
    def empty_memory(cls, size: int, theta0: Array) -> RecursiveMemory:
        """Return a memory without pairs, in the form that this kind needs."""
        return RecursiveMemory.empty(size, theta0)

    @classmethod
    def check(cls, problem: Any, summary_size: int) -> None:
        """Raise `BadInput` where the problem's summaries of the curvature have another size."""
        # Kinds that ask for no summary accept any size: they compare it with itself.
        own = (
            extra(problem, "curvature_size")
            if "curvature_size" in cls.requires
            else summary_size
        )
        require(
            summary_size == own,
            f"curvature must be the problem's {own}, not {summary_size}.",
        )

    @classmethod
    def for_commit(
        cls, state: Any, updates: Updates, summary: Array | None, commit: Commit
    ) -> Self:
        """Return H0 with what the updates of a commit tell.

        Parameters
        ----------
        state : NamedTuple
            As `empty` makes it.
        updates : sequence
            All updates of the commit.
        summary : array or None
            The sum of their summaries; None where none was asked for, or where an update was not finite.
        commit : Commit
            What the coordinator knows.
        """
        return cls(state)

    @classmethod
    def evaluate(
        cls, problem: Any, theta: Array, at: Sampled, summary: Array
    ) -> Evaluated:
        """Return a worker's share of the gradient and of U, and whether they are finite.

        summary: zeros, to be filled with this share of the curvature; empty where none is asked for.
        """
        return share_of(problem, theta, at.rows, at.share)

    def known(self, memory: RecursiveMemory) -> bool:
        """Return whether H has a scale, so that H g is a step."""
        return memory.stored > 0

    def apply(self, memory: RecursiveMemory, v: Array) -> None:
        """Replace v by H0 v."""
        # In the precision of theta: `scale` is float64.
        v *= v.dtype.type(memory.scale[0])

    def product(self, memory: RecursiveMemory, at: Array, out: Array) -> None:
        """Write H g into `out`; at: the gradient, and what else the kind needs of the point, row by row."""
        # The recursive form of the memory applies H0 between its two loops.
        memory.product(at[0], out, lambda v: self.apply(memory, v))

    def offer(self, memory: RecursiveMemory, s: Array, y: Array) -> bool:
        """Look at a pair before it is judged; return whether pairs are of any use now."""
        return True

    def follow(self, memory: RecursiveMemory) -> None:
        """Take account of the newest pair, which has just been admitted."""
        # An admitted pair has s'y > 0, and so y'y > 0.
        sy, _, yy = memory.products[:, memory.newest].tolist()
        memory.scale[0] = sy / yy

    def accept(self, memory: RecursiveMemory) -> None:
        """The trial was accepted: the moment to change H0."""

    def grow(self, memory: RecursiveMemory) -> None:
        """The sample has grown: drop what does not serve on a larger one."""

    def forget(self, memory: RecursiveMemory) -> None:
        """The steps kept failing and the pairs were removed: drop what may have been at fault."""


class Diagonal(NamedTuple):
    """The state of `LearnedDiagonal`."""

    D: Array
    """Shape (d,)."""
    lead: Array
    """Shape (1,): the sum of the logarithms, which tells whether D is used."""


@dataclass
class LearnedDiagonal(ScalarInverse):
    """H0 = c D, a diagonal that the pairs teach, where D fits them better than I; else c I.

    Notes
    -----
    D is what the stored pairs say of each coordinate j,

        D_j^2 = sum_i (s_ij^2 / s_i'y_i) / sum_i (y_ij^2 / s_i'y_i),

    which is right for D = diag(1 / x_j^2) when the coordinates of theta are measured in units x_j that differ
    by orders of magnitude: the method then hardly notices the units.  c = s'y / y'D y of the newest pair.

    A diagonal is of no use where the curvature does not lie along the coordinates, so every new pair is a
    test.  For a matrix D that fits a pair exactly, s = c D y, the quotient

        fit(D) = (s'y)^2 / (s'D^-1 s  y'D y) <= 1

    is 1.  D of the earlier pairs is compared with I: the logarithms of fit(D) / fit(I) are summed, older ones
    fading, and D = I is used as long as the sum is below `MIN_LEAD`.  D, the test and the constants are our
    own.
    """

    state: Diagonal

    @classmethod
    def empty(cls, theta0: Array, summary_size: int) -> Diagonal:
        # An array even for the one number, because the state is written in place.
        return Diagonal(np.ones_like(theta0), np.zeros(1))

    @property
    def _in_use(self) -> bool:
        # D is fitted whether it is in use or not: otherwise it could never win the lead.
        return bool(self.state.lead[0] > MIN_LEAD)

    def apply(self, memory: RecursiveMemory, v: Array) -> None:
        scale = v.dtype.type(memory.scale[0])
        v *= scale * self.state.D if self._in_use else scale

    def offer(self, memory: RecursiveMemory, s: Array, y: Array) -> bool:
        """Test whether D of the pairs so far fits this one better than I does."""
        # Before the first pair D says nothing that could be tested.
        if memory.stored > 0:
            # D does not contain this pair yet, as `follow` comes after admission: a D fitted to the pair
            # would be favoured by the test.
            (_, sDs), (yDy, _) = weighed(s, self.state.D), weighed(y, self.state.D)
            # fit(D) / fit(I): (s'y)^2 cancels.
            gain = (
                (dot(s, s) / sDs) * (dot(y, y) / yDy)
                if sDs > 0.0 and yDy > 0.0
                else 0.0
            )
            # A pair whose products overflow or vanish tells nothing.
            if 0.0 < gain < math.inf:
                self.state.lead[0] = LEAD_DECAY * self.state.lead[0] + math.log(gain)
        return True

    def follow(self, memory: RecursiveMemory) -> None:
        D, (sy, _, yy) = self.state.D, memory.products[:, memory.newest].tolist()
        # From all stored pairs anew, because the oldest may just have made room.  The two arrays of zeros are
        # room for sums.
        fit_diagonal(
            memory.pairs,
            memory.products[0],
            MAX_RATIO,
            D,
            np.zeros(D.size),
            np.zeros(D.size),
        )
        # c must belong to the H0 in use: either s'y / y'D y or s'y / y'y.
        memory.scale[0] = sy / (
            weighed(memory.pairs[1, memory.newest], D)[0] if self._in_use else yy
        )

    def forget(self, memory: RecursiveMemory) -> None:
        # D with its lead: it was fitted to the pairs that were just removed.
        self.state.D[...], self.state.lead[0], memory.scale[0] = 1.0, 0.0, 1.0


@dataclass
class InverseHessian:
    """H, the BFGS matrix of the stored pairs on top of H0: a `safeguard.Metric`."""

    memory: RecursiveMemory
    initial: ScalarInverse
    rule: PairRule

    def direction(self, at: Array, out: Array) -> bool:
        """Write H g into `out`; return False where H has no scale yet."""
        # The safeguard then takes a scaled gradient step.
        if not self.initial.known(self.memory):
            return False
        self.initial.product(self.memory, at, out)
        return True

    def learn(self, s: Array, change: Array) -> bool:
        """Offer the pair (s, change of `at`); return whether it was admitted."""
        # Where `offer` refuses, the pair does not count as rejected.
        if not (
            self.initial.offer(self.memory, s, change[0])
            and self.memory.admit(self.rule, s, *change)
        ):
            return False
        self.initial.follow(self.memory)
        return True

    def forget(self) -> None:
        """Remove the pairs, and of H0 what may have been at fault."""
        self.memory.forget()
        self.initial.forget(self.memory)

    def softness(self) -> float:
        """Return the largest s's / s'y in memory; infinite where it is empty."""
        return self.memory.softness()

    def keep(self) -> None:
        """The trial was accepted."""
        self.initial.accept(self.memory)


def share_of(problem: Any, theta: Array, rows: Rows, share: float) -> Evaluated:
    """Return `share` of the estimates of the gradient and of U from `rows`, and whether they are finite.

    U is NaN where the problem offers neither `grad_with_value` nor `value_rows`.
    """
    g, value = np.empty_like(theta), math.nan
    both, value_rows = (
        extra(problem, name) for name in ("grad_with_value", "value_rows")
    )
    # One pass over the rows for both where the problem offers it; `value_rows` costs a second one.
    if both is not None:
        value = share * float(both(theta, rows, g))
    else:
        problem.grad(theta, rows, g)
        if value_rows is not None:
            value = share * float(value_rows(theta, rows))
    g *= share
    # Without a value U is NaN by design, which does not mean that theta is bad.
    silent = both is None and value_rows is None
    finite = math.isfinite(sum_of_squares(g)) and (silent or math.isfinite(value))
    if not finite:  # the coordinator must hear of it, to turn back
        g[...] = 0.0
    return g, value, finite
