"""The master's side of the MPI engine: carries messages between `Coordinator` and the ranks that compute.

One receive per worker is always posted, and every `Waitsome` serves each worker that has arrived
once before it looks again: nobody waits for more than one service of each other worker.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.worker import sample_update
from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.master_loop import MasterLoop
from asyncqn.engines.mpi.endings import failed_ranks
from asyncqn.engines.mpi.worker import (
    LAST_STATE,
    ORDERS,
    START,
    STATE,
    STATES,
    STOP,
    UPDATE,
    UPDATES,
    WORK,
    in_words,
    room_in_words,
)
from asyncqn.engines.shared_memory import ADDRESS, enter_room
from asyncqn.engines.wire import (
    Frame,
    Frames,
    arrays_from_bytes,
    arrays_to_bytes,
    order_header,
)
from asyncqn.engines.worker_loop import Step

EAGER_POLLS = 200
"""Number of polls without a pause before the master begins to sleep between polls: short waits stay fast, and
long ones leave the core to a worker."""
POLLING_INTERVAL = 5e-5
"""Polling interval after that, in seconds: below the time of a message, above that of a poll."""
LAST_WAIT = 5.0
"""Seconds that ranks which were given up as silent have at the end."""


class Rank:
    """The master's record of one rank."""

    frames: Frames

    def __init__(self, worker: int, idle: Any) -> None:
        self.worker = worker
        self.notice = Frame(())
        self.sending = self.noticing = idle
        self.state: npt.NDArray[np.uint64] | None = None
        """The worker's state while it is on its way."""


class MPIMaster(MasterLoop):
    """Runs `coordinator` with one worker per rank above 0; see the top of this file."""

    def __init__(
        self, mpi: Any, comm: Any, coordinator: Coordinator, narrow: bool, clock: Clock
    ) -> None:
        super().__init__(coordinator, clock)
        self.mpi = mpi
        self.comm = comm
        self.narrow = narrow
        self.sample = sample_update(
            coordinator.algorithm,
            coordinator.problem,
            coordinator.theta0,
            coordinator.seed,
        )
        # MPI treats a null request as complete, so that nothing need be tested before waiting for it.
        self.receiving: list[Any] = [mpi.REQUEST_NULL] * (comm.size - 1)
        self.ranks: list[Rank] = []
        self.at: dict[int, int] = {}
        self.gone: set[int] = set()
        self.unheard: set[int] = set()
        """Ranks that have the order to stop and have not confirmed it."""
        self.announced = False
        """Whether that order said that all ranks were still present."""

    # -- the beginning and the end

    def _join_workers(self) -> None:
        """Give every rank its number, and the state it had where the run continues from a checkpoint.

        No collective call: those fail on all ranks when one is lost.
        """
        coordinator, start = self.coordinator, self.coordinator.start
        old: list[int | None] = [*coordinator.returning]
        # All join before the first message: numbers do not depend on which rank is ready first.
        for number in (old + [None] * len(self.receiving))[: len(self.receiving)]:
            worker = coordinator.join(coordinator.time, number)
            self.at[worker] = len(self.ranks)
            self.ranks.append(Rank(worker, self.mpi.REQUEST_NULL))
        for i, rank in enumerate(self.ranks):
            with self._losing(i):
                self.comm.Recv(rank.notice.head, i + 1, UPDATES)  # the rank is ready
                room = enter_room(rank.notice.header[:ADDRESS].tolist())
                rank.frames = Frames(coordinator.sent(), self.sample, self.narrow, room)
                content = np.empty(0, np.uint8)
                if start is not None and i < len(old):
                    content = arrays_to_bytes(start.of_worker(rank.worker))
                rank.notice.address(START, rank.worker, content.size, room is not None)
                self.comm.Send(rank.notice.head, i + 1, ORDERS)
                if content.size:
                    self.comm.Send(in_words(content), i + 1, STATES)
        self.clock.restart(coordinator.time)
        for rank in self.ranks:
            self._send_orders(coordinator.ask(rank.worker, self.clock.now()))

    def _tend_workers(self) -> None:
        pass  # ranks do not come, and MPI says which are gone

    def _end_all(self) -> None:
        pass  # the engine ends the job together (`mpi.endings`)

    def _dismiss(self) -> None:
        coordinator = self.coordinator
        # All ranks wait for each other at the end only if nobody is missing: a barrier would never open.
        self.announced = not self.gone and len(coordinator.members) == len(self.ranks)
        self.unheard = set(range(len(self.ranks))) - self.gone
        for i in list(self.unheard):
            rank = self.ranks[i]
            with self._losing(i):
                self._listen(i)
                rank.notice.address(STOP, self.announced)
                rank.noticing = self.comm.Isend(rank.notice.head, i + 1, ORDERS)
        until = time.monotonic() + coordinator.snapshots.last_wait(self.clock.unit)
        while owing := coordinator.members.keys() - self.states.keys():
            self._serve(until - time.monotonic())
            if time.monotonic() >= until:
                for worker in owing:
                    coordinator.snapshots.give_up(worker, self.clock.now())
        # For those that were given up before.
        until = time.monotonic() + LAST_WAIT
        while self.unheard and time.monotonic() < until:
            self._serve(until - time.monotonic())

    # -- messages

    def _listen(self, i: int) -> None:
        """Post the receive of the next message of a rank, unless it is posted."""
        if self.receiving[i] == self.mpi.REQUEST_NULL:
            inbox = self.ranks[i].frames.update
            # Cleared, so that after an error of MPI a message that has arrived can be told from none.
            inbox.header[0] = 0
            self.receiving[i] = self.comm.Irecv(inbox.buffer, i + 1, UPDATES)

    def _arrived(self, seconds: float) -> list[int]:
        """Return the ranks whose message has arrived; wait for one, at most `seconds`."""
        request = self.mpi.Request
        try:
            # Without a deadline MPI may wait by itself, which is the fastest way.
            if seconds == math.inf:
                return request.Waitsome(self.receiving) or []
            until = time.monotonic() + seconds
            polls = 0
            while not (some := request.Testsome(self.receiving)):
                if time.monotonic() >= until:
                    return []
                polls += 1
                if polls < EAGER_POLLS:
                    os.sched_yield()
                else:
                    time.sleep(POLLING_INTERVAL)
            return list(some)
        except self.mpi.Exception as error:
            return self._after(error)

    def _after(self, error: Exception) -> list[int]:
        """Lose the ranks that failed; return those whose message has arrived nevertheless."""
        there = [
            i
            for i, rank in enumerate(self.ranks)
            if i not in self.gone
            and self.receiving[i] == self.mpi.REQUEST_NULL
            and rank.frames.update.header[0] != 0
        ]
        # An error of MPI without a newly failed rank has another cause and is raised.
        new = [i for i in self.failed(error) if i not in self.gone]
        if not new:
            raise error
        for i in new:
            self.lose(i)
        return [i for i in there if i not in self.gone]

    def failed(self, error: Exception) -> list[int]:
        """Return the indices of ranks that are gone; re-raise an error that has another cause."""
        try:
            return [rank - 1 for rank in failed_ranks(self.mpi, self.comm) if rank > 0]
        except NotImplementedError:
            raise error from None

    def lose(self, i: int) -> None:
        """Record that a rank is gone, and carry out the orders that follow."""
        if i not in self.gone:
            self.gone.add(i)
            self.unheard.discard(i)
            self.receiving[i] = self.mpi.REQUEST_NULL
            self._send_orders(
                self.coordinator.lost(self.ranks[i].worker, self.clock.now())
            )

    @contextmanager
    def _losing(self, i: int) -> Iterator[None]:
        """Count a rank as lost if messages to it fail inside the block because it is gone."""
        try:
            yield
        except self.mpi.Exception as error:
            self._lose_failed(i, error)

    def _lose_failed(self, i: int, error: Exception) -> None:
        """Count a rank as lost after an error; raise the error if the rank is still there."""
        if i not in self.failed(error):
            raise error
        self.lose(i)

    def _serve(self, seconds: float) -> None:
        for i in self._arrived(seconds):
            # It may have been lost while others of the same poll were served.
            if i not in self.gone:
                self._take(i)

    def _take(self, i: int) -> None:
        """Do what a message that has arrived asks for."""
        rank, inbox = self.ranks[i], self.ranks[i].frames.update
        kind = int(inbox.header[0])
        if kind in (STATE, LAST_STATE):
            self._take_state(i, kind == LAST_STATE)
            return
        update = self.sample._make(inbox.unpack()) if kind == UPDATE else None
        # Headers hold integers: nanoseconds.
        self._deliver(rank.worker, update, 1e-9 * float(inbox.header[1]))
        # The rank has no further order, but it will confirm the end.
        if self.coordinator.done:
            with self._losing(i):
                self._listen(i)

    def _take_state(self, i: int, last: bool) -> None:
        """Post the receive of a worker's state, or take the state that has arrived.

        Nothing waits here: a rank whose link is cut in the middle must not stop the others.
        """
        rank = self.ranks[i]
        size = int(rank.frames.update.header[1])
        with self._losing(i):
            if rank.state is None:
                rank.state = room_in_words(size)
                self.receiving[i] = self.comm.Irecv(rank.state, i + 1, STATES)
                return
            arrays = arrays_from_bytes(rank.state.view(np.uint8)[:size])
            rank.state = None
            if last:
                self.unheard.discard(i)
                state = self.coordinator.snapshots.worker_state(rank.worker, arrays)
                self.states[rank.worker] = state
            else:
                self.coordinator.snapshots.hand_in(rank.worker, arrays)
                self._listen(i)

    def _send_order(self, order: Step) -> None:
        i = self.at[order.worker]
        rank = self.ranks[i]
        # Not `_losing`, which would take a microsecond of every commit.
        try:
            self._listen(i)
            # The last order to this rank must have left before its buffer is used again.
            rank.sending.Wait()
            outbox = rank.frames.take_order()
            outbox.address(WORK, *order_header(order))
            outbox.pack(self.coordinator.sent())
            rank.sending = self.comm.Isend(outbox.buffer, i + 1, ORDERS)
        except self.mpi.Exception as error:
            self._lose_failed(i, error)
