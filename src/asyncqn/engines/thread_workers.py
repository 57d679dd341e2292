"""The threads of one run: workers that compute, and the calling thread that watches over them.

One lock guards the coordinator.  A worker takes the newest version when it is ready to compute, so it
reads no earlier than a message from the master would have reached it.  Its view is a copy in
buffers of its own, because others commit in place while it computes; a single worker needs none,
as nobody else commits.  Metrics are evaluated by the thread that made the commit, with the lock
held and the clock standing still: the row belongs to exactly that version.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from asyncqn.core.assignment import new_tuple
from asyncqn.core.outcome import Outcome
from asyncqn.core.stages import AllParts, EachUpdate
from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.copies import View, sent_fields
from asyncqn.engines.interrupts import SECOND_SIGNAL_WAIT
from asyncqn.engines.measured import is_timed
from asyncqn.engines.real import concluded, written_beside
from asyncqn.engines.worker_loop import Received, Step, WorkerLoop
from asyncqn.runs.checkpoint import Arrays
from asyncqn.runs.run import Run

POLLING_INTERVAL = 0.2
"""Polling interval of the watching thread, in seconds, for deadlines and signals."""
BROKEN_OFF_WAIT = 5.0
"""Seconds that threads have to end after the run was broken off; as daemons they end with the program."""


class ThreadWorkers:
    """Runs `coordinator` with one thread per worker; see the top of this file."""

    def __init__(self, coordinator: Coordinator, clock: Clock) -> None:
        self.coordinator, self.clock = coordinator, clock
        self.timing_model = coordinator.timing_model
        self.lock = threading.Lock()
        # Wakes the watching thread, which must never wait for the lock alone.
        self.alert = threading.Event()
        self.workers: dict[int, ThreadWorker] = {}
        self.failure: BaseException | None = None
        # A single worker reads the master's own iterate without a copy: nobody else commits while it
        # computes. In a round the commit comes later, so it needs a copy there.
        self.alone = coordinator.workers == 1 and isinstance(
            coordinator.algorithm.stages[0], (EachUpdate, AllParts)
        )
        self.alarm = 0.0
        """The deadline that the watching thread sleeps to."""
        coordinator.expecting = self._expecting

    # -- the watching thread

    def run(self) -> Run:
        """Start the workers, watch until the run is done, and conclude it."""
        coordinator = self.coordinator
        coordinator.begin()
        for number, joins in self._joins().items():
            self.workers[number] = ThreadWorker(self, number, joins)
        with written_beside(coordinator) as write_whole:
            try:
                for worker in self.workers.values():
                    worker.thread.start()
                self._watch(write_whole)
                self._wait(coordinator.snapshots.last_wait(self.clock.unit))
                self._give_up_silent()
            except BaseException:
                self._break_off()
                raise
            if self.failure is not None:
                raise self.failure
        # A thread that still computes writes to its state, which cannot be part of a checkpoint then.
        members = [self.workers[w] for w in coordinator.members]
        ended = [worker for worker in members if not worker.thread.is_alive()]
        return concluded(coordinator, {each.number: each.loop.local for each in ended})

    def _joins(self) -> dict[int, float]:
        """Return when each worker joins, by its number; those of the start join now."""
        coordinator, model = self.coordinator, self.timing_model
        times = {} if model is None else model.joins
        W, snapshots = coordinator.workers, coordinator.snapshots
        if model is None or snapshots.resumed_from is None:
            numbers = [coordinator.new_worker() for _ in range(W)]
        else:
            # The others have died before the checkpoint, as the timing model says.
            late = [w for w in range(W) if times.get(w, 0.0) > coordinator.time]
            numbers = [*snapshots.returning, *late]
        joins = {w: times.get(w, 0.0) for w in sorted(numbers)}
        for worker, begin in joins.items():
            if begin <= coordinator.time:
                coordinator.join(coordinator.time, worker)
        return joins

    def _expecting(self) -> bool:
        """Return whether a worker of the timing model will still join."""
        joins = {} if self.timing_model is None else self.timing_model.joins
        return any(begin > self.coordinator.time for begin in joins.values())

    def _watch(self, write_whole: Callable[[], None]) -> None:
        coordinator = self.coordinator
        while not coordinator.done:
            with self.lock:
                self.alarm = coordinator.deadline
                wait = POLLING_INTERVAL
                if coordinator.timed:
                    wait = min(wait, self.clock.remaining(self.alarm))
            self.alert.wait(wait)
            self.alert.clear()
            with self.lock:
                coordinator.snapshots.stop_where_interrupted()
                if coordinator.done:
                    self._wake()
                if coordinator.timed:
                    self.send_orders(coordinator.tick(self.clock.now()))
                if not coordinator.done:
                    write_whole()

    def _wait(self, seconds: float) -> None:
        """Wait for the threads, except for those of workers that were given up, or computed too long."""
        until, coordinator = time.monotonic() + seconds, self.coordinator
        for number, worker in self.workers.items():
            while worker.thread.is_alive() and time.monotonic() < until:
                worker.thread.join(min(POLLING_INTERVAL, seconds))
                if coordinator.done and number not in coordinator.members:
                    break
                if coordinator.snapshots.hurried:
                    until = min(until, time.monotonic() + SECOND_SIGNAL_WAIT)

    def _give_up_silent(self) -> None:
        """Give up workers that compute for too long after the end; a thread cannot be killed."""
        snapshots = self.coordinator.snapshots
        with self.lock:
            for number in list(self.coordinator.members):
                if self.workers[number].thread.is_alive() and not snapshots.hurried:
                    snapshots.give_up(number, self.clock.now())

    def _break_off(self) -> None:
        """End the run after an exception in this thread, which may have come while it held the lock."""
        # Tried and not waited for: the lock may be our own.
        held = self.lock.acquire(timeout=SECOND_SIGNAL_WAIT)
        self.coordinator.stop(Outcome.STOPPED, "the run was broken off.")
        if held:
            self._wake()
            self.lock.release()
        self._wait(BROKEN_OFF_WAIT)

    # -- what all threads do, with the lock held

    def fail(self, failure: BaseException) -> None:
        """End the run after a worker's failure; the first is reported, as others are its consequences."""
        self.failure = self.failure or failure
        self.coordinator.stop(Outcome.STOPPED, "a worker failed.")
        self._wake()

    def _wake(self) -> None:
        for worker in self.workers.values():
            worker.order_has_come.notify()
        self.alert.set()

    def send_orders(self, orders: list[Step]) -> None:
        """Give orders, with the iterate while it is still their version."""
        coordinator = self.coordinator
        if coordinator.service:
            # The service time of a slowed master.
            self.clock.sleep_until(coordinator.time)
        for order in orders:
            self.workers[order.worker].take(order)
        if coordinator.done:
            self._wake()
        elif coordinator.timed and coordinator.deadline < self.alarm:
            self.alert.set()


class ThreadWorker:
    """One worker, and its link to the coordinator: calls under the lock, and a view of its own."""

    sending_counts = False  # a thread commits what it sends, which is the master's time

    def __init__(self, all_: ThreadWorkers, number: int, joins: float) -> None:
        self.all, self.number = all_, number
        self.joins = joins
        self.coordinator, self.clock = all_.coordinator, all_.clock
        self.lock = all_.lock
        self.thread = threading.Thread(
            target=self._live, daemon=True, name=f"asyncqn worker {number}"
        )
        # All on the one lock; a condition for each worker, so that only those with an order are woken.
        self.order_has_come = threading.Condition(self.lock)
        self.order: Step | None = None
        self.waits = False
        self.view: Any = None
        self.version = -1
        """The version that the view is a copy of."""
        self.asking = 0.0
        """Time for which the last question kept the master busy."""

    # -- its thread

    def _live(self) -> None:
        try:
            self._work()
        except BaseException as failure:
            with self.lock:
                self.all.fail(failure)

    def _work(self) -> None:
        coordinator, request = self.coordinator, self.coordinator.request
        snapshots = coordinator.snapshots
        self.loop = WorkerLoop(
            request.algorithm,
            request.problem,
            request.theta0,
            request.seed,
            timing_model=coordinator.timing_model,
            learns_first=self.all.alone,
            measured=is_timed,
        )
        if snapshots.start is not None and self.number in snapshots.steps_made:
            self.loop.restore(self.number, snapshots.start.arrays)
        with self.lock:
            iterate = coordinator.master.iterate
            self.copy = View(iterate, sent_fields(request.algorithm, iterate))
            present = self.number in coordinator.members
        if not present:
            # It joins late, or not at all.
            if not self.sleep_until(self.joins):
                return
            with self.lock:
                coordinator.join(self.clock.now(), self.number)
        self.loop.run(self)
        with self.lock:
            # The loop ended although the run continues: the worker dies, as the timing model says.
            if not coordinator.done:
                orders = coordinator.lost(self.number, self.clock.now())
                self.all.send_orders(orders)

    # -- the link

    def take(self, order: Step) -> None:
        """Take an order, with a copy of the iterate; the lock is held."""
        self.order = order
        if self.all.alone:
            self.view = self.coordinator.master.iterate
        # A worker that computes several parts of one version keeps its copy.
        elif self.version != order.read:
            self.view = self.copy.take(self.coordinator.sent())
            self.version = order.read
        # In asynchronous runs nobody waits.
        if self.waits:
            self.order_has_come.notify()

    def receive(self, timed: bool) -> Received | None:
        coordinator, number = self.coordinator, self.number
        with self.lock:
            now = self.clock.now()
            self.all.send_orders(coordinator.ask(number, now))
            if timed:
                self.asking = self.clock.now() - now
            while (order := self.order) is None:
                if coordinator.done or number not in coordinator.members:
                    return None
                self.waits = True
                self.order_has_come.wait()
            self.order, self.waits = None, False
            received: Received = new_tuple(Received, (order, self.view))
            return received

    def hand_in(self, arrays: Arrays) -> None:
        with self.lock:
            self.coordinator.snapshots.hand_in(self.number, arrays)
            self.all.alert.set()

    def send(self, update: Any | None, seconds: float | None) -> None:
        coordinator, spent = self.coordinator, None
        if seconds is not None:
            # A timing model's messages are part of the stretched computation, but not of its time.
            spent = max(0.0, seconds / self.clock.unit - 2.0 * coordinator.reach)
        with self.lock:
            now, version = self.clock.now(), coordinator.version
            orders = coordinator.deliver(
                self.number, update, now, ask=False, spent=spent
            )
            self.all.send_orders(orders)
            if spent is not None:
                coordinator.served(now - self.asking, self.clock.now(), version)
                self.asking = 0.0

    def now(self) -> float:
        return self.clock.now()

    def sleep_until(self, until: float) -> bool:
        return self.clock.sleep_until(until, lambda: self.coordinator.done)
