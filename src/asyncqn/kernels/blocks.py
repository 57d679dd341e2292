"""The event queue of fixed blocks with backup tasks: who computes which piece of the data when.

The master opens a version, hands each idle worker a block that nobody works on, and closes the
version when enough of it is answered.  A block lies in pieces, which its worker computes in order
and answers one by one, without waiting.  A worker that finds every open block taken helps with a
single piece, from the end of a block that has been out for long; the first answer wins.  Nobody is
interrupted: a worker finishes the piece under way before it gives up the rest of a version that it
hears is over, and only when that piece is answered does it get work of the current one.

One time is drawn per hand-out, for a whole block: each of its pieces takes an equal share, so that
a slow worker is slow through its block.  A helper draws the time of a block, too, and takes one
share of it.  In one piece, a block is duplicated as a whole.
"""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.events import draw_time
from asyncqn.kernels.jit import inlined, kernel
from asyncqn.kernels.random import BLOCK

DEVIATIONS = 6.0
"""How much the spread of answer times shortens the patience; by simulation, see docs/beyond.md."""


@inlined
def _choose(home, now, patience, pieces, done, copies, handed, answered, missing):
    """The piece for an idle worker; the first of an untouched block stands for the block; -1: none yet.

    Untouched blocks go by the age of their last answer, from the worker's own number onward, so
    that with as many blocks as workers everybody keeps the same rows.  Else help goes to a piece
    that has been out for `patience`: with the fewest copies, in the block that misses most, handed
    out longest ago, and last in its block.
    """
    B = missing.size
    best, oldest, helped = -1, 0, -1
    for j in range(B):
        b = (home + j) % B
        first = b * pieces
        if missing[b] == 0:
            continue
        if copies[first] == 0:
            age = answered[first : first + pieces].min()
            if best < 0 or age < oldest:
                best, oldest = first, age
            continue
        for i in range(pieces):
            q = first + pieces - 1 - i
            if done[q] or now < handed[q] + patience:
                continue
            if helped >= 0:
                more = missing[b] - missing[helped // pieces]
                if copies[q] > copies[helped] or (
                    copies[q] == copies[helped] and (more < 0 or (more == 0 and handed[q] >= handed[helped]))
                ):
                    continue
            helped = q
    return best if best >= 0 else helped


@kernel
def blocks(
    m,
    s,
    message,
    master,
    birth,
    death,
    n_blocks,
    backup_after,
    quorum,
    pieces,
    seed,
    shares,
    worker,
    read,
    commit,
    time,
    part,
):
    """Versions of `n_blocks` blocks in `pieces` each; returns (versions closed, computations, -1).

    Version n closes when at least a share `quorum` of its pieces is answered; the master then works
    for `master`.  An answer of an older version that is newer than its piece's last one is taken
    along by the next commit; any other is dropped (commit 0) when the version ends.  A piece is out
    for long after `backup_after` times the mean, less `DEVIATIONS` standard deviations, of the times
    from hand-out to answer that whole blocks would have taken at the pace of the pieces seen so far.
    Help that is not needed keeps its worker from the next version, so where times are steady there
    should be none; where they scatter, the slowest of many is far beyond the mean, and help must
    begin early.  When the columns are too short the last number returned is the length to try again
    with.

    Version n takes `shares[n]` of the time of a whole one; where that changes, the times seen so far
    are forgotten.
    """
    W, B, N, half = m.size, n_blocks, shares.size, message / 2.0
    P = B * pieces
    needed = max(1, min(P, int(np.ceil(quorum * P - 1e-9))))
    z = np.empty((W, BLOCK))
    k = np.zeros(W, np.int64)
    busy = np.zeros(W, np.bool_)
    pace = np.zeros(W)  # of the pieces in hand
    finish = np.zeros(W)  # of the piece under way
    arrival = np.full(W, np.inf)  # when its answer reaches the master; inf: the worker dies before
    since = np.zeros(W)  # when it was handed out, or could have been without a wait
    heard = np.zeros(W)  # when a busy worker hears that its version is over
    piece = np.zeros(W, np.int64)
    last = np.zeros(W, np.int64)  # of the pieces in hand
    version = np.zeros(W, np.int64)
    done = np.zeros(P, np.bool_)
    copies = np.zeros(P, np.int64)
    handed = np.zeros(P)
    answered = np.full(P, -1)  # the version of a piece's newest answer
    missing = np.full(B, pieces)
    now, seen, total, squares = 0.0, 0, 0.0, 0.0
    opens, fresh = -1.0, 0  # opens >= 0: the master is at work until then, else the version is open
    n, rows, first = 0, 0, 0  # rows before `first` have the time of their commit, later ones may wait
    while n < N:
        mean = total / max(seen, 1)
        deviation = np.sqrt(max(0.0, squares / max(seen, 1) - mean * mean))
        patience = max(0.0, backup_after * mean - DEVIATIONS * deviation)
        event = opens if opens >= 0.0 else np.inf
        idle = False  # as soon as one worker finds nothing to do, the others need not look
        for w in range(W):
            if busy[w]:
                event = min(event, arrival[w])
            elif birth[w] > now:
                event = min(event, birth[w])
            elif now < death[w] and not idle:
                q = -1
                if opens < 0.0:
                    q = _choose(w % B, now, patience, pieces, done, copies, handed, answered, missing)
                if q < 0:
                    idle = True
                    continue
                last[w] = q + pieces - 1 if copies[q] == 0 else q
                busy[w], piece[w], version[w], since[w], heard[w] = True, q, n, now, np.inf
                for i in range(q, last[w] + 1):
                    copies[i] += 1
                    handed[i] = now
                pace[w] = draw_time(z, w, k[w], seed, m, s) * shares[n] / pieces
                k[w] += 1
                finish[w] = now + half + pace[w]
                arrival[w] = finish[w] + half if finish[w] <= death[w] else np.inf
                event = min(event, arrival[w])
        if idle and opens < 0.0:
            for q in range(P):
                if not done[q] and copies[q] > 0 and handed[q] + patience > now:
                    event = min(event, handed[q] + patience)
        if event == np.inf:
            break
        now = event
        for w in range(W):
            if not busy[w] or arrival[w] != now:
                continue
            if rows == worker.size:
                return n, rows, 2 * rows
            q, v = piece[w], version[w]
            spent = now - since[w] + (pieces - 1) * pace[w]
            if shares[v] == shares[n]:
                seen += 1
                total += spent
                squares += spent**2
            worker[rows], read[rows], part[rows], commit[rows] = w, v, q, 0
            time[rows] = -1.0
            if v > answered[q]:
                answered[q] = v
                commit[rows] = n + 1 if opens < 0.0 else n + 2
                if v == n and opens < 0.0:
                    done[q] = True
                    missing[q // pieces] -= 1
                    fresh += 1
            rows += 1
            if opens < 0.0 and fresh == needed:
                opens = now + master
            busy[w] = q < last[w] and finish[w] < heard[w]
            arrival[w] = np.inf
            if busy[w]:
                piece[w] += 1
                since[w] += pace[w]
                finish[w] += pace[w]
                if finish[w] <= death[w]:
                    arrival[w] = finish[w] + half
        if opens >= 0.0 and now >= opens:
            n += 1
            if n < N and shares[n] != shares[n - 1]:
                seen, total, squares = 0, 0.0, 0.0
            waiting = rows
            for r in range(rows - 1, first - 1, -1):
                if commit[r] <= n:
                    time[r] = opens if time[r] < 0.0 else time[r]
                else:  # came while the master was at work: the next commit takes it along
                    waiting = r
            first = waiting
            for w in range(W):
                heard[w] = min(heard[w], opens + half)
            opens, fresh = -1.0, 0
            done[:] = False
            copies[:] = 0
            missing[:] = pieces
    for r in range(first, rows):
        if time[r] < 0.0:
            commit[r], time[r] = 0, now
    return n, rows, -1
