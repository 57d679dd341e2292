"""The master on engines whose workers are other processes: start them, serve them, dismiss them, conclude.

`MasterLoop.run` drives the coordinator from one thread; a subclass implements how workers start and how
messages travel.  A worker that was started stands in a `Slot`, and joins the run when it is ready.
"""

from __future__ import annotations

import queue
import time
import warnings
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.copies import copied
from asyncqn.engines.interrupts import SECOND_SIGNAL_WAIT
from asyncqn.engines.real import concluded, written_beside
from asyncqn.engines.wire import MessageKind
from asyncqn.engines.worker_loop import Step
from asyncqn.errors import WorkerFailed
from asyncqn.runs.run import Run

POLLING_INTERVAL = 0.1
"""Polling interval of a master, in seconds: it waits no longer for a message before it checks deadlines and
signals.  Ctrl-C takes effect within this time."""


class Slot:
    """The master's record of a worker, by its number."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.started = time.monotonic()


SlotT = TypeVar("SlotT", bound=Slot)


class MasterLoop(ABC, Generic[SlotT]):
    """The master of a run.

    Parameters
    ----------
    coordinator : Coordinator
        The state machine that decides what each worker computes.
    clock : Clock
        The clock of the run.
    start_timeout : float
        Seconds within which workers must be ready.
    """

    longest_wait = POLLING_INTERVAL
    """Seconds for which `serve` may wait for a message."""
    restarts = 0
    """How many lost workers are still replaced."""

    def __init__(
        self, coordinator: Coordinator, clock: Clock, start_timeout: float
    ) -> None:
        self.coordinator, self.clock = coordinator, clock
        self.start_timeout = start_timeout
        self.starting: dict[int, SlotT] = {}
        """The workers that were started and are not ready yet, by their numbers."""
        self.ready: dict[int, SlotT] = {}
        self.states: dict[int, Any] = {}
        """The states with which workers ended."""
        self.wanted: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Numbers of workers to add: `add` may be called from any thread, this one fulfils it."""
        self.begun = False
        coordinator.expecting = lambda: bool(self.starting) or self.restarts > 0

    def run(self) -> Run:
        coordinator = self.coordinator
        coordinator.begin()
        try:
            self._join_workers()
            with written_beside(coordinator) as write_whole:
                while not coordinator.done:
                    wait = self.longest_wait
                    if coordinator.timed:
                        wait = min(wait, self.clock.remaining(coordinator.deadline))
                    self.serve(wait)
                    if coordinator.timed:
                        self._send_orders(coordinator.tick(self.clock.now()))
                    self._tend_workers()
                    coordinator.snapshots.stop_where_interrupted()
                    write_whole()
                self.dismiss()
        # Also after an error: a worker must not outlive the run that started it.
        finally:
            for slot in [*self.starting.values(), *self.ready.values()]:
                self.forget(slot)
        # A worker that was lost at the very end has no place in the last checkpoint.
        members = coordinator.members
        states = {w: state for w, state in self.states.items() if w in members}
        return concluded(coordinator, states)

    # -- workers come and go

    def _join_workers(self) -> None:
        """Start everyone, wait until all are ready, and send them to work."""
        coordinator, until = self.coordinator, time.monotonic() + self.start_timeout
        for _ in range(coordinator.workers):
            self._start(coordinator.new_worker())
        while self.starting and time.monotonic() < until:
            self.serve(POLLING_INTERVAL)
        if not coordinator.members and not coordinator.done:
            raise WorkerFailed(self.why_nobody_came())
        # Slow starters join when they are ready; the run need not wait for them.
        if self.starting and not coordinator.done:
            warnings.warn(
                f"{len(self.starting)} of {coordinator.workers} workers were not ready after "
                f"{self.start_timeout:g} s: the run begins without them.",
                stacklevel=2,
            )
        self.begun = True
        # Starting processes is not part of the method: all begin together, on a clock that starts here.
        self.clock.restart(coordinator.time)
        for worker in list(self.ready):
            self._send_orders(coordinator.ask(worker, self.clock.now()))

    def _start(self, worker: int) -> None:
        slot = self.start(worker)
        self.starting[worker] = slot
        self.send_start(slot)

    def _welcome(self, slot: SlotT) -> None:
        """Let a ready worker join, and give it work once the run has begun."""
        now = self._now()
        self.ready[slot.worker] = self.starting.pop(slot.worker)
        self.coordinator.join(now, slot.worker)
        if self.begun:
            self._send_orders(self.coordinator.ask(slot.worker, now))

    def _tend_workers(self) -> None:
        """Start the workers that were added, and remove those that were given up."""
        coordinator = self.coordinator
        while not coordinator.done and not self.wanted.empty():
            for _ in range(self.wanted.get()):
                self._start(coordinator.new_worker())
        if coordinator.timed:
            self.remove_silent()
        # Nobody is there, and those that would replace them do not come.
        oldest = time.monotonic() - self.start_timeout
        late = all(slot.started < oldest for slot in self.starting.values())
        if not coordinator.members and late:
            coordinator.stop_without_workers()

    def remove_silent(self) -> None:
        """End the workers that the coordinator has given up."""
        for worker in self.ready.keys() - self.coordinator.members.keys():
            self.lose(self.ready[worker])

    def lose(self, slot: SlotT) -> None:
        """Remove a worker that is gone, with its computation; another replaces it while `restarts` allows."""
        coordinator, joined = self.coordinator, slot.worker in self.ready
        self.forget(slot)
        self.starting.pop(slot.worker, None)
        self.ready.pop(slot.worker, None)
        # The replacement starts before the loss is reported, so that a run with one worker does not end.
        if self.restarts > 0 and not coordinator.done:
            self.restarts -= 1
            self._start(coordinator.new_worker() if joined else slot.worker)
        if joined:
            self._send_orders(coordinator.lost(slot.worker, self._now()))

    def dismiss(self) -> None:
        """Let everyone finish what is under way, and take the states they end with."""
        coordinator = self.coordinator
        for slot in list(self.ready.values()):
            self.send_stop(slot)
        until = time.monotonic() + coordinator.snapshots.last_wait(self.clock.unit)
        hurried = False
        while (owing := self._owing()) and time.monotonic() < until:
            self.serve(POLLING_INTERVAL)
            if coordinator.snapshots.hurried and not hurried:
                until = min(until, time.monotonic() + SECOND_SIGNAL_WAIT)
                hurried = True
        for worker in [] if hurried else owing:
            coordinator.snapshots.give_up(worker, self._now())

    def _owing(self) -> set[int]:
        """Return the members whose last state has not come."""
        return self.coordinator.members.keys() & self.ready.keys() - self.states.keys()

    def _now(self) -> float:
        """Return the time of the run, which stands still until all workers have their first order."""
        return self.clock.now() if self.begun else self.coordinator.time

    # -- messages

    def take(
        self, slot: SlotT, kind: MessageKind, content: Any, seconds: float = 0.0
    ) -> None:
        """Do what a message asks for; `content` is an update, or the arrays of a state."""
        coordinator = self.coordinator
        if kind is MessageKind.READY:
            self._welcome(slot)
        elif kind is MessageKind.STATE:
            coordinator.snapshots.hand_in(slot.worker, content)
        elif kind is MessageKind.LAST_STATE:
            state = coordinator.snapshots.worker_state(slot.worker, content)
            self.states[slot.worker] = state
            self.forget(self.ready.pop(slot.worker))
        else:
            # The worker may use these arrays again when it continues before the commit.
            if coordinator.machine.stage.goes_on and content is not None:
                content = self.lasting(content)
            now, version = self.clock.now(), coordinator.version
            # Both messages of a timing model are part of the stretched computation, but not of its time.
            spent = max(0.0, seconds / self.clock.unit - 2.0 * coordinator.reach)
            orders = coordinator.deliver(slot.worker, content, now, spent=spent)
            self._send_orders(orders)
            coordinator.served(now, self.clock.now(), version)

    def _send_orders(self, orders: list[Step]) -> None:
        """Send the iterate as it is now to those who may begin."""
        if self.coordinator.service:
            # The service time of a slowed master.
            self.clock.sleep_until(self.coordinator.time)
        values = self.broadcast(self.coordinator.sent(), len(orders))
        for order in orders:
            # A worker may be lost while the orders before its own are carried out.
            if (slot := self.ready.get(order.worker)) is not None:
                self.send_order(slot, order, values)

    def lasting(self, update: Any) -> Any:
        """Return an update whose arrays stay valid until its commit."""
        return copied(update)

    def broadcast(self, values: tuple[Any, ...], receivers: int) -> Any:
        """Return the arrays of the iterate as they are sent to so many workers."""
        return values

    # -- what a subclass implements

    @abstractmethod
    def start(self, worker: int) -> SlotT:
        """Start a worker, and return its slot."""

    @abstractmethod
    def send_start(self, slot: SlotT) -> None:
        """Let a worker make its state, or load that of the checkpoint this run continues from."""

    @abstractmethod
    def send_order(self, slot: SlotT, order: Step, values: Any) -> None:
        """Send a worker an order, with these arrays of the iterate."""

    @abstractmethod
    def send_stop(self, slot: SlotT) -> None:
        """Let a worker finish what it computes, and send its state."""

    @abstractmethod
    def serve(self, seconds: float) -> None:
        """Wait at most `seconds` for messages, and `take` them."""

    @abstractmethod
    def forget(self, slot: SlotT) -> None:
        """End a worker; called once for each."""

    @abstractmethod
    def why_nobody_came(self) -> str:
        """Return the sentence for a run in which no worker was ready in time."""
