"""The worker's side of the processes engine: orders and updates over a socket, numbers in shared memory."""

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

from asyncqn.engines.failures import failure
from asyncqn.engines.processes.channel import Channel, Gone
from asyncqn.engines.processes.fork_server import Life
from asyncqn.engines.shared_memory import mapped
from asyncqn.engines.thread_pools import one_thread_pools
from asyncqn.engines.wire import Frames, MessageKind
from asyncqn.engines.worker_loop import Received
from asyncqn.engines.worker_setup import FrameLink, WorkerSetup


def life(load: Callable[[], WorkerSetup], *, warm: bool) -> Life:
    """Return what a worker does; `load` gives it its setup, and `warm` is that of `WorkerSetup.loop`."""

    def live(sock: socket.socket, room: int, nbytes: int) -> None:
        channel = Channel(sock)
        # A worker must not outlive its master, even while it computes.
        channel.end_with_the_other()
        link: ProcessLink | None = None
        with suppress(Gone), one_thread_pools():
            try:
                link = ProcessLink(channel, load(), room, nbytes)
                link.work(channel.receive().integers[0], warm=warm)
            except Gone:
                raise
            except Exception as error:
                order = None if link is None else link.order
                # As text, not as a pickled exception, which the master might be unable to load.
                words = failure(order or "a worker could not be prepared", error)
                channel.send(MessageKind.FAILED, content=json.dumps(words).encode())

    return live


class ProcessLink(FrameLink):
    """The worker's end of a socket and of shared memory."""

    def __init__(
        self, channel: Channel, setup: WorkerSetup, room: int, nbytes: int
    ) -> None:
        super().__init__(setup)
        self.frames = Frames(self.sent, setup.sample, room=mapped(room, nbytes))
        os.close(room)  # the mapping keeps the memory
        self.channel = channel

    def receive(self, timed: bool) -> Received | None:
        message = self.channel.receive()
        if message.kind is MessageKind.STOP:
            return None
        return self.received(self.frames.take_order(), message.integers)

    def carry(self, kind: MessageKind, *integers: int) -> None:
        self.channel.send(kind, *integers)

    def carry_content(self, kind: MessageKind, content: bytes) -> None:
        sys.stdout.flush()  # what the problem printed: after its last message a process may be killed
        self.channel.send(kind, content=content)

    def sleep_until(self, until: float) -> bool:
        left = until * self.setup.unit - time.perf_counter()
        if left <= 0:
            return True
        # While it computes, the only message to come is that it shall stop.
        timeout = left if math.isfinite(left) else None
        stopped, _, _ = select.select([self.channel], [], [], timeout)
        return not stopped
