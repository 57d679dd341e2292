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
import time
from contextlib import suppress
from typing import Any

import numpy as np

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.elastic import POLLING_INTERVAL, ElasticMaster
from asyncqn.engines.failures import Failure
from asyncqn.engines.orders import Assign
from asyncqn.engines.processes.channel import (
    FAILED,
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
from asyncqn.engines.processes.worker import NO_PART, NOBODY
from asyncqn.engines.shared_memory import mapped, shared_memory
from asyncqn.engines.wire import Frame, arrays_from_bytes, body_bytes, message_frames

SECOND_SIGNAL_WAIT = 1.0
"""Seconds that workers have after a second Ctrl-C."""


class Slot:
    """The master's record of one process; `worker` is its number, -1 until it is ready.

    There are two buffers for iterates: the next one is written while `learn` still reads the last one.
    """

    def __init__(
        self,
        server: ForkServer,
        coordinator: Coordinator,
        sample: Any,
        returning: int | None,
    ) -> None:
        sent = coordinator.sent()
        nbytes = body_bytes(sample) + 2 * body_bytes(sent)
        fd = shared_memory(nbytes)
        try:
            sock, self.process = server.start(fd, nbytes)
            self.frames: tuple[Frame, ...] = message_frames(
                sent, sample, False, mapped(fd, nbytes)
            )
        finally:
            os.close(fd)
        self.channel, self.returning, self.worker, self.turn = (
            Channel(sock),
            returning,
            NOBODY,
            0,
        )

    @property
    def inbox(self) -> Frame:
        """The frame into which the worker writes its update."""
        return self.frames[0]

    def next_outbox(self) -> Frame:
        """Return the buffer that the worker reads next, and does not read now."""
        frame, self.turn = self.frames[1 + self.turn], 1 - self.turn
        return frame

    def close(self) -> None:
        """Release the socket and the memory, although the traceback of an error may still refer to this."""
        self.channel.close()
        self.frames = ()


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
        self.server, self.sample = server, sample
        self.slots: dict[int, Slot] = {}
        """By the descriptor of their sockets."""
        # `select.select` fails for descriptors above 1023; `poll` has no such limit.
        self.ready = select.poll()
        self.messages = (
            2.0 * coordinator.reach
        )  # a slowed worker stretches its computation by them

    # -- the beginning and the end

    def _starting(self) -> int:
        return sum(slot.worker == NOBODY for slot in self.slots.values())

    def _why_nobody_came(self) -> str:
        if not self._starting():
            return "the processes of all workers died before they were ready."
        return f"no worker was ready after {self.start_timeout:g} s: give Processes a longer start_timeout."

    def _look_for_lost(self) -> None:
        if self.coordinator.timed:
            for worker in [w for w in self.at if w not in self.coordinator.members]:
                self._forget(self.at[worker])

    def _dismiss(self) -> None:
        coordinator, hurried = self.coordinator, False
        for slot in list(self.slots.values()):
            # A worker that is still starting has computed nothing and need not end in good order.
            if slot.worker == NOBODY:
                self._forget(slot)
            else:
                self._send(slot, STOP, slot.worker)
        until = time.monotonic() + coordinator.last_wait(self.clock.unit)
        while self.slots and time.monotonic() < until:
            self._serve(POLLING_INTERVAL)
            if coordinator.checkpoints is not None and coordinator.hurried:
                until = min(until, time.monotonic() + SECOND_SIGNAL_WAIT)
                # Reset, so that a third signal is noticed as well.
                coordinator.checkpoints.hurry, hurried = False, True
        for slot in list(self.slots.values()):
            if not hurried:
                coordinator.give_up(slot.worker, self._now())
            self._lose(slot)

    def _end_all(self) -> None:
        for slot in list(self.slots.values()):
            self._forget(slot)

    # -- processes come and go

    def _start(self, returning: int | None) -> None:
        slot = Slot(self.server, self.coordinator, self.sample, returning)
        self.slots[slot.channel.fileno()] = slot
        self.ready.register(slot.channel, select.POLLIN)
        self._send(slot, START, NOBODY if returning is None else returning)

    def _forget(self, slot: Slot) -> None:
        """Kill a process.  It has not been reaped yet, so its PID cannot belong to another process."""
        del self.slots[slot.channel.fileno()]
        self.at.pop(slot.worker, None)
        self.ready.unregister(slot.channel)
        slot.close()
        with suppress(ProcessLookupError):
            os.kill(slot.process, signal.SIGKILL)

    def _lose(self, slot: Slot) -> None:
        """Record that a worker is gone, with its computation, and carry out the orders that follow."""
        self._forget(slot)
        self.states.pop(slot.worker, None)
        if slot.worker != NOBODY:
            self._send_orders(
                self.coordinator.lost(
                    slot.worker, self._now(), replacing=self._starting() > 0
                )
            )
        # The last worker that was starting has died, and nobody else is there.
        elif self.begun and not self.coordinator.members and not self._starting():
            self.coordinator.stop_without_workers()

    # -- messages

    def _serve(self, seconds: float) -> None:
        # The master sleeps in `poll` instead of spinning: spinning would take a core from a worker, and a
        # process that a message wakes runs on the core of its sender, whose cache holds the numbers.
        for fd, _ in self.ready.poll(math.ceil(1e3 * seconds)):
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
        coordinator, kind = self.coordinator, message.kind
        if kind == READY:
            self._welcome(slot)
        elif kind == STATE:
            arrays = arrays_from_bytes(np.frombuffer(message.content, np.uint8))
            if message.numbers[0]:  # its last: the process ends by itself
                self.states[slot.worker] = coordinator.worker_state(slot.worker, arrays)
                self._forget(slot)
            else:
                coordinator.snapshots.hand_in(slot.worker, arrays)
        elif kind == FAILED:
            raise Failure(*json.loads(message.content)).raised()
        else:
            update = self.sample._make(slot.inbox.unpack()) if kind == UPDATE else None
            now, version, nanoseconds = (
                self.clock.now(),
                coordinator.version,
                message.numbers[0],
            )
            spent = 1e-9 * nanoseconds / self.clock.unit - self.messages
            self._send_orders(
                coordinator.deliver(slot.worker, update, now, spent=max(spent, 0.0))
            )
            coordinator.served(now, self.clock.now(), version)

    def _send(self, slot: Slot, kind: int, *numbers: int) -> None:
        try:
            slot.channel.send(kind, *numbers)
        except Gone:
            self._lose(slot)

    def _send_orders(self, orders: list[Assign]) -> None:
        coordinator = self.coordinator
        if coordinator.service and coordinator.time > self.clock.now():
            self.clock.sleep_until(
                coordinator.time
            )  # the service time of a slowed master
        for order in orders:
            slot = self.at.get(order.worker)
            if slot is None:
                continue  # lost while the orders before this one were carried out
            slot.next_outbox().pack(coordinator.sent())
            part = NO_PART if order.part is None else order.part
            self._send(
                slot, WORK, order.worker, order.read, order.k, part, order.hand_in
            )
