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
        self.coordinator = coordinator
        self.clock = clock
        self.timing_model = coordinator.timing_model
        self.lock = threading.Lock()
        # Wakes the watching thread, which must never wait for the lock alone.
        self.alert = threading.Event()
        # All on the one lock; a condition of its own for each worker, so that only those with an order are
        # woken.
        self.parked: dict[int, threading.Condition] = {}
        self.mail: dict[int, Step] = {}
        self.views: dict[int, Any] = {}
        self.copies: dict[int, View] = {}
        self.held: dict[int, int] = {}
        """The version that a worker's view is a copy of."""
        self.loops: dict[int, WorkerLoop] = {}
        self.failure: BaseException | None = None
        # A single worker reads the master's own iterate without a copy: nobody else commits while it
        # computes. In a round the commit comes later, so it needs a copy there.
        self.alone = coordinator.workers == 1 and isinstance(
            coordinator.algorithm.stages[0], (EachUpdate, AllParts)
        )
        self.alarm = 0.0
        coordinator.expecting = self._expecting

    # -- the watching thread

    def run(self) -> Run:
        """Start the workers, watch until the run is done, and conclude it."""
        coordinator = self.coordinator
        coordinator.begin()
        threads = {
            w: threading.Thread(
                target=self._life,
                args=(w, joins),
                daemon=True,
                name=f"asyncqn worker {w}",
            )
            for w, joins in self._join_workers().items()
        }
        with written_beside(coordinator) as write_whole:
            try:
                for thread in threads.values():
                    thread.start()
                self._watch(write_whole)
                self._wait_for(
                    threads, coordinator.snapshots.last_wait(self.clock.unit)
                )
                self._give_up_silent(threads)
            except BaseException:
                self._break_off(threads)
                raise
            if self.failure is not None:
                raise self.failure
        # A thread that still computes writes to its state, which cannot be part of a checkpoint then.
        states = {
            w: self.loops[w].local
            for w in coordinator.members
            if not threads[w].is_alive()
        }
        return concluded(coordinator, states)

    def _break_off(self, threads: dict[int, threading.Thread]) -> None:
        """End the run after an exception in this thread, which may have come while it held the lock."""
        # Tried and not waited for: the lock may be our own.
        held = self.lock.acquire(timeout=SECOND_SIGNAL_WAIT)
        self.coordinator.stop(Outcome.STOPPED, "the run was broken off.")
        if held:
            self._wake()
            self.lock.release()
        self._wait_for(threads, BROKEN_OFF_WAIT)

    def _join_workers(self) -> dict[int, float]:
        """Join the workers that are there from the start; return when each worker joins, by its number."""
        coordinator, model = self.coordinator, self.timing_model
        joins = {} if model is None else model.joins
        W, snapshots = coordinator.workers, coordinator.snapshots
        if model is None or snapshots.resumed_from is None:
            numbers = [coordinator.new_worker() for _ in range(W)]
        else:
            # The others have died before the checkpoint, as the timing model says.
            late = [w for w in range(W) if joins.get(w, 0.0) > coordinator.time]
            numbers = [*snapshots.returning, *late]
        come = {w: joins.get(w, 0.0) for w in numbers}
        for worker in sorted(come):
            if come[worker] <= coordinator.time:
                coordinator.join(coordinator.time, worker)
        return come

    def _expecting(self) -> bool:
        """Return whether a worker of the timing model will still join."""
        joins = {} if self.timing_model is None else self.timing_model.joins
        return any(begin > self.coordinator.time for begin in joins.values())

    def _watch(self, write_whole: Callable[[], None]) -> None:
        coordinator = self.coordinator
        while not coordinator.done:
            with self.lock:
                # Remembered, so that an order with an earlier deadline wakes this thread.
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

    def _wait_for(self, threads: dict[int, threading.Thread], seconds: float) -> None:
        """Wait for the threads, except for those of workers that were given up, or computed too long."""
        until = time.monotonic() + seconds
        for worker, thread in threads.items():
            while thread.is_alive() and time.monotonic() < until:
                thread.join(min(POLLING_INTERVAL, seconds))
                if self.coordinator.done and worker not in self.coordinator.members:
                    break
                if self.coordinator.snapshots.hurried:
                    until = min(until, time.monotonic() + SECOND_SIGNAL_WAIT)

    def _give_up_silent(self, threads: dict[int, threading.Thread]) -> None:
        """Give up workers that compute for too long after the end; a thread cannot be killed."""
        with self.lock:
            for worker in list(self.coordinator.members):
                if (
                    threads[worker].is_alive()
                    and not self.coordinator.snapshots.hurried
                ):
                    self.coordinator.snapshots.give_up(worker, self.clock.now())

    # -- what all threads do, with the lock held

    def _end(self, outcome: Outcome, message: str) -> None:
        self.coordinator.stop(outcome, message)
        self._wake()

    def _wake(self) -> None:
        for condition in self.parked.values():
            condition.notify()
        self.alert.set()

    def send_orders(self, orders: list[Step]) -> None:
        """Copy the iterate into the views of those who may begin, while it is still their version."""
        coordinator = self.coordinator
        if coordinator.service:
            # The service time of a slowed master.
            self.clock.sleep_until(coordinator.time)
        for order in orders:
            if self.alone:
                self.views[order.worker] = coordinator.master.iterate
            # A worker that computes several parts of one version keeps its copy.
            elif self.held.get(order.worker) != order.read:
                copy = self.copies[order.worker]
                self.views[order.worker] = copy.take(coordinator.sent())
                self.held[order.worker] = order.read
            self.mail[order.worker] = order
            if order.worker in self.parked:
                self.parked[order.worker].notify()
        if coordinator.done:
            self._wake()
        elif coordinator.timed and coordinator.deadline < self.alarm:
            self.alert.set()

    # -- a worker's thread

    def _life(self, worker: int, joins: float) -> None:
        try:
            self._work(worker, joins)
        except BaseException as failure:
            with self.lock:
                # The first failure is reported; others are mostly its consequences.
                self.failure = self.failure or failure
                self._end(Outcome.STOPPED, "a worker failed.")

    def _work(self, worker: int, joins: float) -> None:
        coordinator = self.coordinator
        loop = self.loops[worker] = self._loop(worker)
        if not self._arrive(worker, joins):
            return
        loop.run(ThreadLink(self, worker))
        with self.lock:
            # The loop ended although the run continues: the worker dies, as the timing model says.
            if not coordinator.done:
                self.send_orders(coordinator.lost(worker, self.clock.now()))

    def _loop(self, worker: int) -> WorkerLoop:
        """Return a worker's loop, with its state new or from the checkpoint, and make room for its view."""
        c = self.coordinator
        loop = WorkerLoop(
            c.algorithm,
            c.request.problem,
            c.request.theta0,
            c.request.seed,
            timing_model=self.timing_model,
            learns_first=self.alone,
            measured=is_timed,
        )
        start = c.snapshots.start
        if start is not None and worker in c.snapshots.steps_made:
            loop.restore(worker, start.arrays)
        with self.lock:
            iterate = c.master.iterate
            self.copies[worker] = View(iterate, sent_fields(c.algorithm, iterate))
        return loop

    def _arrive(self, worker: int, joins: float) -> bool:
        """Wait until a worker that joins late may join; return whether there is still something to do."""
        with self.lock:
            if worker in self.coordinator.members:
                return True
        if not self.clock.sleep_until(joins, lambda: self.coordinator.done):
            return False
        with self.lock:
            self.coordinator.join(self.clock.now(), worker)
        return True


class ThreadLink:
    """A worker's way to the coordinator: calls under the lock, and a view of its own."""

    sending_counts = False  # a thread commits what it sends, which is the master's time

    def __init__(self, workers: ThreadWorkers, worker: int) -> None:
        self.all, self.worker = workers, worker
        self.coordinator = workers.coordinator
        self.clock, self.lock = workers.clock, workers.lock
        model = workers.timing_model
        self.messages = model.message if model is not None else 0.0
        self.asking = 0.0
        """Time for which the last question kept the master busy."""

    def receive(self, timed: bool) -> Received | None:
        coordinator = self.coordinator
        all_ = self.all
        worker = self.worker
        mail = all_.mail
        with self.lock:
            now = self.clock.now()
            all_.send_orders(coordinator.ask(worker, now))
            if timed:
                self.asking = self.clock.now() - now
            # A condition is made only for workers that wait: in asynchronous runs nobody does.
            if worker not in mail:
                all_.parked.setdefault(worker, threading.Condition(self.lock))
            while worker not in mail:
                if coordinator.done or worker not in coordinator.members:
                    return None
                all_.parked[worker].wait()
            return new_tuple(Received, (mail.pop(worker), all_.views[worker]))

    def hand_in(self, arrays: Arrays) -> None:
        with self.lock:
            self.coordinator.snapshots.hand_in(self.worker, arrays)
            self.all.alert.set()

    def send(self, update: Any | None, local: Any, seconds: float | None) -> Any:
        coordinator, spent = self.coordinator, None
        if seconds is not None:
            # A timing model's messages are part of the stretched computation, but not of its time.
            spent = max(0.0, seconds / self.clock.unit - self.messages)
        with self.lock:
            now, version = self.clock.now(), coordinator.version
            orders = coordinator.deliver(
                self.worker, update, now, ask=False, spent=spent
            )
            self.all.send_orders(orders)
            if spent is not None:
                coordinator.served(now - self.asking, self.clock.now(), version)
                self.asking = 0.0
        return local

    def now(self) -> float:
        return self.clock.now()

    def sleep_until(self, until: float) -> bool:
        return self.clock.sleep_until(until, lambda: self.coordinator.done)
