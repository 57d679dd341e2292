"""The L-BFGS memory: a ring of at most M curvature pairs, the rule that admits one, and H v.

State is a NamedTuple of arrays written in place, so that it travels, checkpoints and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.parameters import InitialScale
from asyncqn.errors import require
from asyncqn.kernels import memory as kernels
from asyncqn.kernels import pairs as pair_kernels
from asyncqn.kernels.ring import ACCEPTED, REJECTED, empty_ring, forget_slots, points_inside
from asyncqn.kernels.vectors import dot
from asyncqn.parameters import Checked
from asyncqn.types import Array, Counters, Potential, extra


class Memory(NamedTuple):
    """Pairs in ring slots with their Gram matrices; `ring`: see `kernels.ring`."""

    pairs: Array  # (2, M, d): S, and Y or H0 Y
    gram: Array  # (2, M, M): S'Y and Y'H0 Y, float64
    middle: Array  # (2M, 2M): N of kernels.memory
    scale: Array  # (1,): c of H0 = c I
    diagonal: Array  # (d,) of H0, or empty
    ring: Counters

    def sound(self) -> bool:
        """Whether the counters point into the ring, which kernels rely on; asked of what was loaded."""
        return points_inside(self.ring, self.pairs.shape[1])


class PairRule(NamedTuple):
    """When a pair (s, y) is admitted: s != 0, s'y >= epsilon |s|^2, s'y >= cosine |s||y|.

    The first is the cautious rule (Li and Fukushima 2001); the floor on the cosine is our own
    option against matrices that tiny overlaps make wild.  epsilon must be positive: it is what
    keeps H positive definite.

    epsilon is a curvature.  Every stochastic gradient contains the whole prior, so that with a prior
    N(0, I) and convex terms s'y >= |s|^2: an epsilon up to 1 then admits every pair, and the default of
    1e-4 does no more than keep H positive definite.  To reject pairs that few rows make wild, epsilon
    must be of the order of the curvature which those rows show; the tuner searches it in units of the
    largest curvature.
    """

    epsilon: float
    cosine: float = 0.0


def initial_diagonal(potential: Potential | None, theta0: Array) -> Array:
    """H0 = 1 / curvature_diagonal(theta0), checked."""
    diagonal = np.asarray(extra(potential, "curvature_diagonal")(theta0), dtype=theta0.dtype)
    require(
        diagonal.shape == theta0.shape and bool(np.all(diagonal > 0) and np.all(np.isfinite(diagonal))),
        "curvature_diagonal(theta) must return one positive finite number per coordinate of theta.",
    )
    return 1.0 / diagonal


def empty_memory(size: int, scale: InitialScale, potential: Potential | None, theta0: Array) -> Memory:
    """A memory with room for `size` pairs and none in it; only `"diagonal"` asks the potential."""
    return Memory(
        pairs=np.zeros((2, size, theta0.size), theta0.dtype),
        gram=np.zeros((2, size, size)),
        middle=np.zeros((2 * size, 2 * size)),
        scale=np.array([1.0 if isinstance(scale, str) else float(scale)]),
        diagonal=initial_diagonal(potential, theta0) if scale == "diagonal" else theta0[:0].copy(),
        ring=empty_ring(),
    )


def consider_pair(
    memory: Memory,
    rule: PairRule,
    scale: InitialScale,
    theta: Array,
    theta_old: Array,
    g: Array,
    g_old: Array,
) -> bool:
    """Admit s = theta - theta_old, y = g - g_old if the rule allows; the oldest pair makes room."""
    # Plain tuples: numba takes long to recognise named ones.
    H, numbers = tuple(memory), tuple(rule)
    admitted: bool = pair_kernels.consider(
        H, numbers, scale == "pair", theta, theta_old, g, g_old, *pair_kernels.room(memory.gram)
    )
    return admitted


def pair_totals(memories: Iterable[Any]) -> dict[str, int]:
    """How many pairs these memories, each with a `ring`, admitted and rejected: an algorithm's `counters`."""
    rings = [memory.ring for memory in memories]
    return {
        "pairs_accepted": sum(int(ring[ACCEPTED]) for ring in rings),
        "pairs_rejected": sum(int(ring[REJECTED]) for ring in rings),
    }


class WorkerMemories(Checked):
    """Base of the algorithms whose workers keep a memory each, as `Worker.memory`."""

    epsilon: float
    initial_scale: InitialScale
    cosine_floor: float = 0.0

    @cached_property
    def rule(self) -> PairRule:
        return PairRule(self.epsilon, self.cosine_floor)

    @property
    def requires(self) -> tuple[str, ...]:
        return ("curvature_diagonal",) if self.initial_scale == "diagonal" else ()

    def forget(self, local: Any) -> Any:
        """Empty a worker's memory, and what it kept of its previous step."""
        clear(local.memory, self.initial_scale)
        local.steps[0] = 0
        return local

    def counters(self, iterate: Any, locals_: Sequence[Any]) -> dict[str, int]:
        return pair_totals(local.memory for local in locals_)


def pair_curvatures(memory: Memory) -> Array:
    """s'y / |s|^2 of the pairs in memory, which the cautious rule compares with epsilon."""
    lengths = np.einsum("ij,ij->i", memory.pairs[0], memory.pairs[0], dtype=np.float64)
    known = lengths > 0.0
    return np.asarray(np.diagonal(memory.gram[0])[known] / lengths[known])


def clear(memory: Memory, scale: InitialScale) -> None:
    """Forget all pairs, keeping the counts of what was admitted."""
    for part in (memory.pairs, memory.gram, memory.middle):
        part[...] = 0
    forget_slots(memory.ring)
    if scale == "pair":
        memory.scale[0] = 1.0


def softness(memory: Memory) -> float:
    """The largest s's / s'y of the pairs in memory, one over the least curvature; infinite without any."""
    own = memory.gram[0].diagonal()
    found = [float(dot(s, s)) / float(sy) for s, sy in zip(memory.pairs[0], own) if sy > 0.0]
    return max(found, default=np.inf)


def product(memory: Memory, v: Array, out: Array) -> Array:
    """out = H v."""
    pairs, _, middle, scale, diagonal, _ = memory
    kernels.product(pairs, middle, scale[0], diagonal, v, out, np.empty(2 * len(middle)))
    return out
