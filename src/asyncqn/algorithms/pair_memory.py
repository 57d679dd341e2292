"""The L-BFGS memory: the last M curvature pairs, the rule that admits one, and the product H v.

A pair is a difference of points and of gradients, s = theta - theta' and y = g - g'.  The BFGS matrix H of
the stored pairs on top of an initial inverse H0 approximates the inverse Hessian; H v costs O(M d).

Every quasi-Newton method of the package stores its pairs in `PairMemory`.  It has two forms, because two
needs exclude each other:

compact
    H v from inner products and one small matrix (`kernels.memory`).  One pass over the pairs serves two
    vectors at once, but the small matrix must be made anew with every pair, and H0 must be a scalar, a
    diagonal, or a linear map whose image of every y is known when the pair arrives.
recursive
    H v by the two-loop recursion (`kernels.recursion`).  H0 may be any map and may change at any time,
    because only (s, y) is stored.

The forms are algebraically equal.  They add in different orders, and so does each of the compact products
below; all are kept, because replays of earlier runs must agree in every bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.parameters import InitialScale
from asyncqn.errors import require
from asyncqn.kernels import memory as kernels
from asyncqn.kernels import pairs as pair_kernels
from asyncqn.kernels import recursion
from asyncqn.kernels.ring import (
    ACCEPTED,
    COUNT,
    NEWEST,
    REJECTED,
    empty_ring,
    forget_slots,
    next_slot,
)
from asyncqn.kernels.vectors import add_scaled, dot
from asyncqn.parameters import Checked
from asyncqn.types import Array, Counters, Problem, extra

MAX_ASYMMETRY = 1e-3
"""Largest asymmetry |s_i'y - y_i's| of two pairs, relative to their curvature, at which U counts as a
quadratic: there the slopes at both ends of a step give the change of U.  Our own choice."""


Apply = Callable[[Array], None]
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


class PairMemory(NamedTuple):
    """The last M curvature pairs, in the slots of a ring; all arrays are written in place.

    Attributes
    ----------
    pairs : array, shape (2, M, d)
        s_i, and y_i; in a compact memory with a diagonal or a mapped H0, H0 y_i in the place of y_i.
    gram : array, shape (2, M, M), float64
        Compact form: s_i'y_j for i not younger than j, and y_i'H0 y_j (H0 = I where it is a scalar).
        Recursive form: shape (2, 0, 0).
    middle : array, shape (2 M, 2 M), float64
        Compact form: the small matrix N of `kernels.memory`.  Recursive form: shape (0, 0).
    scale : array, shape (1,), float64
        The factor c of H0.
    diagonal : array, shape (d,) or (0,)
        The diagonal H0 of a compact memory; empty where H0 is c I or lives elsewhere.
    ring : array of int64, shape (4,)
        The counters that `stored`, `newest`, `accepted` and `rejected` read.
    products : array, shape (3, M), float64
        Recursive form: s'y, s's and y'y of every slot, 0 in empty ones.  Compact form: shape (3, 0).
    """

    pairs: Array
    gram: Array
    middle: Array
    scale: Array
    diagonal: Array
    ring: Counters
    products: Array

    @classmethod
    def compact(
        cls,
        size: int,
        theta0: Array,
        scale: InitialScale = 1.0,
        problem: Problem | None = None,
    ) -> PairMemory:
        """Return an empty memory for `size` pairs in the compact form; only `"diagonal"` asks the problem."""
        return cls(
            # Pairs in the precision of theta; all that is small, and divided by, in float64.
            pairs=np.zeros((2, size, theta0.size), theta0.dtype),
            gram=np.zeros((2, size, size)),
            middle=np.zeros((2 * size, 2 * size)),
            scale=np.array([1.0 if isinstance(scale, str) else float(scale)]),
            diagonal=_initial_diagonal(problem, theta0)
            if scale == "diagonal"
            else theta0[:0].copy(),
            ring=empty_ring(),
            products=np.zeros((3, 0)),
        )

    @classmethod
    def recursive(cls, size: int, theta0: Array) -> PairMemory:
        """Return an empty memory for `size` pairs in the recursive form."""
        # The compact fields exist but are empty, so that both forms are one type in checkpoints and kernels.
        return cls.compact(0, theta0)._replace(
            pairs=np.zeros((2, size, theta0.size), theta0.dtype),
            products=np.zeros((3, size)),
        )

    @property
    def stored(self) -> int:
        """Return how many pairs are stored."""
        return int(self.ring[COUNT])

    @property
    def newest(self) -> int:
        """The slot of the newest pair; -1 where there is none."""
        return int(self.ring[NEWEST])

    @property
    def accepted(self) -> int:
        """Return how many pairs were ever admitted."""
        return int(self.ring[ACCEPTED])

    @property
    def rejected(self) -> int:
        """Return how many pairs were ever refused."""
        return int(self.ring[REJECTED])

    @property
    def matrix(self) -> tuple[Any, ...]:
        """The compact form as kernels take it: numba recognises a plain tuple faster than a named one."""
        return self[:6]

    def sound(self) -> bool:
        """Return whether the counters of a loaded memory index valid slots, on which kernels rely."""
        size = self.pairs.shape[1]
        stored, newest = self.stored, self.newest
        return bool(0 <= stored <= size and (0 if stored else -1) <= newest < size)

    def consider(
        self,
        rule: PairRule,
        follow: bool,
        theta: Array,
        theta_old: Array,
        g: Array,
        g_old: Array,
    ) -> bool:
        """Admit the pair (theta - theta_old, g - g_old) to a compact memory if the rule allows it.

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
        work = pair_kernels.room(self.gram)
        return bool(
            pair_kernels.consider(
                self.matrix, rule, follow, theta, theta_old, g, g_old, *work
            )
        )

    def admit(
        self, rule: PairRule, s: Array, y: Array, image: Array | None = None
    ) -> bool:
        """Admit the pair (s, y) if the rule allows it; the oldest pair makes room.

        Parameters
        ----------
        image : array, optional
            H0 y, for a compact memory whose H0 is a linear map that only the workers can apply; y'H0 y must
            then be positive and finite as well.

        Returns
        -------
        bool
            Whether the pair was admitted.
        """
        ss, sy, yy = dot(s, s), dot(s, y), dot(y, y)
        # Rounding, or a map that is not quite linear, can make y'H0 y negative; such a pair would break H.
        mapped = image is None or 0.0 < dot(y, image) < math.inf
        if not (
            mapped and pair_kernels.admissible(ss, sy, yy, rule.epsilon, rule.cosine)
        ):
            self.ring[REJECTED] += 1
            return False
        slot = next_slot(self.ring, self.pairs.shape[1])
        self.pairs[0, slot], self.pairs[1, slot] = s, y if image is None else image
        if image is None:
            self.products[:, slot] = sy, ss, yy
        else:
            self._extend_gram(slot, y)
        return True

    def _extend_gram(self, slot: int, y: Array) -> None:
        """Renew the Gram matrices and N for the pair in `slot`: `kernels.pairs.factor`, without compiling.

        A pass over the data calls this once, so that the seconds of compiling the kernel would not pay.
        `np.einsum` calls no BLAS, whose bits change with the number of its threads.
        """
        (S, images), (SY, YY), count, m = (
            self.pairs,
            self.gram,
            self.stored,
            self.pairs.shape[1],
        )
        for j in range(m):
            # R needs s_i'y of the newest y with every older s, which is column `slot`.
            SY[j, slot] = dot(S[j], y)
            YY[j, slot] = YY[slot, j] = dot(images[j], y)
        # Slots in the order of age, the oldest first: R is upper triangular in that order.
        slots = (slot - count + 1 + np.arange(count)) % m
        R, inner = (gram[np.ix_(slots, slots)] for gram in self.gram)
        inner += np.diag(R.diagonal())
        inverse = np.zeros((count, count))  # R^-1, upper triangular
        # Columns of R^-1 one by one, by back substitution.
        for j in range(count):
            inverse[j, j] = 1.0 / R[j, j]
            inverse[:j, j] = -np.einsum("iq,q->i", inverse[:j, :j], R[:j, j]) / R[j, j]
        corner = np.einsum("ia,ib->ab", inverse, np.einsum("iq,qb->ib", inner, inverse))
        self.middle[:] = 0.0
        self.middle[np.ix_(slots, slots)] = corner
        self.middle[np.ix_(slots, m + slots)] = -inverse.T
        self.middle[np.ix_(m + slots, slots)] = -inverse

    def product(
        self,
        v: Array,
        out: Array,
        apply: Apply | None = None,
        image: Array | None = None,
    ) -> Array:
        """Write H v into `out` and return it; out must not overlap v.

        Parameters
        ----------
        apply : callable, optional
            Replaces a vector by H0 times it; required by the recursive form, which computes in the precision
            of `out`.
        image : array, optional
            H0 v, for a compact memory whose pairs were admitted with images.
        """
        if apply is not None:
            return self._recursion(v, out, apply)
        if image is None:
            pairs, _, middle, scale, diagonal, _ = self.matrix
            kernels.product(
                pairs, middle, scale[0], diagonal, v, out, np.empty(2 * len(middle))
            )
            return out
        vectors = self.pairs.reshape(-1, v.size)
        # H v = H0 v + [S  H0 Y] N [S  H0 Y]'v, with H0 v given: the formula of `kernels.memory`.
        shares = np.einsum(
            "ij,j->i", self.middle, np.array([dot(x, v) for x in vectors])
        )
        out[:] = image
        for x, share in zip(vectors, shares):
            if share:
                add_scaled(out, share, x)
        return out

    def _recursion(self, v: Array, out: Array, apply: Apply) -> Array:
        own, newest = self.products[0], self.newest
        shares = np.zeros(own.size)
        out[...] = v
        if newest >= 0:
            recursion.first_loop(self.pairs, own, newest, out, shares)
        # H0 between the two loops; without pairs it is all of H.
        apply(out)
        if newest >= 0:
            recursion.second_loop(self.pairs, own, newest, shares, out)
        return out

    def fits(self, s: Array, y: Array) -> bool:
        """Return whether one quadratic fits (s, y) and all stored pairs, of which there must be at least
        two."""
        (S, Y), own, sy = self.pairs, self.products[0], dot(s, y)
        used = np.flatnonzero(own > 0.0)
        return used.size > 1 and all(
            # Symmetry of the Hessian: s_i'A s = s'A s_i on a quadratic.
            abs(dot(Y[i], s) - dot(S[i], y))
            <= MAX_ASYMMETRY * math.sqrt(max(own[i] * sy, 0.0))
            for i in used
        )

    def softness(self) -> float:
        """Return the largest s's / s'y in memory, one over the least curvature; infinite without any pair."""
        own, lengths = self.products[:2]
        # A compact memory has s'y on the diagonal of its first Gram matrix.
        if not own.size:
            own, lengths = (
                self.gram[0].diagonal(),
                np.array([dot(s, s) for s in self.pairs[0]]),
            )
        known = own > 0.0
        return float(np.max(lengths[known] / own[known], initial=0.0)) or math.inf

    def curvatures(self) -> Array:
        """Return s'y / |s|^2 of the pairs in a compact memory, which the cautious rule looks at."""
        lengths = np.einsum("ij,ij->i", self.pairs[0], self.pairs[0], dtype=np.float64)
        known = lengths > 0.0
        return np.asarray(np.diagonal(self.gram[0])[known] / lengths[known])

    def forget(self) -> None:
        """Remove all pairs; keep H0 and the counts of accepted and rejected pairs."""
        # Zeros everywhere: kernels then need no test for empty slots.
        for part in (self.pairs, self.gram, self.middle, self.products):
            part[...] = 0
        forget_slots(self.ring)


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
    """Return how many pairs these memories admitted and refused in all: an algorithm's `counters`."""
    counts = [(memory.accepted, memory.rejected) for memory in memories]
    accepted, rejected = (sum(column) for column in zip((0, 0), *counts))
    return {"pairs_accepted": accepted, "pairs_rejected": rejected}


class CompactMemories(Checked):
    """Base of the algorithms with compact memories: the paper's, momentum L-BFGS and the serial reference.

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
        """Return a memory without pairs."""
        return PairMemory.compact(self.memory, theta0, self.initial_scale, problem)

    def consider(
        self, memory: PairMemory, theta: Array, theta_old: Array, g: Array, g_old: Array
    ) -> bool:
        """Offer the pair (theta - theta_old, g - g_old); return whether it was admitted."""
        return memory.consider(
            self.rule, self.initial_scale == "pair", theta, theta_old, g, g_old
        )

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
