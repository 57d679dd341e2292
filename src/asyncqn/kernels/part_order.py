"""Which part of the data the next computation gets, where answers are committed one by one.

    in turn     part k mod P at the k-th hand-out
    by age      of the parts nobody computes, the one whose newest update read the oldest version
    at random   drawn anew at every hand-out, a function of the seed and of how many there were

The order is a function of what was handed out, answered and lost before, so that simulator and real engines,
which both call these functions, hand out the same parts for the same events.

By age, a part that was in somebody's hand while every active part was handed out `HELD_ROUNDS` times is given
up: another worker may get it, and the late update, if it comes, frees nothing.  So the parts of workers that
are many times slower than others do not stay behind.

Parts may become active one after the other: `first` at the start; once the answers are `rounds` times as
many, one more, and another with every `each` answers from there on; from `quick` parts on with every update.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.heap import pop, push
from asyncqn.kernels.jit import kernel
from asyncqn.kernels.random import HAND_OUT, philox

NO_PARTS, IN_TURN, BY_AGE, AT_RANDOM = range(4)
HELD_ROUNDS = 2
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


class PartOrder(NamedTuple):
    """What is known of the parts.

    `counts` are hand-outs, answers, active parts, parts in the heap, and hand-outs that are over or given up.
    """

    kind: int
    growth: tuple[int, int, int, int]  # first, rounds, each, quick
    age: np.ndarray  # (P,) float64: the version that the newest answer read; -1: there is none
    handed: np.ndarray  # (P,) the number of the last hand-out
    copies: np.ndarray  # (P,) how many compute it and are not given up
    late: np.ndarray  # (P,) how many were given up
    line: np.ndarray  # (HELD_ROUNDS P + 1,) the part of hand-out k in place k mod its size, by age only
    heap: np.ndarray  # (P,) active parts that nobody computes, by age and then by number
    counts: np.ndarray  # (5,)


@kernel
def activate(order):
    """Let the parts take part that the answers so far call for."""
    first, rounds, each, quick = order.growth
    counts = order.counts
    beyond = counts[1] - rounds * first
    wanted = first if beyond < 0 else first + beyond // each + 1
    if wanted > quick:
        wanted = quick + beyond - (quick - first - 1) * each
    while counts[2] < min(wanted, order.age.size):
        if order.kind == BY_AGE:
            push(order.heap, counts[3], order.age, counts[2])
            counts[3] += 1
        counts[2] += 1


@kernel
def _give_up(order):
    """Let others have the parts that are in somebody's hand for too long."""
    counts, line = order.counts, order.line
    while counts[4] < counts[0] - HELD_ROUNDS * counts[2]:
        part = line[counts[4] % line.size]
        if order.handed[part] == counts[4] and order.copies[part] > 0:
            order.copies[part] -= 1
            order.late[part] += 1
            if order.copies[part] == 0:
                push(order.heap, counts[3], order.age, part)
                counts[3] += 1
        counts[4] += 1


@kernel
def hand_out(order, seed):
    """The part for the next computation.

    By age, where every active part is being computed, it is the one handed out longest ago.
    """
    counts = order.counts
    k, active = counts[0], counts[2]
    counts[0] += 1
    if order.kind == IN_TURN:
        return k % active
    if order.kind == AT_RANDOM:
        key, n = np.uint64(seed), np.uint64(active)
        x0, x1, _, _ = philox(
            np.uint64(k), np.uint64(HAND_OUT), np.uint64(0), np.uint64(0), key & _LOW, key >> _32
        )
        return np.int64((x0 * n + ((x1 * n) >> _32)) >> _32)
    _give_up(order)
    if counts[3] > 0:
        part = pop(order.heap, counts[3], order.age)
        counts[3] -= 1
    else:
        part = 0
        for other in range(1, active):
            if order.handed[other] < order.handed[part]:
                part = other
    order.handed[part] = k
    order.line[k % order.line.size] = part
    order.copies[part] += 1
    return part


@kernel
def take_back(order, part, read):
    """A part is no longer computed: it was answered from version `read`, or in vain or not at all (-1)."""
    if read >= 0:
        order.counts[1] += 1
    if order.kind == BY_AGE and order.late[part] > 0 and order.copies[part] == 0:
        order.late[part] -= 1  # the part is in the heap, where its age must not change
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
    """Nothing handed out, nothing answered; growth: the four numbers of the top of this file."""
    age, (handed, copies, late, heap) = np.full(parts, -1.0), np.zeros((4, parts), np.int64)
    line = np.zeros(HELD_ROUNDS * parts + 1, np.int64)
    order = PartOrder(kind, growth, age, handed, copies, late, line, heap, np.zeros(5, np.int64))
    activate(order)
    return order


def go_on_after(order: PartOrder, handed_out: int, part: np.ndarray, read: np.ndarray) -> None:
    """Fill a new order from a record: how many computations were handed out, and what the answers were."""
    np.maximum.at(order.age, part, read)
    order.counts[:] = handed_out, part.size, 0, 0, handed_out
    activate(order)
