"""The event queues of the simulated cluster: schedules from drawn times, without theta.

`asynchronous` simulates updates that are committed one by one, `rounds` synchronous rounds; `kernels.blocks`
has the third queue.

A computation takes exp(m + s Z), with Z the worker's k-th normal for delays, drawn in blocks; it takes m
where s = 0.  The queues fill columns.  A schedule that ends early, because every worker is gone, is shorter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.heap import FIRST, sink, sort_by_key
from asyncqn.kernels.jit import kernel, strict_piece
from asyncqn.kernels.part_order import BY_AGE, PartOrder, hand_out, take_back
from asyncqn.kernels.random import BLOCK, DELAYS, normals_block

WORKER = np.dtype(
    [
        ("m", np.float64),  # a time is exp(m + s Z), or m where s = 0
        ("s", np.float64),
        ("birth", np.float64),
        ("death", np.float64),
        ("rebirth", np.float64),  # when a worker that died is there again; inf: never
        (
            "first",
            np.int64,
        ),  # of its times in `drawn`, and the end of these; the same: it has none
        ("end", np.int64),
    ],
    align=True,
)


class Timing(NamedTuple):
    """The timing of a cluster, as the event queues read it."""

    worker: np.ndarray  # (W,) of WORKER: one array of records compiles much faster than one array per field
    message: float
    master: float
    link: float  # time for which a message to the master occupies the link
    reply: float  # time for which a message from the master occupies the link
    tree: bool  # whether workers pass on broadcasts of rounds
    fixed: float  # time of every computation on top of its drawn time
    drawn: np.ndarray  # times by laws other than the log-normal, worker by worker
    normals: np.ndarray  # (W, BLOCK): each worker's current block of normals


class Columns(NamedTuple):
    """The rows of a schedule, to be filled."""

    worker: np.ndarray
    read: np.ndarray
    commit: np.ndarray
    time: np.ndarray
    part: np.ndarray


@strict_piece
def draw_time(timing, w, k, seed):
    """Return the time of worker w's k-th computation, or -1 if it has not been drawn."""
    law = timing.worker[w]
    if law["end"] > law["first"]:
        return timing.drawn[law["first"] + k] if k < law["end"] - law["first"] else -1.0
    if law["s"] == 0.0:
        return law["m"]
    if k % BLOCK == 0:
        normals_block(
            timing.normals[w], k, seed, np.int64(0), w, np.int64(DELAYS)
        )  # typed
    return np.exp(law["m"] + law["s"] * timing.normals[w, k % BLOCK])


@strict_piece
def no_time_left(w):
    """Return the code that a queue returns instead of a length when worker w has used up its times."""
    return -2 - w


BUSY = np.dtype(
    [
        ("computed", np.int64),  # times drawn so far
        ("version", np.int64),  # that it computes on
        ("part", np.int64),  # in its hand
        ("death", np.float64),  # inf once it is there again
        ("joined", np.bool_),
        ("leaves", np.bool_),  # at its next event it is gone, and its part free
    ],
    align=True,
)
"""The state of a worker where updates are committed one by one."""


class AtWork(NamedTuple):
    """The workers of the asynchronous queue, and its heap."""

    hand: np.ndarray  # (W,) of BUSY
    event: (
        np.ndarray
    )  # (W,) when a worker joins, else the next time its update reaches the master
    heap: np.ndarray  # (W,) workers, the soonest first
    closed: np.ndarray  # (N,) when each version came to be


def all_at_work(timing: Timing, commits: int) -> AtWork:
    """Return the state at time 0, when no worker has joined."""
    hand = np.zeros(timing.worker.size, BUSY)
    hand["death"] = timing.worker["death"]
    event = timing.worker["birth"].copy()
    return AtWork(
        hand, event, np.argsort(event, kind="stable"), np.empty(commits)
    )  # a sorted array is a heap


@strict_piece
def _version_at(closed, n, time):
    """Return the version that was current at a time, when n are closed."""
    while n > 0 and closed[n - 1] > time:
        n -= 1
    return n


@strict_piece
def _leave(timing, hand, w, event):
    """Remove worker w; return whether for good.  Otherwise `event` is set to the time of its recovery."""
    if timing.worker[w]["rebirth"] == np.inf or hand["death"] == np.inf:
        return True
    event[w] = max(timing.worker[w]["rebirth"], event[w])
    hand["joined"], hand["leaves"], hand["death"] = False, False, np.inf
    return False


@kernel
def asynchronous(
    timing: Timing,
    seed,
    N,
    updates,
    max_delay,
    order: PartOrder | None,
    at_work: AtWork,
    columns: Columns,
):
    """Simulate asynchronous updates, first come, first served; return (commits, computations, -1).

    A worker's cycle is message/2, compute, message/2, wait for the master, reply.  Receiving takes `link` and
    replying takes `reply`.  `updates` updates make a commit, which takes the master's service time.  An
    update more than `max_delay` commits old is dropped (commit 0).  A worker that joins at time t receives
    the version that is current at t, or when its turn comes if messages occupy the link.  `order` is None if
    the data are not cut; then nothing of it is compiled.  If the columns are too short, the last number is
    the length to try again with; see also `no_time_left`.
    """
    hands, event, heap, closed = at_work
    half, link, reply = timing.message / 2.0, timing.link, timing.reply
    size, n, rows, waiting, first, free = (
        heap.size,
        0,
        0,
        0,
        0,
        0.0,
    )  # rows before `first` have their time
    while n < N and size > 0:
        w = heap[0]
        hand = hands[w]
        gone = hand["leaves"]
        fresh = not gone and n - hand["version"] <= max_delay
        if order is not None and hand["joined"]:
            take_back(order, hand["part"], hand["version"] if fresh else -1)
        if not gone:
            if hand["joined"]:
                if rows == columns.worker.size:
                    return n, rows, 2 * rows
                free = max(event[w], free) + link
                columns.worker[rows], columns.read[rows] = w, hand["version"]
                columns.part[rows] = hand["part"]
                columns.commit[rows], columns.time[rows] = n + 1 if fresh else 0, free
                rows += 1
                waiting += fresh
                # The commit is complete: its rows get its time, which is known only now.
                if waiting == updates:
                    free += timing.master
                    closed[n] = free
                    for row in range(first, rows):
                        columns.time[row] = free
                    n, waiting = n + 1, 0
                if waiting == 0:
                    first = rows
            # A worker that joins on a free link reads the version of that moment; otherwise it waits for its
            # turn.
            if hand["joined"] or reply > 0.0:
                free = (free if hand["joined"] else max(event[w], free)) + reply
                hand["version"], received = n, free + half
            else:
                hand["version"], received = (
                    _version_at(closed, n, event[w]),
                    event[w] + half,
                )
            hand["joined"] = True
            if order is not None:
                hand["part"] = hand_out(order, seed)
            time = draw_time(timing, w, hand["computed"], seed)
            if time < 0.0:
                return n, rows, no_time_left(w)
            hand["computed"] += 1
            finish = received + (timing.fixed + time)
            if finish <= hand["death"]:
                event[w] = finish + half
            # By age, the part of a dying worker is held until its death; other orders hold no parts.
            elif order is not None and order.kind == BY_AGE:
                event[w], hand["leaves"] = max(hand["death"], event[w]), True
            else:
                event[w], gone = received, True
        if gone and _leave(timing, hand, w, event):
            size -= 1
            heap[0] = heap[size]
        sink(heap, size, event, FIRST)
    # Updates that wait for a commit which never came are dropped.
    for row in range(first, rows):
        columns.commit[row] = 0 if columns.commit[row] > n else columns.commit[row]
        columns.time[row] = columns.time[rows - 1]
    return n, rows, -1


ROUND = np.dtype(
    [
        ("computed", np.int64),  # times drawn so far
        ("free", np.float64),  # when it can take up a broadcast
        ("finish", np.float64),  # when it will have computed on the present one
        (
            "heard",
            np.float64,
        ),  # when the master will have received that; inf: it dies before
        (
            "late",
            np.float64,
        ),  # when an update for a round that is over arrives; inf: none is under way
        (
            "drawn",
            np.float64,
        ),  # the time of its next computation, drawn but not yet begun; -1: none
        (
            "begun",
            np.float64,
        ),  # when it begins with that, unless a newer broadcast comes before
        ("death", np.float64),  # inf once a worker that died is there again
        ("reached", np.float64),  # when the broadcast reaches it
    ],
    align=True,
)
"""The state of a worker in synchronous rounds."""


@strict_piece
def _alive(timing, w, now):
    return timing.worker[w]["birth"] <= now and (
        now < timing.worker[w]["death"] or timing.worker[w]["rebirth"] <= now
    )


@kernel
def _send_round(timing, state, broadcast):
    """Send the broadcast to the living workers, one by one or along a tree; return when the last message
    left.

    In a tree every worker that has the message passes it on, so it reaches 1, 3, 7, ... workers in successive
    turns of the link.  The master sends in every turn, and is free when the last worker is reached.
    """
    begun, living, reached = broadcast, 0, 1
    for w in range(state.size):
        if _alive(timing, w, begun if timing.tree else broadcast):
            living += 1
            if not timing.tree or living == reached:
                broadcast += timing.reply
                reached *= 2
        state[w]["reached"] = broadcast + timing.message / 2.0
    return broadcast


@kernel
def _begin_round(timing, state, seed):
    """Compute when each worker finishes the broadcast version; return a worker without times, or -1."""
    half = timing.message / 2.0
    for w in range(state.size):
        # Twice at most: a computation that a death interrupts is repeated after the recovery.
        for _ in range(2):
            if state[w]["drawn"] < 0.0:
                state[w]["drawn"] = draw_time(timing, w, state[w]["computed"], seed)
                if state[w]["drawn"] < 0.0:
                    return w
                state[w]["computed"] += 1
            begun = state[w]["begun"] = max(state[w]["reached"], state[w]["free"])
            state[w]["finish"] = begun + (timing.fixed + state[w]["drawn"])
            if (
                state[w]["finish"] <= state[w]["death"]
                or timing.worker[w]["rebirth"] == np.inf
            ):
                break
            if begun < state[w]["death"]:
                state[w]["drawn"] = -1.0  # the interrupted computation is lost
            state[w]["free"] = max(
                state[w]["free"], timing.worker[w]["rebirth"] + timing.reply + half
            )
            state[w]["death"] = np.inf
    return -1


@kernel
def _receive_round(timing, state, busy):
    """Compute when the master will have received each update, one after the other from time `busy` on."""
    half, W = timing.message / 2.0, state.size
    for w in range(W):
        state[w]["heard"] = (
            state[w]["finish"] + half
            if state[w]["finish"] <= state[w]["death"]
            else np.inf
        )
    if timing.link == 0.0:
        return
    arrivals, order = np.empty(2 * W), np.empty(2 * W, np.int64)
    for w in range(W):
        arrivals[w], arrivals[W + w] = state[w]["heard"], state[w]["late"]
    sort_by_key(arrivals, 2 * W, order)
    for i in order:
        if arrivals[i] == np.inf:
            return
        busy = max(arrivals[i], busy) + timing.link
        if i < W:
            state[i]["heard"] = busy


@kernel
def _living(timing, now):
    """Return the number of living workers, and until when it holds."""
    living, until = 0, np.inf
    for w in range(timing.worker.size):
        living += _alive(timing, w, now)
        for change in (
            timing.worker[w]["birth"],
            timing.worker[w]["death"],
            timing.worker[w]["rebirth"],
        ):
            if now < change < until:
                until = change
    return living, until


@kernel
def _silent(timing, state, now, first):
    """Return a living worker that has not been heard, searched from `first` on, or -1."""
    for k in range(state.size):
        w = (first + k) % state.size
        if state[w]["heard"] > now and _alive(timing, w, now):
            return w
    return -1


@kernel
def _close_round(timing, state, timeout, quorum, reached, senders):
    """Return the time at which the round closes (-1: never) and the number of updates; fill `senders`.

    One silent worker keeps a round open, so the next one is searched only when that one was heard.
    """
    W = state.size
    event, kind = np.empty(2 * W + 1), np.empty(2 * W + 1, np.int64)
    events = 0
    for w in range(W):
        if timing.worker[w]["death"] < np.inf:
            event[events], kind[events] = timing.worker[w]["death"], -1
            events += 1
        if state[w]["heard"] < np.inf:
            event[events], kind[events] = state[w]["heard"], w
            events += 1
    event[events], kind[events] = reached + timeout, -1
    events += 1
    order = np.empty(events, np.int64)
    sort_by_key(event, events, order)
    arrived, living, until, silent = 0, 0, -np.inf, 0
    for e in range(events):
        now = event[order[e]]
        if now == np.inf:
            break
        if kind[order[e]] >= 0:
            senders[arrived] = kind[order[e]]
            arrived += 1
        # Simultaneous events are taken together, so that their order does not matter.
        if e + 1 < events and event[order[e + 1]] == now:
            continue
        if now < reached:
            continue
        if now >= until:
            # Counted again only when a worker joins, dies or recovers.
            living, until = _living(timing, now)
        silent = _silent(timing, state, now, max(silent, 0))
        # The tolerance keeps 0.7 * 10 workers from asking for eight.
        if arrived > 0 and (
            silent < 0
            or (now >= reached + timeout and arrived >= quorum * living - 1e-9)
        ):
            return now, arrived
    return -1.0, arrived


@kernel
def rounds(timing: Timing, timeout, quorum, seed, N, state, columns: Columns):
    """Simulate synchronous rounds with timeout and quorum; return (rounds closed, computations, -1).

    Round n closes when every living worker has sent its update, or when `timeout` has passed since the
    broadcast reached the workers and at least quorum * (living workers) updates have arrived.  A late worker
    finishes its useless computation (recorded with commit 0) and then starts with the newest broadcast.  Each
    message of a broadcast occupies the master for `reply` (a tree sends fewer), and each update, late or not,
    for `link`; the broadcast goes first.  `state` (of ROUND, zeros) is scratch space.  The last number
    returned may be `no_time_left`.
    """
    W, half = state.size, timing.message / 2.0
    for w in range(W):
        birth = timing.worker[w]["birth"]
        state[w]["free"] = (birth + timing.reply if birth > 0.0 else 0.0) + half
        state[w]["late"], state[w]["drawn"], state[w]["death"] = (
            np.inf,
            -1.0,
            timing.worker[w]["death"],
        )
    senders = np.empty(W, np.int64)
    n, rows, sent = 0, 0, _send_round(timing, state, 0.0)
    worker, read, commit, time = (
        columns.worker,
        columns.read,
        columns.commit,
        columns.time,
    )
    while n < N:
        short = _begin_round(timing, state, seed)
        if short >= 0:
            return n, rows, no_time_left(short)
        _receive_round(timing, state, sent)
        closed, arrived = _close_round(
            timing, state, timeout, quorum, sent + half, senders
        )
        if closed < 0.0:
            break
        n += 1
        broadcast = closed + timing.master
        for a in range(arrived):
            w = senders[a]
            worker[rows], read[rows], commit[rows], time[rows] = w, n - 1, n, broadcast
            rows += 1
            state[w]["free"], state[w]["drawn"] = state[w]["finish"], -1.0
        sent = _send_round(timing, state, broadcast)
        for w in range(W):
            if state[w]["late"] <= closed:
                state[w]["late"] = np.inf
            begun = state[w]["begun"]
            # This worker missed the round: it finishes in vain, and its time is recorded as a dropped row.
            if (
                state[w]["drawn"] >= 0.0
                and begun < state[w]["reached"]
                and begun < state[w]["death"]
            ):
                if state[w]["finish"] <= state[w]["death"]:
                    state[w]["late"] = state[w]["finish"] + half
                    worker[rows], read[rows], commit[rows], time[rows] = (
                        w,
                        n - 1,
                        0,
                        state[w]["late"],
                    )
                    rows += 1
                state[w]["free"], state[w]["drawn"] = state[w]["finish"], -1.0
    return n, rows, -1
