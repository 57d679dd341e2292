"""The event queue of fixed blocks with backup tasks: who computes which block of the data when.

The master opens a version, hands each idle worker a block that nobody works on, and closes the
version when enough blocks are answered.  A worker that finds every open block taken duplicates one
that has been out for long; the first answer wins.  Nobody is interrupted: a worker whose answer
has become useless finishes it, and only then takes up the current version.
"""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.events import draw_time
from asyncqn.kernels.jit import inlined, kernel
from asyncqn.kernels.random import BLOCK


@inlined
def _choose(home, now, patience, done, copies, handed, answered):
    """The block for an idle worker: untouched ones first, then one that has been out for `patience`.

    Untouched blocks go by the age of their last answer, from the worker's own number onward, so
    that with as many blocks as workers everybody keeps the same rows.  Backups go to the block with
    the fewest copies, then to the one handed out longest ago.  -1: there is nothing to do yet.
    """
    B = done.size
    best, backup = -1, -1
    for j in range(B):
        b = (home + j) % B
        if done[b]:
            continue
        if copies[b] == 0:
            if best < 0 or answered[b] < answered[best]:
                best = b
        elif now >= handed[b] + patience and (
            backup < 0
            or copies[b] < copies[backup]
            or (copies[b] == copies[backup] and handed[b] < handed[backup])
        ):
            backup = b
    return best if best >= 0 else backup


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
    seed,
    N,
    worker,
    read,
    commit,
    time,
    part,
):
    """Versions of `n_blocks` blocks each; returns (versions closed, computations, -1).

    Version n closes when at least quorum * n_blocks blocks of it are answered; the master then works
    for `master`.  An answer of an older version that is newer than its block's last one is taken
    along by the next commit; any other is dropped (commit 0) when the version ends.  A block is out
    for long after `backup_after` times the mean, less six standard deviations, of all times from
    hand-out to answer so far.  A backup that is not needed keeps its worker from the next version,
    so where times are steady there should be none; where they scatter, the slowest of many is far
    beyond the mean, and backups must begin early.  The six is our own choice, by simulation.  When
    the columns are too short the last number returned is the length to try again with.
    """
    W, B, half = m.size, n_blocks, message / 2.0
    needed = max(1, min(B, int(np.ceil(quorum * B - 1e-9))))
    z = np.empty((W, BLOCK))
    k = np.zeros(W, np.int64)
    busy = np.zeros(W, np.bool_)
    arrival = np.full(W, np.inf)  # when a busy worker's answer reaches the master; inf: it dies before
    since = np.zeros(W)
    block = np.zeros(W, np.int64)
    version = np.zeros(W, np.int64)
    done = np.zeros(B, np.bool_)
    copies = np.zeros(B, np.int64)
    handed = np.zeros(B)
    answered = np.full(B, -1)  # the version of a block's newest answer
    now, seen, total, squares = 0.0, 0, 0.0, 0.0
    opens, fresh = -1.0, 0  # opens >= 0: the master is at work until then, else the version is open
    n, rows, first = 0, 0, 0  # rows before `first` have the time of their commit, later ones may wait
    while n < N:
        mean = total / max(seen, 1)
        deviation = np.sqrt(max(0.0, squares / max(seen, 1) - mean * mean))
        patience = max(0.0, backup_after * mean - 6.0 * deviation)
        event = opens if opens >= 0.0 else np.inf
        idle = False
        for w in range(W):
            if busy[w]:
                event = min(event, arrival[w])
            elif birth[w] > now:
                event = min(event, birth[w])
            elif now < death[w]:
                b = _choose(w % B, now, patience, done, copies, handed, answered) if opens < 0.0 else -1
                if b < 0:
                    idle = True
                    continue
                busy[w], block[w], version[w], since[w] = True, b, n, now
                copies[b] += 1
                handed[b] = now
                finish = now + half + draw_time(z, w, k[w], seed, m, s)
                k[w] += 1
                arrival[w] = finish + half if finish <= death[w] else np.inf
                event = min(event, arrival[w])
        if idle and opens < 0.0:
            for b in range(B):
                if not done[b] and copies[b] > 0 and handed[b] + patience > now:
                    event = min(event, handed[b] + patience)
        if event == np.inf:
            break
        now = event
        for w in range(W):
            if not busy[w] or arrival[w] != now:
                continue
            if rows == worker.size:
                return n, rows, 2 * rows
            b, v = block[w], version[w]
            busy[w] = False
            arrival[w] = np.inf
            seen += 1
            total += now - since[w]
            squares += (now - since[w]) ** 2
            worker[rows], read[rows], part[rows], commit[rows] = w, v, b, 0
            time[rows] = -1.0
            if v > answered[b]:
                answered[b] = v
                commit[rows] = n + 1 if opens < 0.0 else n + 2
                if v == n and opens < 0.0:
                    done[b] = True
                    fresh += 1
            rows += 1
            if opens < 0.0 and fresh == needed:
                opens = now + master
        if opens >= 0.0 and now >= opens:
            n += 1
            waiting = rows
            for r in range(rows - 1, first - 1, -1):
                if commit[r] <= n:
                    time[r] = opens if time[r] < 0.0 else time[r]
                else:  # came while the master was at work: the next commit takes it along
                    waiting = r
            first = waiting
            opens, fresh = -1.0, 0
            done[:] = False
            copies[:] = 0
    for r in range(first, rows):
        if time[r] < 0.0:
            commit[r], time[r] = 0, now
    return n, rows, -1
