"""The master's side of the processes engine: carries messages between `Coordinator` and the workers.

Every poll serves each worker whose message has arrived once, so that no worker waits for more than one
service of each other worker.  A worker whose socket has closed is lost, and is not replaced unless the user
calls `add`.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
from contextlib import suppress
from typing import Any

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.failures import Failure
from asyncqn.engines.master_loop import MasterLoop, Slot
from asyncqn.engines.processes.channel import Channel, Gone, Message
from asyncqn.engines.processes.fork_server import ForkServer
from asyncqn.engines.shared_memory import mapped, shared_memory
from asyncqn.engines.wire import Frames, MessageKind, arrays_from_bytes, order_integers
from asyncqn.engines.worker_loop import Step


class ProcessSlot(Slot):
    """The master's record of one process."""

    def __init__(
        self, worker: int, server: ForkServer, sent: tuple[Any, ...], sample: Any
    ) -> None:
        super().__init__(worker)
        nbytes = Frames.nbytes(sent, sample)
        fd = shared_memory(nbytes)
        try:
            sock, self.process = server.start(fd, nbytes)
            self.frames = Frames(sent, sample, room=mapped(fd, nbytes))
        finally:
            os.close(fd)
        self.channel = Channel(sock)


class ProcessMaster(MasterLoop[ProcessSlot]):
    """Runs `coordinator` with one process per worker; see the top of this file.

    `sample` is an update of the algorithm, which shows the layout of messages.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        start_timeout: float,
        server: ForkServer,
        sample: Any,
    ) -> None:
        super().__init__(coordinator, clock, start_timeout)
        self.server, self.sample = server, sample
        self.slots: dict[int, ProcessSlot] = {}
        """By the descriptor of their sockets."""
        # `select.select` fails for descriptors above 1023; `poll` has no such limit.
        self.sockets = select.poll()

    def start(self, worker: int) -> ProcessSlot:
        sent = self.coordinator.sent()
        slot = ProcessSlot(worker, self.server, sent, self.sample)
        self.slots[slot.channel.fileno()] = slot
        self.sockets.register(slot.channel, select.POLLIN)
        return slot

    def why_nobody_came(self) -> str:
        if not self.starting:
            return "the processes of all workers died before they were ready."
        return f"no worker was ready after {self.start_timeout:g} s: give Processes a longer start_timeout."

    def forget(self, slot: ProcessSlot) -> None:
        del self.slots[slot.channel.fileno()]
        self.sockets.unregister(slot.channel)
        slot.channel.close()
        # The memory, too, although the traceback of an error may still refer to the slot.
        del slot.frames
        # It has not been reaped yet, so its PID cannot belong to another process.
        with suppress(ProcessLookupError):
            os.kill(slot.process, signal.SIGKILL)

    # -- messages

    def serve(self, seconds: float) -> None:
        # The master sleeps in `poll` instead of spinning: spinning would take a core from a worker, and a
        # process that a message wakes runs on the core of its sender, whose cache holds the numbers.
        for fd, _ in self.sockets.poll(math.ceil(1e3 * seconds)):
            if (slot := self.slots.get(fd)) is None:
                continue  # it was lost while others were served
            try:
                message = slot.channel.arrived()
            except Gone:
                self.lose(slot)
                continue
            if message is not None:
                self._do(slot, message)

    def _do(self, slot: ProcessSlot, message: Message) -> None:
        kind, content = message.kind, None
        if kind is MessageKind.FAILED:
            raise Failure(*json.loads(message.content)).raised()
        if kind is MessageKind.UPDATE:
            content = slot.frames.update.unpack()
        elif message.content:
            content = arrays_from_bytes(message.content)
        self.take(slot, kind, content, 1e-9 * message.integers[0])

    def send_start(self, slot: ProcessSlot) -> None:
        self._send(slot, MessageKind.START, slot.worker)

    def send_order(self, slot: ProcessSlot, order: Step, values: Any) -> None:
        slot.frames.take_order().pack(values)
        self._send(slot, MessageKind.WORK, *order_integers(order))

    def send_stop(self, slot: ProcessSlot) -> None:
        self._send(slot, MessageKind.STOP)

    def _send(self, slot: ProcessSlot, kind: MessageKind, *integers: int) -> None:
        try:
            slot.channel.send(kind, *integers)
        except Gone:
            self.lose(slot)
