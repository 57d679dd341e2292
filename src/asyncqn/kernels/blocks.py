"""Blocks of the data with backups: the one rule that hands them out, and its event queue.

The master opens a version, hands each idle worker a block that nobody works on, and closes the
version when every part is answered.  A block lies in pieces, which its worker computes in order and
answers one by one, without waiting.  A worker that finds every open block taken helps with a single
piece, from the end of a block that has been out for long; the first answer wins.  Nobody is
interrupted: a worker finishes the piece under way before it gives up the rest of a version that it
hears is over, and only when that piece is answered does it get work of the current one.

`choose`, `take_up`, `answer` and `patience` are the rule; the simulator compiles them into its queue and
the real engines call the same source (`engines.handout`).

In the queue one time is drawn per hand-out, for a whole block: each of its pieces takes an equal
share, so that a slow worker is slow through its block.  A helper draws the time of a block, too, and
takes one share of it.  In one piece, a block is duplicated as a whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.events import Columns, Timing, draw_time, no_time_left
from asyncqn.kernels.jit import inlined, kernel
from asyncqn.kernels.random import BLOCK

DEVIATIONS = 6.0
"""How much the spread of answer times shortens the patience: by simulation, docs/results/exact-blocks.md."""


class Parts(NamedTuple):
    """What the master knows of the parts; all but `answered` and `times` are of the open version."""

    done: np.ndarray  # (P,) whether a part is answered
    copies: np.ndarray  # (P,) how often it was handed out
    handed: np.ndarray  # (P,) when it was handed out last
    answered: np.ndarray  # (P,) the version of its newest answer
    missing: np.ndarray  # (B,) pieces of a block that are not answered
    times: np.ndarray  # (3,) answers seen, the sum of the times a block takes at their pace, and of squares


class Hands(NamedTuple):
    """What every worker of the simulated cluster has in hand; arrays of one entry per worker."""

    busy: np.ndarray
    draws: np.ndarray  # times drawn so far
    pace: np.ndarray  # time of a piece
    finish: np.ndarray  # when the piece under way is computed
    arrival: np.ndarray  # when its answer reaches the master; inf: the worker dies before
    since: np.ndarray  # when it was handed out, or could have been without a wait
    heard: np.ndarray  # when the worker hears that its version is over
    piece: np.ndarray
    last: np.ndarray  # of the pieces in hand
    version: np.ndarray
    received: np.ndarray  # whether `arrival` is when the master has received the answer, beyond the link
    birth: np.ndarray
    death: np.ndarray
    link: np.ndarray  # (1,) until when the link is kept


@inlined
def new_parts(n_blocks, pieces):
    """Nothing handed out, nothing answered."""
    P = n_blocks * pieces
    return Parts(
        np.zeros(P, np.bool_),
        np.zeros(P, np.int64),
        np.zeros(P),
        np.full(P, -1),
        np.full(n_blocks, pieces),
        np.zeros(3),
    )


@inlined
def open_version(parts, pieces):
    """A new version wants every part."""
    parts.done[:] = False
    parts.copies[:] = 0
    parts.missing[:] = pieces


@inlined
def patience(times, backup_after):
    """How long a part is out before it is duplicated.

    Help that is not needed keeps its worker from the next version, so where times are steady there
    should be none; where they scatter, the slowest of many is far beyond the mean, and help must begin
    early.
    """
    seen = max(times[0], 1.0)
    mean = times[1] / seen
    deviation = np.sqrt(max(0.0, times[2] / seen - mean * mean))
    return max(0.0, backup_after * mean - DEVIATIONS * deviation)


@inlined
def choose(parts, home, now, wait, pieces):
    """The piece for an idle worker; the first of an untouched block stands for the block; -1: none yet.

    Untouched blocks go by the age of their last answer, from the worker's own number onward, so
    that with as many blocks as workers everybody keeps the same rows.  Else help goes to a piece
    that has been out for `wait`: with the fewest copies, in the block that misses most, handed
    out longest ago, and last in its block.
    """
    copies, handed, missing = parts.copies, parts.handed, parts.missing
    B = missing.size
    best, oldest, helped = -1, 0, -1
    for j in range(B):
        b = (home + j) % B
        first = b * pieces
        if missing[b] == 0:
            continue
        if copies[first] == 0:
            age = parts.answered[first : first + pieces].min()
            if best < 0 or age < oldest:
                best, oldest = first, age
            continue
        for i in range(pieces):
            q = first + pieces - 1 - i
            if parts.done[q] or now < handed[q] + wait:
                continue
            if helped >= 0:
                more = missing[b] - missing[helped // pieces]
                if copies[q] > copies[helped] or (
                    copies[q] == copies[helped] and (more < 0 or (more == 0 and handed[q] >= handed[helped]))
                ):
                    continue
            helped = q
    return best if best >= 0 else helped


@inlined
def take_up(parts, q, now, pieces):
    """Hand out piece q, as the first of its block with the block; returns the last piece handed out."""
    last = q + pieces - 1 if q % pieces == 0 and parts.copies[q] == 0 else q
    for i in range(q, last + 1):
        parts.copies[i] += 1
        parts.handed[i] = now
    return last


@inlined
def answer(parts, q, version, pieces):
    """Piece q of the open version is answered; whether it is the first answer."""
    if version <= parts.answered[q]:
        return False
    parts.answered[q] = version
    parts.done[q] = True
    parts.missing[q // pieces] -= 1
    return True


@inlined
def note_time(times, spent):
    """A block takes `spent` at the pace of an answer."""
    times[0] += 1.0
    times[1] += spent
    times[2] += spent**2


@inlined
def _under_way(timing, hands, w, now):
    """When the answer to the piece in hand arrives; a worker that dies before is gone, or for a while."""
    if hands.finish[w] <= hands.death[w]:
        hands.arrival[w] = hands.finish[w] + timing.message / 2.0
        return
    hands.arrival[w] = np.inf
    if timing.rebirth[w] < np.inf:
        _away(timing, hands, w, now)


@inlined
def _away(timing, hands, w, now):
    """A worker that dies is there again later, with nothing in hand."""
    hands.busy[w], hands.death[w] = False, np.inf
    hands.birth[w] = max(timing.rebirth[w], now)


@kernel
def _hand_out(timing, hands, parts, z, seed, now, opens, n, share, wait, pieces):
    """Give idle workers what there is to do; returns when the next event is, and -1 or `no_time_left`."""
    half = timing.message / 2.0
    event, idle = opens if opens >= 0.0 else np.inf, False
    for w in range(hands.busy.size):
        if not hands.busy[w] and now >= hands.death[w] and timing.rebirth[w] < np.inf:
            _away(timing, hands, w, now)
        if hands.busy[w]:
            event = min(event, hands.arrival[w])
        elif hands.birth[w] > now:
            event = min(event, hands.birth[w])
        elif now < hands.death[w] and not idle:
            q = -1
            if opens < 0.0:
                q = choose(parts, w % parts.missing.size, now, wait, pieces)
            if q < 0:
                idle = True  # the others need not look
                continue
            hands.last[w] = take_up(parts, q, now, pieces)
            hands.busy[w], hands.piece[w], hands.version[w] = True, q, n
            hands.since[w], hands.heard[w] = now, np.inf
            time = draw_time(timing, z, w, hands.draws[w], seed)
            if time < 0.0:
                return event, no_time_left(w)
            hands.pace[w] = time * share / pieces
            hands.draws[w] += 1
            sent = now
            if timing.link > 0.0:
                sent = hands.link[0] = max(now, hands.link[0]) + timing.link
            hands.finish[w] = sent + half + hands.pace[w]
            _under_way(timing, hands, w, now)
            event = min(event, hands.arrival[w] if hands.busy[w] else hands.birth[w])
    if idle and opens < 0.0:
        for q in range(parts.done.size):
            if not parts.done[q] and parts.copies[q] > 0 and parts.handed[q] + wait > now:
                event = min(event, parts.handed[q] + wait)
    return event, -1


@inlined
def _delay_queue(timing, hands, now):
    """The master is at work from now on: answers that wait for the link wait for it, too."""
    if timing.link > 0.0:
        hands.link[0] = max(now, hands.link[0]) + timing.master
        for w in range(hands.busy.size):
            if hands.received[w] and hands.arrival[w] > now:
                hands.arrival[w] += timing.master


@inlined
def _go_on(timing, hands, w, now):
    """After an answer: the next piece in hand, unless the worker has heard that the version is over."""
    hands.busy[w] = hands.piece[w] < hands.last[w] and hands.finish[w] < hands.heard[w]
    hands.arrival[w], hands.received[w] = np.inf, False
    if hands.busy[w]:
        hands.piece[w] += 1
        hands.since[w] += hands.pace[w]
        hands.finish[w] += hands.pace[w]
        _under_way(timing, hands, w, now)


@inlined
def _new_hands(timing):
    W = timing.m.size
    return Hands(
        np.zeros(W, np.bool_),
        np.zeros(W, np.int64),
        np.zeros(W),
        np.zeros(W),
        np.full(W, np.inf),
        np.zeros(W),
        np.zeros(W),
        np.zeros(W, np.int64),
        np.zeros(W, np.int64),
        np.zeros(W, np.int64),
        np.zeros(W, np.bool_),
        timing.birth.copy(),
        timing.death.copy(),
        np.zeros(1),
    )


@kernel
def blocks(timing: Timing, n_blocks, pieces, backup_after, seed, shares, columns: Columns):
    """Versions of `n_blocks` blocks in `pieces` each; returns (versions closed, computations, -1).

    Version n takes `shares[n]` of the time of a whole one; where that changes, the times seen so far
    are forgotten.  Then the master works for `timing.master`.  An answer in vain is dropped (commit 0)
    when the version ends.  Hand-outs and answers keep the link, one after the other.  When the columns are
    too short the last number returned is the length to try again with; see also `no_time_left`.
    """
    W, N = timing.m.size, shares.size
    z, hands, parts = np.empty((W, BLOCK)), _new_hands(timing), new_parts(n_blocks, pieces)
    now, opens = 0.0, -1.0  # opens >= 0: the master is at work until then, else the version is open
    n, rows, first = 0, 0, 0  # rows before `first` have the time of their commit
    left = parts.done.size  # parts of the open version that are not answered
    while n < N:
        wait = patience(parts.times, backup_after)
        event, short = _hand_out(timing, hands, parts, z, seed, now, opens, n, shares[n], wait, pieces)
        if short < -1:
            return n, rows, short
        if event == np.inf:
            break
        now = max(now, event)
        for w in range(W):
            if not hands.busy[w] or hands.arrival[w] > now:
                continue
            if timing.link > 0.0 and not hands.received[w]:
                hands.link[0] = max(now, hands.link[0]) + timing.link
                hands.arrival[w], hands.received[w] = hands.link[0], True
                continue
            if rows == columns.worker.size:
                return n, rows, 2 * rows
            q, v = hands.piece[w], hands.version[w]
            if shares[v] == shares[n]:
                note_time(parts.times, now - hands.since[w] + (pieces - 1) * hands.pace[w])
            columns.worker[rows], columns.read[rows], columns.part[rows] = w, v, q
            columns.commit[rows] = 0
            if answer(parts, q, v, pieces):
                columns.commit[rows] = n + 1
                left -= 1
                if left == 0:
                    opens = now + timing.master
                    _delay_queue(timing, hands, now)
            rows += 1
            _go_on(timing, hands, w, now)
        if opens >= 0.0 and now >= opens:
            n += 1
            if n < N and shares[n] != shares[n - 1]:
                parts.times[:] = 0.0
            columns.time[first:rows] = opens
            first = rows
            for w in range(hands.heard.size):
                hands.heard[w] = min(hands.heard[w], opens + timing.message / 2.0)
            opens, left = -1.0, parts.done.size
            open_version(parts, pieces)
    columns.commit[first:rows] = 0
    columns.time[first:rows] = now
    return n, rows, -1
