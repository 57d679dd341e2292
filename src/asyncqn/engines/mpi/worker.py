"""The worker's side of the MPI engine: orders and updates as messages between ranks.

Messages to a worker carry the header (kind, worker, read, k, part, hand_in), messages from it
(kind, size, final).  The next receive is posted before the update is sent, beside the iterate that `learn`
still looks at.  A worker on the master's machine offers it memory for the numbers of all three buffers;
messages are then headers alone.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.request import Request
from asyncqn.core.worker import Float32Wire, sample_update
from asyncqn.engines.failures import failure
from asyncqn.engines.orders import Assign, sent_fields, state_arrays
from asyncqn.engines.shared_memory import offer_room
from asyncqn.engines.wire import Frame, arrays_from_bytes, arrays_to_bytes, body_bytes
from asyncqn.engines.worker_frames import WorkerFrames
from asyncqn.engines.worker_loop import Received, WorkerLoop
from asyncqn.errors import WorkerFailed
from asyncqn.runs.checkpoint import Arrays

if TYPE_CHECKING:
    from asyncqn.engines.mpi.engine import MPI

NO_PART = -1
"""In a header in place of a part: the rows are not cut."""
WORK, STOP, START = 1, 2, 3
"""Kinds of messages to a worker."""
UPDATE, REJECTED, STATE = 1, 2, 3
"""Kinds of messages from a worker."""
ORDERS, UPDATES, STATES = 1, 2, 3
"""Tags: messages of one tag arrive in the order in which they were sent."""
POLLING_INTERVAL = 0.02
"""Seconds that a slowed worker sleeps, at most, before it checks whether the run is over."""
PIECE = 1 << 28
"""Bytes of a state that one message carries: counts of larger messages overflow in some MPIs."""


def send_pieces(comm: Any, content: npt.NDArray[np.uint8], rank: int) -> None:
    """Send bytes whose size the other side knows."""
    for start in range(0, content.size, PIECE):
        comm.Send(content[start : start + PIECE], rank, STATES)


def receive_pieces(comm: Any, size: int, rank: int) -> npt.NDArray[np.uint8]:
    """Receive what `send_pieces` sends."""
    content = np.empty(size, np.uint8)
    for start in range(0, size, PIECE):
        comm.Recv(content[start : start + PIECE], rank, STATES)
    return content


class Worker:
    """One rank that computes, and its link to the master.

    `run` returns when the master says so, and whether all ranks were there at the end.
    """

    sending_counts = True

    def __init__(self, mpi: Any, comm: Any, request: Request, engine: MPI) -> None:
        algorithm, theta0 = request.algorithm, request.theta0
        self.comm, self.unit, self.shared = comm, engine.time_unit, engine.shared
        self.narrow = engine.wire == "float32"
        self.loop = WorkerLoop(
            algorithm, request.problem, theta0, request.seed, timing_model=engine.stretched_model(request),
            wire=Float32Wire(algorithm, arrived=True) if self.narrow else None,
        )  # fmt: skip
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
        self.receiving = self.comm.Irecv(self.frames.incoming.buffer, 0, ORDERS)
        try:
            self.loop.run(self)
        except Exception as error:
            if isinstance(error, WorkerFailed) or self.loop.order is None:
                raise
            raise WorkerFailed(failure(self.loop.order, error).sentence) from error
        _, wanted, whole = self.stop
        # The master says whether it wants the state: not of a worker that was given up.
        self._send_state(
            state_arrays(self.number, self.loop.local) if wanted else None, final=True
        )
        self.sending.Wait()
        return bool(whole)

    def _start(self) -> None:
        """Report that this rank is ready; receive its number and, if a run continues, its state."""
        sent = tuple(getattr(self.iterate, name) for name in self.fields)
        nbytes = body_bytes(self.sample, self.narrow) + 2 * body_bytes(
            sent, self.narrow
        )
        offer = offer_room(nbytes) if self.shared else None
        self.notice.address(*(offer.address if offer is not None else ()))
        self.comm.Send(self.notice.head, 0, UPDATES)
        self.comm.Recv(self.notice.head, 0, ORDERS)
        _, self.number, size, entered = map(int, self.notice.header[:4])
        # The mapping stays valid after the descriptor is closed.
        if offer is not None:
            offer.close()
        room = offer.room if offer is not None and entered else None
        self.frames = WorkerFrames(
            self.iterate, self.fields, self.sample, self.narrow, room
        )
        if size:
            self.loop.restore(
                self.number, arrays_from_bytes(receive_pieces(self.comm, size, 0))
            )

    # -- the link

    def receive(self, timed: bool) -> Received | None:
        self.receiving.Wait()
        kind, worker, read, k, part, hand_in, *_ = self.frames.incoming.header.tolist()
        if kind == STOP:
            self.stop = kind, worker, read
            return None
        view = self.frames.take()
        self.receiving = self.comm.Irecv(self.frames.incoming.buffer, 0, ORDERS)
        return Received(
            Assign(worker, read, k, None if part == NO_PART else part, bool(hand_in)),
            view,
        )

    def hand_in(self, arrays: Arrays) -> None:
        self._send_state(arrays)

    def send(self, update: Any | None, local: Any, seconds: float | None) -> Any:
        nanoseconds = round(1e9 * (seconds or 0.0))
        # The last update must have left before its buffer is written again.
        self.sending.Wait()
        if update is None:
            self.notice.address(REJECTED, nanoseconds)
            self.sending = self.comm.Isend(self.notice.head, 0, UPDATES)
            return local
        outgoing = self.frames.outgoing
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

    def _send_state(self, arrays: Arrays | None, final: bool = False) -> None:
        content = np.empty(0, np.uint8) if arrays is None else arrays_to_bytes(arrays)
        self.sending.Wait()
        self.notice.address(STATE, content.size, final)
        self.comm.Send(self.notice.head, 0, UPDATES)
        send_pieces(self.comm, content, 0)
