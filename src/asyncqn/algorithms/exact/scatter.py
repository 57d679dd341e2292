"""H0 = c F^-1, about the inverse covariance of the updates, which costs nothing: the updates are there.

    F <- F + w (x x' / (1 + v) - F),    w = 1 / min(k, WINDOW)
    H0 = c [(1 - a) F + a diag F]^-1,    a = 1 / (1 + (k / d)^p)     k deviations seen, k at most WINDOW
    c = s'y / y'F^-1 y                                               of the newest pair

x is the deviation of an update from a mean, and v the variance of that mean over the variance of an update.
Where all updates are of one point their own mean serves.  The table takes a running mean of the updates
before, in which the newest weighs `RATE`, and steps by F while there are few.

For a negative log-likelihood the covariance of a row's gradient is its mean curvature, at the truth (the
information equality), so that F is about a multiple of the Hessian; curvature pairs correct the rest.  A
matrix of k deviations has no more rank than k, so a share a is taken off its off-diagonal entries.  Where
features are rotated that hides directions which are flatter than the mean by more than a, and only pairs find
them.  A method with a pair after every pass does best with a smooth H0, p = 1; the table, whose pairs are
few, needs F as it is once there are some d of deviations: p = 2 (to 0.1 % in 1.2 passes instead of 13).
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

from asyncqn.algorithms.exact.inverse import InverseHessian
from asyncqn.algorithms.pair_memory import PairMemory
from asyncqn.kernels.gram import add_outer, cholesky, solve
from asyncqn.kernels.vectors import dot
from asyncqn.types import Array, Commit, Counters

LONGEST_MATRIX, WINDOW = 200, 1000
"""Numbers in theta up to which F is a whole matrix: its factor costs d^3, and the coordinator computes it.
Deviations over which F forgets: an exponential mean replaces the plain one from there on."""
FIRST_DEVIATIONS = 4
"""Deviations before H0 is made for the first time."""
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
    mean: npt.NDArray[np.float64]
    """Shape (d,): the running mean of the updates."""
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
        return len(self.F) == self.mean.size

    def note_deviation(self, update: Array) -> None:
        """Add the deviation of an update from the running mean; all updates must be scaled alike."""
        before = int(self.seen[0])
        self.seen[0] += 1
        if before == 0:
            self.mean[:] = update
            return
        # v of a plain mean while updates are few, then of an exponential one.  Update and mean count as
        # independent, so the expectation of x x' is 1 + v times the covariance of an update.
        variance = max(1.0 / before, RATE / (2.0 - RATE))
        x = update - self.mean
        self.mean[:] += max(1.0 / (before + 1), RATE) * x
        self._add(x, 1.0 / (1.0 + variance))

    def note_version(self, updates: Sequence[Array]) -> None:
        """Add the deviations of the updates of all parts at one point: they differ by their rows alone."""
        parts = len(updates)
        if parts < 2:
            return
        mean = sum(updates) / parts
        # The deviations count one less than there are updates, as for a running mean.
        self.seen[0] = max(int(self.seen[0]), 1)
        for update in updates[1:]:
            self.seen[0] += 1
            self._add(update - mean, parts / (parts - 1.0))

    def _add(self, x: Array, share: float) -> None:
        """F += w (share x x' - F)."""
        # The first weight is 1, so that what F held before does not matter: `drop` need not clear it.
        weight = 1.0 / min(int(self.seen[0]) - 1, WINDOW)
        x = x.astype(np.float64)
        if self.whole:
            add_outer(self.F, x, share, weight)
        else:
            self.F[...] += weight * (share * x * x - self.F)

    def renew(self, p: float, flattest: float) -> bool:
        """Rebuild H0 from the observed scatter if that pays; return whether it was rebuilt.

        No direction is taken to be flatter than the stiffest coordinate by more than k^flattest.
        """
        F = self.F
        seen = int(self.seen[0])
        k = seen - 1
        if k < FIRST_DEVIATIONS or seen < RENEWAL * self.factored[0]:
            return False
        stiffest = float((np.diagonal(F) if self.whole else F[0]).max())
        if not 0.0 < stiffest < np.inf:
            return False
        # Without the floor a coordinate that has not varied yet would get an infinite step.
        floor = stiffest / min(k, WINDOW) ** flattest
        if self.whole:
            share = 1.0 / (1.0 + (min(k, WINDOW) / F.shape[1]) ** p)
            self._shrink(share, floor)
            # Rounding can make F indefinite.  The share tends to 1, where only the positive diagonal is left.
            while not cholesky(self.factor):
                share = 0.5 * (1.0 + share)
                self._shrink(share, floor)
        else:
            np.add(F, floor, out=self.factor)
        self.factored[0] = seen
        return True

    def _shrink(self, share: float, floor: float) -> None:
        """Set factor = (1 - share) F + share diag F + floor I."""
        np.multiply(self.F, 1.0 - share, out=self.factor)
        np.fill_diagonal(self.factor, np.diagonal(self.F) + floor)

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

    def gain(self, s: Array, y: Array) -> float:
        """Return how much better F^-1 fits a pair than I does, as the logarithm of the ratio of the fits.

        The fit of a matrix D is (s'y)^2 / (s'D^-1 s  y'D y), which is 1 where s = c D y.
        """
        if not self.known:
            return 0.0
        # (s'y)^2 is in both fits and cancels.
        s, y = s.astype(np.float64), y.astype(np.float64)
        image = y.copy()
        self.solve(image)
        sFs = self.size(s)
        yHy = dot(y, image)
        plain = dot(s, s) * dot(y, y)
        return math.log(plain / (sFs * yHy)) if sFs * yHy > 0.0 and plain > 0.0 else 0.0

    def drop(self) -> None:
        """Forget all updates: H0 = c I until there are others."""
        self.seen[0] = self.factored[0] = 0


@dataclass
class ScatterInverse(InverseHessian):
    """H0 = c F^-1; c I while there is no F.  Products are computed in double precision.

    Parameters
    ----------
    cautious : bool, default False
        Whether c, where there is an F, rises only half way (in its logarithm) to what the newest pair says,
        fewer directions are taken to be flat, and F is believed sooner: for the steps of the table.
    """

    cautious: bool = False

    @classmethod
    def empty(cls, theta0: Array, curvature: int) -> ScatterMatrix:
        return ScatterMatrix.empty(theta0)

    @classmethod
    def for_commit(
        cls,
        memory: PairMemory,
        state: Any,
        updates: Sequence[Any],
        summary: Array | None,
        commit: Commit,
    ) -> Self:
        if all(update.finite for update in updates):
            state.note_version([update.g for update in updates])
        return cls(memory, state)

    def direction(self, at: Array, out: Array) -> bool:
        known = self.known()
        if known:
            out[...] = self.times(at[0])
        return known

    def times(self, v: Array) -> npt.NDArray[np.float64]:
        p, flattest = (2.0, 1.5) if self.cautious else (1.0, 2.0)
        # Another F asks for another c.  The cautious table keeps c until the next pair.
        if self.state.renew(p, flattest) and not self.cautious:
            self.follow()
        return super().times(v)

    def apply(self, v: Array) -> None:
        self.state.solve(v)
        super().apply(v)

    def follow(self) -> None:
        """Set c by the newest pair."""
        memory, newest = self.memory, self.memory.newest
        if newest < 0:
            return
        y = memory.pairs[1, newest].astype(np.float64)
        image = y.copy()
        self.state.solve(image)
        size = dot(y, image)
        if not 0.0 < size < math.inf:
            return
        said, before = memory.products[0, newest] / size, float(memory.scale[0])
        # Too large a c throws theta further out with every update, too small a one costs a few updates.
        rises = self.cautious and self.state.known and said > before
        # Two roots: the product of two large numbers may overflow.
        memory.scale[0] = math.sqrt(before) * math.sqrt(said) if rises else said

    def forget(self) -> None:
        """Drop the scatter with the pairs: it may have been at fault."""
        super().forget()
        self.state.drop()
