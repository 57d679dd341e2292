"""The master's side of the Ray engine: carries messages between `Coordinator` and the actors that compute.

Every reply is put into one queue at the moment it arrives, and served in that order: `ray.wait`
would favour those who stand first in its list.  A lost actor is replaced by a new one, with an
empty memory and a number of its own; Ray's own restarts would hide the loss from the schedule.
"""

from __future__ import annotations

import queue
import socket
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.copies import copied
from asyncqn.engines.elastic import POLLING_INTERVAL, ElasticMaster
from asyncqn.engines.failures import Failure
from asyncqn.engines.ray.worker import Reply, Worker
from asyncqn.engines.worker_loop import Step
from asyncqn.engines.worker_setup import WorkerSetup
from asyncqn.errors import BadInput, WorkerFailed
from asyncqn.runs.run import Run

if TYPE_CHECKING:
    from asyncqn.engines.ray.engine import Ray

SERVER_POLLING_INTERVAL = 0.5
"""Polling interval, in seconds, of the test whether Ray's servers are alive."""
NOBODY = -1
"""The number of an actor that is not ready yet."""


class ActorSlot:
    """The master's record of one actor; `since` is when its computation began, None while it has none."""

    def __init__(self, actor: Any, returning: int | None) -> None:
        self.actor = actor
        self.returning = returning
        self.worker = NOBODY
        self.started = time.monotonic()
        self.since: float | None = None


class RayMaster(ElasticMaster):
    """Runs `coordinator` with one actor per worker; see the top of this file."""

    def __init__(
        self,
        ray: Any,
        coordinator: Coordinator,
        setup: WorkerSetup,
        engine: Ray,
        clock: Clock,
    ) -> None:
        super().__init__(coordinator, clock, engine.start_timeout)
        self.ray = ray
        self.restarts = engine.restarts
        self.give_up_after = engine.give_up_after
        self.hire = ray.remote(Worker).options(
            num_cpus=engine.cpus_of_one(ray), scheduling_strategy="SPREAD"
        )
        self.sample = setup.sample
        self.setup = self._put(setup)
        self.mail: queue.SimpleQueue[tuple[ActorSlot, Future[Any]]] = (
            queue.SimpleQueue()
        )
        self.servers = _servers(ray)
        self.next_look = 0.0

    def run(self) -> Run:
        try:
            return super().run()
        except self.ray.exceptions.RayError as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise self._cluster_died(reason) from error

    def _cluster_died(self, reason: str) -> WorkerFailed:
        """Return the error for the end of Ray itself, which takes the states of all workers with it."""
        checkpoints = self.coordinator.checkpoints
        advice = "start the run again"
        if checkpoints is not None:
            advice = f"continue with: {checkpoints.command}"
        return WorkerFailed(f"the Ray cluster died ({reason}); {advice}")

    def _look_at_cluster(self) -> None:
        """Raise `WorkerFailed` if one of Ray's servers has ended; actors may compute a while longer."""
        if time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + SERVER_POLLING_INTERVAL
        for server, address in self.servers.items():
            try:
                knock(*address)
            except ConnectionRefusedError:
                raise self._cluster_died(f"its {server} has ended") from None
            except OSError:
                pass  # A slow network is no proof: Ray says itself when it gives a server up.

    # -- the beginning and the end

    def _why_nobody_came(self) -> str:
        if not self.starting:
            return "the processes of all workers died before they were ready, and of those that replaced them."
        return (
            f"no worker was ready after {self.start_timeout:g} s: the Ray cluster has too few free CPUs, or "
            "needs a longer start_timeout."
        )

    def _look_for_lost(self) -> None:
        self._give_up_silent()
        oldest = time.monotonic() - self.start_timeout
        if not self.coordinator.members and all(
            slot.started < oldest for slot in self.starting
        ):
            self.coordinator.stop_without_workers()

    def _give_up_silent(self) -> None:
        """Lose actors that compute for too long."""
        now = self.clock.now()
        for slot in list(self.at.values()):
            silent = slot.since is not None and now - slot.since >= self.give_up_after
            if silent and self.mail.empty():
                self._lose(slot)

    def _ask_for_last_state(self, slot: ActorSlot) -> None:
        # An actor carries out one call after the other, so this one waits for its computation.
        self._call(slot, "final_state", slot.worker)

    # -- actors come and go

    def _put(self, setup: WorkerSetup) -> Any:
        try:
            return self.ray.put(setup)
        except TypeError as error:
            reason = str(error).strip().splitlines()[0].rstrip(".:")
            raise BadInput(
                f"{type(setup.problem).__name__} cannot be sent to other processes ({reason}): it must be "
                "picklable."
            ) from None

    def _forget(self, slot: ActorSlot) -> None:
        self.starting.discard(slot)
        self.at.pop(slot.worker, None)
        with suppress(Exception):  # it may be gone, and the cluster with it
            self.ray.kill(slot.actor)

    def _start(self, returning: int | None) -> None:
        slot = ActorSlot(self.hire.remote(), returning)
        self.starting.add(slot)
        self._call(slot, "prepare", self.setup, returning)

    def _lose(self, slot: ActorSlot) -> None:
        """Remove an actor that is gone or given up; another replaces it while `restarts` allows."""
        coordinator = self.coordinator
        joined = slot.worker != NOBODY
        self._forget(slot)
        # The replacement starts before the loss is reported, so that a run with one worker does not end.
        if self.restarts > 0 and not coordinator.done:
            self.restarts -= 1
            self._start(None if joined else slot.returning)
        if joined:
            replacing = bool(self.starting)
            self._send_orders(
                coordinator.lost(slot.worker, self._now(), replacing=replacing)
            )

    # -- messages

    def _call(self, slot: ActorSlot, method: str, *arguments: Any) -> None:
        """Call a method of an actor; the reply is put into the queue."""
        future: Future[Any] = getattr(slot.actor, method).remote(*arguments).future()
        # On one of Ray's threads; the queue carries the reply to the master's.
        future.add_done_callback(lambda reply: self.mail.put((slot, reply)))

    def _serve(self, seconds: float) -> None:
        self._look_at_cluster()
        try:
            slot, reply = self.mail.get(timeout=min(seconds, POLLING_INTERVAL))
        except queue.Empty:
            return
        if slot not in self.starting and self.at.get(slot.worker) is not slot:
            return  # it was given up before
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
        if isinstance(content, Reply):
            self._replied(slot, content)
        elif content is None:
            self._welcome(slot)
        else:
            state = self.coordinator.snapshots.worker_state(slot.worker, content)
            self.states[slot.worker] = state

    def _replied(self, slot: ActorSlot, reply: Reply) -> None:
        slot.since = None
        if reply.state is not None:
            self.coordinator.snapshots.hand_in(slot.worker, reply.state)
        update = None
        if reply.update is not None:
            # Arrays of the object store are read-only, and their memory is scarce.
            update = self.sample._make(copied(reply.update))
        self._deliver(slot.worker, update, reply.seconds or 0.0)

    def _send_orders(self, orders: list[Step]) -> None:
        self.values: Any = self.coordinator.sent()
        if len(orders) > 1:
            # A broadcast lies in the store once, not once per worker.
            self.values = self.ray.put(self.values)
        super()._send_orders(orders)

    def _send_order(self, order: Step) -> None:
        slot = self.at[order.worker]
        slot.since = self.clock.now()
        self._call(slot, "step", order, self.values)


def knock(host: str, port: int) -> None:
    """Raise an `OSError` where nobody listens."""
    socket.create_connection((host, port), timeout=10.0).close()


def _servers(ray: Any) -> dict[str, tuple[str, int]]:
    """Return the addresses of the servers that this process needs: the cluster's and this machine's own."""
    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    here = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    return {
        "gcs_server": (host, int(port)),
        "raylet": (here["NodeManagerAddress"], here["NodeManagerPort"]),
    }
