"""The event queue of the simulated cluster: schedules from drawn times, nothing of theta.

A computation's time is exp(m + s Z), Z the worker's k-th normal for delays, drawn in blocks; m where s = 0.
Rows come out as columns; a schedule that ends early (every worker gone) is shorter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.jit import inlined, kernel, strict_piece
from asyncqn.kernels.part_order import BY_AGE, PartOrder, hand_out, take_back
from asyncqn.kernels.random import BLOCK, DELAYS, normals_block


class Timing(NamedTuple):
    """What the event queues ask of a cluster; arrays have one entry per worker."""

    m: np.ndarray  # a time is exp(m + s Z), or m where s = 0
    s: np.ndarray
    message: float
    master: float
    link: float
    birth: np.ndarray
    death: np.ndarray
    rebirth: np.ndarray  # when a worker that died is there again; inf: never
    ends: np.ndarray  # (W + 1,) of each worker's times in `drawn`; the first is where worker 0 begins
    drawn: np.ndarray  # times by laws other than the above; workers without any have none


class Columns(NamedTuple):
    """The rows of a schedule, to be filled."""

    worker: np.ndarray
    read: np.ndarray
    commit: np.ndarray
    time: np.ndarray
    part: np.ndarray


@inlined
def draw_time(timing, z, w, k, seed):
    """Time of worker w's k-th computation; z[w] caches its current block of normals; -1: none is drawn."""
    first, end = timing.ends[w], timing.ends[w + 1]
    if end > first:
        return timing.drawn[first + k] if k < end - first else -1.0
    if timing.s[w] == 0.0:
        return timing.m[w]
    if k % BLOCK == 0:
        normals_block(z[w], k, seed, 0, w, DELAYS)
    return np.exp(timing.m[w] + timing.s[w] * z[w, k % BLOCK])


@inlined
def no_time_left(w):
    """What a queue returns in the place of a length when worker w needs more times than were drawn."""
    return -2 - w


@inlined
def _earlier(times, a, b):
    """Order of the queue: time, then worker number."""
    return times[a] < times[b] or (times[a] == times[b] and a < b)


@strict_piece
def sift_down(heap, size, times, i):
    """Restore the heap of numbers, ordered by the times of their events, after place i changed."""
    while True:
        child = 2 * i + 1
        if child >= size:
            return
        if child + 1 < size and _earlier(times, heap[child + 1], heap[child]):
            child += 1
        if not _earlier(times, heap[child], heap[i]):
            return
        heap[i], heap[child] = heap[child], heap[i]
        i = child


@kernel
def sort_by_time(times, size, order):
    """The first `size` numbers in the order of their times, ties by number.

    (np.argsort would do, but takes two seconds to compile.)
    """
    for i in range(size):
        order[i] = i
    for i in range(size // 2 - 1, -1, -1):
        sift_down(order, size, times, i)
    for last in range(size - 1, 0, -1):
        order[0], order[last] = order[last], order[0]
        sift_down(order, last, times, 0)
    for i in range(size // 2):
        order[i], order[size - 1 - i] = order[size - 1 - i], order[i]


@kernel
def asynchronous(
    timing: Timing, seed, N, answers, max_delay, order: PartOrder | None, in_hand, columns: Columns
):
    """First come, first served; returns (commits, computations, -1).

    A worker's cycle: message/2, compute, message/2, wait for the master, reply.  To receive and to reply take
    the link's time each.  `answers` answers make a commit, which takes the master's service time.  One that
    is more than `max_delay` commits old is dropped (commit 0).  A worker that joins at time t receives the
    version that is current at t, or when its turn comes where messages keep the link.  `order` is None where
    the data is not cut: then nothing of it is compiled.  `in_hand` receives the part that each worker
    computes when the queue ends.  When the columns are too short the last number returned is the length to
    try again with; see also `no_time_left`.
    """
    W, half, link, master = timing.m.size, timing.message / 2.0, timing.link, timing.master
    z = np.empty((W, BLOCK))
    k = np.zeros(W, np.int64)
    version = np.zeros(W, np.int64)
    joined, leaves = np.zeros(W, np.bool_), np.zeros(W, np.bool_)
    death = timing.death.copy()
    closed = np.empty(N)  # when each version came to be
    event = timing.birth.copy()  # when a worker joins, else the next time its update reaches the master
    heap = np.empty(W, np.int64)
    sort_by_time(event, W, heap)  # a sorted array is a heap
    size, n, rows, waiting, first, free = W, 0, 0, 0, 0, 0.0  # rows before `first` have their time
    while n < N and size > 0:
        w = heap[0]
        if leaves[w]:
            if order is not None:
                take_back(order, in_hand[w], -1)
            size = _leave(timing, heap, size, event, joined, leaves, death)
            continue
        if joined[w]:
            if rows == columns.worker.size:
                return n, rows, 2 * rows
            start = max(event[w], free) + link
            fresh = n - version[w] <= max_delay
            columns.worker[rows], columns.read[rows], columns.part[rows] = w, version[w], in_hand[w]
            columns.commit[rows], columns.time[rows] = n + 1 if fresh else 0, start
            rows += 1
            if order is not None:
                take_back(order, in_hand[w], version[w] if fresh else -1)
            waiting += fresh
            free = start
            if waiting == answers:
                free = start + master
                closed[n] = free
                for row in range(first, rows):
                    columns.time[row] = free
                n, waiting = n + 1, 0
            if waiting == 0:
                first = rows
            version[w] = n
            free += link
            received = free + half
        else:
            joined[w] = True
            if link > 0.0:
                version[w] = n
                free = max(event[w], free) + link
                received = free + half
            else:
                current = n
                while current > 0 and closed[current - 1] > event[w]:
                    current -= 1
                version[w] = current
                received = event[w] + half
        by_age = False
        if order is not None:
            in_hand[w] = hand_out(order, seed)
            by_age = order.kind == BY_AGE
        time = draw_time(timing, z, w, k[w], seed)
        if time < 0.0:
            return n, rows, no_time_left(w)
        finish = received + time
        k[w] += 1
        if finish <= death[w]:
            event[w] = finish + half
            sift_down(heap, size, event, 0)
        elif by_age:
            event[w], leaves[w] = max(death[w], event[w]), True
            sift_down(heap, size, event, 0)
        else:
            event[w] = received
            size = _leave(timing, heap, size, event, joined, leaves, death)
    for row in range(first, rows):
        columns.commit[row] = 0 if columns.commit[row] > n else columns.commit[row]
        columns.time[row] = columns.time[rows - 1]
    return n, rows, -1


@inlined
def _leave(timing, heap, size, event, joined, leaves, death):
    """The worker at the root of the heap is gone, for good or until it is there again; returns the size."""
    w = heap[0]
    if timing.rebirth[w] < np.inf and death[w] < np.inf:
        event[w] = max(timing.rebirth[w], event[w])
        joined[w], leaves[w], death[w] = False, False, np.inf
    else:
        size -= 1
        heap[0] = heap[size]
    sift_down(heap, size, event, 0)
    return size


class Round(NamedTuple):
    """The workers of a cluster that works in rounds; arrays of one entry per worker."""

    free: np.ndarray  # when a worker can take up a broadcast
    finish: np.ndarray  # when it will have computed on the present one
    heard: np.ndarray  # when the master will have received that; inf: it dies before
    late: np.ndarray  # when an answer to a round that is over arrives; inf: none is under way
    drawn: np.ndarray  # the time of its next computation, drawn but not yet begun; -1: none
    begun: np.ndarray  # when it begins with that, unless a newer broadcast comes before
    death: np.ndarray  # inf once a worker that died is there again
    reached: np.ndarray  # when the broadcast reaches it


@inlined
def _alive(timing, w, now):
    return timing.birth[w] <= now and (now < timing.death[w] or timing.rebirth[w] <= now)


@kernel
def _send_round(timing, state, broadcast):
    """Send the broadcast to the living, one after the other; returns when the last has left."""
    for w in range(state.reached.size):
        if _alive(timing, w, broadcast):
            broadcast += timing.link
        state.reached[w] = broadcast + timing.message / 2.0
    return broadcast


@kernel
def _begin_round(timing, state, z, k, seed):
    """When every worker will have computed on the broadcast; returns a worker without times, or -1."""
    half = timing.message / 2.0
    for w in range(k.size):
        for _ in range(2):
            if state.drawn[w] < 0.0:
                state.drawn[w] = draw_time(timing, z, w, k[w], seed)
                if state.drawn[w] < 0.0:
                    return w
                k[w] += 1
            begun = state.begun[w] = max(state.reached[w], state.free[w])
            state.finish[w] = begun + state.drawn[w]
            if state.finish[w] <= state.death[w] or timing.rebirth[w] == np.inf:
                break
            if begun < state.death[w]:
                state.drawn[w] = -1.0  # it is lost
            state.free[w] = max(state.free[w], timing.rebirth[w] + timing.link + half)
            state.death[w] = np.inf
    return -1


@kernel
def _receive_round(timing, state, busy):
    """When the master will have received every answer, one after the other from time `busy` on."""
    half, W = timing.message / 2.0, state.finish.size
    for w in range(W):
        state.heard[w] = state.finish[w] + half if state.finish[w] <= state.death[w] else np.inf
    if timing.link == 0.0:
        return
    arrivals, order = np.empty(2 * W), np.empty(2 * W, np.int64)
    for w in range(W):
        arrivals[w], arrivals[W + w] = state.heard[w], state.late[w]
    sort_by_time(arrivals, 2 * W, order)
    for i in order:
        if arrivals[i] == np.inf:
            return
        busy = max(arrivals[i], busy) + timing.link
        if i < W:
            state.heard[i] = busy


@kernel
def _close_round(timing, state, timeout, quorum, reached, answered):
    """When the round is over (-1: never), and how many have answered, their numbers in `answered`."""
    W = state.heard.size
    event, kind = np.empty(2 * W + 1), np.empty(2 * W + 1, np.int64)
    events = 0
    for w in range(W):
        if timing.death[w] < np.inf:
            event[events], kind[events] = timing.death[w], -1
            events += 1
        if state.heard[w] < np.inf:
            event[events], kind[events] = state.heard[w], w
            events += 1
    event[events], kind[events] = reached + timeout, -1
    events += 1
    order = np.empty(events, np.int64)
    sort_by_time(event, events, order)
    answers = 0
    for e in range(events):
        now = event[order[e]]
        if now == np.inf:
            break
        if kind[order[e]] >= 0:
            answered[answers] = kind[order[e]]
            answers += 1
        if e + 1 < events and event[order[e + 1]] == now:
            continue
        if now < reached:
            continue
        living = silent = 0
        for w in range(W):
            if _alive(timing, w, now):
                living += 1
                silent += state.heard[w] > now
        if answers > 0 and (silent == 0 or (now >= reached + timeout and answers >= quorum * living - 1e-9)):
            return now, answers
    return -1.0, answers


@kernel
def rounds(timing: Timing, timeout, quorum, seed, N, columns: Columns):
    """Synchronous rounds with timeout and quorum; returns (rounds closed, computations, -1).

    Round n closes when every living worker answered, or when `timeout` has passed since the
    broadcast reached the workers and at least quorum * (living workers) answered.  A late worker
    finishes its useless computation (recorded with commit 0), then takes up the newest broadcast.
    Each message of a broadcast and each answer, late ones too, keeps the link; the broadcast goes first.
    The last number returned may be `no_time_left`.
    """
    W, half = timing.m.size, timing.message / 2.0
    z, k = np.empty((W, BLOCK)), np.zeros(W, np.int64)
    free, late, drawn = np.empty(W), np.empty(W), np.empty(W)
    for w in range(W):
        free[w] = (timing.birth[w] + timing.link if timing.birth[w] > 0.0 else 0.0) + half
        late[w], drawn[w] = np.inf, -1.0
    state = Round(
        free,
        np.empty(W),
        np.empty(W),
        late,
        drawn,
        np.empty(W),
        timing.death.copy(),
        np.empty(W),
    )
    answered = np.empty(W, np.int64)
    n, rows, sent = 0, 0, _send_round(timing, state, 0.0)
    worker, read, commit, time = columns.worker, columns.read, columns.commit, columns.time
    while n < N:
        short = _begin_round(timing, state, z, k, seed)
        if short >= 0:
            return n, rows, no_time_left(short)
        _receive_round(timing, state, sent)
        closed, answers = _close_round(timing, state, timeout, quorum, sent + half, answered)
        if closed < 0.0:
            break
        n += 1
        broadcast = closed + timing.master
        for a in range(answers):
            w = answered[a]
            worker[rows], read[rows], commit[rows], time[rows] = w, n - 1, n, broadcast
            rows += 1
            state.free[w], state.drawn[w] = state.finish[w], -1.0
        sent = _send_round(timing, state, broadcast)
        for w in range(W):
            if state.late[w] <= closed:
                state.late[w] = np.inf
            begun = state.begun[w]
            if state.drawn[w] >= 0.0 and begun < state.reached[w] and begun < state.death[w]:
                if state.finish[w] <= state.death[w]:
                    state.late[w] = state.finish[w] + half
                    worker[rows], read[rows], commit[rows], time[rows] = w, n - 1, 0, state.late[w]
                    rows += 1
                state.free[w], state.drawn[w] = state.finish[w], -1.0
    return n, rows, -1
