"""The worker's side of the Ray engine: an actor that computes, answers, and only then learns (Algorithm 2).

Learning that takes a while runs in a thread of the actor's own once the answer is on its way, so that
it overlaps the journey of the message; the next computation waits for it.  This file does not know
Ray: `ray_master` makes actors of its class.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from asyncqn.cluster.cluster import Cluster
from asyncqn.core.worker import WorkerSteps, explosion_limit
from asyncqn.engines.copies import View
from asyncqn.engines.failures import Failure, failure
from asyncqn.engines.orders import Assign, sent_fields, state_arrays
from asyncqn.engines.thread_workers import Delays
from asyncqn.errors import AsyncqnError
from asyncqn.models import rebuild
from asyncqn.runs.checkpoint import Arrays, Saved
from asyncqn.types import Algorithm, Array, Potential, extra

BRIEF = 3e-4
"""Seconds of learning that are done at once: handing them to a thread would cost as much."""


class Brief(NamedTuple):
    """What every worker of a run is told, once, through the object store."""

    algorithm: Algorithm
    theta0: Array
    seed: int
    timing_model: Cluster | None
    unit: float


class Reference(NamedTuple):
    """How to build the potential on the spot, and what must come of it."""

    plain: Mapping[str, Any]
    kind: str
    dim: int
    n_data: int

    @classmethod
    def of(cls, potential: Potential) -> Reference | None:
        """None where the potential does not say how to build it again."""
        reference = extra(potential, "reference")
        plain = None if reference is None else reference()
        if plain is None:
            return None
        return cls(plain, _kind(potential), int(potential.dim), int(potential.n_data))

    def build(self) -> Potential | None:
        """The potential; None where it cannot be built here, or something else would come of it.

        A subclass that inherited its `reference`, or a data file that this machine does not have:
        such potentials travel through the object store.
        """
        try:
            potential = rebuild(self.plain)
        except (AsyncqnError, OSError):
            return None
        if potential is None or (_kind(potential), int(potential.dim), int(potential.n_data)) != self[1:]:
            return None
        return potential


class Answer(NamedTuple):
    """The update's values (None: rejected) with what goes along at times: its type, and a state owed."""

    update: tuple[Any, ...] | None
    kind: type | None
    state: Arrays | None


class Worker:
    """One actor; `prepare` first, then `step` again and again, `final_state` last."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, "asyncqn learning")
        self.learning: Future[Failure | None] | None = None
        self.over = threading.Event()
        self.learning_takes = 0.0
        self.told_kind = False
        self.delays: Delays | None = None

    def prepare(
        self, brief: Brief, source: Reference | Potential, worker: int, state: Arrays | None
    ) -> str | Failure:
        """Get ready; "data" means that the potential cannot be built here and must be sent.

        worker, state: of a worker that goes on from a checkpoint, else None as state.
        """
        self.algorithm, theta0, self.seed, self.timing_model, self.unit = brief
        theta0 = theta0.copy()  # what comes from the object store is read-only
        try:
            built = source.build() if isinstance(source, Reference) else source
            if built is None:
                return "data"
            self.steps = WorkerSteps(self.algorithm, built, explosion_limit(theta0))
            self.local = self.algorithm.init_worker(self.steps.potential, theta0)
            if state is not None:
                self.local = Saved({}, state).tree(f"worker.{worker}", self.local)
            iterate = self.algorithm.init(theta0)
            self.copy = View(iterate, sent_fields(self.algorithm, iterate))
        except Exception as error:
            return failure("a worker could not be prepared", error)
        return "ready"

    def step(
        self, message: tuple[Any, ...], order: tuple[Any, ...] | None = None
    ) -> tuple[Any, ...] | Answer | Failure:
        """Compute on the iterate in `message`; where no order comes beside it, it is the first member.

        Most answers are the values of the update alone, for small messages are what Ray is slow at.
        """
        begun = time.perf_counter()
        assign, values = (Assign(*order), message) if order else (Assign(*message[0]), message[1:])
        if (failed := self._settle()) is not None:
            return failed
        try:
            state = state_arrays(assign.worker, self.local) if assign.hand_in else None
            self.view = self.copy.take(values)
            task = assign.task(self.seed)
            update = self.steps.compute(self.view, self.local, task)
        except Exception as error:
            return failure(assign, error)
        self._stretch(begun, assign)
        if self.learning_takes > BRIEF:
            self.learning = self.pool.submit(self._learn, assign, update)
        elif (failed := self._learn(assign, update)) is not None:
            return failed
        if update is None:
            return Answer(None, None, state)
        answer, known, self.told_kind = tuple(update), self.told_kind, True
        return answer if known and state is None else Answer(answer, None if known else type(update), state)

    def final_state(self, worker: int) -> Arrays | Failure:
        """The worker's state after everything it computed."""
        return self._settle() or state_arrays(worker, self.local)

    def hurry(self) -> None:
        """Do not stretch computations any more: the run is over."""
        self.over.set()

    def _learn(self, assign: Assign, update: Any | None) -> Failure | None:
        begun = time.perf_counter()
        try:
            self.local = self.steps.learn(self.view, self.local, assign.task(self.seed), update)
        except Exception as error:
            return failure(assign, error)
        self.learning_takes = time.perf_counter() - begun
        return None

    def _settle(self) -> Failure | None:
        """Wait until the last step is learned from."""
        learning, self.learning = self.learning, None
        return learning.result() if learning is not None else None

    def _stretch(self, begun: float, assign: Assign) -> None:
        """Stretch a computation to its drawn time, both messages included."""
        if self.timing_model is not None:
            if self.delays is None:
                self.delays = Delays(self.timing_model, self.seed, assign.worker, self.algorithm.stages)
            until = begun + (self.timing_model.message + self.delays.of(assign.k, assign.read)) * self.unit
            self.over.wait(max(0.0, until - time.perf_counter()))


def _kind(potential: Potential) -> str:
    return f"{type(potential).__module__}.{type(potential).__qualname__}"
