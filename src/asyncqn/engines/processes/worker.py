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
from contextlib import suppress
from typing import Any

from asyncqn.engines.copies import as_iterate, sent_fields
from asyncqn.engines.failures import failure
from asyncqn.engines.processes.channel import (
    FAILED,
    LAST_STATE,
    READY,
    REJECTED,
    STATE,
    STOP,
    UPDATE,
    Channel,
    Gone,
)
from asyncqn.engines.processes.fork_server import Life
from asyncqn.engines.shared_memory import mapped
from asyncqn.engines.thread_pools import one_thread_pools
from asyncqn.engines.wire import Frames, arrays_to_bytes, order_from
from asyncqn.engines.worker_loop import Received, WorkerLoop
from asyncqn.engines.worker_setup import WorkerSetup
from asyncqn.runs.checkpoint import Arrays
from asyncqn.runs.snapshot import state_arrays

NOBODY = -1
"""In a header in place of a worker's number."""


def life(load: Callable[[], WorkerSetup], *, warm: bool) -> Life:
    """Return what a worker does; `load` gives it its setup, and `warm` is that of `WorkerSetup.loop`."""

    def live(sock: socket.socket, room: int, nbytes: int) -> None:
        channel = Channel(sock)
        # A worker must not outlive its master, even while it computes.
        channel.end_with_the_other()
        with suppress(Gone), one_thread_pools():
            _work(channel, load, warm, room, nbytes)

    return live


def _work(
    channel: Channel,
    load: Callable[[], WorkerSetup],
    warm: bool,
    room: int,
    nbytes: int,
) -> None:
    """Work until the master says to stop; send it the description of an error."""
    loop: WorkerLoop | None = None
    try:
        setup = load()
        returning = channel.receive().numbers[0]
        loop = setup.loop(None if returning == NOBODY else returning, warm=warm)
        link = ProcessLink(channel, setup, room, nbytes)
        channel.send(READY)
        loop.run(link)
        link.send_last_state(loop.local)
    except Gone:
        raise
    except Exception as error:
        order = None if loop is None else loop.order
        # As text, not as a pickled exception, which the master might be unable to load.
        content = json.dumps(failure(order or "a worker could not be prepared", error))
        channel.send(FAILED, content=content.encode())


class ProcessLink:
    """The worker's end of a socket and of shared memory."""

    sending_counts = True

    def __init__(
        self, channel: Channel, setup: WorkerSetup, room: int, nbytes: int
    ) -> None:
        self.iterate = setup.algorithm.init(setup.theta0)
        self.fields = sent_fields(setup.algorithm, self.iterate)
        sent = tuple(getattr(self.iterate, name) for name in self.fields)
        self.frames = Frames(sent, setup.sample, room=mapped(room, nbytes))
        os.close(room)  # the mapping keeps the memory
        self.channel = channel
        self.unit = setup.unit
        self.worker = NOBODY

    def receive(self, timed: bool) -> Received | None:
        message = self.channel.receive()
        self.worker = message.numbers[0]
        if message.kind == STOP:
            return None
        order = order_from(message.numbers[:5])
        values = self.frames.take_order().unpack()
        return Received(order, as_iterate(self.iterate, self.fields, values))

    def hand_in(self, arrays: Arrays) -> None:
        self.channel.send(STATE, content=arrays_to_bytes(arrays).data)

    def send_last_state(self, local: Any) -> None:
        """Send the state that the worker ends with."""
        content = arrays_to_bytes(state_arrays(self.worker, local))
        sys.stdout.flush()  # what the problem printed: after its last message a process may be killed
        self.channel.send(LAST_STATE, content=content.data)

    def send(self, update: Any | None, local: Any, seconds: float | None) -> Any:
        # Headers are integers, so that a time travels as nanoseconds.
        nanoseconds = round(1e9 * (seconds or 0.0))
        if update is None:
            self.channel.send(REJECTED, nanoseconds)
            return local
        self.frames.update.pack(update)
        self.channel.send(UPDATE, nanoseconds)
        return local

    def now(self) -> float:
        return time.perf_counter() / self.unit

    def sleep_until(self, until: float) -> bool:
        left = until * self.unit - time.perf_counter()
        if left <= 0:
            return True
        # While it computes, the only message to come is that it shall stop.
        timeout = left if math.isfinite(left) else None
        stopped, _, _ = select.select([self.channel], [], [], timeout)
        return not stopped
