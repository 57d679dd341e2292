"""H0, the matrix on which the curvature pairs build, and H, both together as the safeguard uses them.

An L-BFGS matrix is the BFGS update of an initial inverse H0 by the stored pairs.  The better H0 approximates
the inverse Hessian, the fewer pairs are needed.  A kind of H0 has a state, a NamedTuple of arrays in the
iterate; an object of the kind is made for one commit around that state and writes it in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from asyncqn.algorithms.pair_memory import PairMemory, PairRule
from asyncqn.types import Array, Commit

COSINE = 1e-5
"""Least cosine of the angle between s and y."""
# Pairs of any scale are admitted: epsilon is a curvature, and no value of it would suit every problem.
RULE = PairRule(epsilon=0.0, cosine=COSINE)


@dataclass
class InitialInverse:
    """H0 = c I with c of the newest pair, and the interface of the other kinds, which override what differs.

    `memory` is the pair memory on top of this H0; its `scale` is c.
    """

    state: Any

    requires: ClassVar[tuple[str, ...]] = ()
    """Extras that the problem must offer."""

    @classmethod
    def empty(cls, theta0: Array, curvature: int) -> Any:
        """Return the state before anything is known; curvature: the length of a summary."""
        return ()

    @classmethod
    def for_commit(
        cls, state: Any, updates: Sequence[Any], summary: Array | None, commit: Commit
    ) -> Self:
        """Return H0 with what the updates of a commit tell.

        Parameters
        ----------
        state : NamedTuple
            As `empty` makes it.
        updates : sequence
            All updates of the commit, in the order of their parts.
        summary : array or None
            The sum of their summaries; None where none was asked for, or where an update was not finite.
        commit : Commit
            What the coordinator knows.
        """
        return cls(state)

    def known(self, memory: PairMemory) -> bool:
        """Return whether H has a scale, so that H g is a step."""
        return memory.stored > 0

    def apply(self, memory: PairMemory, v: Array) -> None:
        """Replace v by H0 v."""
        # In the precision of theta: `scale` is float64.
        v *= v.dtype.type(memory.scale[0])

    def product(self, memory: PairMemory, at: Array, out: Array) -> None:
        """Write H g into `out`; at: the gradient, and what else the kind needs of the point, row by row."""
        memory.product(at[0], out, lambda v: self.apply(memory, v))

    def offer(self, memory: PairMemory, s: Array, y: Array) -> bool:
        """Look at a pair before it is judged; return whether pairs are of any use now."""
        return True

    def follow(self, memory: PairMemory) -> None:
        """Take account of the newest pair, which has just been admitted."""
        memory.rescale()

    def accept(self, memory: PairMemory) -> None:
        """The trial was accepted: the moment to change H0."""

    def grow(self, memory: PairMemory) -> None:
        """The sample has grown: drop what does not serve on a larger one."""

    def forget(self, memory: PairMemory) -> None:
        """The steps kept failing and the pairs were removed: drop what may have been at fault."""


@dataclass
class InverseHessian:
    """H, the BFGS matrix of the stored pairs on top of H0: a `safeguard.Inverse`."""

    memory: PairMemory
    initial: InitialInverse
    rule: PairRule = RULE

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
        useful = self.initial.offer(self.memory, s, change[0])
        if not useful or not self.memory.admit(self.rule, s, *change):
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
