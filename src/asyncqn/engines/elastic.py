"""Engines to whose run workers can be added: what the engines of processes and of Ray actors share.

A worker that was started stands in a slot of the master; it has no number until it is ready.
"""

from __future__ import annotations

import queue
import time
import warnings
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.interrupts import SECOND_SIGNAL_WAIT
from asyncqn.engines.master_loop import MasterLoop
from asyncqn.engines.real import RealEngine
from asyncqn.errors import WorkerFailed, require
from asyncqn.parameters import Workers, checked, parameter
from asyncqn.runs.run import Run
from asyncqn.types import extra

StartTimeout = Annotated[float, parameter(unit="s", gt=0.0, infinite=True)]
POLLING_INTERVAL = 0.1
"""Polling interval of a master, in seconds: it waits no longer for a message before it checks deadlines and
signals.  Ctrl-C takes effect within this time."""


class ElasticMaster(MasterLoop):
    """Start workers whenever they are wanted; a subclass implements how they start and how messages travel.

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
        super().__init__(coordinator, clock)
        self.start_timeout = start_timeout
        self.starting: set[Any] = set()
        """The slots of workers that were started and are not ready yet."""
        self.at: dict[int, Any] = {}
        """The slot of each worker that is ready, by its number."""
        self.wanted: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.begun = False

    def _join_workers(self) -> None:
        """Start everyone, wait until all are ready, and send them to work."""
        coordinator, until = self.coordinator, time.monotonic() + self.start_timeout
        returning: list[int | None] = [*coordinator.returning]
        # Workers of the checkpoint first; new ones fill up to the wanted number.
        for number in (returning + [None] * coordinator.workers)[: coordinator.workers]:
            self._start(number)
        while self.starting and time.monotonic() < until and not coordinator.done:
            self._serve(POLLING_INTERVAL)
        if not coordinator.members and not coordinator.done:
            raise WorkerFailed(self._why_nobody_came())
        # Slow starters join when they are ready; the run need not wait for them.
        if self.starting and not coordinator.done:
            warnings.warn(
                f"{len(self.starting)} of {coordinator.workers} workers were not ready after "
                f"{self.start_timeout:g} s: the run begins without them.",
                stacklevel=2,
            )
        self.begun = True
        # Starting processes is not part of the method, so the clock begins when everybody is ready.
        self.clock.restart(coordinator.time)
        for worker in list(self.at):
            # All begin together, on a clock that starts here.
            self._send_orders(coordinator.ask(worker, self.clock.now()))

    def _tend_workers(self) -> None:
        # `add` may be called from any thread; it leaves a wish here, which this thread fulfils.
        while not self.coordinator.done and not self.wanted.empty():
            for _ in range(self.wanted.get()):
                self._start(None)
        self._look_for_lost()

    def _now(self) -> float:
        """Return the time of the run, which stands still until all workers have their first order."""
        return self.clock.now() if self.begun else self.coordinator.time

    def _welcome(self, slot: Any) -> None:
        """Give a ready worker its number, and work once the run has begun."""
        now = self._now()
        self.starting.discard(slot)
        slot.worker = self.coordinator.join(now, slot.returning)
        self.at[slot.worker] = slot
        if self.begun:
            self._send_orders(self.coordinator.ask(slot.worker, now))

    def _dismiss(self) -> None:
        coordinator = self.coordinator
        # A worker that is still starting has computed nothing and need not end in good order.
        for slot in list(self.starting):
            self._forget(slot)
        for slot in list(self.at.values()):
            self._ask_for_last_state(slot)
        until = time.monotonic() + coordinator.snapshots.last_wait(self.clock.unit)
        hurried = False
        while not self.at.keys() <= self.states.keys() and time.monotonic() < until:
            self._serve(POLLING_INTERVAL)
            if coordinator.snapshots.hurried and not hurried:
                until = min(until, time.monotonic() + SECOND_SIGNAL_WAIT)
                hurried = True
        for worker in self.at.keys() - self.states.keys():
            if not hurried:
                coordinator.snapshots.give_up(worker, self._now())

    def _end_all(self) -> None:
        for slot in [*self.starting, *self.at.values()]:
            self._forget(slot)

    @abstractmethod
    def _start(self, returning: int | None) -> None:
        """Start a worker: a new one, or one of the checkpoint this run continues from."""

    @abstractmethod
    def _why_nobody_came(self) -> str:
        """Return the sentence for a run in which no worker was ready in time."""

    @abstractmethod
    def _look_for_lost(self) -> None:
        """Remove workers that have been silent for too long."""

    @abstractmethod
    def _ask_for_last_state(self, slot: Any) -> None:
        """Let a worker finish what it computes, and send its state."""

    @abstractmethod
    def _forget(self, slot: Any) -> None:
        """End a worker, and remove its slot."""


class RunsUnderWay(list[ElasticMaster]):
    """The masters of an engine's runs that are under way; a copy of the engine has none of them."""

    def __reduce__(self) -> tuple[type[RunsUnderWay], tuple[()]]:
        return RunsUnderWay, ()


@dataclass(frozen=True)
class ElasticEngine(RealEngine):
    """A real engine to whose run workers can be added."""

    under_way: RunsUnderWay = field(
        default_factory=RunsUnderWay, init=False, repr=False, compare=False
    )

    def conduct(self, master: ElasticMaster) -> Run:
        """Return the run of this master, to which `add` adds workers meanwhile."""
        self.under_way.append(master)
        try:
            return master.run()
        finally:
            self.under_way.remove(master)

    @checked
    def add(self, n: Workers = 1) -> None:
        """Start n more workers in the run that is under way: from its callback, or from another thread."""
        require(
            bool(self.under_way), "workers can be added only while a run is under way."
        )
        master = self.under_way[-1]
        algorithm = master.coordinator.algorithm
        require(
            # An algorithm with a limit was checked against the number of workers at the start.
            extra(algorithm, "max_workers") is None,
            f"{type(algorithm).__name__} limits its workers: none can be added.",
        )
        master.wanted.put(n)
