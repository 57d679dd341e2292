"""The worker's side of the MPI engine: orders and updates as messages between ranks.

Messages to a worker carry the header (kind, worker, read, k, part, hand_in), messages from it
(kind, nanoseconds, or bytes of the state that follows).  The next receive is posted before the update is
sent, beside the iterate that `learn` still looks at.  A worker on the master's machine offers it memory for
the numbers of all three buffers; messages are then headers alone.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.request import Request
from asyncqn.core.worker import Float32Wire, sample_update
from asyncqn.engines.copies import as_iterate, sent_fields
from asyncqn.engines.failures import failure
from asyncqn.engines.shared_memory import Bytes, offer_room
from asyncqn.engines.wire import (
    Frame,
    Frames,
    arrays_from_bytes,
    arrays_to_bytes,
    order_from,
)
from asyncqn.engines.worker_loop import Received, WorkerLoop
from asyncqn.errors import WorkerFailed
from asyncqn.runs.checkpoint import Arrays
from asyncqn.runs.snapshot import state_arrays

if TYPE_CHECKING:
    from asyncqn.engines.mpi.engine import MPI

# Kinds of messages to a worker.
WORK = 1
STOP = 2
START = 3
# Kinds of messages from a worker.
UPDATE = 1
REJECTED = 2
STATE = 3
LAST_STATE = 4
# Tags: messages of one tag arrive in the order in which they were sent.
ORDERS = 1
UPDATES = 2
STATES = 3
POLLING_INTERVAL = 0.02
"""Seconds that a slowed worker sleeps, at most, before it checks whether the run is over."""


def in_words(content: Bytes) -> npt.NDArray[np.uint64]:
    """Return bytes as 64-bit words, of which a message may hold 2^31: the count is a 32-bit integer."""
    return np.pad(content, (0, -content.size % 8)).view(np.uint64)


def room_in_words(nbytes: int) -> npt.NDArray[np.uint64]:
    """Return the buffer for what `in_words` made of so many bytes."""
    return np.empty(-(-nbytes // 8), np.uint64)


class Worker:
    """One rank that computes, and its link to the master.

    `run` returns when the master says so, and whether all ranks were there at the end.
    """

    sending_counts = True

    def __init__(self, mpi: Any, comm: Any, request: Request, engine: MPI) -> None:
        algorithm, theta0 = request.algorithm, request.theta0
        self.comm = comm
        self.unit = engine.time_unit
        self.shared = engine.shared
        self.narrow = engine.wire == "float32"
        self.loop = WorkerLoop(
            algorithm,
            request.problem,
            theta0,
            request.seed,
            timing_model=engine.stretched_model(request),
            wire=Float32Wire(algorithm, arrived=True) if self.narrow else None,
        )
        self.iterate = algorithm.init(theta0)
        self.fields = sent_fields(algorithm, self.iterate)
        # Both sides compute the sample themselves, so the layout of messages need not be sent.
        self.sample = sample_update(
            algorithm, self.loop.steps.problem, theta0, request.seed
        )
        self.notice = Frame(())
        self.sending: Any = mpi.REQUEST_NULL
        self.number = -1

    def run(self) -> bool:
        self._start()
        # Posted before the first order can come, so that MPI writes it into place without a copy.
        self.receiving = self.comm.Irecv(self.frames.order.buffer, 0, ORDERS)
        try:
            self.loop.run(self)
        except Exception as error:
            if isinstance(error, WorkerFailed) or self.loop.order is None:
                raise
            raise WorkerFailed(failure(self.loop.order, error).sentence) from error
        self._send_state(LAST_STATE, state_arrays(self.number, self.loop.local))
        return self.all_present

    def _start(self) -> None:
        """Report that this rank is ready; receive its number and, if a run continues, its state."""
        sent = tuple(getattr(self.iterate, name) for name in self.fields)
        nbytes = Frames.nbytes(sent, self.sample, self.narrow)
        offer = offer_room(nbytes) if self.shared else None
        self.notice.address(*(offer.address if offer is not None else ()))
        self.comm.Send(self.notice.head, 0, UPDATES)
        self.comm.Recv(self.notice.head, 0, ORDERS)
        _, self.number, size, entered = map(int, self.notice.header[:4])
        # The mapping stays valid after the descriptor is closed.
        if offer is not None:
            offer.close()
        room = offer.room if offer is not None and entered else None
        self.frames = Frames(sent, self.sample, self.narrow, room)
        if size:
            state = room_in_words(size)
            self.comm.Recv(state, 0, STATES)
            self.loop.restore(
                self.number, arrays_from_bytes(state.view(np.uint8)[:size])
            )

    # -- the link

    def receive(self, timed: bool) -> Received | None:
        self.receiving.Wait()
        frame = self.frames.order
        kind, *numbers = frame.header.tolist()
        if kind == STOP:
            self.all_present = bool(numbers[0])
            return None
        self.frames.take_order()
        self.receiving = self.comm.Irecv(self.frames.order.buffer, 0, ORDERS)
        view = as_iterate(self.iterate, self.fields, frame.unpack())
        return Received(order_from(numbers[:5]), view)

    def hand_in(self, arrays: Arrays) -> None:
        self._send_state(STATE, arrays)

    def send(self, update: Any | None, local: Any, seconds: float | None) -> Any:
        nanoseconds = round(1e9 * (seconds or 0.0))
        # The last update must have left before its buffer is written again.
        self.sending.Wait()
        if update is None:
            self.notice.address(REJECTED, nanoseconds)
            self.sending = self.comm.Isend(self.notice.head, 0, UPDATES)
            return local
        outgoing = self.frames.update
        outgoing.address(UPDATE, nanoseconds)
        outgoing.pack(update)
        self.sending = self.comm.Isend(outgoing.buffer, 0, UPDATES)
        return local

    def now(self) -> float:
        return time.perf_counter() / self.unit

    def sleep_until(self, until: float) -> bool:
        while (left := until * self.unit - time.perf_counter()) > 0:
            # While a worker computes, the only message that may come is the end of the run.
            if self.receiving.Test():
                return False
            time.sleep(
                min(left, POLLING_INTERVAL) if math.isfinite(left) else POLLING_INTERVAL
            )
        return True

    def _send_state(self, kind: int, arrays: Arrays) -> None:
        content = arrays_to_bytes(arrays)
        self.sending.Wait()
        self.notice.address(kind, content.size)
        self.comm.Send(self.notice.head, 0, UPDATES)
        self.comm.Send(in_words(content), 0, STATES)
