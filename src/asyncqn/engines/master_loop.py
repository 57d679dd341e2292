"""A master's life on engines whose workers are other processes: start, serve, dismiss, conclude.

`MasterLoop.run` drives the coordinator from one thread; a subclass implements how messages travel.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.real import concluded, written_beside
from asyncqn.engines.worker_loop import Step
from asyncqn.runs.run import Run


class MasterLoop(ABC):
    """The master of a run.

    Parameters
    ----------
    coordinator : Coordinator
        The state machine that decides what each worker computes.
    clock : Clock
        The clock of the run.
    """

    def __init__(self, coordinator: Coordinator, clock: Clock) -> None:
        self.coordinator = coordinator
        self.clock = clock
        self.states: dict[int, Any] = {}
        """The states with which workers ended, by their numbers."""

    def run(self) -> Run:
        coordinator = self.coordinator
        coordinator.begin()
        try:
            self._join_workers()
            with written_beside(coordinator) as write_whole:
                while not coordinator.done:
                    wait = math.inf
                    if coordinator.timed:
                        wait = self.clock.remaining(coordinator.deadline)
                    self._serve(wait)
                    if coordinator.timed:
                        self._send_orders(coordinator.tick(self.clock.now()))
                    self._tend_workers()
                    coordinator.snapshots.stop_where_interrupted()
                    write_whole()
                self._dismiss()
        # Also after an error: a worker must not outlive the run that started it.
        finally:
            self._end_all()
        # A worker that was lost at the very end has no place in the last checkpoint.
        members = coordinator.members
        states = {w: state for w, state in self.states.items() if w in members}
        return concluded(coordinator, states)

    def _deliver(self, worker: int, update: Any | None, seconds: float) -> None:
        """Pass an update to the coordinator, with the duration of its computation, and send its orders."""
        coordinator, now = self.coordinator, self.clock.now()
        version = coordinator.version
        # Both messages of a timing model are part of the stretched computation, but not of its time.
        spent = max(0.0, seconds / self.clock.unit - 2.0 * coordinator.reach)
        self._send_orders(coordinator.deliver(worker, update, now, spent=spent))
        coordinator.served(now, self.clock.now(), version)

    def _send_orders(self, orders: list[Step]) -> None:
        """Send the iterate as it is now to those who may begin."""
        if self.coordinator.service:
            # The service time of a slowed master.
            self.clock.sleep_until(self.coordinator.time)
        for order in orders:
            self._send_order(order)

    @abstractmethod
    def _join_workers(self) -> None:
        """Wait until the workers are ready, start the clock and send them to work."""

    @abstractmethod
    def _serve(self, seconds: float) -> None:
        """Wait at most `seconds` for messages, and do what they ask for."""

    @abstractmethod
    def _tend_workers(self) -> None:
        """Start the workers that were asked for, and remove those that are lost."""

    @abstractmethod
    def _send_order(self, order: Step) -> None:
        """Send one worker an order, with the iterate as it is now."""

    @abstractmethod
    def _dismiss(self) -> None:
        """Let everyone finish what is under way, and take the states they end with."""

    @abstractmethod
    def _end_all(self) -> None:
        """End every worker that is still there."""
