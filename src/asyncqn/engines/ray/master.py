"""The master's side of the Ray engine: carries messages between `Coordinator` and the actors that compute.

Every update is put into one queue at the moment it arrives, and served in that order: `ray.wait`
would favour those who stand first in its list.  A lost actor is replaced by a new one, with an
empty memory and a number of its own; Ray's own restarts would hide the loss from the schedule.
"""

from __future__ import annotations

import math
import queue
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.copies import copied, copied_into
from asyncqn.engines.elastic import POLLING_INTERVAL, ElasticMaster
from asyncqn.engines.failures import Failure
from asyncqn.engines.orders import Assign
from asyncqn.engines.ray.worker import Reference, Reply, Worker, WorkerSetup
from asyncqn.errors import BadInput, WorkerFailed
from asyncqn.runs.run import Run

if TYPE_CHECKING:
    from asyncqn.engines.ray.engine import Ray

SERVER_POLLING_INTERVAL = 0.5
"""Polling interval, in seconds, of the test whether Ray's servers are alive."""
SECOND_SIGNAL_WAIT = 2.0
"""Seconds that workers have after a second Ctrl-C; Ray's messages are slower than those of processes."""


class ActorSlot:
    """The master's record of one actor; `worker` is its number, -1 until it is ready."""

    def __init__(self, actor: Any, returning: int | None) -> None:
        self.actor, self.returning = actor, returning
        self.worker, self.busy, self.since, self.started = (
            -1,
            False,
            0.0,
            time.monotonic(),
        )
        self.kind: type | None = None
        self.inbox: list[Any] | None = None


class RayMaster(ElasticMaster):
    """Runs `coordinator` with one actor per worker; see the top of this file."""

    def __init__(
        self, ray: Any, coordinator: Coordinator, engine: Ray, clock: Clock
    ) -> None:
        super().__init__(coordinator, clock, engine.start_timeout)
        self.ray, self.restarts, self.give_up_after = (
            ray,
            engine.restarts,
            engine.give_up_after,
        )
        self.timing_model, self.next_look = coordinator.timing_model, 0.0
        # A slowed actor needs a second thread, on which it hears that it need not sleep any longer.
        self.hire = ray.remote(Worker).options(
            num_cpus=engine.cpus_of_one(ray),
            max_concurrency=1 if self.timing_model is None else 2,
            scheduling_strategy="SPREAD",
        )
        setup = WorkerSetup(
            coordinator.algorithm,
            coordinator.theta0,
            coordinator.seed,
            self.timing_model,
            clock.unit,
        )
        self.setup = self._put(setup, coordinator.algorithm)
        self.source: Any = Reference.of(coordinator.problem) or self._put(
            coordinator.problem, coordinator.problem
        )
        self.mail: queue.SimpleQueue[tuple[ActorSlot, str, Future[Any]]] = (
            queue.SimpleQueue()
        )
        self.starting: set[ActorSlot] = set()
        self.closing = False
        # Rounds commit an update before its worker is sent to work again; blocks may do so later.
        self.reuse = not any(stage.goes_on for stage in coordinator.stages)

    def run(self) -> Run:
        try:
            return super().run()
        except self.ray.exceptions.RayError as error:
            raise self._cluster_died(
                " ".join(str(error).split()).rstrip(".")
            ) from error

    def _cluster_died(self, reason: str) -> WorkerFailed:
        """Return the error for the end of Ray itself, which takes the states of all workers with it."""
        kept = self.coordinator.checkpoints
        on = (
            "start the run again"
            if kept is None
            else f"continue with: asyncqn resume {kept.folder}"
        )
        return WorkerFailed(f"the Ray cluster died ({reason}); {on}")

    def _look_at_cluster(self) -> None:
        """Raise `WorkerFailed` if one of Ray's servers has ended: actors may compute a while longer, and then
        vanish."""
        if time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + SERVER_POLLING_INTERVAL
            node = (
                self.ray._private.worker._global_node
            )  # of the Ray that this process started, if any
            for server, _ in [] if node is None else node.dead_processes():
                if server in ("raylet", "gcs_server"):
                    raise self._cluster_died(f"its {server} has ended")

    # -- the beginning and the end

    def _starting(self) -> int:
        return len(self.starting)

    def _why_nobody_came(self) -> str:
        if not self.starting:
            return "the processes of all workers died before they were ready, and of those that replaced them."
        return (
            f"no worker was ready after {self.start_timeout:g} s: the Ray cluster has too few free CPUs, or "
            "needs a longer start_timeout."
        )

    def _look_for_lost(self) -> None:
        if self.give_up_after < math.inf:
            self._give_up_silent()
        waited = (
            time.monotonic() - slot.started > self.start_timeout
            for slot in self.starting
        )
        if not self.coordinator.members and all(waited):
            self.coordinator.stop_without_workers()

    def _give_up_silent(self) -> None:
        """Lose actors that compute for too long; the first step may compile, and has more time."""
        now, first = (
            self.clock.now(),
            max(self.give_up_after, self.start_timeout / self.clock.unit),
        )
        for slot in list(self.at.values()):
            limit = self.give_up_after if slot.kind is not None else first
            if slot.busy and now - slot.since >= limit and self.mail.empty():
                self._lose(slot)

    def _dismiss(self) -> None:
        coordinator, self.closing = self.coordinator, True
        for slot in list(self.starting):
            self.starting.discard(slot)
            self._kill(slot)
        for slot in self.at.values():
            if self.timing_model is not None:
                slot.actor.hurry.remote()
            if not slot.busy:
                self._call(slot, "final_state", slot.worker)
        until, hurried = (
            time.monotonic() + coordinator.last_wait(self.clock.unit),
            False,
        )
        while len(self.states) < len(self.at) and time.monotonic() < until:
            self._serve(POLLING_INTERVAL)
            self._give_up_silent()
            if coordinator.hurried and not hurried:
                until, hurried = min(until, time.monotonic() + SECOND_SIGNAL_WAIT), True
        for slot in list(self.at.values()):
            if slot.worker not in self.states and not hurried:
                coordinator.give_up(slot.worker, self._now())
                self._lose(slot)

    def _end_all(self) -> None:
        for slot in [*self.starting, *self.at.values()]:
            self._kill(slot)

    # -- actors come and go

    def _put(self, value: Any, what: Any) -> Any:
        try:
            return self.ray.put(value)
        except TypeError as error:
            reason = str(error).strip().splitlines()[0].rstrip(".:")
            raise BadInput(
                f"{type(what).__name__} cannot be sent to other processes ({reason}): it must be picklable."
            ) from None

    def _kill(self, slot: ActorSlot) -> None:
        with suppress(Exception):  # it may be gone, and the cluster with it
            self.ray.kill(slot.actor)

    def _start(self, returning: int | None) -> None:
        slot = ActorSlot(self.hire.remote(), returning)
        self.starting.add(slot)
        self._prepare(slot)

    def _prepare(self, slot: ActorSlot) -> None:
        start = self.coordinator.start
        state = (
            None
            if slot.returning is None or start is None
            else start.of_worker(slot.returning)
        )
        self._call(slot, "prepare", self.setup, self.source, slot.returning, state)

    def _welcome(self, slot: ActorSlot) -> None:
        self.starting.discard(slot)
        super()._welcome(slot)

    def _lose(self, slot: ActorSlot) -> None:
        """Remove an actor that is gone or given up; another replaces it while `restarts` allows."""
        coordinator, joined = self.coordinator, slot.worker >= 0
        self.starting.discard(slot)
        self.at.pop(slot.worker, None)
        self.states.pop(slot.worker, None)
        self._kill(slot)
        # The replacement starts before the loss is reported, so that a run with one worker does not end.
        if self.restarts > 0 and not coordinator.done:
            self.restarts -= 1
            self._start(None if joined else slot.returning)
        if joined:
            self._send_orders(
                coordinator.lost(
                    slot.worker, self._now(), replacing=bool(self.starting)
                )
            )

    # -- messages

    def _call(self, slot: ActorSlot, method: str, *arguments: Any) -> None:
        """Call a method of an actor; the reply is put into the queue."""
        future: Future[Any] = getattr(slot.actor, method).remote(*arguments).future()
        # On one of Ray's threads; the queue carries the reply to the master's.
        future.add_done_callback(lambda reply: self.mail.put((slot, method, reply)))

    def _serve(self, seconds: float) -> None:
        self._look_at_cluster()
        try:
            slot, method, reply = self.mail.get(timeout=seconds)
        except queue.Empty:
            return
        if slot not in self.starting and self.at.get(slot.worker) is not slot:
            return  # it was given up before
        slot.busy = False
        errors = self.ray.exceptions
        try:
            content = reply.result()
        except errors.RayTaskError as error:
            reason = " ".join(str(error.cause).split()).rstrip(".")
            raise WorkerFailed(
                f"a worker could not take a message ({reason})."
            ) from error
        except errors.RayError:
            self._lose(slot)
            return
        if isinstance(content, Failure):
            raise content.raised()
        if method == "step":
            self._replied(
                slot,
                content if isinstance(content, Reply) else Reply(content, None, None),
            )
        elif method == "final_state":
            self.states[slot.worker] = self.coordinator.worker_state(
                slot.worker, content
            )
        elif content == "data":
            # One actor could not rebuild the problem: from now on it travels through the object store.
            if isinstance(self.source, Reference):
                self.source = self._put(
                    self.coordinator.problem, self.coordinator.problem
                )
            self._prepare(slot)
        else:
            self._welcome(slot)

    def _replied(self, slot: ActorSlot, reply: Reply) -> None:
        coordinator = self.coordinator
        if reply.state is not None:
            coordinator.snapshots.hand_in(slot.worker, reply.state)
        slot.kind = reply.kind or slot.kind
        update = None
        if reply.update is not None:
            assert slot.kind is not None
            update = slot.kind._make(self._own(slot, reply.update))  # type: ignore[attr-defined]
        now, version = self.clock.now(), coordinator.version
        self._send_orders(coordinator.deliver(slot.worker, update, now))
        coordinator.served(now, self.clock.now(), version)
        if self.closing:
            self._call(slot, "final_state", slot.worker)

    def _own(self, slot: ActorSlot, values: tuple[Any, ...]) -> list[Any]:
        """Return the values in arrays of this process: those of the object store are read-only, and
        scarce."""
        if slot.inbox is None or not self.reuse:
            slot.inbox = list(copied(tuple(values)))
        else:
            slot.inbox = [
                copied_into(mine, value) for mine, value in zip(slot.inbox, values)
            ]
        return slot.inbox

    def _send_orders(self, orders: list[Assign]) -> None:
        coordinator = self.coordinator
        if coordinator.service:
            self.clock.sleep_until(
                coordinator.time
            )  # the service time of a slowed master
        if not orders:
            return
        message = coordinator.sent()
        # A broadcast lies in the store once, not once per worker; a single message travels in one piece.
        common = self.ray.put(message) if len(orders) > 1 else None
        for order in orders:
            slot = self.at[order.worker]
            slot.busy, slot.since = True, self.clock.now()
            if common is not None:
                self._call(slot, "step", common, tuple(order))
            else:
                self._call(slot, "step", (tuple(order), *message))
