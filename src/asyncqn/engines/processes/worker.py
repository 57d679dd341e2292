"""The worker's side of the processes engine: orders and updates over a socket, numbers in shared memory.

The iterate is read from, and the update written to, memory that worker and master share; the messages
about them are headers.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from asyncqn.cluster.cluster import Cluster
from asyncqn.core.worker import sample_update
from asyncqn.engines.failures import failure
from asyncqn.engines.orders import Assign, sent_fields, state_arrays
from asyncqn.engines.processes.channel import (
    FAILED,
    READY,
    REJECTED,
    STATE,
    STOP,
    UPDATE,
    Channel,
    Gone,
)
from asyncqn.engines.processes.packing import unpack
from asyncqn.engines.shared_memory import mapped
from asyncqn.engines.thread_pools import one_thread_pools
from asyncqn.engines.wire import arrays_to_bytes
from asyncqn.engines.worker_frames import WorkerFrames
from asyncqn.engines.worker_loop import Received, WorkerLoop
from asyncqn.runs.checkpoint import Arrays
from asyncqn.types import Algorithm, Array, Problem

NOBODY, NO_PART = -1, -1
"""In the place of a worker's number, and of a part, in a header."""


class WorkerSetup(NamedTuple):
    """Everything that a worker receives once, at its start."""

    problem: Problem
    algorithm: Algorithm
    theta0: Array
    seed: int
    timing_model: Cluster | None
    unit: float
    sample: Any
    """An update, which shows what all of them look like."""
    states: Arrays
    """Of the workers of the checkpoint this run continues from."""
    warm: bool
    """Whether kernels are loaded by a step that is thrown away."""


def life_of(setup: WorkerSetup) -> Callable[[socket.socket, int, int], None]:
    """Return what a worker does that was forked from the master."""
    return lambda sock, room, nbytes: _live(sock, room, nbytes, lambda: setup)


def life_from(fd: int) -> Callable[[socket.socket, int, int], None]:
    """Return what a worker does that loads its setup from shared memory."""
    return lambda sock, room, nbytes: _live(sock, room, nbytes, lambda: unpack(fd))


def _live(
    sock: socket.socket, room: int, nbytes: int, load: Callable[[], WorkerSetup]
) -> None:
    """Work until the master says to stop, or is gone; send it the description of an error."""
    channel = Channel(sock)
    # A worker must not outlive its master, even while it computes.
    channel.end_with_the_other()
    loop: WorkerLoop | None = None
    try:
        try:
            with one_thread_pools():
                setup = load()
                loop, link = (
                    _prepared(setup, channel),
                    ProcessLink(channel, setup, room, nbytes),
                )
                channel.send(READY)
                loop.run(link)
                link.send_last_state(loop.local)
        except Gone:
            raise
        except Exception as error:
            order = None if loop is None else loop.order
            # As text, not as a pickled exception, which the master might be unable to load.
            content = json.dumps(
                failure(order or "a worker could not be prepared", error)
            )
            channel.send(FAILED, content=content.encode())
    except Gone:
        return


def _prepared(setup: WorkerSetup, channel: Channel) -> WorkerLoop:
    """Make or load the worker's state."""
    problem, algorithm, theta0, seed = (
        setup.problem,
        setup.algorithm,
        setup.theta0,
        setup.seed,
    )
    loop = WorkerLoop(algorithm, problem, theta0, seed, timing_model=setup.timing_model)
    returning = channel.receive().numbers[0]
    if returning != NOBODY:
        loop.restore(returning, setup.states)
    # A spawned interpreter has loaded no kernel; a forked one inherits those of the master.
    if setup.warm:
        sample_update(algorithm, loop.steps.problem, theta0, seed)
    return loop


class ProcessLink:
    """The worker's end of a socket and of shared memory."""

    sending_counts = True

    def __init__(
        self, channel: Channel, setup: WorkerSetup, room: int, nbytes: int
    ) -> None:
        iterate = setup.algorithm.init(setup.theta0)
        fields = sent_fields(setup.algorithm, iterate)
        self.frames = WorkerFrames(
            iterate, fields, setup.sample, False, mapped(room, nbytes)
        )
        os.close(room)  # the mapping keeps the memory
        self.channel, self.unit, self.worker = channel, setup.unit, NOBODY

    def receive(self, timed: bool) -> Received | None:
        message = self.channel.receive()
        self.worker, read, k, part, hand_in, *_ = message.numbers
        if message.kind == STOP:
            return None
        order = Assign(
            self.worker, read, k, None if part == NO_PART else part, bool(hand_in)
        )
        return Received(order, self.frames.take())

    def hand_in(self, arrays: Arrays) -> None:
        self.channel.send(STATE, False, content=arrays_to_bytes(arrays).data)

    def send_last_state(self, local: Any) -> None:
        """Send the state that the worker ends with."""
        content = arrays_to_bytes(state_arrays(self.worker, local))
        sys.stdout.flush()  # what the problem printed: after its last message a process may be killed
        self.channel.send(STATE, True, content=content.data)

    def send(self, update: Any | None, local: Any, seconds: float | None) -> Any:
        # Headers are integers, so that a time travels as nanoseconds.
        nanoseconds = round(1e9 * (seconds or 0.0))
        if update is None:
            self.channel.send(REJECTED, nanoseconds)
            return local
        local = self.frames.pack(update, local)
        self.channel.send(UPDATE, nanoseconds)
        return local

    def now(self) -> float:
        return time.perf_counter() / self.unit

    def sleep_until(self, until: float) -> bool:
        left = until * self.unit - time.perf_counter()
        if left <= 0:
            return True
        # While it computes, the only message to come is that it shall stop.
        stopped, _, _ = select.select(
            [self.channel], [], [], left if math.isfinite(left) else None
        )
        return not stopped
