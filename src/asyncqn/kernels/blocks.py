"""The event queue of blocks with backups; `kernels.block_rule` says who gets what.

One time is drawn per hand-out, for a whole block: each of its pieces takes an equal share, so that a slow
worker is slow through its block.  A helper draws the time of a block, too, and takes one share of it.  In one
piece, a block is duplicated as a whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.block_rule import Parts, answer, choose, help_after, note_time, open_version, take_up
from asyncqn.kernels.events import Columns, Timing, draw_time, no_time_left
from asyncqn.kernels.heap import pop, push, sink
from asyncqn.kernels.jit import kernel, strict_piece

HAND = np.dtype(
    [
        ("busy", np.int64),
        ("received", np.int64),  # whether the master has received the answer at its event, beyond the link
        ("computed", np.int64),  # times drawn so far
        ("piece", np.int64),
        ("last", np.int64),  # of the pieces in hand
        ("version", np.int64),
        ("pace", np.float64),  # time of a piece
        ("finish", np.float64),  # when the piece under way is computed
        ("since", np.float64),  # when it was handed out, or could have been without a wait
        ("birth", np.float64),
        ("death", np.float64),
    ],
    align=True,
)
"""What a worker of the simulated cluster has in hand."""


class Queue(NamedTuple):
    """The workers, and the two heaps that wait: for time to pass, and for something to do."""

    hand: np.ndarray  # (W,) of HAND
    event: np.ndarray  # (W,) when an answer reaches the master, or a worker is there
    waiting: np.ndarray  # (W,) workers with an event to come, the soonest first
    idle: np.ndarray  # (2 W,) workers without, the least number first; some may be busy again, or gone
    number: np.ndarray  # (W,) zeros: the key of those
    returning: np.ndarray  # workers that are there again after their death
    counts: np.ndarray  # (2,) how many wait, and how many are idle
    arrived: np.ndarray  # (W,) workers whose answers have come
    closed: np.ndarray  # (N,) when each version was over; inf: it is not


def new_queue(timing: Timing, versions: int) -> Queue:
    """Nobody has anything in hand."""
    W = timing.worker.size
    hand = np.zeros(W, HAND)
    hand["birth"], hand["death"] = timing.worker["birth"], timing.worker["death"]
    again = timing.worker["rebirth"] < np.inf
    late = again & (hand["death"] <= 0.0)
    hand["birth"][late] = np.maximum(timing.worker["rebirth"][late], 0.0)
    hand["death"][late] = np.inf
    event, waiting, idle = hand["birth"].copy(), np.zeros(W, np.int64), np.zeros(2 * W, np.int64)
    later = np.flatnonzero(event > 0.0)
    waiting[: later.size] = later[np.argsort(event[later], kind="stable")]  # a sorted array is a heap
    now = np.flatnonzero(event <= 0.0)
    idle[: now.size] = now
    count, returning = np.array([later.size, now.size]), np.flatnonzero(again & ~late)
    arrived, closed = np.zeros(W, np.int64), np.full(versions, np.inf)
    return Queue(hand, event, waiting, idle, np.zeros(W), returning, count, arrived, closed)


@strict_piece
def _wait(queue, w, event):
    """Worker w has its next event then."""
    queue.event[w] = event
    push(queue.waiting, queue.counts[0], queue.event, w)
    queue.counts[0] += 1


@strict_piece
def _sort_again(queue):
    """Make a heap of those that wait after any of their events changed."""
    for i in range(queue.counts[0] // 2 - 1, -1, -1):
        sink(queue.waiting, queue.counts[0], queue.event, i)


@strict_piece
def _rest(queue, w):
    """Worker w has nothing to do."""
    push(queue.idle, queue.counts[1], queue.number, w)
    queue.counts[1] += 1


@strict_piece
def _begin(timing, queue, w, now):
    """A piece is under way; a worker that dies before its answer is gone, or there again later."""
    hand, again = queue.hand[w], timing.worker[w]["rebirth"]
    if hand["finish"] <= hand["death"]:
        _wait(queue, w, hand["finish"] + timing.message / 2.0)
    elif again < np.inf:
        hand["busy"], hand["death"], hand["birth"] = 0, np.inf, max(again, now)
        _wait(queue, w, hand["birth"])


@strict_piece
def _lose(timing, queue, now):
    """Idle workers that died and will be there again."""
    for w in queue.returning:
        hand = queue.hand[w]
        if hand["busy"] == 0 and now >= hand["death"]:
            waits, hand["death"] = hand["birth"] > now, np.inf
            hand["birth"] = max(timing.worker[w]["rebirth"], now)
            if waits:
                queue.event[w] = hand["birth"]
                _sort_again(queue)
            elif hand["birth"] > now:
                _wait(queue, w, hand["birth"])


@strict_piece
def _hand_out(timing, queue, parts, seed, now, n, share, backup_after, pieces, busy):
    """Give idle workers what there is to do.

    Returns when there is help to give, until when the link is kept, and -1 or `no_time_left`.
    """
    wait = help_after(parts.times, backup_after)
    while queue.counts[1] > 0:
        w = queue.idle[0]
        hand = queue.hand[w]
        if hand["busy"] == 0 and hand["birth"] <= now and now < hand["death"]:
            q = choose(parts, w % parts.block.size, now, wait, pieces)
            if q < 0:
                return parts.node[1]["soonest"] + wait, busy, -1
            time = draw_time(timing, w, hand["computed"], seed)
            if time < 0.0:
                return np.inf, busy, no_time_left(w)
            hand["computed"] += 1
            hand["busy"], hand["piece"], hand["last"] = 1, q, take_up(parts, q, now, pieces)
            hand["version"], hand["since"], hand["pace"] = n, now, timing.fixed + time * share / pieces
            sent = now
            if timing.link > 0.0:
                sent = busy = max(now, busy) + timing.reply
            hand["finish"] = sent + timing.message / 2.0 + hand["pace"]
            _begin(timing, queue, w, now)
        pop(queue.idle, queue.counts[1], queue.number)
        queue.counts[1] -= 1
    return np.inf, busy, -1


@strict_piece
def _arrivals(queue, now, arrived):
    """Those whose events have come, answers by the number of their worker; returns how many answers."""
    size = 0
    while queue.counts[0] > 0 and queue.event[queue.waiting[0]] <= now:
        w = pop(queue.waiting, queue.counts[0], queue.event)
        queue.counts[0] -= 1
        if queue.hand[w]["busy"] == 0:
            _rest(queue, w)
            continue
        i = size
        while i > 0 and arrived[i - 1] > w:
            arrived[i] = arrived[i - 1]
            i -= 1
        arrived[i] = w
        size += 1
    return size


@strict_piece
def _go_on(timing, queue, w, now):
    """After an answer: the next piece in hand, unless the worker has heard that the version is over."""
    hand = queue.hand[w]
    hand["received"] = 0
    heard = queue.closed[hand["version"]] + timing.message / 2.0
    if hand["piece"] < hand["last"] and hand["finish"] < heard:
        hand["piece"] += 1
        hand["since"] += hand["pace"]
        hand["finish"] += hand["pace"]
        _begin(timing, queue, w, now)
    else:
        hand["busy"] = 0
        _rest(queue, w)


@strict_piece
def _delay_queue(timing, queue, now):
    """The master is at work from now on: answers that wait for the link wait for it, too."""
    for i in range(queue.counts[0]):
        w = queue.waiting[i]
        if queue.hand[w]["received"] == 1 and queue.event[w] > now:
            queue.event[w] += timing.master
    _sort_again(queue)


@kernel
def blocks(timing: Timing, queue: Queue, parts: Parts, pieces, backup_after, seed, shares, columns: Columns):
    """Versions of blocks in `pieces` each; returns (versions closed, computations, -1).

    Version n takes `shares[n]` of the time of a whole one; where that changes, the times seen so far
    are forgotten.  Then the master works for `timing.master`.  An answer in vain is dropped (commit 0)
    when the version ends.  Hand-outs and answers keep the link, one after the other.  When the columns are
    too short the last number returned is the length to try again with; see also `no_time_left`.
    """
    N, hands, arrived = shares.size, queue.hand, queue.arrived
    now, opens, link = 0.0, -1.0, 0.0  # opens >= 0: until then the master is at work, no version is open
    n, rows, first = np.int64(0), 0, 0  # rows before `first` have the time of their commit
    left = parts.part.size  # parts of the open version that are not answered
    open_version(parts, pieces)
    while n < N:
        _lose(timing, queue, now)
        event = opens
        if opens < 0.0:
            event, link, short = _hand_out(
                timing, queue, parts, seed, now, n, shares[n], backup_after, pieces, link
            )
            if short < -1:
                return n, rows, short
        if queue.counts[0] > 0:
            event = min(event, queue.event[queue.waiting[0]])
        if event == np.inf:
            break
        now = max(now, event)
        for i in range(_arrivals(queue, now, arrived)):
            w = arrived[i]
            hand = hands[w]
            if timing.link > 0.0 and hand["received"] == 0:
                link = max(now, link) + timing.link
                hand["received"] = 1
                _wait(queue, w, link)
                continue
            if rows == columns.worker.size:
                return n, rows, 2 * rows
            q, v = hand["piece"], hand["version"]
            if shares[v] == shares[n]:
                note_time(parts.times, now - hand["since"] + (pieces - 1) * hand["pace"])
            columns.worker[rows], columns.read[rows], columns.part[rows] = w, v, q
            columns.commit[rows] = 0
            if answer(parts, q, v, pieces):
                columns.commit[rows] = n + 1
                left -= 1
                if left == 0:
                    opens = now + timing.master
                    if timing.link > 0.0:
                        link = max(now, link) + timing.master
                        _delay_queue(timing, queue, now)
            rows += 1
            _go_on(timing, queue, w, now)
        if opens >= 0.0 and now >= opens:
            queue.closed[n] = opens
            n += 1
            if n < N and shares[n] != shares[n - 1]:
                parts.times[:] = 0.0
            for row in range(first, rows):
                columns.time[row] = opens
            first, opens, left = rows, -1.0, parts.part.size
            open_version(parts, pieces)
    for row in range(first, rows):
        columns.commit[row], columns.time[row] = 0, now
    return n, rows, -1
