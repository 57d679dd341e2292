"""Engines to whose run workers can be added: what the engines of processes and of Ray actors share.

`ElasticMaster.run` is the life of a run; a subclass implements how workers start and how messages travel.
"""

from __future__ import annotations

import queue
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.orders import Assign
from asyncqn.engines.real import RealEngine, concluded, written_beside
from asyncqn.errors import WorkerFailed, require
from asyncqn.parameters import Workers, checked, parameter
from asyncqn.runs.run import Run
from asyncqn.types import extra

StartTimeout = Annotated[float, parameter(unit="s", gt=0.0, infinite=True)]
POLLING_INTERVAL = 0.1
"""Polling interval of a master, in seconds: it waits no longer for a message before it checks deadlines and
signals.  Ctrl-C takes effect within this time."""


class ElasticMaster(ABC):
    """Start workers, serve their messages and end the run; a subclass implements how messages travel.

    Parameters
    ----------
    coordinator : Coordinator
        The state machine that decides what each worker computes.
    clock : Clock
        The clock of the run.
    start_timeout : float
        Seconds within which workers must be ready.
    """

    def __init__(
        self, coordinator: Coordinator, clock: Clock, start_timeout: float
    ) -> None:
        self.coordinator, self.clock, self.start_timeout = (
            coordinator,
            clock,
            start_timeout,
        )
        self.at: dict[int, Any] = {}
        """The record of each worker, by its number."""
        self.wanted: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.states: dict[int, Any] = {}
        self.begun = False

    def run(self) -> Run:
        coordinator = self.coordinator
        coordinator.begin()
        try:
            self._join_workers()
            with written_beside(coordinator) as write_whole:
                while not coordinator.done:
                    self._turn()
                    write_whole()
                self._dismiss()
        # Also after an error: a worker must not outlive the run that started it.
        finally:
            self._end_all()
        # A worker that was lost at the very end has no place in the last checkpoint.
        states = {
            w: state for w, state in self.states.items() if w in coordinator.members
        }
        return concluded(coordinator, states)

    def _join_workers(self) -> None:
        """Start everyone, wait until all are ready, and send them to work."""
        coordinator, until = self.coordinator, time.monotonic() + self.start_timeout
        returning: list[int | None] = [*coordinator.returning]
        # Workers of the checkpoint first; new ones fill up to the wanted number.
        for number in (returning + [None] * coordinator.workers)[: coordinator.workers]:
            self._start(number)
        while self._starting() and time.monotonic() < until and not coordinator.done:
            self._serve(POLLING_INTERVAL)
        if not coordinator.members and not coordinator.done:
            raise WorkerFailed(self._why_nobody_came())
        # Slow starters join when they are ready; the run need not wait for them.
        if (late := self._starting()) and not coordinator.done:
            warnings.warn(
                f"{late} of {coordinator.workers} workers were not ready after {self.start_timeout:g} s: "
                "the run begins without them.",
                stacklevel=2,
            )
        self.begun = True
        # Starting processes is not part of the method, so the clock begins when everybody is ready.
        self.clock.restart(coordinator.time)
        for worker in list(self.at):
            # All begin together, on a clock that starts here.
            self._send_orders(coordinator.ask(worker, self.clock.now()))

    def _turn(self) -> None:
        """Serve the messages that have arrived, and do what time demands."""
        coordinator = self.coordinator
        wait = (
            self.clock.remaining(coordinator.deadline)
            if coordinator.timed
            else POLLING_INTERVAL
        )
        self._serve(min(wait, POLLING_INTERVAL))
        # `add` may be called from any thread; it leaves a wish here, which this thread fulfils.
        while not coordinator.done and not self.wanted.empty():
            for _ in range(self.wanted.get()):
                self._start(None)
        if coordinator.timed:
            self._send_orders(coordinator.tick(self.clock.now()))
        self._look_for_lost()
        coordinator.stop_where_interrupted()

    def _now(self) -> float:
        """Return the time of the run, which stands still until all workers have their first order."""
        return self.clock.now() if self.begun else self.coordinator.time

    def _welcome(self, slot: Any) -> None:
        """Give a ready worker its number, and work once the run has begun."""
        now = self._now()
        slot.worker = self.coordinator.join(now, slot.returning)
        self.at[slot.worker] = slot
        if self.begun:
            self._send_orders(self.coordinator.ask(slot.worker, now))

    @abstractmethod
    def _start(self, returning: int | None) -> None:
        """Start a worker: a new one, or one of the checkpoint this run continues from."""

    @abstractmethod
    def _starting(self) -> int:
        """Return the number of workers that were started and are not ready yet."""

    @abstractmethod
    def _why_nobody_came(self) -> str:
        """Return the sentence for a run in which no worker was ready in time."""

    @abstractmethod
    def _serve(self, seconds: float) -> None:
        """Wait at most `seconds` for messages, and do what they ask for."""

    @abstractmethod
    def _look_for_lost(self) -> None:
        """Remove workers that have been silent for too long."""

    @abstractmethod
    def _send_orders(self, orders: list[Assign]) -> None:
        """Send the iterate as it is now to those who may begin."""

    @abstractmethod
    def _dismiss(self) -> None:
        """Let everyone finish what is under way, and take the states they end with."""

    @abstractmethod
    def _end_all(self) -> None:
        """End every worker that is still there."""


class RunsUnderWay:
    """The masters of an engine's runs that are under way: all about an engine that changes.

    They are no parameter: they do not print, compare or travel, and a copy of the engine has none of them.
    """

    def __init__(self) -> None:
        self._masters: list[ElasticMaster] = []

    def __reduce__(self) -> tuple[type[RunsUnderWay], tuple[()]]:
        return RunsUnderWay, ()

    @property
    def newest(self) -> ElasticMaster:
        """The master of the run that began last; raises `BadInput` where there is none."""
        require(
            bool(self._masters), "workers can be added only while a run is under way."
        )
        return self._masters[-1]

    @contextmanager
    def entered(self, master: ElasticMaster) -> Iterator[None]:
        """Count this master's run as under way inside the block."""
        self._masters.append(master)
        try:
            yield
        finally:
            self._masters.remove(master)


@dataclass(frozen=True)
class ElasticEngine(RealEngine):
    """A real engine to whose run workers can be added."""

    under_way: RunsUnderWay = field(
        default_factory=RunsUnderWay, init=False, repr=False, compare=False
    )

    @checked
    def add(self, n: Workers = 1) -> None:
        """Start n more workers in the run that is under way: from its callback, or from another thread."""
        master = self.under_way.newest
        algorithm = master.coordinator.algorithm
        require(
            # An algorithm with a limit was checked against the number of workers at the start.
            extra(algorithm, "max_workers") is None,
            f"{type(algorithm).__name__} limits its workers: none can be added.",
        )
        master.wanted.put(n)
