"""The threads of one run: workers that compute, and the calling thread that watches over them.

One lock guards the coordinator.  A worker takes the newest version when it is ready to compute, so it
reads no earlier than a message from the master would have reached it.  Its view is a copy in
buffers of its own, because others commit in place while it computes; a single worker needs none,
as nobody else commits.  Metrics are evaluated by the thread that made the commit, with the lock
held and the clock standing still: the row belongs to exactly that version.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.cluster.cluster import Cluster
from asyncqn.core.outcome import Outcome
from asyncqn.core.stages import Closes, Stages, time_share
from asyncqn.core.worker import WorkerSteps
from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.copies import View
from asyncqn.engines.failures import failure
from asyncqn.engines.measured import is_timed
from asyncqn.engines.orders import Assign, sent_fields, state_arrays
from asyncqn.engines.real import concluded, written_beside
from asyncqn.errors import WorkerFailed
from asyncqn.runs.run import Run

LONGEST_WAIT = 0.2
"""Seconds after which the watching thread looks up at the latest."""
LAST_WAIT = 5.0
"""Seconds for which threads are waited for after the run broke off."""
HURRY = 1.0
"""Seconds for which they are waited for after a second Ctrl-C."""


class Delays:
    """The drawn times of a worker's computations; a piece of a block, or a sample, takes its share of one."""

    def __init__(self, cluster: Cluster, seed: int, worker: int, stages: Stages) -> None:
        self._cluster, self._seed, self._worker = cluster, seed, worker % cluster.workers
        self._stages = stages
        self._times: npt.NDArray[np.float64] = np.empty(0)
        self.death = cluster.deaths.get(self._worker, math.inf)

    def of(self, k: int, read: int) -> float:
        """The time of the k-th computation, which is of version `read`."""
        if k >= self._times.size:
            self._times = self._cluster.compute_times(self._seed, self._worker, max(256, 2 * k))
        return self._cluster.fixed + float(self._times[k]) * time_share(self._stages, read)


class ThreadWorkers:
    """Runs `coordinator` with one thread per worker; see the top of this file."""

    def __init__(self, coordinator: Coordinator, clock: Clock) -> None:
        self.coordinator, self.clock, self.timing_model = coordinator, clock, coordinator.timing_model
        self.lock = threading.Lock()
        self.alert = threading.Event()  # wakes the watching thread, which must never wait for the lock alone
        self.parked: dict[int, threading.Condition] = {}
        self.mail: dict[int, Assign] = {}
        self.views: dict[int, Any] = {}
        self.copies: dict[int, View] = {}
        self.held: dict[int, int] = {}
        """The version that a worker's view is a copy of."""
        self.states: dict[int, Any] = {}
        self.asking: dict[int, float] = {}
        """How long a worker's last question kept the master."""
        self.failure: BaseException | None = None
        self.alone = coordinator.workers == 1 and coordinator.stages[0].closes is not Closes.ROUND
        self.alarm = 0.0

    # -- the watching thread

    def run(self) -> Run:
        """Start the workers, watch until the run is done, and conclude it."""
        coordinator = self.coordinator
        coordinator.begin()
        threads = {
            w: threading.Thread(target=self._life, args=(w, joins), daemon=True, name=f"asyncqn worker {w}")
            for w, joins in self._join_workers().items()
        }
        with written_beside(coordinator) as write_whole:
            try:
                for thread in threads.values():
                    thread.start()
                self._watch(write_whole)
                self._wait_for(threads, coordinator.last_wait(self.clock.unit))
                self._give_up_silent(threads)
            except BaseException:
                self._break_off(threads)
                raise
            if self.failure is not None:
                raise self.failure
        states = {w: self.states[w] for w in coordinator.members if not threads[w].is_alive()}
        return concluded(coordinator, states)

    def _break_off(self, threads: dict[int, threading.Thread]) -> None:
        """After an exception in this thread, which may have come anywhere, so that the lock may be ours."""
        held = self.lock.acquire(timeout=HURRY)
        self.coordinator.stop(Outcome.STOPPED, "the run was broken off.")
        if held:
            self._wake()
            self.lock.release()
        self._wait_for(threads, LAST_WAIT)

    def _join_workers(self) -> dict[int, float]:
        """Join all who are there from the start; the numbers of all workers, and when they come."""
        coordinator, W = self.coordinator, self.coordinator.workers
        joins = self.timing_model.joins if self.timing_model is not None else {}
        old = coordinator.returning[:W]
        new = list(range(coordinator.next_worker, coordinator.next_worker + W - len(old)))
        if self.timing_model is not None and coordinator.resumed_from is not None:
            new = [w for w in range(W) if joins.get(w, 0.0) > coordinator.time]  # the others have died
        come = {w: joins.get(w, 0.0) for w in [*old, *new]}
        for worker in sorted(come):
            if come[worker] <= coordinator.time:
                coordinator.join(coordinator.time, worker)
        return come

    def _watch(self, write_whole: Callable[[], None]) -> None:
        coordinator = self.coordinator
        while not coordinator.done:
            with self.lock:
                self.alarm = coordinator.deadline
                wait = self.clock.remaining(coordinator.deadline) if coordinator.timed else LONGEST_WAIT
            self.alert.wait(min(wait, LONGEST_WAIT))
            self.alert.clear()
            with self.lock:
                coordinator.stop_where_interrupted()
                if coordinator.done:
                    self._wake()
                if coordinator.timed:
                    self._send_orders(coordinator.tick(self.clock.now()))
                if not coordinator.done:
                    write_whole()

    def _wait_for(self, threads: dict[int, threading.Thread], seconds: float) -> None:
        """Wait for the threads, except for those of workers that were given up, or computed too long."""
        until = time.monotonic() + seconds
        for worker, thread in threads.items():
            while thread.is_alive() and time.monotonic() < until:
                thread.join(min(LONGEST_WAIT, seconds))
                if self.coordinator.done and worker not in self.coordinator.members:
                    break
                if self.coordinator.hurried:
                    until = min(until, time.monotonic() + HURRY)

    def _give_up_silent(self, threads: dict[int, threading.Thread]) -> None:
        """Part with workers that compute for too long after the end; a thread cannot be ended."""
        with self.lock:
            for worker in [w for w in self.coordinator.members if threads[w].is_alive()]:
                if not self.coordinator.hurried:
                    self.coordinator.give_up(worker, self.clock.now())

    # -- what all threads do, with the lock held

    def _end(self, outcome: Outcome, message: str) -> None:
        self.coordinator.stop(outcome, message)
        self._wake()

    def _wake(self) -> None:
        for condition in self.parked.values():
            condition.notify()
        self.alert.set()

    def _send_orders(self, orders: list[Assign]) -> None:
        """Copy the iterate into the views of those who may begin, while it is still their version."""
        coordinator = self.coordinator
        if coordinator.service:
            self.clock.sleep_until(coordinator.time)  # the service time of a slowed master
        for order in orders:
            if self.alone:
                self.views[order.worker] = coordinator.master.iterate
            elif self.held.get(order.worker) != order.read:
                self.views[order.worker] = self.copies[order.worker].take(coordinator.sent())
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
                self.failure = self.failure or failure
                self._end(Outcome.STOPPED, "a worker failed.")

    def _work(self, worker: int, joins: float) -> None:
        coordinator = self.coordinator
        steps = WorkerSteps(coordinator.algorithm, coordinator.potential, coordinator.master.limit)
        local = self._state(worker)
        delays = (
            Delays(self.timing_model, coordinator.seed, worker, coordinator.stages)
            if self.timing_model is not None
            else None
        )
        if not self._arrive(worker, joins):
            return
        learning = 0.0  # seconds of the last step's `learn` that was measured
        computation, timed = 0, True
        while (order := self._ask(worker, local, timed)) is not None:
            begun = time.perf_counter() if timed else 0.0
            view, task = self.views[worker], order.task(coordinator.seed)
            try:
                update = steps.compute(view, local, task)
                if self.alone:
                    local = steps.learn(view, local, task, update)
            except Exception as error:
                raise WorkerFailed(failure(order, error).sentence) from error
            if delays is not None and not self._stretch(order, delays):
                return
            self._answer(worker, update, time.perf_counter() - begun + learning if timed else None)
            answered = time.perf_counter() if timed else 0.0
            try:
                if not self.alone:
                    local = steps.learn(view, local, task, update)
            except Exception as error:
                raise WorkerFailed(failure(order, error).sentence) from error
            if timed:
                learning = time.perf_counter() - answered
            self.states[worker] = local
            computation += 1
            timed = is_timed(computation)

    def _answer(self, worker: int, update: Any, seconds: float | None) -> None:
        """Hand in an update that took so many seconds (None: not measured), and do what the master orders."""
        coordinator = self.coordinator
        if seconds is None:
            with self.lock:
                self._send_orders(
                    coordinator.answer(worker, update, self.clock.now(), ask=False, timed=False)
                )
            return
        spent = seconds / self.clock.unit - (self.timing_model.message if self.timing_model else 0.0)
        with self.lock:
            now, version = self.clock.now(), coordinator.version
            self._send_orders(coordinator.answer(worker, update, now, ask=False, spent=max(spent, 0.0)))
            coordinator.served(now - self.asking.pop(worker, 0.0), self.clock.now(), version)

    def _state(self, worker: int) -> Any:
        """The worker's own memory: fresh, or as the checkpoint has it; and room for its view."""
        coordinator = self.coordinator
        local = coordinator.algorithm.init_worker(coordinator.potential, coordinator.theta0)
        if coordinator.start is not None and str(worker) in coordinator.start.document["workers"]:
            local = coordinator.start.tree(f"worker.{worker}", local)
        with self.lock:
            self.states[worker] = local
            iterate = coordinator.master.iterate
            self.copies[worker] = View(iterate, sent_fields(coordinator.algorithm, iterate))
        return local

    def _arrive(self, worker: int, joins: float) -> bool:
        """Join late, where that is so; whether there is still something to do."""
        with self.lock:
            if worker in self.coordinator.members:
                return True
        if not self.clock.sleep_until(joins, lambda: self.coordinator.done):
            return False
        with self.lock:
            self.coordinator.join(self.clock.now(), worker)
        return True

    def _ask(self, worker: int, local: Any, timed: bool) -> Assign | None:
        """The next order, waited for where a round is open; None when there will be none.

        timed: whether the question's time is measured.
        """
        coordinator = self.coordinator
        with self.lock:
            now = self.clock.now()
            self._send_orders(coordinator.ask(worker, now))
            if timed:
                self.asking[worker] = self.clock.now() - now
            if worker not in self.mail:
                self.parked.setdefault(worker, threading.Condition(self.lock))
            while worker not in self.mail:
                if coordinator.done or worker not in coordinator.members:
                    return None
                self.parked[worker].wait()
            order = self.mail.pop(worker)
        if order.hand_in:
            arrays = state_arrays(worker, local)
            with self.lock:
                coordinator.snapshots.hand_in(worker, arrays)
                self.alert.set()
        return order

    def _stretch(self, order: Assign, delays: Delays) -> bool:
        """Stretch a computation to its drawn time, messages included; False where the worker dies in it."""
        assert self.timing_model is not None
        member = self.coordinator.members.get(order.worker)
        begun = member.since if member is not None else self.clock.now()
        computed = begun + self.timing_model.message / 2 + delays.of(order.k, order.read)
        dies = computed > delays.death
        self.clock.sleep_until(
            delays.death if dies else computed + self.timing_model.message / 2, lambda: self.coordinator.done
        )
        if dies and not self.coordinator.done:
            now = self.clock.now()
            others = any(joins > now for joins in self.timing_model.joins.values())
            with self.lock:
                self._send_orders(self.coordinator.lost(order.worker, now, replacing=others))
            return False
        return True
