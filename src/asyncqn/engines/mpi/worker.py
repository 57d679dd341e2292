"""The worker's side of the MPI engine: receive, compute, send, and only then learn (Algorithm 2).

Messages to a worker carry the header (kind, worker, read, k, part, hand_in), messages from it
(kind, size, final).  The next receive is posted before the update is sent, into a second buffer, because
`learn` still looks at the first.  A worker on the master's machine offers it memory for the numbers
of all three buffers; messages are then headers alone.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.request import Request
from asyncqn.core.worker import Float32Wire, WorkerSteps, explosion_limit, sample_update
from asyncqn.engines.failures import failure
from asyncqn.engines.mpi.shared import offer_room
from asyncqn.engines.orders import Assign, sent_fields, state_arrays
from asyncqn.engines.placed_update import PlacedUpdate
from asyncqn.engines.thread_workers import Delays
from asyncqn.engines.wire import Frame, arrays_from_bytes, arrays_to_bytes, body_bytes, message_frames
from asyncqn.errors import WorkerFailed
from asyncqn.runs.checkpoint import Saved

if TYPE_CHECKING:
    from asyncqn.engines.mpi.engine import MPI

NO_PART = -1
"""In the place of a part in a header."""
WORK, STOP, START = 1, 2, 3
"""Kinds of messages to a worker."""
UPDATE, REJECTED, STATE = 1, 2, 3
"""Kinds of messages from a worker."""
ORDERS, ANSWERS, STATES = 1, 2, 3
"""Tags: messages of one tag arrive in the order in which they were sent."""
LONGEST_WAIT = 0.02
"""Seconds that a slowed worker sleeps at most before it looks whether the run is over."""
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
    """One rank that computes; `run` returns when the master says so, and whether all went well."""

    def __init__(self, mpi: Any, comm: Any, request: Request, engine: MPI) -> None:
        algorithm, theta0 = request.algorithm, request.theta0
        self.comm, self.seed, self.stages = comm, request.seed, algorithm.stages
        self.timing_model, self.unit, self.shared = engine.timing_model, engine.time_unit, engine.shared
        self.narrow = engine.wire == "float32"
        runs: Any = Float32Wire(algorithm, arrived=True) if self.narrow else algorithm
        self.steps = WorkerSteps(runs, request.potential, explosion_limit(theta0))
        potential = self.steps.potential
        self.local = algorithm.init_worker(potential, theta0)
        self.iterate = algorithm.init(theta0)
        self.fields = sent_fields(algorithm, self.iterate)
        self.sample = sample_update(algorithm, potential, theta0, request.seed)
        self.notice = Frame(())
        self.sending: Any = mpi.REQUEST_NULL
        self.number = -1

    def run(self) -> bool:
        self._start()
        turn, learning = 0, 0.0  # seconds of sending the last update and of learning from it
        receiving = self.comm.Irecv(self.frames[0].buffer, 0, ORDERS)
        delays = (
            Delays(self.timing_model, self.seed, self.number, self.stages)
            if self.timing_model is not None
            else None
        )
        while True:
            receiving.Wait()
            frame = self.frames[turn]
            kind, worker, read, k, part, hand_in, *_ = frame.header.tolist()
            if kind == STOP:
                break
            begun = time.perf_counter()
            order = Assign(worker, read, k, None if part == NO_PART else part, bool(hand_in))
            if order.hand_in:
                self._send_state()
            view, task = self._view(frame), order.task(self.seed)
            turn = 1 - turn
            receiving = self.comm.Irecv(self.frames[turn].buffer, 0, ORDERS)
            try:
                update = self.steps.compute(view, self.local, task)
                if delays is not None:
                    self._stretch(begun, delays.of(k, read), receiving)
                computed = time.perf_counter()
                self._send(update, round(1e9 * (computed - begun + learning)))
                self.local = self.steps.learn(view, self.local, task, update)
                learning = time.perf_counter() - computed
            except Exception as error:
                raise WorkerFailed(failure(order, error).sentence) from error
        wanted, whole = worker, read  # of the message STOP
        self._send_state(final=True, content_wanted=bool(wanted))
        self.sending.Wait()
        return bool(whole)

    def _start(self) -> None:
        """Say that we are ready; hear our number and, where a run goes on, get the state we had."""
        sent, update, narrow = tuple(getattr(self.iterate, n) for n in self.fields), self.sample, self.narrow
        nbytes = body_bytes(update, narrow) + 2 * body_bytes(sent, narrow)
        offer = offer_room(nbytes) if self.shared else None
        self.notice.address(*(offer.address if offer is not None else ()))
        self.comm.Send(self.notice.head, 0, ANSWERS)
        self.comm.Recv(self.notice.head, 0, ORDERS)
        _, self.number, size, entered = map(int, self.notice.header[:4])
        if offer is not None:
            offer.close()
        room = offer.room if offer is not None and entered else None
        self.outgoing, *self.frames = message_frames(sent, update, narrow, room)
        self.placed = PlacedUpdate(self.outgoing)
        if size:
            saved = Saved({}, arrays_from_bytes(receive_pieces(self.comm, size, 0)))
            self.local = saved.tree(f"worker.{self.number}", self.local)

    def _view(self, frame: Frame) -> Any:
        if self.fields == self.iterate._fields:
            return self.iterate._make(frame.unpack())
        arrived = dict(zip(self.fields, frame.unpack()))
        return self.iterate._make([arrived.get(name) for name in self.iterate._fields])

    def _send(self, update: Any | None, nanoseconds: int) -> None:
        """Send an update, and how long the computation took."""
        self.sending.Wait()
        if update is None:
            self.notice.address(REJECTED, nanoseconds)
            self.sending = self.comm.Isend(self.notice.head, 0, ANSWERS)
            return
        self.outgoing.address(UPDATE, nanoseconds)
        if self.narrow:
            self.outgoing.pack(update)
        else:
            self.local = self.placed.pack(update, self.local)
        self.sending = self.comm.Isend(self.outgoing.buffer, 0, ANSWERS)

    def _send_state(self, final: bool = False, content_wanted: bool = True) -> None:
        content = np.empty(0, np.uint8)
        if content_wanted:
            content = arrays_to_bytes(state_arrays(self.number, self.local))
        self.sending.Wait()
        self.notice.address(STATE, content.size, final)
        self.comm.Send(self.notice.head, 0, ANSWERS)
        send_pieces(self.comm, content, 0)

    def _stretch(self, begun: float, delay: float, receiving: Any) -> None:
        """Stretch a computation to its drawn time, both messages included, unless the run is over."""
        assert self.timing_model is not None
        until = begun + (self.timing_model.message + delay) * self.unit
        while (left := until - time.perf_counter()) > 0 and not receiving.Test():
            time.sleep(min(left, LONGEST_WAIT) if math.isfinite(left) else LONGEST_WAIT)
