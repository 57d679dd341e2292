"""The L-BFGS memory: the last M curvature pairs, the rule that admits one, and the product H v.

A pair is a difference of points and of gradients, s = theta - theta' and y = g - g'.  The BFGS matrix H of
the stored pairs on top of an initial inverse H0 approximates the inverse Hessian.  The two-loop recursion
computes H v in O(M d); H0 may be any map and may change at any time, because only (s, y) is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncqn.algorithms.parameters import InitialScale
from asyncqn.errors import require
from asyncqn.kernels import two_loop
from asyncqn.kernels.vectors import dot
from asyncqn.parameters import Checked
from asyncqn.types import Array, Counters, Problem, extra

__all__ = ["PairMemory", "PairRule", "pair_totals"]

Apply: TypeAlias = Callable[[Array], None]
"""Replaces a vector by H0 times it."""
STORED, NEWEST, ACCEPTED, REJECTED = range(4)
"""Entries of `PairMemory.counts`."""


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

    def admits(self, ss: float, sy: float, yy: float) -> bool:
        """Return whether a pair with these inner products is admitted."""
        # NaN fails every comparison, so it needs no separate test.
        usable = 0.0 < ss < math.inf and yy < math.inf and sy > 0.0
        return (
            usable
            and sy >= self.epsilon * ss
            and sy >= self.cosine * math.sqrt(ss * yy)
        )


class PairMemory(NamedTuple):
    """The last M pairs, in slots of which a new pair takes that of the oldest; written in place.

    Attributes
    ----------
    pairs : array, shape (2, M, d)
        s_i and y_i, in the precision of theta.
    products : array, shape (3, M), float64
        s'y, s's and y'y of every slot, 0 in empty ones.
    scale : array, shape (1,) or (d,), float64
        H0 = c I, or a diagonal; for the map that stands for H0, if there is one, c.
    counts : array, shape (4,)
        Pairs stored, the slot of the newest, and all pairs ever admitted and refused.
    """

    pairs: Array
    products: Array
    scale: npt.NDArray[np.float64]
    counts: Counters

    @classmethod
    def empty(cls, size: int, theta0: Array, scale: npt.ArrayLike = 1.0) -> PairMemory:
        """Return a memory for `size` pairs."""
        return cls(
            pairs=np.zeros((2, size, theta0.size), theta0.dtype),
            products=np.zeros((3, size)),
            scale=np.array(scale, np.float64, ndmin=1),
            # The newest is -1, so that the next slot is 0.
            counts=np.array([0, -1, 0, 0], np.int64),
        )

    @property
    def stored(self) -> int:
        """Number of stored pairs."""
        return int(self.counts[STORED])

    @property
    def newest(self) -> int:
        """The slot of the newest pair; -1 where there is none."""
        return int(self.counts[NEWEST])

    def sound(self) -> bool:
        """Return whether the counts of a loaded memory index its slots, on which kernels rely."""
        least = 0 if self.stored else -1
        slots = int(self.pairs.shape[1])
        return 0 <= self.stored <= slots and least <= self.newest < slots

    def admit(self, rule: PairRule, s: Array, y: Array) -> bool:
        """Admit the pair (s, y) if the rule allows it and return whether; the oldest pair makes room."""
        sy = dot(s, y)
        ss = dot(s, s)
        yy = dot(y, y)
        slots = int(self.pairs.shape[1])
        if slots == 0 or not rule.admits(ss, sy, yy):
            self.counts[REJECTED] += 1
            return False
        slot = (self.newest + 1) % slots
        self.pairs[:, slot] = s, y
        self.products[:, slot] = sy, ss, yy
        self.counts[:ACCEPTED] = min(self.stored + 1, slots), slot
        self.counts[ACCEPTED] += 1
        return True

    def rescale(self) -> None:
        """Set c = s'y / y'y of the newest pair: the inverse curvature along the newest step."""
        # An admitted pair has s'y > 0, but in a tail that is nearly flat y'y may underflow.
        sy, _, yy = self.products[:, self.newest]
        if yy > 0.0:
            self.scale[0] = sy / yy

    def product(self, v: Array, out: Array, apply: Apply | None = None) -> Array:
        """Write H v into `out`, in its precision, and return it; out must not overlap v.

        Parameters
        ----------
        apply : callable, optional
            Replaces a vector by H0 times it; without it H0 is `scale`.
        """
        own = self.products[0]
        newest = self.newest
        shares = np.zeros(own.size)
        out[...] = v
        if newest >= 0:
            two_loop.first_loop(self.pairs, own, newest, out, shares)
        # H0 between the two loops; without pairs it is all of H.
        if apply is None:
            out *= self.scale.astype(out.dtype)
        else:
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
        """Remove all pairs; keep H0 and the counts of admitted and refused pairs."""
        self.pairs[...] = 0
        self.products[...] = 0
        self.counts[:ACCEPTED] = 0, -1


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


def pair_totals(memories: Iterable[PairMemory]) -> dict[str, int]:
    """Return how many pairs were admitted and refused in all: an algorithm's `counters`."""
    accepted, rejected = sum(
        (memory.counts[ACCEPTED:] for memory in memories), start=np.zeros(2, np.int64)
    ).tolist()
    return {"pairs_accepted": accepted, "pairs_rejected": rejected}


class PairedAlgorithm(Checked):
    """Base of the paper's algorithms with pairs.

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

    def empty_memory(self, theta0: Array, problem: Problem | None = None) -> PairMemory:
        """Return a memory without pairs; only `"diagonal"` asks the problem."""
        scale: npt.ArrayLike = 1.0
        if self.initial_scale == "diagonal":
            scale = _initial_diagonal(problem, theta0)
        elif self.initial_scale != "pair":
            scale = self.initial_scale
        return PairMemory.empty(self.memory, theta0, scale)

    def admit(self, memory: PairMemory, s: Array, y: Array) -> None:
        """Offer the pair (s, y)."""
        if memory.admit(self.rule, s, y) and self.initial_scale == "pair":
            memory.rescale()

    def clear(self, memory: PairMemory) -> None:
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
        return pair_totals(local.memory for local in locals_)
