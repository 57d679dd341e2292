"""The event queue of the simulated cluster: schedules from drawn times, nothing of theta.

A computation's time is exp(m + s Z), Z the worker's k-th normal for delays, drawn in blocks; m where s = 0.
Rows come out as columns; a schedule that ends early (every worker gone) is shorter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.kernels.jit import inlined, kernel
from asyncqn.kernels.part_order import BY_AGE, NO_PARTS, PartOrder, hand_out, take_back
from asyncqn.kernels.random import BLOCK, DELAYS, normals_block


class Timing(NamedTuple):
    """What the event queues ask of a cluster."""

    m: np.ndarray  # (W,) a time is exp(m + s Z), or m where s = 0
    s: np.ndarray
    message: float
    master: float
    birth: np.ndarray
    death: np.ndarray


class Columns(NamedTuple):
    """The rows of a schedule, to be filled."""

    worker: np.ndarray
    read: np.ndarray
    commit: np.ndarray
    time: np.ndarray
    part: np.ndarray


@inlined
def draw_time(z, w, k, seed, m, s):
    """Time of worker w's k-th computation; z[w] caches its current block of normals."""
    if s[w] == 0.0:
        return m[w]
    if k % BLOCK == 0:
        normals_block(z[w], k, seed, 0, w, DELAYS)
    return np.exp(m[w] + s[w] * z[w, k % BLOCK])


@inlined
def _earlier(times, a, b):
    """Order of the queue: time, then worker number."""
    return times[a] < times[b] or (times[a] == times[b] and a < b)


@kernel
def sift_down(heap, size, times):
    """Restore the heap of worker numbers, ordered by their next event, after its root changed."""
    i = 0
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
def asynchronous(timing: Timing, seed, N, answers, max_delay, order: PartOrder, in_hand, columns: Columns):
    """First come, first served; returns (commits, computations, -1).

    A worker's cycle: message/2, compute, message/2, wait for the master, reply.  `answers` answers make a
    commit, which takes the master's service time.  One that is more than `max_delay` commits old is dropped
    (commit 0).  A worker that joins at time t receives the version that is current at t.  `in_hand` receives
    the part that each worker computes when the queue ends.  When the columns are too short the last number
    returned is the length to try again with.
    """
    m, s, message, master, birth, death = timing
    W, half = m.size, message / 2.0
    z = np.empty((W, BLOCK))
    k = np.zeros(W, np.int64)
    version = np.zeros(W, np.int64)
    joined, leaves = np.zeros(W, np.bool_), np.zeros(W, np.bool_)
    closed = np.empty(N)  # when each version came to be
    event = birth.copy()  # when a worker joins, else the next time its update reaches the master
    heap = np.argsort(event, kind="mergesort")  # a sorted array is a heap; ties by worker number
    size, n, rows, waiting, first, free = W, 0, 0, 0, 0, 0.0  # rows before `first` have their time
    while n < N and size > 0:
        w = heap[0]
        if leaves[w]:
            take_back(order, in_hand[w], -1)
            size -= 1
            heap[0] = heap[size]
            sift_down(heap, size, event)
            continue
        if joined[w]:
            if rows == columns.worker.size:
                return n, rows, 2 * rows
            start = max(event[w], free)
            fresh = n - version[w] <= max_delay
            columns.worker[rows], columns.read[rows], columns.part[rows] = w, version[w], in_hand[w]
            columns.commit[rows], columns.time[rows] = n + 1 if fresh else 0, start
            rows += 1
            if order.kind != NO_PARTS:
                take_back(order, in_hand[w], version[w] if fresh else -1)
            waiting += fresh
            if waiting == answers:
                free = start + master
                closed[n] = free
                columns.time[first:rows] = free
                n, waiting = n + 1, 0
            if waiting == 0:
                first = rows
            version[w] = n
            received = max(start, free) + half
        else:
            joined[w] = True
            current = n
            while current > 0 and closed[current - 1] > event[w]:
                current -= 1
            version[w] = current
            received = event[w] + half
        if order.kind != NO_PARTS:
            in_hand[w] = hand_out(order, seed)
        finish = received + draw_time(z, w, k[w], seed, m, s)
        k[w] += 1
        if finish <= death[w]:
            event[w] = finish + half
        elif order.kind == BY_AGE:
            event[w], leaves[w] = max(death[w], event[w]), True
        else:
            size -= 1
            heap[0] = heap[size]
        sift_down(heap, size, event)
    columns.commit[first:rows] = np.where(columns.commit[first:rows] > n, 0, columns.commit[first:rows])
    columns.time[first:rows] = columns.time[rows - 1]
    return n, rows, -1


@kernel
def rounds(timing: Timing, timeout, quorum, seed, N, worker, read, commit, time):
    """Synchronous rounds with timeout and quorum; returns (rounds closed, computations).

    Round n closes when every living worker answered, or when `timeout` has passed since the
    broadcast reached the workers and at least quorum * (living workers) answered.  A late worker
    finishes its useless computation (recorded with commit 0), then takes up the newest broadcast.
    """
    m, s, message, master, birth, death = timing
    W, half = m.size, message / 2.0
    z = np.empty((W, BLOCK))
    k = np.zeros(W, np.int64)
    free = birth + half  # when a worker can take up a broadcast
    finish = np.empty(W)
    event = np.empty(2 * W + 1)
    kind = np.empty(2 * W + 1, np.int64)
    broadcast, n, rows = 0.0, 0, 0
    drawn = np.full(W, -1.0)  # the time of a worker's next computation, drawn but not yet begun
    while n < N:
        reached = broadcast + half
        events = 0
        for w in range(W):
            if death[w] < np.inf:
                event[events], kind[events] = death[w], -1
                events += 1
            if drawn[w] < 0.0:
                drawn[w] = draw_time(z, w, k[w], seed, m, s)
                k[w] += 1
            finish[w] = max(reached, free[w]) + drawn[w]
            if finish[w] <= death[w]:
                event[events], kind[events] = finish[w] + half, w
                events += 1
        event[events], kind[events] = reached + timeout, -1
        events += 1
        order = np.argsort(event[:events], kind="mergesort")
        closed, answers = -1.0, 0
        answered = np.empty(W, np.int64)
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
                if birth[w] <= now and now < death[w]:
                    living += 1
                    silent += finish[w] + half > now
            if answers > 0 and (
                silent == 0 or (now >= reached + timeout and answers >= quorum * living - 1e-9)
            ):
                closed = now
                break
        if closed < 0.0:
            break
        n += 1
        for a in range(answers):
            w = answered[a]
            worker[rows], read[rows], commit[rows], time[rows] = w, n - 1, n, closed + master
            rows += 1
            free[w] = finish[w]
            drawn[w] = -1.0
        broadcast = closed + master
        for w in range(W):
            begun = max(reached, free[w])
            if drawn[w] >= 0.0 and begun < broadcast + half and begun < death[w]:
                if finish[w] <= death[w]:
                    worker[rows], read[rows], commit[rows], time[rows] = w, n - 1, 0, finish[w] + half
                    rows += 1
                free[w] = finish[w]
                drawn[w] = -1.0
    return n, rows
