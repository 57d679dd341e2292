"""The worker's side of the processes engine: receive, compute, send, and only then learn (Algorithm 2).

The iterate is read from, and the update written to, memory that worker and master share; the messages
about them are headers.  There are two places for iterates, because `learn` still looks at the first
when the next may arrive.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from asyncqn.cluster.cluster import Cluster
from asyncqn.core.worker import WorkerSteps, explosion_limit, sample_update
from asyncqn.engines.failures import failure
from asyncqn.engines.orders import Assign, sent_fields, state_arrays
from asyncqn.engines.placed_update import PlacedUpdate
from asyncqn.engines.processes.channel import (
    FAILED,
    READY,
    REJECTED,
    STATE,
    STOP,
    UPDATE,
    Channel,
    Gone,
)
from asyncqn.engines.processes.memory import mapped, unpack
from asyncqn.engines.thread_pools import one_thread_pools
from asyncqn.engines.thread_workers import Delays
from asyncqn.engines.wire import Frame, arrays_to_bytes, message_frames
from asyncqn.runs.checkpoint import Arrays, Saved
from asyncqn.types import Algorithm, Array, Potential

NOBODY, NO_PART = -1, -1
"""In the place of a worker's number, and of a part, in a header."""


class Brief(NamedTuple):
    """What every worker of a run is given once."""

    potential: Potential
    algorithm: Algorithm
    theta0: Array
    seed: int
    timing_model: Cluster | None
    unit: float
    sample: Any
    """An update, which shows what all of them look like."""
    states: Arrays
    """Of the workers of the checkpoint this run goes on from."""
    warm: bool
    """Whether kernels are loaded by a step that is thrown away."""


def life_of(brief: Brief) -> Callable[[socket.socket, int, int], None]:
    """What a worker does that was forked from the master."""
    return lambda sock, room, nbytes: _live(sock, room, nbytes, lambda: brief)


def life_from(fd: int) -> Callable[[socket.socket, int, int], None]:
    """What a worker does that loads its brief from shared memory."""
    return lambda sock, room, nbytes: _live(sock, room, nbytes, lambda: unpack(fd))


def _live(sock: socket.socket, room: int, nbytes: int, brief: Callable[[], Brief]) -> None:
    """Work until the master says to stop, or is gone; tell it what went wrong."""
    channel = Channel(sock)
    channel.end_with_the_other()
    under_way: Assign | str = "a worker could not be prepared"
    try:
        try:
            worker = Worker(channel, brief(), room, nbytes)
            with one_thread_pools():
                worker.prepare()
                while (order := worker.next_order()) is not None:
                    under_way = order
                    worker.work(order)
        except Gone:
            raise
        except Exception as error:
            channel.send(FAILED, content=json.dumps(failure(under_way, error)).encode())
    except Gone:
        return


class Worker:
    """One process that computes."""

    def __init__(self, channel: Channel, brief: Brief, room: int, nbytes: int) -> None:
        self.channel, self.brief = channel, brief
        self.algorithm, self.seed = brief.algorithm, brief.seed
        self.steps = WorkerSteps(brief.algorithm, brief.potential, explosion_limit(brief.theta0))
        self.potential = self.steps.potential
        self.iterate = self.algorithm.init(brief.theta0)
        self.fields = sent_fields(self.algorithm, self.iterate)
        sent = tuple(getattr(self.iterate, name) for name in self.fields)
        update, *frames = message_frames(sent, brief.sample, False, mapped(room, nbytes))
        os.close(room)
        self.placed, self.frames, self.turn = PlacedUpdate(update), frames, 0
        self.delays: Delays | None = None
        self.learning = 0.0
        """Seconds of sending the last update and of learning from it."""

    def prepare(self) -> None:
        """Make or load the worker's state, and say that it is ready."""
        brief, start = self.brief, self.channel.receive()
        self.local = self.algorithm.init_worker(self.potential, brief.theta0)
        returning = start.numbers[0]
        if returning != NOBODY:
            self.local = Saved({}, brief.states).tree(f"worker.{returning}", self.local)
        if brief.warm:
            sample_update(self.algorithm, self.potential, brief.theta0, brief.seed)
        self.channel.send(READY)

    def next_order(self) -> Assign | None:
        """Wait for the next order; None after the last one, when the state is handed in."""
        message = self.channel.receive()
        self.begun = time.perf_counter()
        worker, read, k, part, hand_in, *_ = message.numbers
        if message.kind == STOP:
            self._send_state(worker, final=True)
            return None
        order = Assign(worker, read, k, None if part == NO_PART else part, bool(hand_in))
        if order.hand_in:
            self._send_state(worker)
        return order

    def work(self, order: Assign) -> None:
        """One step of the algorithm."""
        frame, self.turn = self.frames[self.turn], 1 - self.turn
        view, task = self._view(frame), order.task(self.seed)
        update = self.steps.compute(view, self.local, task)
        if self.brief.timing_model is not None:
            self._stretch(order, self.brief.timing_model)
        computed = time.perf_counter()
        spent = round(1e9 * (computed - self.begun + self.learning))
        if update is None:
            self.channel.send(REJECTED, spent)
        else:
            self.local = self.placed.pack(update, self.local)
            self.channel.send(UPDATE, spent)
        self.local = self.steps.learn(view, self.local, task, update)
        self.learning = time.perf_counter() - computed

    def _view(self, frame: Frame) -> Any:
        if self.fields == self.iterate._fields:
            return self.iterate._make(frame.unpack())
        arrived = dict(zip(self.fields, frame.unpack()))
        return self.iterate._make([arrived.get(name) for name in self.iterate._fields])

    def _send_state(self, worker: int, *, final: bool = False) -> None:
        content = arrays_to_bytes(state_arrays(worker, self.local))
        if final:  # what the potential printed: after its last message a process may be killed
            sys.stdout.flush()
        self.channel.send(STATE, final, content=content.data)

    def _stretch(self, order: Assign, model: Cluster) -> None:
        """Stretch a computation to its drawn time, both messages included, unless the run is over."""
        if self.delays is None:
            self.delays = Delays(model, self.seed, order.worker, self.algorithm.stages)
        until = self.begun + (model.message + self.delays.of(order.k, order.read)) * self.brief.unit
        left = until - time.perf_counter()
        if left > 0:  # while it computes, the only message to come is that it shall stop
            select.select([self.channel], [], [], left if math.isfinite(left) else None)
