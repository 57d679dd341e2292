"""The L-BFGS memory: the last M curvature pairs, the rule that admits one, and the product H v.

A pair is a difference of points and of gradients, s = theta - theta' and y = g - g'.  The BFGS matrix H of
the stored pairs on top of an initial inverse H0 approximates the inverse Hessian; H v costs O(M d).

There are two forms, a class each, because two needs exclude each other:

`CompactMemory`, of the paper's methods
    H v from inner products and one small matrix.  One pass over the pairs serves two vectors at once, but the
    small matrix must be made anew with every pair, and H0 must be a scalar or a diagonal that stays.
`RecursiveMemory`, of our own methods, at the coordinator
    H v by the two-loop recursion.  H0 may be any map and may change at any time, because only (s, y) is
    stored.

The forms are algebraically equal, but they add in different orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from asyncqn.algorithms.parameters import InitialScale
from asyncqn.errors import require
from asyncqn.kernels import compact_memory, two_loop
from asyncqn.kernels.compact_memory import (
    ACCEPTED,
    COUNT,
    NEWEST,
    REJECTED,
    admissible,
    next_slot,
)
from asyncqn.kernels.vectors import dot
from asyncqn.parameters import Checked
from asyncqn.types import Array, Counters, Problem, extra

__all__ = ["PairRule", "RecursiveMemory", "Ring", "pair_totals"]

Apply: TypeAlias = Callable[[Array], None]
"""Replaces a vector by H0 times it."""


class PairRule(NamedTuple):
    """The rule that admits a pair (s, y): s != 0, s'y >= epsilon |s|^2 and s'y >= cosine |s| |y|.

    Parameters
    ----------
    epsilon : float
        The constant of the cautious rule (Li and Fukushima 2001), a curvature.
    cosine : float, default 0
        The least cosine of the angle between s and y.  Our own option against pairs that a small sample
        makes wild.

    Notes
    -----
    H stays positive definite because s'y > 0 is required in any case.  Every stochastic gradient contains the
    whole prior, so that with a prior N(0, I) and convex terms s'y >= |s|^2: an epsilon up to 1 then admits
    every pair, and the default of 1e-4 only keeps H positive definite.  To reject pairs that few rows make
    wild, epsilon must be of the order of the curvature that those rows show; the tuner searches it in units
    of the largest curvature.
    """

    epsilon: float
    cosine: float = 0.0


class Ring(NamedTuple):
    """The slots in which a memory stores its pairs: a new pair takes the slot of the oldest."""

    counts: Counters
    """Shape (4,): pairs stored, the slot of the newest, and all pairs ever admitted and refused."""

    @classmethod
    def empty(cls) -> Ring:
        """Return the ring of a memory without pairs."""
        # The newest is -1, so that the next slot is 0.
        return cls(np.array([0, -1, 0, 0], np.int64))

    @property
    def stored(self) -> int:
        """Number of stored pairs."""
        return int(self.counts[COUNT])

    @property
    def newest(self) -> int:
        """The slot of the newest pair; -1 where there is none."""
        return int(self.counts[NEWEST])

    @property
    def accepted(self) -> int:
        """Number of pairs ever admitted."""
        return int(self.counts[ACCEPTED])

    @property
    def rejected(self) -> int:
        """Number of pairs ever refused."""
        return int(self.counts[REJECTED])

    def refuse(self) -> None:
        """Count a pair that was not admitted."""
        self.counts[REJECTED] += 1

    def forget(self) -> None:
        """Empty all slots, but keep the totals of admitted and refused pairs."""
        self.counts[COUNT] = 0
        self.counts[NEWEST] = -1

    def indexes(self, slots: int) -> bool:
        """Return whether the counts of a loaded ring index this number of slots, on which kernels rely."""
        least = 0 if self.stored else -1
        return 0 <= self.stored <= slots and least <= self.newest < slots


class CompactMemory(NamedTuple):
    """Pairs with their inner products, for an H0 that is a scalar or a diagonal; written in place.

    Attributes
    ----------
    pairs : array, shape (2, M, d)
        s_i, and y_i; with a diagonal H0, H0 y_i in the place of y_i.
    gram : array, shape (2, M, M), float64
        s_i'y_j for i not younger than j, and y_i'H0 y_j (H0 = I where it is a scalar).
    middle : array, shape (2 M, 2 M), float64
        The small matrix N of `kernels.compact_memory`.
    scale : array, shape (1,), float64
        c of H0 = c I.
    diagonal : array, shape (d,) or (0,)
        H0, if it is a diagonal; then c is not used.
    ring : Ring
        The slots.
    """

    pairs: Array
    gram: Array
    middle: Array
    scale: Array
    diagonal: Array
    ring: Ring

    @classmethod
    def empty(
        cls,
        size: int,
        theta0: Array,
        scale: InitialScale = 1.0,
        problem: Problem | None = None,
    ) -> CompactMemory:
        """Return a memory for `size` pairs; only `"diagonal"` asks the problem."""
        diagonal = theta0[:0].copy()
        if scale == "diagonal":
            diagonal = _initial_diagonal(problem, theta0)
        return cls(
            # Pairs in the precision of theta; all that is small, and divided by, in float64.
            pairs=np.zeros((2, size, theta0.size), theta0.dtype),
            gram=np.zeros((2, size, size)),
            middle=np.zeros((2 * size, 2 * size)),
            scale=np.array([1.0 if isinstance(scale, str) else float(scale)]),
            diagonal=diagonal,
            ring=Ring.empty(),
        )

    @property
    def matrix(self) -> tuple[Any, ...]:
        """The memory as kernels take it: numba recognises a plain tuple faster than a named one."""
        return (*self[:5], self.ring.counts)

    @property
    def stored(self) -> int:
        """Number of stored pairs."""
        return self.ring.stored

    def sound(self) -> bool:
        """Return whether kernels can work with a loaded memory."""
        return self.ring.indexes(self.pairs.shape[1])

    def consider(
        self,
        rule: PairRule,
        follow: bool,
        theta: Array,
        theta_old: Array,
        g: Array,
        g_old: Array,
    ) -> bool:
        """Admit the pair (theta - theta_old, g - g_old) if the rule allows it.

        Nothing but the slot of the pair is written, so that neither difference needs an array of its own.
        The oldest pair makes room.

        Parameters
        ----------
        follow : bool
            Whether H0 = (s'y / y'y) I of this pair from now on.

        Returns
        -------
        bool
            Whether the pair was admitted.
        """
        # Allocated for each pair: a pair costs two passes over theta, and this is M^2 numbers.
        room = compact_memory.room_for(self.gram)
        return bool(
            compact_memory.consider(
                self.matrix, rule, follow, theta, theta_old, g, g_old, room
            )
        )

    def product(self, v: Array, out: Array) -> Array:
        """Write H v into `out` and return it; out must not overlap v."""
        work = np.empty(2 * len(self.middle))
        compact_memory.product(
            self.pairs, self.middle, self.scale[0], self.diagonal, v, out, work
        )
        return out

    def forget(self) -> None:
        """Remove all pairs; keep H0 and the counts of admitted and refused pairs."""
        # Zeros everywhere: kernels then need no test for empty slots.
        for part in (self.pairs, self.gram, self.middle):
            part[...] = 0
        self.ring.forget()


class RecursiveMemory(NamedTuple):
    """Pairs as they are, on top of any H0; written in place.

    Attributes
    ----------
    pairs : array, shape (2, M, d)
        s_i and y_i.
    products : array, shape (3, M), float64
        s'y, s's and y'y of every slot, 0 in empty ones.
    scale : array, shape (1,), float64
        c of H0, for the H0 to use.
    ring : Ring
        The slots.
    """

    pairs: Array
    products: Array
    scale: Array
    ring: Ring

    @classmethod
    def empty(cls, size: int, theta0: Array) -> RecursiveMemory:
        """Return a memory for `size` pairs."""
        return cls(
            pairs=np.zeros((2, size, theta0.size), theta0.dtype),
            products=np.zeros((3, size)),
            scale=np.ones(1),
            ring=Ring.empty(),
        )

    @property
    def stored(self) -> int:
        """Number of stored pairs."""
        return self.ring.stored

    @property
    def newest(self) -> int:
        """The slot of the newest pair; -1 where there is none."""
        return self.ring.newest

    def sound(self) -> bool:
        """Return whether kernels can work with a loaded memory."""
        return self.ring.indexes(self.pairs.shape[1])

    def admit(self, rule: PairRule, s: Array, y: Array) -> bool:
        """Admit the pair (s, y) if the rule allows it and return whether; the oldest pair makes room."""
        sy = dot(s, y)
        ss = dot(s, s)
        yy = dot(y, y)
        if not admissible(ss, sy, yy, rule.epsilon, rule.cosine):
            self.ring.refuse()
            return False
        slot = next_slot(self.ring.counts, self.pairs.shape[1])
        self.pairs[0, slot] = s
        self.pairs[1, slot] = y
        self.products[:, slot] = (sy, ss, yy)
        return True

    def product(self, v: Array, out: Array, apply: Apply) -> Array:
        """Write H v into `out`, in its precision, and return it; out must not overlap v.

        Parameters
        ----------
        apply : callable
            Replaces a vector by H0 times it.
        """
        own = self.products[0]
        newest = self.newest
        shares = np.zeros(own.size)
        out[...] = v
        if newest >= 0:
            two_loop.first_loop(self.pairs, own, newest, out, shares)
        # H0 between the two loops; without pairs it is all of H.
        apply(out)
        if newest >= 0:
            two_loop.second_loop(self.pairs, own, newest, shares, out)
        return out

    def softness(self) -> float:
        """Return the largest s's / s'y in memory, one over the least curvature; infinite without any pair."""
        own, lengths = self.products[:2]
        filled = own > 0.0
        return float(np.max(lengths[filled] / own[filled], initial=0.0)) or math.inf

    def forget(self) -> None:
        """Remove all pairs; keep c and the counts of admitted and refused pairs."""
        self.pairs[...] = 0
        self.products[...] = 0
        self.ring.forget()


def _initial_diagonal(problem: Problem | None, theta0: Array) -> Array:
    """Return 1 / curvature_diagonal(theta0), checked."""
    diagonal = np.asarray(
        extra(problem, "curvature_diagonal")(theta0), dtype=theta0.dtype
    )
    require(
        diagonal.shape == theta0.shape
        and bool(np.all(diagonal > 0) and np.all(np.isfinite(diagonal))),
        "curvature_diagonal(theta) must return one positive finite number per coordinate of theta.",
    )
    return 1.0 / diagonal


def pair_totals(rings: Iterable[Ring]) -> dict[str, int]:
    """Return how many pairs were admitted and refused in all: an algorithm's `counters`."""
    counts = [(ring.accepted, ring.rejected) for ring in rings]
    accepted, rejected = (sum(column) for column in zip((0, 0), *counts))
    return {"pairs_accepted": accepted, "pairs_rejected": rejected}


class CompactMemories(Checked):
    """Base of the algorithms with compact memories, those of the paper.

    A worker keeps its memory as `Worker.memory`; mb-L-BFGS keeps its one memory at the master.
    """

    memory: int
    epsilon: float
    initial_scale: InitialScale
    cosine_floor: float = 0.0

    @cached_property
    def rule(self) -> PairRule:
        """The rule that admits a pair."""
        return PairRule(self.epsilon, self.cosine_floor)

    @property
    def requires(self) -> tuple[str, ...]:
        """Extras that the problem must offer."""
        return ("curvature_diagonal",) if self.initial_scale == "diagonal" else ()

    def empty_memory(
        self, theta0: Array, problem: Problem | None = None
    ) -> CompactMemory:
        """Return a memory without pairs."""
        return CompactMemory.empty(self.memory, theta0, self.initial_scale, problem)

    def consider(
        self,
        memory: CompactMemory,
        theta: Array,
        theta_old: Array,
        g: Array,
        g_old: Array,
    ) -> bool:
        """Offer the pair (theta - theta_old, g - g_old); return whether it was admitted."""
        follow = self.initial_scale == "pair"
        return memory.consider(self.rule, follow, theta, theta_old, g, g_old)

    def clear(self, memory: CompactMemory) -> None:
        """Remove all pairs, and with them the H0 that follows the newest."""
        memory.forget()
        if self.initial_scale == "pair":
            # H0 followed a pair that is gone; before the first pair it is I.
            memory.scale[0] = 1.0

    def forget(self, local: Any) -> Any:
        """Empty a worker's memory, and what it kept of its previous step."""
        self.clear(local.memory)
        # The next step must not form a pair with the one whose update was rejected.
        local.steps[0] = 0
        return local

    def counters(self, iterate: Any, locals_: Sequence[Any]) -> dict[str, int]:
        """Return the totals of all workers' memories."""
        return pair_totals(local.memory.ring for local in locals_)
