"""The master's side of the MPI engine: carries messages between `Coordinator` and the ranks that compute.

One receive per worker is always posted, and every `Waitsome` serves each worker that has arrived
once before it looks again: nobody waits for more than one service of each other worker.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.worker import sample_update
from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.mpi.endings import failed_ranks
from asyncqn.engines.mpi.worker import (
    NO_PART,
    ORDERS,
    PIECE,
    START,
    STATE,
    STATES,
    STOP,
    UPDATE,
    UPDATES,
    WORK,
    send_pieces,
)
from asyncqn.engines.orders import Assign
from asyncqn.engines.real import concluded, written_beside
from asyncqn.engines.shared_memory import ADDRESS, enter_room
from asyncqn.engines.wire import (
    Frame,
    arrays_from_bytes,
    arrays_to_bytes,
    message_frames,
)
from asyncqn.runs.checkpoint import Arrays
from asyncqn.runs.run import Run

EAGER_POLLS = 200
"""Number of polls without a pause before the master begins to sleep between polls: short waits stay fast, and
long ones leave the core to a worker."""
POLLING_INTERVAL = 5e-5
"""Polling interval after that, in seconds: below the time of a message, above that of a poll."""
LAST_WAIT = 5.0
"""Seconds that ranks which were given up as silent have at the end."""


class Rank:
    """The master's record of one rank.

    A rank that shares memory with the master reads its orders there, so that the next is written
    beside the one it still looks at; a message that was received may be written over at once.
    """

    def __init__(self, idle: Any) -> None:
        self.worker = -1
        self.notice = self.inbox = Frame(())
        self.outboxes: list[Frame] = []
        self.turn = 0
        self.sending = self.noticing = idle
        self.content: npt.NDArray[np.uint8] | None = None
        """A state of which pieces are still on their way, and how many bytes of it were asked for."""
        self.received = 0


class MPIMaster:
    """Runs `coordinator` with one worker per rank above 0; see the top of this file."""

    def __init__(
        self, mpi: Any, comm: Any, coordinator: Coordinator, narrow: bool, clock: Clock
    ) -> None:
        self.mpi = mpi
        self.comm = comm
        self.coordinator = coordinator
        self.clock = clock
        self.narrow = narrow
        self.sample = sample_update(
            coordinator.algorithm,
            coordinator.problem,
            coordinator.theta0,
            coordinator.seed,
        )
        # MPI treats a null request as complete, so that nothing need be tested before waiting for it.
        idle = mpi.REQUEST_NULL
        self.ranks = [Rank(idle) for _ in range(comm.size - 1)]
        self.receiving: list[Any] = [idle] * len(self.ranks)
        self.at: dict[int, int] = {}
        self.gone: set[int] = set()
        self.unheard: set[int] = set()
        """Ranks that have the order to stop and have not confirmed it."""
        self.announced = False
        """Whether that order said that all ranks were still present."""

    def run(self) -> Run:
        coordinator, clock = self.coordinator, self.clock
        self._join_workers()
        clock.restart(coordinator.time)
        coordinator.begin()
        for rank in self.ranks:
            self._send_orders(coordinator.ask(rank.worker, clock.now()))
        with written_beside(coordinator) as write_whole:
            while not coordinator.done:
                for i in self._arrived(
                    clock.remaining(coordinator.deadline)
                    if coordinator.timed
                    else math.inf
                ):
                    self._serve(i)
                if coordinator.timed:
                    self._send_orders(coordinator.tick(clock.now()))
                coordinator.stop_where_interrupted()
                write_whole()
            states = self._dismiss()
        return concluded(coordinator, states)

    # -- the beginning and the end

    def _join_workers(self) -> None:
        """Give every rank its number, and the state it had where the run continues from a checkpoint.

        No collective call: those fail on all ranks when one is lost.
        """
        coordinator, old = self.coordinator, self.coordinator.returning
        start = coordinator.start
        for i, rank in enumerate(self.ranks):
            # All join before the first message: numbers do not depend on which rank is ready first.
            rank.worker = coordinator.join(
                coordinator.time, old[i] if i < len(old) else None
            )
            self.at[rank.worker] = i
        for i, rank in enumerate(self.ranks):
            with _Losing(self, i):
                self.comm.Recv(rank.notice.head, i + 1, UPDATES)  # the rank is ready
                room = enter_room(rank.notice.header[:ADDRESS].tolist())
                rank.inbox, *frames = message_frames(
                    coordinator.sent(), self.sample, self.narrow, room
                )
                # In shared memory the rank may still read the last iterate, so two buffers take turns; what
                # MPI has sent is the rank's own copy, and one buffer suffices.
                rank.outboxes = frames if room is not None else frames[:1]
                content = None
                if start is not None and i < len(old):
                    content = arrays_to_bytes(start.of_worker(rank.worker))
                rank.notice.address(
                    START,
                    rank.worker,
                    0 if content is None else content.size,
                    room is not None,
                )
                self.comm.Send(rank.notice.head, i + 1, ORDERS)
                if content is not None:
                    send_pieces(self.comm, content, i + 1)

    def _dismiss(self) -> dict[int, Any]:
        """Tell all workers to stop, and return the final states of those that are still members."""
        coordinator = self.coordinator
        # All ranks wait for each other at the end only if nobody is missing: a barrier would never open.
        self.announced = not self.gone and len(coordinator.members) == len(self.ranks)
        for i, rank in enumerate(self.ranks):
            if i in self.gone:
                continue
            # A worker that was given up still gets the order to stop, but its state is not wanted.
            member = rank.worker in coordinator.members
            self.unheard.add(i)
            with _Losing(self, i):
                self._listen(i)
                rank.notice.address(STOP, member, self.announced)
                rank.noticing = self.comm.Isend(rank.notice.head, i + 1, ORDERS)
        states: dict[int, Any] = {}
        until = time.monotonic() + coordinator.last_wait(self.clock.unit)
        while owing := [w for w in coordinator.members if w not in states]:
            if time.monotonic() > until:
                for worker in owing:
                    coordinator.give_up(worker, self.clock.now())
                break
            self._collect(states, until)
        until = time.monotonic() + LAST_WAIT  # for those that were given up before
        while self.unheard and time.monotonic() < until:
            self._collect(states, until)
        return {w: state for w, state in states.items() if w in coordinator.members}

    def _collect(self, states: dict[int, Any], until: float) -> None:
        """Wait until that time for the last messages of ranks, and add their states to `states`."""
        for i in self._arrived(max(0.0, until - time.monotonic())):
            rank = self.ranks[i]
            kind, size, final = map(int, rank.inbox.header[:3])
            with _Losing(self, i):
                arrays = None
                if kind == STATE and size and (arrays := self._next_piece(i)) is None:
                    continue
                if not final:
                    self._listen(i)
                    continue
                self.unheard.discard(i)
                if arrays is not None:  # a worker that remembers nothing has none
                    states[rank.worker] = self.coordinator.worker_state(
                        rank.worker, arrays
                    )

    # -- messages

    def _listen(self, i: int) -> None:
        """Post the receive of the next message of a rank, unless it is posted."""
        if self.receiving[i] == self.mpi.REQUEST_NULL:
            inbox = self.ranks[i].inbox
            # Cleared, so that after an error of MPI a message that has arrived can be told from none.
            inbox.header[0] = 0
            self.receiving[i] = self.comm.Irecv(inbox.buffer, i + 1, UPDATES)

    def _arrived(self, seconds: float = math.inf) -> list[int]:
        """Return the ranks whose message has arrived; wait for one, at most `seconds`."""
        request = self.mpi.Request
        try:
            # Without a deadline MPI may wait by itself, which is the fastest way.
            if seconds == math.inf:
                return request.Waitsome(self.receiving) or []
            until, looks = time.monotonic() + seconds, 0
            while not (some := request.Testsome(self.receiving)):
                if time.monotonic() >= until:
                    return []
                looks += 1
                if looks < EAGER_POLLS:
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
            if self.receiving[i] == self.mpi.REQUEST_NULL and rank.inbox.header[0] != 0
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

    def _serve(self, i: int) -> None:
        """Pass a message that has arrived to the coordinator, and carry out its orders."""
        rank, coordinator = self.ranks[i], self.coordinator
        # It may have been lost while others of the same poll were served.
        if i in self.gone:
            return
        kind = rank.inbox.header[0]
        if kind == STATE:
            with _Losing(self, i):
                if (state := self._next_piece(i)) is not None:
                    coordinator.snapshots.hand_in(rank.worker, state)
                    self._listen(i)
            return
        update = self.sample._make(rank.inbox.unpack()) if kind == UPDATE else None
        now, version = self.clock.now(), coordinator.version
        # Headers hold integers: nanoseconds; both messages of a timing model are taken off.
        spent = (
            1e-9 * float(rank.inbox.header[1]) / self.clock.unit
            - 2.0 * coordinator.reach
        )
        self._send_orders(
            coordinator.deliver(rank.worker, update, now, spent=max(spent, 0.0))
        )
        coordinator.served(now, self.clock.now(), version)

    def _next_piece(self, i: int) -> Arrays | None:
        """Post the receive of the next piece of a rank's state; return the state once all pieces have
        arrived.

        Nothing waits here: a rank whose link is cut in the middle must not stop the others.
        """
        rank = self.ranks[i]
        # The first message of a state says how many bytes follow.
        if rank.content is None:
            rank.content, rank.received = (
                np.empty(int(rank.inbox.header[1]), np.uint8),
                0,
            )
        if rank.received == rank.content.size:
            content, rank.content = rank.content, None
            return arrays_from_bytes(content)
        piece = rank.content[rank.received : rank.received + PIECE]
        rank.received += piece.size
        self.receiving[i] = self.comm.Irecv(piece, i + 1, STATES)
        return None

    def _send_orders(self, orders: list[Assign]) -> None:
        """Send the iterate as it is now to those who may begin."""
        if self.coordinator.service:
            self.clock.sleep_until(
                self.coordinator.time
            )  # the service time of a slowed master
        for order in orders:
            i = self.at[order.worker]
            rank = self.ranks[i]
            with _Losing(self, i):
                self._listen(i)
                # The last order to this rank must have left before its buffer is used again.
                rank.sending.Wait()
                outbox = rank.outboxes[rank.turn]
                rank.turn = (rank.turn + 1) % len(rank.outboxes)
                part = NO_PART if order.part is None else order.part
                outbox.address(
                    WORK, order.worker, order.read, order.k, part, order.hand_in
                )
                outbox.pack(self.coordinator.sent())
                rank.sending = self.comm.Isend(outbox.buffer, i + 1, ORDERS)


class _Losing:
    """A context for messages to one rank: if they fail because it is gone, it counts as lost and the run
    continues."""

    def __init__(self, mpi_master: MPIMaster, i: int) -> None:
        self.mpi_master, self.i = mpi_master, i

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> bool:
        mpi_master = self.mpi_master
        if not isinstance(
            error, mpi_master.mpi.Exception
        ) or self.i not in mpi_master.failed(error):
            return False
        mpi_master.lose(self.i)
        return True
