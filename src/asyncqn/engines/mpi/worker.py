"""The worker's side of the MPI engine: orders and updates as messages between ranks.

The next receive is posted before the update is sent, beside the iterate that `learn` still looks at.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from asyncqn.engines.failures import failure
from asyncqn.engines.wire import Frame, Frames, Layout, MessageKind
from asyncqn.engines.worker_loop import Received
from asyncqn.engines.worker_setup import FrameLink, WorkerSetup
from asyncqn.errors import WorkerFailed

# Tags: messages of one tag arrive in the order in which they were sent.
ORDERS = 1
UPDATES = 2
CONTENTS = 3
POLLING_INTERVAL = 0.02
"""Seconds that a slowed worker sleeps, at most, before it checks whether the run is over."""


class RankLink(FrameLink):
    """The link of a rank that computes to the master."""

    def __init__(self, mpi: Any, comm: Any, setup: WorkerSetup) -> None:
        super().__init__(setup)
        self.comm = comm
        self.frames = Frames(self.sent, setup.sample, setup.narrow)
        self.notice = Frame(Layout(()))
        self.sending: Any = mpi.REQUEST_NULL

    def run(self) -> bool:
        """Work until the run is over; return whether all ranks were there at the end."""
        self.comm.Recv(self.notice.head, 0, ORDERS)
        _, worker, *_ = self.notice.header()
        # Posted before the first order can come, so that MPI writes it into place without a copy.
        self.receiving = self.comm.Irecv(self.frames.order.buffer, 0, ORDERS)
        try:
            self.work(worker, warm=False)
        except Exception as error:
            if isinstance(error, WorkerFailed) or self.order is None:
                raise
            raise WorkerFailed(failure(self.order, error).sentence) from error
        return self.all_present

    def receive(self, timed: bool) -> Received | None:
        self.receiving.Wait()
        kind, *integers = self.frames.order.header()
        if kind == MessageKind.STOP:
            self.all_present = bool(integers[0])
            return None
        frame = self.frames.take_order()
        self.receiving = self.comm.Irecv(self.frames.order.buffer, 0, ORDERS)
        return self.received(frame, tuple(integers))

    def send(self, update: Any | None, seconds: float | None) -> None:
        # The last update must have left before its buffer is written again.
        self.sending.Wait()
        super().send(update, seconds)

    def carry(self, kind: MessageKind, *integers: int) -> None:
        self.sending.Wait()
        frame = self.frames.update if kind is MessageKind.UPDATE else self.notice
        frame.address(kind, *integers)
        self.sending = self.comm.Isend(frame.buffer, 0, UPDATES)

    def carry_content(self, kind: MessageKind, content: bytes) -> None:
        self.carry(kind, len(content))
        self.comm.Send(np.frombuffer(content, np.uint8), 0, CONTENTS)

    def sleep_until(self, until: float) -> bool:
        while (left := until * self.setup.unit - time.perf_counter()) > 0:
            # While a worker computes, the only message that may come is the end of the run.
            if self.receiving.Test():
                return False
            time.sleep(min(left, POLLING_INTERVAL))
        return True
