"""The event queue of blocks with backups; `kernels.block_rule` decides the assignment.

One time is drawn per assignment, for a whole block, and each of its pieces takes an equal share: a slow
worker is slow through its whole block.  A helper draws the time of a block as well, and takes one share of
it.  A block of one piece is duplicated as a whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.block_rule import (
    Parts,
    choose,
    deliver,
    help_after,
    note_time,
    open_version,
    take_up,
)
from asyncqn.kernels.events import Columns, Timing, draw_time, no_time_left
from asyncqn.kernels.heap import pop, push, sink
from asyncqn.kernels.jit import kernel, strict_piece

HAND = np.dtype(
    [
        ("busy", np.int64),
        (
            "received",
            np.int64,
        ),  # whether the event is the end of the transfer over the link, not its start
        ("computed", np.int64),  # times drawn so far
        ("piece", np.int64),
        ("last", np.int64),  # of the pieces in hand
        ("version", np.int64),
        ("pace", np.float64),  # time of a piece
        ("finish", np.float64),  # when the piece under way is computed
        (
            "since",
            np.float64,
        ),  # when it was handed out, or could have been without a wait
        ("birth", np.float64),
        ("death", np.float64),
    ],
    align=True,
)
"""The current assignment of a simulated worker."""


class Queue(NamedTuple):
    """The event queue: the state of every worker, a heap of workers with an event to come, and one of idle
    workers."""

    hand: np.ndarray  # (W,) of HAND
    event: np.ndarray  # (W,) when an update reaches the master, or a worker is there
    waiting: np.ndarray  # (W,) workers with an event to come, the soonest first
    idle: (
        np.ndarray
    )  # (2 W,) workers without, the least number first; some may be busy again, or gone
    number: np.ndarray  # (W,) zeros: the key of those
    returning: np.ndarray  # workers that are there again after their death
    counts: np.ndarray  # (2,) how many wait, and how many are idle
    arrived: np.ndarray  # (W,) workers whose updates have arrived
    closed: np.ndarray  # (N,) when each version was over; inf: it is not


def new_queue(timing: Timing, versions: int) -> Queue:
    """Return the queue at time 0, when no worker has been assigned anything."""
    W = timing.worker.size
    hand = np.zeros(W, HAND)
    hand["birth"], hand["death"] = timing.worker["birth"], timing.worker["death"]
    again = timing.worker["rebirth"] < np.inf
    # These workers died before time 0 of this queue, as after a warm-up, and join when they recover.
    late = again & (hand["death"] <= 0.0)
    hand["birth"][late] = np.maximum(timing.worker["rebirth"][late], 0.0)
    hand["death"][late] = np.inf
    event, waiting, idle = (
        hand["birth"].copy(),
        np.zeros(W, np.int64),
        np.zeros(2 * W, np.int64),
    )
    later = np.flatnonzero(event > 0.0)
    waiting[: later.size] = later[
        np.argsort(event[later], kind="stable")
    ]  # a sorted array is a heap
    now = np.flatnonzero(event <= 0.0)
    idle[: now.size] = now
    count, returning = np.array([later.size, now.size]), np.flatnonzero(again & ~late)
    arrived, closed = np.zeros(W, np.int64), np.full(versions, np.inf)
    return Queue(
        hand, event, waiting, idle, np.zeros(W), returning, count, arrived, closed
    )


@strict_piece
def _wait(queue, w, event):
    """Enter the next event of worker w."""
    queue.event[w] = event
    push(queue.waiting, queue.counts[0], queue.event, w)
    queue.counts[0] += 1


@strict_piece
def _sort_again(queue):
    """Restore the heap of events after any of them changed."""
    for i in range(queue.counts[0] // 2 - 1, -1, -1):
        sink(queue.waiting, queue.counts[0], queue.event, i)


@strict_piece
def _rest(queue, w):
    """Enter worker w into the heap of idle workers."""
    push(queue.idle, queue.counts[1], queue.number, w)
    queue.counts[1] += 1


@strict_piece
def _begin(timing, queue, w, now):
    """Enter the end of a piece, unless the worker dies before it; a recovery is entered instead."""
    hand, again = queue.hand[w], timing.worker[w]["rebirth"]
    if hand["finish"] <= hand["death"]:
        _wait(queue, w, hand["finish"] + timing.message / 2.0)
    elif again < np.inf:
        hand["busy"], hand["death"], hand["birth"] = 0, np.inf, max(again, now)
        _wait(queue, w, hand["birth"])


@strict_piece
def _lose(timing, queue, now):
    """Let idle workers die, and enter the time of their recovery."""
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
    """Assign work to idle workers while there is any.

    Returns the time of the next overdue part, the time until which the link is busy, and -1 or
    `no_time_left`.
    """
    wait = help_after(parts.times, backup_after)
    while queue.counts[1] > 0:
        w = queue.idle[0]
        hand = queue.hand[w]
        # The heap may hold workers that are busy again or have died; they are removed below.
        if hand["busy"] == 0 and hand["birth"] <= now and now < hand["death"]:
            q = choose(parts, w % parts.block.size, now, wait, pieces)
            if q < 0:
                return parts.node[1]["soonest"] + wait, busy, -1
            time = draw_time(timing, w, hand["computed"], seed)
            if time < 0.0:
                return np.inf, busy, no_time_left(w)
            hand["computed"] += 1
            hand["busy"], hand["piece"], hand["last"] = (
                1,
                q,
                take_up(parts, q, now, pieces),
            )
            hand["version"], hand["since"], hand["pace"] = (
                n,
                now,
                timing.fixed + time * share / pieces,
            )
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
    """Remove all due events; return the number of updates, ordered by worker in `arrived`."""
    size = 0
    while queue.counts[0] > 0 and queue.event[queue.waiting[0]] <= now:
        w = pop(queue.waiting, queue.counts[0], queue.event)
        queue.counts[0] -= 1
        if queue.hand[w]["busy"] == 0:
            _rest(queue, w)
            continue
        # Insertion sort: few updates arrive at the same time.
        i = size
        while i > 0 and arrived[i - 1] > w:
            arrived[i] = arrived[i - 1]
            i -= 1
        arrived[i] = w
        size += 1
    return size


@strict_piece
def _go_on(timing, queue, w, now):
    """Continue after an update: with the next piece, unless the worker knows that the version is over."""
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
    """Delay updates that wait for the link while the master is busy with a commit."""
    for i in range(queue.counts[0]):
        w = queue.waiting[i]
        if queue.hand[w]["received"] == 1 and queue.event[w] > now:
            queue.event[w] += timing.master
    _sort_again(queue)


@kernel
def blocks(
    timing: Timing,
    queue: Queue,
    parts: Parts,
    pieces,
    backup_after,
    seed,
    shares,
    columns: Columns,
):
    """Simulate versions of blocks of `pieces` each; return (versions closed, computations, -1).

    Version n takes `shares[n]` of the time of a whole one; where that changes, the measured times are
    discarded.  After the last update the master is busy for `timing.master`.  A useless update is dropped
    (commit 0) when the version ends.  Assignments and updates occupy the link one after the other.  If the
    columns are too short, the last number is the length to try again with; see also `no_time_left`.
    """
    N, hands, arrived = shares.size, queue.hand, queue.arrived
    now, opens, link = (
        0.0,
        -1.0,
        0.0,
    )  # opens >= 0: the master is busy until then, and no version is open
    n, rows, first = (
        np.int64(0),
        0,
        0,
    )  # rows before `first` have the time of their commit
    left = parts.part.size  # parts of the open version whose update has not arrived
    open_version(parts, pieces)
    while n < N:
        _lose(timing, queue, now)
        event = opens
        if opens < 0.0:
            event, link, short = _hand_out(
                timing,
                queue,
                parts,
                seed,
                now,
                n,
                shares[n],
                backup_after,
                pieces,
                link,
            )
            if short < -1:
                return n, rows, short
        if queue.counts[0] > 0:
            event = min(event, queue.event[queue.waiting[0]])
        # All workers are gone.
        if event == np.inf:
            break
        now = max(now, event)
        for i in range(_arrivals(queue, now, arrived)):
            w = arrived[i]
            hand = hands[w]
            # The update has reached the link and now occupies it; its next event is the end of the transfer.
            if timing.link > 0.0 and hand["received"] == 0:
                # The link carries one message at a time.
                link = max(now, link) + timing.link
                hand["received"] = 1
                _wait(queue, w, link)
                continue
            if rows == columns.worker.size:
                return n, rows, 2 * rows
            q, v = hand["piece"], hand["version"]
            # Times on another sample would bias the estimate of what is overdue.
            if shares[v] == shares[n]:
                note_time(
                    parts.times, now - hand["since"] + (pieces - 1) * hand["pace"]
                )
            columns.worker[rows], columns.read[rows], columns.part[rows] = w, v, q
            columns.commit[rows] = 0
            if deliver(parts, q, v, pieces):
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
    # The last version was not completed, so its updates count as dropped.
    for row in range(first, rows):
        columns.commit[row], columns.time[row] = 0, now
    return n, rows, -1
