"""The assignment of parts of the data where updates are committed one by one.

    in turn     Part k mod P for the k-th assignment.
    by age      Of the parts that no worker has, the one whose newest update read the oldest version.
    at random   A random part, a function of the seed and of the number of the assignment.

The order is a function of the earlier assignments, updates and losses alone.  Python calls `hand_out` and
`take_back` with the arrays of a `PartOrder`: plain arrays cost numba 0.1 microseconds each, a tuple of them 3.

By age, a part is given up if a worker keeps it while every active part is assigned `HELD_ROUNDS` times:
another worker may then take it, and the late update, if it comes, frees nothing.  So the parts of workers
that are many times slower than others are not left behind.

Parts may become active one after the other: `first` at the start, one more after rounds * first updates, then
another after every `each` updates; from `quick` active parts on, every update activates one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.jit import kernel, strict_piece
from asyncqn.kernels.random import HAND_OUT, philox

IN_TURN, BY_AGE, AT_RANDOM = range(1, 4)
# Two, so that a part which is merely slow is not given up after a single round.
HELD_ROUNDS = 2
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)

KIND, FIRST, ROUNDS, EACH, QUICK = range(5)
HANDED_OUT, UPDATES, ACTIVE, IN_HEAP, JUDGED = range(5, 10)
"""Places in `PartOrder.numbers`: the kind and the growth, which are fixed, and the numbers of assignments, of
updates, of active parts, of parts in the heap, and of assignments that are over or given up."""
AGE, HANDED, COPIES, LATE = range(4)
"""Rows of `PartOrder.parts`: the version that a part's newest update read (-1: there is none), the number of
its last assignment, and how many workers compute it, not given up and given up."""


class PartOrder(NamedTuple):
    """The state of the assignment, all of it integers."""

    numbers: np.ndarray  # (10,)
    parts: np.ndarray  # (4, P)
    line: np.ndarray  # (HELD_ROUNDS P + 1,) the part of assignment k in place k mod its size, by age only
    heap: (
        np.ndarray
    )  # (P,) active parts that nobody computes, by age and then by number


@strict_piece
def _before(parts, a, b):
    return parts[AGE, a] < parts[AGE, b] or (parts[AGE, a] == parts[AGE, b] and a < b)


@strict_piece
def _push(numbers, parts, heap, part):
    """Add a part to the heap of parts that nobody computes."""
    i = numbers[IN_HEAP]
    while i > 0 and _before(parts, part, heap[(i - 1) >> 1]):
        heap[i] = heap[(i - 1) >> 1]
        i = (i - 1) >> 1
    heap[i] = part
    numbers[IN_HEAP] += 1


@strict_piece
def _pop(numbers, parts, heap):
    """Remove and return the part whose newest update is the oldest."""
    size = numbers[IN_HEAP] - 1
    numbers[IN_HEAP] = size
    first, part = heap[0], heap[size]
    i = np.int64(0)
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _before(parts, heap[child + 1], heap[child]):
            child += 1
        if not _before(parts, heap[child], part):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = part
    return first


@kernel
def activate(numbers, parts, heap):
    """Activate the parts that the number of updates calls for."""
    first, each, quick = numbers[FIRST], numbers[EACH], numbers[QUICK]
    beyond = numbers[UPDATES] - numbers[ROUNDS] * first
    wanted = first if beyond < 0 else first + beyond // each + 1
    if wanted > quick:
        # `quick` parts are active at beyond = (quick - first - 1) each; from there on every update adds one.
        wanted = quick + beyond - (quick - first - 1) * each
    while numbers[ACTIVE] < min(wanted, parts.shape[1]):
        if numbers[KIND] == BY_AGE:
            _push(numbers, parts, heap, numbers[ACTIVE])
        numbers[ACTIVE] += 1


@strict_piece
def _give_up(numbers, parts, line, heap):
    """Return to the heap the parts that a worker has kept for too long."""
    while numbers[JUDGED] < numbers[HANDED_OUT] - HELD_ROUNDS * numbers[ACTIVE]:
        # Assignments are judged in their order, and at most HELD_ROUNDS P + 1 of them lie between the oldest
        # that is neither over nor given up and the newest.
        part = line[numbers[JUDGED] % line.size]
        # A part that was assigned again since then is judged by its newer assignment.
        if parts[HANDED, part] == numbers[JUDGED] and parts[COPIES, part] > 0:
            parts[COPIES, part] -= 1
            parts[LATE, part] += 1
            if parts[COPIES, part] == 0:
                _push(numbers, parts, heap, part)
        numbers[JUDGED] += 1


@kernel
def hand_out(numbers, parts, line, heap, seed):
    """Assign and return the part for the next computation.

    By age, if every active part is being computed, it is the one assigned longest ago.
    """
    k, active = numbers[HANDED_OUT], numbers[ACTIVE]
    numbers[HANDED_OUT] += 1
    if numbers[KIND] == IN_TURN:
        return k % active
    if numbers[KIND] == AT_RANDOM:
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
    _give_up(numbers, parts, line, heap)
    if numbers[IN_HEAP] > 0:
        part = _pop(numbers, parts, heap)
    else:
        part = np.int64(0)
        # More workers than active parts: a search over all of them is rare and short.
        for other in range(1, active):
            if parts[HANDED, other] < parts[HANDED, part]:
                part = other
    parts[HANDED, part] = k
    line[k % line.size] = part
    parts[COPIES, part] += 1
    return part


@kernel
def take_back(numbers, parts, heap, part, read):
    """Record that a part is no longer computed: updated from version `read`, or dropped or lost (-1)."""
    if read >= 0:
        numbers[UPDATES] += 1
    by_age = numbers[KIND] == BY_AGE
    if by_age and parts[LATE, part] > 0 and parts[COPIES, part] == 0:
        parts[LATE, part] -= 1  # the part is in the heap, where its key must not change
    else:
        if read >= 0:
            parts[AGE, part] = max(parts[AGE, part], read)
        if by_age:
            parts[COPIES, part] -= 1
            if parts[COPIES, part] == 0:
                _push(numbers, parts, heap, part)
    activate(numbers, parts, heap)


def new_order(kind: int, parts: int, growth: tuple[int, int, int, int]) -> PartOrder:
    """Return an order without assignments and updates; growth: first, rounds, each and quick."""
    table = np.zeros((4, parts), np.int64)
    table[AGE] = -1
    numbers = np.array([kind, *growth, 0, 0, 0, 0, 0], np.int64)
    line = np.zeros(HELD_ROUNDS * parts + 1, np.int64)
    order = PartOrder(numbers, table, line, np.zeros(parts, np.int64))
    activate(order.numbers, order.parts, order.heap)
    return order


def go_on_after(
    order: PartOrder, handed_out: int, part: np.ndarray, read: np.ndarray
) -> None:
    """Restore an order from a record: the number of assignments, and the part and version of each update."""
    np.maximum.at(order.parts[AGE], part, read)
    # Computations under way at the checkpoint are lost, so no part is held by a worker.
    order.numbers[HANDED_OUT:] = handed_out, part.size, 0, 0, handed_out
    activate(order.numbers, order.parts, order.heap)
