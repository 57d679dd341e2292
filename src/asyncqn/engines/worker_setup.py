"""The worker's side of every engine whose workers are other processes: its setup, its link and its life."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from asyncqn.cluster.cluster import Cluster
from asyncqn.core.problem import read_only
from asyncqn.core.request import Request
from asyncqn.core.worker import Float32Wire, sample_update
from asyncqn.engines.copies import as_iterate, sent_fields
from asyncqn.engines.failures import failure
from asyncqn.engines.precompile import precompile
from asyncqn.engines.real import RealEngine
from asyncqn.engines.thread_pools import one_thread_pools
from asyncqn.engines.wire import Frame, Frames, MessageKind, arrays_to_bytes, order_from
from asyncqn.engines.worker_loop import Received, Step, WorkerLoop
from asyncqn.runs.checkpoint import Arrays
from asyncqn.runs.snapshot import state_arrays
from asyncqn.types import Algorithm, Array, Problem


class WorkerSetup(NamedTuple):
    """The run as a worker sees it; it is sent to workers that do not have it."""

    problem: Problem
    algorithm: Algorithm
    theta0: Array
    seed: int
    timing_model: Cluster | None
    unit: float
    sample: Any
    """An update, which shows what all of them look like."""
    states: Arrays
    """Of the workers of the checkpoint this run continues from."""
    narrow: bool = False
    """Whether messages travel in float32."""

    @classmethod
    def of(
        cls, request: Request, engine: RealEngine, narrow: bool = False
    ) -> WorkerSetup:
        """Return the setup of a run; computing its sample compiles the kernels in this process."""
        checkpoints = request.checkpoints
        start = None if checkpoints is None else checkpoints.start
        arrays = {} if start is None else start.arrays
        return cls(
            request.problem,
            request.algorithm,
            request.theta0,
            request.seed,
            engine.stretched_model(request),
            engine.time_unit,
            _sample(request),
            {name: a for name, a in arrays.items() if name.startswith("worker.")},
            narrow,
        )

    def loop(self, worker: int, *, warm: bool) -> WorkerLoop:
        """Return the loop of a worker, with its state if it stands in the checkpoint.

        A worker is `warm` if it has carried out a step that is thrown away: a new interpreter loads the
        kernels by it, a copy of the master has them.
        """
        # A copy: what has travelled may lie in read-only memory.
        theta0 = self.theta0.copy()
        loop = WorkerLoop(
            self.algorithm,
            self.problem,
            theta0,
            self.seed,
            timing_model=self.timing_model,
            wire=Float32Wire(self.algorithm, arrived=True) if self.narrow else None,
        )
        if any(name.startswith(f"worker.{worker}.") for name in self.states):
            loop.restore(worker, self.states)
        if warm:
            sample_update(self.algorithm, loop.steps.problem, theta0, self.seed)
        return loop


class FrameLink(ABC):
    """A worker's end of a link whose messages are frames; a subclass carries them."""

    sending_counts = True
    frames: Frames

    def __init__(self, setup: WorkerSetup) -> None:
        self.setup = setup
        self.loop: WorkerLoop | None = None
        self._iterate = setup.algorithm.init(setup.theta0)
        self._fields = sent_fields(setup.algorithm, self._iterate)
        self.sent = tuple(getattr(self._iterate, name) for name in self._fields)

    def work(self, worker: int, *, warm: bool) -> None:
        """Live as the worker of this number until the run is over."""
        self.loop = loop = self.setup.loop(worker, warm=warm)
        self.carry(MessageKind.READY)
        loop.run(self)
        content = arrays_to_bytes(state_arrays(worker, loop.local))
        self.carry_content(MessageKind.LAST_STATE, content)

    @property
    def order(self) -> Step | None:
        """The order under way, for the sentence of an error."""
        return None if self.loop is None else self.loop.order

    @abstractmethod
    def carry(self, kind: MessageKind, *integers: int) -> None:
        """Send a header; an update goes with the numbers of its frame."""

    @abstractmethod
    def carry_content(self, kind: MessageKind, content: bytes) -> None:
        """Send a header and bytes."""

    @abstractmethod
    def receive(self, timed: bool) -> Received | None: ...

    @abstractmethod
    def sleep_until(self, until: float) -> bool: ...

    def received(self, frame: Frame, integers: tuple[int, ...]) -> Received:
        """Return the order that these integers are, with the iterate in its frame."""
        view = as_iterate(self._iterate, self._fields, frame.unpack())
        return Received(order_from(integers), view)

    def hand_in(self, arrays: Arrays) -> None:
        self.carry_content(MessageKind.STATE, arrays_to_bytes(arrays))

    def send(self, update: Any | None, seconds: float | None) -> None:
        # Headers are integers, so that a time travels as nanoseconds.
        nanoseconds = round(1e9 * (seconds or 0.0))
        if update is None:
            self.carry(MessageKind.REJECTED, nanoseconds)
        else:
            self.frames.update.pack(update)
            self.carry(MessageKind.UPDATE, nanoseconds)

    def now(self) -> float:
        return time.perf_counter() / self.setup.unit


def _sample(request: Request) -> Any:
    """Return an update from states that are discarded."""
    problem = request.problem
    algorithm = request.algorithm
    theta0 = request.theta0
    # The context imports what workers need for it, before they are forked.
    with one_thread_pools():
        precompile(problem, algorithm, theta0, request.seed)
    try:
        return sample_update(algorithm, read_only(problem), theta0, request.seed)
    except Exception as error:
        first = Step(0, 0, 0, algorithm.stages[0].first_part)
        raise failure(first, error).raised() from error
