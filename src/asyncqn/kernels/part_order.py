"""The assignment of parts of the data where updates are committed one by one.

    in turn     Part k mod P for the k-th assignment.
    by age      Of the parts that no worker has, the one whose newest update read the oldest version.
    at random   A random part, a function of the seed and of the number of the assignment.

The order is a function of the earlier assignments, updates and losses, so the simulator and the real engines,
which both call these functions, assign the same parts after the same events.

By age, a part is given up if a worker keeps it while every active part is assigned `HELD_ROUNDS` times:
another worker may then take it, and the late update, if it comes, frees nothing.  So the parts of workers
that are many times slower than others are not left behind.

Parts may become active one after the other: `first` at the start, one more after rounds * first updates, then
another after every `each` updates; from `quick` active parts on, every update activates one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.heap import pop, push
from asyncqn.kernels.jit import kernel
from asyncqn.kernels.random import HAND_OUT, philox

NO_PARTS, IN_TURN, BY_AGE, AT_RANDOM = range(4)
# Two, so that a part which is merely slow is not given up after a single round.
HELD_ROUNDS = 2
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


class PartOrder(NamedTuple):
    """The state of the assignment.

    `counts` holds assignments, updates, active parts, parts in the heap, and assignments over or given up.
    """

    kind: int
    growth: tuple[int, int, int, int]  # first, rounds, each, quick
    age: (
        np.ndarray
    )  # (P,) float64: the version that the newest update read; -1: there is none
    handed: np.ndarray  # (P,) the number of the last hand-out
    copies: np.ndarray  # (P,) how many compute it and are not given up
    late: np.ndarray  # (P,) how many were given up
    line: np.ndarray  # (HELD_ROUNDS P + 1,) the part of hand-out k in place k mod its size, by age only
    heap: (
        np.ndarray
    )  # (P,) active parts that nobody computes, by age and then by number
    counts: np.ndarray  # (5,)


@kernel
def activate(order):
    """Activate the parts that the number of updates calls for."""
    first, rounds, each, quick = order.growth
    counts = order.counts
    beyond = counts[1] - rounds * first
    wanted = first if beyond < 0 else first + beyond // each + 1
    if wanted > quick:
        # `quick` parts are active at beyond = (quick - first - 1) each; from there on every update adds one.
        wanted = quick + beyond - (quick - first - 1) * each
    while counts[2] < min(wanted, order.age.size):
        if order.kind == BY_AGE:
            push(order.heap, counts[3], order.age, counts[2])
            counts[3] += 1
        counts[2] += 1


@kernel
def _give_up(order):
    """Return to the heap the parts that a worker has kept for too long."""
    counts, line = order.counts, order.line
    while counts[4] < counts[0] - HELD_ROUNDS * counts[2]:
        # Assignments are judged in their order: counts[4] is the oldest that is neither over nor given up,
        # and at most HELD_ROUNDS P + 1 assignments lie between it and the newest.
        part = line[counts[4] % line.size]
        # A part that was assigned again since then is judged by its newer assignment.
        if order.handed[part] == counts[4] and order.copies[part] > 0:
            order.copies[part] -= 1
            order.late[part] += 1
            if order.copies[part] == 0:
                push(order.heap, counts[3], order.age, part)
                counts[3] += 1
        counts[4] += 1


@kernel
def hand_out(order, seed):
    """Assign and return the part for the next computation.

    By age, if every active part is being computed, it is the one assigned longest ago.
    """
    counts = order.counts
    k, active = counts[0], counts[2]
    counts[0] += 1
    if order.kind == IN_TURN:
        return k % active
    if order.kind == AT_RANDOM:
        key, n = np.uint64(seed), np.uint64(active)
        x0, x1, _, _ = philox(
            np.uint64(k),
            np.uint64(HAND_OUT),
            np.uint64(0),
            np.uint64(0),
            key & _LOW,
            key >> _32,
        )
        # A 64-bit multiply-shift maps 64 random bits to 0..n-1 without a division.
        return np.int64((x0 * n + ((x1 * n) >> _32)) >> _32)
    _give_up(order)
    if counts[3] > 0:
        part = pop(order.heap, counts[3], order.age)
        counts[3] -= 1
    else:
        part = 0
        # More workers than active parts: a search over all of them is rare and short.
        for other in range(1, active):
            if order.handed[other] < order.handed[part]:
                part = other
    order.handed[part] = k
    order.line[k % order.line.size] = part
    order.copies[part] += 1
    return part


@kernel
def take_back(order, part, read):
    """Record that a part is no longer computed: updated from version `read`, or dropped or lost (-1)."""
    if read >= 0:
        order.counts[1] += 1
    if order.kind == BY_AGE and order.late[part] > 0 and order.copies[part] == 0:
        order.late[part] -= 1  # the part is in the heap, where its key must not change
    else:
        if read >= 0:
            order.age[part] = max(order.age[part], float(read))
        if order.kind == BY_AGE:
            order.copies[part] -= 1
            if order.copies[part] == 0:
                push(order.heap, order.counts[3], order.age, part)
                order.counts[3] += 1
    activate(order)


def new_order(kind: int, parts: int, growth: tuple[int, int, int, int]) -> PartOrder:
    """Return an order without assignments and updates; growth: the four numbers at the top of this file."""
    age, (handed, copies, late, heap) = (
        np.full(parts, -1.0),
        np.zeros((4, parts), np.int64),
    )
    line = np.zeros(HELD_ROUNDS * parts + 1, np.int64)
    order = PartOrder(
        kind, growth, age, handed, copies, late, line, heap, np.zeros(5, np.int64)
    )
    activate(order)
    return order


def go_on_after(
    order: PartOrder, handed_out: int, part: np.ndarray, read: np.ndarray
) -> None:
    """Restore an order from a record: the number of assignments, and the part and version of each update."""
    np.maximum.at(order.age, part, read)
    # Computations under way at the checkpoint are lost, so no part is held by a worker.
    order.counts[:] = handed_out, part.size, 0, 0, handed_out
    activate(order)
