"""The master's side of the Ray engine: carries messages between `Coordinator` and the actors that compute.

Every reply is put into one queue at the moment it arrives, and served in that order: `ray.wait`
would favour those who stand first in its list.  A lost actor is replaced by a new one, with an
empty memory and a number of its own; Ray's own restarts would hide the loss from the schedule.
"""

from __future__ import annotations

import queue
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.copies import copied
from asyncqn.engines.failures import Failure
from asyncqn.engines.master_loop import MasterLoop, Slot
from asyncqn.engines.ray.worker import Reply, Worker
from asyncqn.engines.wire import MessageKind
from asyncqn.engines.worker_loop import Step
from asyncqn.engines.worker_setup import WorkerSetup
from asyncqn.errors import BadInput, WorkerFailed
from asyncqn.runs.run import Run

if TYPE_CHECKING:
    from asyncqn.engines.ray.engine import Ray


class Actor(Slot):
    """The master's record of one actor."""

    def __init__(self, worker: int, handle: Any) -> None:
        super().__init__(worker)
        self.handle = handle


class RayMaster(MasterLoop[Actor]):
    """Runs `coordinator` with one actor per worker; see the top of this file."""

    def __init__(
        self,
        ray: Any,
        coordinator: Coordinator,
        clock: Clock,
        engine: Ray,
        setup: WorkerSetup,
    ) -> None:
        super().__init__(coordinator, clock, engine.start_timeout)
        self.ray, self.restarts = ray, engine.restarts
        self.hire = ray.remote(Worker).options(
            num_cpus=engine.cpus_of_one(ray), scheduling_strategy="SPREAD"
        )
        self.sample = setup.sample
        self.setup = self._put(setup)
        self.mail: queue.SimpleQueue[tuple[Actor, Future[Any]]] = queue.SimpleQueue()

    def run(self) -> Run:
        try:
            return super().run()
        # The end of Ray itself, which takes the states of all workers with it.
        except self.ray.exceptions.RayError as error:
            reason = " ".join(str(error).split()).rstrip(".")
            checkpoints = self.coordinator.snapshots.checkpoints
            advice = "start the run again"
            if checkpoints is not None:
                advice = f"continue with: {checkpoints.command}"
            sentence = f"the Ray cluster died ({reason}); {advice}"
            raise WorkerFailed(sentence) from error

    def _put(self, setup: WorkerSetup) -> Any:
        try:
            return self.ray.put(setup)
        except TypeError as error:
            reason = str(error).strip().splitlines()[0].rstrip(".:")
            raise BadInput(
                f"{type(setup.problem).__name__} cannot be sent to other processes ({reason}): it must be "
                "picklable."
            ) from None

    # -- actors come and go

    def start(self, worker: int) -> Actor:
        return Actor(worker, self.hire.remote())

    def forget(self, slot: Actor) -> None:
        with suppress(Exception):  # it may be gone, and the cluster with it
            self.ray.kill(slot.handle)

    def why_nobody_came(self) -> str:
        if not self.starting:
            return "the processes of all workers died before they were ready, and of those that replaced them."
        return (
            f"no worker was ready after {self.start_timeout:g} s: the Ray cluster has too few free CPUs, or "
            "needs a longer start_timeout."
        )

    # -- messages

    def _call(self, slot: Actor, method: str, *arguments: Any) -> None:
        """Call a method of an actor; the reply is put into the queue."""
        future: Future[Any] = getattr(slot.handle, method).remote(*arguments).future()
        # On one of Ray's threads; the queue carries the reply to the master's.
        future.add_done_callback(lambda reply: self.mail.put((slot, reply)))

    def serve(self, seconds: float) -> None:
        try:
            slot, reply = self.mail.get(timeout=seconds)
        except queue.Empty:
            return
        if slot not in (self.starting.get(slot.worker), self.ready.get(slot.worker)):
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
            self.lose(slot)
            return
        if isinstance(content, Failure):
            raise content.raised()
        if isinstance(content, Reply):
            self._replied(slot, content)
        elif content is None:
            self.take(slot, MessageKind.READY, None)
        else:
            self.take(slot, MessageKind.LAST_STATE, content)

    def _replied(self, slot: Actor, reply: Reply) -> None:
        if reply.state is not None:
            self.take(slot, MessageKind.STATE, reply.state)
        seconds = reply.seconds or 0.0
        if reply.update is None:
            self.take(slot, MessageKind.REJECTED, None, seconds)
        else:
            # Arrays of the object store are read-only, and their memory is scarce.
            update = self.sample._make(copied(reply.update))
            self.take(slot, MessageKind.UPDATE, update, seconds)

    def lasting(self, update: Any) -> Any:
        return update

    def broadcast(self, values: tuple[Any, ...], receivers: int) -> Any:
        # A broadcast lies in the store once, not once per worker.
        return self.ray.put(values) if receivers > 1 else values

    def send_start(self, slot: Actor) -> None:
        self._call(slot, "prepare", self.setup, slot.worker)

    def send_order(self, slot: Actor, order: Step, values: Any) -> None:
        self._call(slot, "step", order, values)

    def send_stop(self, slot: Actor) -> None:
        # An actor carries out one call after the other, so this one waits for its computation.
        self._call(slot, "final_state", slot.worker)
