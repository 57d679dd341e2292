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

import numpy as np

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.elastic import POLLING_INTERVAL, ElasticMaster
from asyncqn.engines.failures import Failure
from asyncqn.engines.processes.channel import (
    FAILED,
    LAST_STATE,
    READY,
    START,
    STATE,
    STOP,
    UPDATE,
    WORK,
    Channel,
    Gone,
    Message,
)
from asyncqn.engines.processes.fork_server import ForkServer
from asyncqn.engines.processes.worker import NOBODY
from asyncqn.engines.shared_memory import mapped, shared_memory
from asyncqn.engines.wire import Frames, arrays_from_bytes, order_header
from asyncqn.engines.worker_loop import Step


class Slot:
    """The master's record of one process; `worker` is its number, -1 until it is ready."""

    def __init__(
        self,
        server: ForkServer,
        sent: tuple[Any, ...],
        sample: Any,
        returning: int | None,
    ) -> None:
        nbytes = Frames.nbytes(sent, sample)
        fd = shared_memory(nbytes)
        try:
            sock, self.process = server.start(fd, nbytes)
            self.frames = Frames(sent, sample, room=mapped(fd, nbytes))
        finally:
            os.close(fd)
        self.channel = Channel(sock)
        self.returning = returning
        self.worker = NOBODY


class ProcessMaster(ElasticMaster):
    """Runs `coordinator` with one process per worker; see the top of this file.

    `sample` is an update of the algorithm, which shows the layout of messages.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        server: ForkServer,
        sample: Any,
        clock: Clock,
        start_timeout: float,
    ) -> None:
        super().__init__(coordinator, clock, start_timeout)
        self.server = server
        self.sample = sample
        self.slots: dict[int, Slot] = {}
        """By the descriptor of their sockets."""
        # `select.select` fails for descriptors above 1023; `poll` has no such limit.
        self.ready = select.poll()

    # -- processes come and go

    def _start(self, returning: int | None) -> None:
        slot = Slot(self.server, self.coordinator.sent(), self.sample, returning)
        self.slots[slot.channel.fileno()] = slot
        self.starting.add(slot)
        self.ready.register(slot.channel, select.POLLIN)
        self._send(slot, START, NOBODY if returning is None else returning)

    def _why_nobody_came(self) -> str:
        if not self.starting:
            return "the processes of all workers died before they were ready."
        return f"no worker was ready after {self.start_timeout:g} s: give Processes a longer start_timeout."

    def _look_for_lost(self) -> None:
        if self.coordinator.timed:
            for worker in [w for w in self.at if w not in self.coordinator.members]:
                self._forget(self.at[worker])

    def _forget(self, slot: Slot) -> None:
        """Kill a process.  It has not been reaped yet, so its PID cannot belong to another process."""
        del self.slots[slot.channel.fileno()]
        self.at.pop(slot.worker, None)
        self.starting.discard(slot)
        self.ready.unregister(slot.channel)
        slot.channel.close()
        # The memory, too, although the traceback of an error may still refer to the slot.
        del slot.frames
        with suppress(ProcessLookupError):
            os.kill(slot.process, signal.SIGKILL)

    def _lose(self, slot: Slot) -> None:
        """Record that a worker is gone, with its computation, and carry out the orders that follow."""
        self._forget(slot)
        replacing = bool(self.starting)
        if slot.worker != NOBODY:
            orders = self.coordinator.lost(
                slot.worker, self._now(), replacing=replacing
            )
            self._send_orders(orders)
        # The last worker that was starting has died, and nobody else is there.
        elif self.begun and not self.coordinator.members and not replacing:
            self.coordinator.stop_without_workers()

    # -- messages

    def _serve(self, seconds: float) -> None:
        wait = min(seconds, POLLING_INTERVAL)
        # The master sleeps in `poll` instead of spinning: spinning would take a core from a worker, and a
        # process that a message wakes runs on the core of its sender, whose cache holds the numbers.
        for fd, _ in self.ready.poll(math.ceil(1e3 * wait)):
            if (slot := self.slots.get(fd)) is None:
                continue  # it was lost while others were served
            try:
                message = slot.channel.arrived()
            except Gone:
                self._lose(slot)
                continue
            if message is not None:
                self._do(slot, message)

    def _do(self, slot: Slot, message: Message) -> None:
        """Do what a message asks for."""
        kind = message.kind
        if kind == READY:
            self._welcome(slot)
        elif kind == STATE:
            arrays = arrays_from_bytes(np.frombuffer(message.content, np.uint8))
            self.coordinator.snapshots.hand_in(slot.worker, arrays)
        elif kind == LAST_STATE:
            arrays = arrays_from_bytes(np.frombuffer(message.content, np.uint8))
            state = self.coordinator.snapshots.worker_state(slot.worker, arrays)
            self.states[slot.worker] = state
            self._forget(slot)
        elif kind == FAILED:
            raise Failure(*json.loads(message.content)).raised()
        else:
            update = None
            if kind == UPDATE:
                update = self.sample._make(slot.frames.update.unpack())
            self._deliver(slot.worker, update, 1e-9 * message.numbers[0])

    def _ask_for_last_state(self, slot: Slot) -> None:
        self._send(slot, STOP, slot.worker)

    def _send(self, slot: Slot, kind: int, *numbers: int) -> None:
        try:
            slot.channel.send(kind, *numbers)
        except Gone:
            self._lose(slot)

    def _send_order(self, order: Step) -> None:
        slot = self.at.get(order.worker)
        if slot is None:
            return  # lost while the orders before this one were carried out
        slot.frames.take_order().pack(self.coordinator.sent())
        self._send(slot, WORK, *order_header(order))
