"""H0 = c F^-1, about the inverse covariance of the updates, which costs nothing: the updates are there.

    F <- F + w (x x' / 2 - F),    x = update - the update before,    w = 1 / min(k, WINDOW)
    H0 = c [(1 - a) F + a diag F]^-1,    a = 1 / (1 + (k / d)^p)     k differences seen, k at most WINDOW
    c = s'y / y'F^-1 y                                               of the newest pair

Consecutive differences overlap, and k of them tell no more than 2 k / 3 updates would whose mean is known.
The centred table, which steps by F while there are few, takes the deviation of an update from a running mean
of those before it, in which the newest weighs `RATE`: x x' / (1 + v) in place of x x' / 2, with v the
variance of that mean over the variance of an update.

For a negative log-likelihood the covariance of a row's gradient is its mean curvature, at the truth (the
information equality), so that F is about a multiple of the Hessian; curvature pairs correct the rest.  A
matrix of k differences has no more rank than k, so a share a is taken off its off-diagonal entries.  Where
features are rotated that hides directions which are flatter than the mean by more than a, and only pairs find
them.  A method with a pair after every pass does best with a smooth H0, p = 1; the table, whose pairs are
few, needs F as it is once there are some d of differences: p = 2 (to 0.1 % in 1.2 passes instead of 13).
Where theta has more than `LONGEST_MATRIX` numbers only the diagonal of F is kept.

No direction is taken to be flatter than the stiffest coordinate by more than k^2.  The table takes k^1.5: a
prior has curvature too, which does not scatter, and where it exceeds that of the data steps by F alone are
many times too long; one pair after the other would mend them, which takes long where workers are many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.exact.inverse import InitialInverse
from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.kernels.gram import cholesky, solve
from asyncqn.kernels.scatter import (
    note_deviation,
    note_difference,
    note_products,
    shrink_products,
)
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array, Commit, Counters

LONGEST_MATRIX, WINDOW = 200, 1000
"""Numbers in theta up to which F is a whole matrix: its factor costs d^3, and the coordinator computes it.
Differences over which F forgets: an exponential mean replaces the plain one from there on."""
FIRST_DIFFERENCES = 4
"""Differences before H0 is made for the first time."""
RATE = 0.25
"""The weight of the newest update in the running mean: it follows theta within a few updates."""
RENEWAL = 1.25
"""Growth of the number of updates seen at which H0 is made anew.  A geometric sequence: a run of K updates
factors F some log K times."""


class ScatterMatrix(NamedTuple):
    """F with all that makes H0 of it: the state of `ScatterInverse`.

    F and `factor` are (d, d), in and below the diagonal, or (1, d) where only the diagonal is kept.
    """

    F: npt.NDArray[np.float64]
    factor: npt.NDArray[np.float64]
    """The triangular factor of what is inverted, or what is inverted itself where it is a diagonal."""
    last: npt.NDArray[np.float64]
    """Shape (d,): the update before, or the running mean of those before."""
    seen: Counters
    """Shape (1,): updates seen."""
    factored: Counters
    """Shape (1,): how many had been seen when H0 was last made; 0: never."""

    @classmethod
    def empty(cls, theta0: Array) -> ScatterMatrix:
        """Return the state before any update."""
        d = theta0.size
        shape = (d, d) if d <= LONGEST_MATRIX else (1, d)
        return cls(
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(d),
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
        )

    @property
    def known(self) -> bool:
        """Return whether H0 was made."""
        return bool(self.factored[0] > 0)

    @property
    def whole(self) -> bool:
        """Return whether F is a matrix, and not only its diagonal."""
        return len(self.F) == self.last.size

    def note(self, update: Array) -> None:
        """Add the difference of an update from the one before; all updates must be scaled alike."""
        self.seen[0] += 1
        if self.seen[0] == 1:
            self.last[:] = update
            return
        # The first weight is 1, so that what F held before does not matter: `drop` need not clear it.
        weight = 1.0 / min(int(self.seen[0]) - 1, WINDOW)
        if self.whole:
            note_products(self.F, self.last, update, weight)
        else:
            note_difference(self.F[0], self.last, update, weight)

    def note_deviation(self, update: Array) -> None:
        """Add the deviation of an update from the running mean; all updates must be scaled alike."""
        note_deviation(self.F, self.last, self.seen, update, WINDOW, RATE)

    def note_version(self, updates: Sequence[Array]) -> None:
        """Add the differences of the updates of all parts at one point: they differ by their rows alone."""
        if len(updates) > 1:
            # Not the last update of the version before: theta has moved since, and the change is no scatter.
            self.last[:] = updates[0]
            self.seen[0] = max(int(self.seen[0]), 1)
            for update in updates[1:]:
                self.note(update)

    def renew(self, p: float = 1.0, flattest: float = 2.0) -> bool:
        """Rebuild H0 from the observed scatter if that pays; return whether it was rebuilt.

        No direction is taken to be flatter than the stiffest coordinate by more than k^flattest.
        """
        F = self.F
        factor = self.factor
        seen = int(self.seen[0])
        k = seen - 1
        if k < FIRST_DIFFERENCES or seen < RENEWAL * self.factored[0]:
            return False
        stiffest = float((np.diagonal(F) if self.whole else F[0]).max())
        if not 0.0 < stiffest < np.inf:
            return False
        # Without the floor a coordinate that has not varied yet would get an infinite step.
        floor = stiffest / min(k, WINDOW) ** flattest
        if self.whole:
            share = 1.0 / (1.0 + (min(k, WINDOW) / F.shape[1]) ** p)
            shrink_products(F, share, floor, factor)
            # Rounding can make F indefinite.  The share tends to 1, where only the positive diagonal is left.
            while not cholesky(factor):
                share = 0.5 * (1.0 + share)
                shrink_products(F, share, floor, factor)
        else:
            np.add(F, floor, out=factor)
        self.factored[0] = seen
        return True

    def solve(self, v: Array) -> None:
        """Replace v by H0 v / c, which is v itself before H0 was made."""
        if self.known and self.whole:
            solve(self.factor, v)
        elif self.known:
            v /= self.factor[0]

    def size(self, s: Array) -> float:
        """Return s'F s, F as it is inverted."""
        wide = s.astype(np.float64)
        if not self.whole:
            return float(dot(wide * wide, self.factor[0]))
        # |L's|^2 with the lower factor L.  Not by `@`, which calls BLAS: its bits change with its threads.
        image = (np.tril(self.factor) * wide[:, None]).sum(axis=0)
        return float(dot(image, image))

    def drop(self) -> None:
        """Forget all updates: H0 = c I until there are others."""
        self.seen[0] = self.factored[0] = 0


@dataclass
class ScatterInverse(InitialInverse):
    """H0 = c F^-1; c I while there is no F.  Products are computed in double precision.

    Parameters
    ----------
    belief : float, default 1
        p: how soon the scatter is believed.
    cautious : bool, default False
        Whether c, where there is an F, rises only half way (in its logarithm) to what the newest pair says,
        and fewer directions are taken to be flat.
    at_fault : bool, default False
        Whether the scatter is dropped, too, where steps kept failing.
    trusted : bool, default True
        Whether F is used at all; else H0 = c I.
    """

    state: ScatterMatrix
    belief: float = 1.0
    cautious: bool = False
    at_fault: bool = False
    trusted: bool = True

    @classmethod
    def empty(cls, theta0: Array, curvature: int) -> ScatterMatrix:
        return ScatterMatrix.empty(theta0)

    @classmethod
    def for_commit(
        cls, state: Any, updates: Sequence[Any], summary: Array | None, commit: Commit
    ) -> Self:
        if all(update.finite for update in updates):
            state.note_version([update.g for update in updates])
        return cls(state)

    def product(self, memory: PairMemory, at: Array, out: Array) -> None:
        out[...] = self.times(memory, at[0])

    def times(self, memory: PairMemory, v: Array) -> npt.NDArray[np.float64]:
        """Return H v in double precision."""
        # Another F asks for another c.  The cautious table keeps c until the next pair: see `follow`.
        if (
            self.state.renew(self.belief, 1.5 if self.cautious else 2.0)
            and not self.cautious
        ):
            self.follow(memory)
        # The recursion computes in the precision of its output: F^-1 may be too ill-conditioned for float32.
        product: npt.NDArray[np.float64] = np.empty(v.size)
        memory.product(v, product, lambda rest: self.apply(memory, rest))
        return product

    def apply(self, memory: PairMemory, v: Array) -> None:
        if self.trusted:
            self.state.solve(v)
        v *= memory.scale[0]

    def gain(self, s: Array, y: Array) -> float:
        """Return how much better F^-1 fits a pair than I does, as the logarithm of the ratio of the fits.

        The fit of a matrix D is (s'y)^2 / (s'D^-1 s  y'D y), which is 1 where s = c D y.
        """
        if not self.state.known:
            return 0.0
        # (s'y)^2 is in both fits and cancels.
        s, y = s.astype(np.float64), y.astype(np.float64)
        image = y.copy()
        self.state.solve(image)
        sFs = self.state.size(s)
        yHy = dot(y, image)
        plain = dot(s, s) * dot(y, y)
        return math.log(plain / (sFs * yHy)) if sFs * yHy > 0.0 and plain > 0.0 else 0.0

    def follow(self, memory: PairMemory) -> None:
        """Set c by the newest pair."""
        newest = memory.newest
        if newest < 0:
            return
        y = memory.pairs[1, newest].astype(np.float64)
        image = y.copy()
        if self.trusted:
            self.state.solve(image)
        size = dot(y, image)
        if 0.0 < size < math.inf:
            said, before = memory.products[0, newest] / size, float(memory.scale[0])
            # Too large a c throws theta further out with every update, too small a one costs a few updates.
            rises = (
                self.cautious and self.trusted and self.state.known and said > before
            )
            # Two roots: the product of two large numbers may overflow.
            memory.scale[0] = math.sqrt(before) * math.sqrt(said) if rises else said

    def forget(self, memory: PairMemory) -> None:
        """Keep c until the next pair sets it, and the scatter, unless it may be at fault."""
        if self.at_fault:
            self.state.drop()
