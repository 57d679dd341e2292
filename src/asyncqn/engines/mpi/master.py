"""The master's side of the MPI engine: carries messages between `Coordinator` and the ranks that compute.

One receive per worker is always posted, and every look at them serves each worker that has arrived once: nobody
waits for more than one service of each other worker.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.master_loop import MasterLoop, Slot
from asyncqn.engines.mpi.endings import failed_ranks
from asyncqn.engines.mpi.worker import CONTENTS, ORDERS, UPDATES
from asyncqn.engines.shared_memory import Bytes
from asyncqn.engines.wire import (
    Frame,
    Frames,
    Layout,
    MessageKind,
    arrays_from_bytes,
    order_integers,
)
from asyncqn.engines.worker_loop import Step
from asyncqn.engines.worker_setup import WorkerSetup

EAGER_POLLS = 200
"""Number of polls without a pause before the master begins to sleep between polls: short waits stay fast, and
long ones leave the core to a worker."""
POLLING_INTERVAL = 5e-5
"""Polling interval after that, in seconds: below the time of a message, above that of a poll."""
LAST_WAIT = 5.0
"""Seconds that ranks which were given up as silent have at the end."""


class Rank(Slot):
    """The master's record of one rank."""

    def __init__(self, worker: int, rank: int, frames: Frames, idle: Any) -> None:
        super().__init__(worker)
        self.rank, self.frames = rank, frames
        self.notice = Frame(Layout(()))
        self.sending = self.noticing = idle
        self.content: Bytes | None = None
        """The worker's state while it is on its way."""


class MPIMaster(MasterLoop[Rank]):
    """Runs `coordinator` with one worker per rank above 0; see the top of this file."""

    longest_wait = math.inf

    def __init__(
        self,
        mpi: Any,
        comm: Any,
        coordinator: Coordinator,
        clock: Clock,
        setup: WorkerSetup,
    ) -> None:
        super().__init__(coordinator, clock, math.inf)
        self.mpi, self.comm = mpi, comm
        self.setup = setup
        # MPI treats a null request as complete, so that nothing need be tested before waiting for it.
        self.receiving: list[Any] = [mpi.REQUEST_NULL] * (comm.size - 1)
        self.ranks: list[Rank] = []
        self.gone: set[int] = set()
        """The ranks that are lost."""
        self.announced = False
        """Whether the order to stop said that all ranks were still present."""

    # -- workers come and go

    def start(self, worker: int) -> Rank:
        setup = self.setup
        frames = Frames(self.coordinator.sent(), setup.sample, setup.narrow)
        number = len(self.ranks) + 1
        rank = Rank(worker, number, frames, self.mpi.REQUEST_NULL)
        self.ranks.append(rank)
        return rank

    def why_nobody_came(self) -> str:
        return "all ranks died before they were ready."

    def remove_silent(self) -> None:
        pass  # a rank that was given up still ends with the job

    def forget(self, slot: Rank) -> None:
        pass  # the engine ends the job together (`mpi.endings`)

    def lose(self, slot: Rank) -> None:
        if slot.rank not in self.gone:
            self.gone.add(slot.rank)
            self.receiving[slot.rank - 1] = self.mpi.REQUEST_NULL
            super().lose(slot)

    def dismiss(self) -> None:
        # All ranks wait for each other at the end only if nobody is missing: a barrier would never open.
        self.announced = len(self.coordinator.members) == len(self.ranks)
        super().dismiss()
        until = time.monotonic() + LAST_WAIT
        while self.ready and time.monotonic() < until:
            self.serve(until - time.monotonic())

    # -- messages

    def serve(self, seconds: float) -> None:
        for rank in self._arrived(seconds):
            # It may have been lost while others of the same poll were served.
            if rank.rank not in self.gone:
                self._do(rank)

    def _listen(self, rank: Rank) -> None:
        """Post the receive of the next message of a rank, unless it is posted."""
        if self.receiving[rank.rank - 1] == self.mpi.REQUEST_NULL:
            frame = rank.frames.update
            # Cleared, so that after an error of MPI a message that has arrived can be told from none.
            frame.address(MessageKind.NONE)
            self.receiving[rank.rank - 1] = self.comm.Irecv(
                frame.buffer, rank.rank, UPDATES
            )

    def _arrived(self, seconds: float) -> list[Rank]:
        """Return the ranks whose message has arrived; wait for one, at most `seconds`."""
        request, until = self.mpi.Request, time.monotonic() + seconds
        polls = 0
        try:
            # Without a deadline MPI may wait by itself, which is the fastest way.
            if seconds == math.inf:
                return [self.ranks[i] for i in request.Waitsome(self.receiving) or []]
            while not (some := request.Testsome(self.receiving)):
                if time.monotonic() >= until:
                    return []
                polls += 1
                if polls < EAGER_POLLS:
                    os.sched_yield()
                else:
                    time.sleep(POLLING_INTERVAL)
            return [self.ranks[i] for i in some]
        except self.mpi.Exception as error:
            return self._after(error)

    def _after(self, error: Exception) -> list[Rank]:
        """Lose the ranks that failed; return those whose message has arrived nevertheless."""
        arrived = [
            rank
            for rank, request in zip(self.ranks, self.receiving)
            if request == self.mpi.REQUEST_NULL and rank.frames.update.header()[0]
        ]
        # An error of MPI without a newly failed rank has another cause and is raised.
        failed = self._failed(error) - self.gone
        if not failed:
            raise error
        for number in failed:
            self.lose(self.ranks[number - 1])
        return arrived

    def _failed(self, error: Exception) -> set[int]:
        """Return the workers' ranks that are gone; re-raise an error that has another cause."""
        try:
            return failed_ranks(self.mpi, self.comm) - {0}
        except NotImplementedError:
            raise error from None

    @contextmanager
    def _losing(self, rank: Rank) -> Iterator[None]:
        """Count a rank as lost if messages to it fail inside the block because it is gone."""
        try:
            yield
        except self.mpi.Exception as error:
            if rank.rank not in self._failed(error):
                raise
            self.lose(rank)

    def _do(self, rank: Rank) -> None:
        """Do what a message that has arrived asks for."""
        frame = rank.frames.update
        kind, size, *_ = frame.header()
        if kind in (MessageKind.STATE, MessageKind.LAST_STATE) and rank.content is None:
            # Nothing waits for the content: a rank whose link is cut in the middle must not stop the others.
            with self._losing(rank):
                rank.content = np.empty(size, np.uint8)
                self.receiving[rank.rank - 1] = self.comm.Irecv(
                    rank.content, rank.rank, CONTENTS
                )
            return
        content, rank.content = rank.content, None
        if kind == MessageKind.UPDATE:
            self.take(rank, MessageKind.UPDATE, frame.unpack(), 1e-9 * size)
        else:
            arrays = None if content is None else arrays_from_bytes(content.tobytes())
            self.take(rank, MessageKind(kind), arrays, 1e-9 * size)
        # Others are listened to when they get their next order.
        if rank.worker in self.ready and (
            kind == MessageKind.STATE or self.coordinator.done
        ):
            with self._losing(rank):
                self._listen(rank)

    def send_start(self, slot: Rank) -> None:
        with self._losing(slot):
            self._listen(slot)
            slot.notice.address(MessageKind.START, slot.worker)
            self.comm.Send(slot.notice.head, slot.rank, ORDERS)

    def send_order(self, slot: Rank, order: Step, values: Any) -> None:
        with self._losing(slot):
            self._listen(slot)
            # The last order to this rank must have left before its buffer is used again.
            slot.sending.Wait()
            frame = slot.frames.take_order()
            frame.address(MessageKind.WORK, *order_integers(order))
            frame.pack(values)
            slot.sending = self.comm.Isend(frame.buffer, slot.rank, ORDERS)

    def send_stop(self, slot: Rank) -> None:
        with self._losing(slot):
            self._listen(slot)
            slot.notice.address(MessageKind.STOP, self.announced)
            slot.noticing = self.comm.Isend(slot.notice.head, slot.rank, ORDERS)
