"""The worker's side of the Ray engine: an actor that computes, sends its update, and only then learns.

Learning that takes a while runs in a thread of the actor's own once the reply is on its way, so that
it overlaps the journey of the message; the next computation waits for it.  This file does not know
Ray: `ray.master` makes actors of its class.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from asyncqn.cluster.cluster import Cluster
from asyncqn.engines.copies import View
from asyncqn.engines.failures import Failure, failure
from asyncqn.engines.orders import Assign, sent_fields, state_arrays
from asyncqn.engines.worker_loop import WorkerLoop
from asyncqn.errors import AsyncqnError
from asyncqn.models import rebuild
from asyncqn.runs.checkpoint import Arrays
from asyncqn.types import Algorithm, Array, Problem, extra

INLINE_LEARN_SECONDS = 3e-4
"""Learning that takes fewer seconds is done at once, because handing it to a thread would cost as much."""


class WorkerSetup(NamedTuple):
    """Everything that a worker receives once, through the object store."""

    algorithm: Algorithm
    theta0: Array
    seed: int
    timing_model: Cluster | None
    unit: float


class Reference(NamedTuple):
    """Description by which a worker builds the problem, and what it must then find."""

    plain: Mapping[str, Any]
    kind: str
    dim: int
    n_data: int

    @classmethod
    def of(cls, problem: Problem) -> Reference | None:
        """Return the reference of a problem, or None if it does not say how to build it again."""
        reference = extra(problem, "reference")
        plain = None if reference is None else reference()
        if plain is None:
            return None
        return cls(plain, _kind(problem), int(problem.dim), int(problem.n_data))

    def build(self) -> Problem | None:
        """Return the problem, or None if it cannot be built here or would be another one.

        Such a problem, for instance a subclass that inherited its `reference`, or one whose data file this
        machine lacks, travels through the object store.
        """
        try:
            problem = rebuild(self.plain)
        except (AsyncqnError, OSError):
            return None
        if (
            problem is None
            or (_kind(problem), int(problem.dim), int(problem.n_data)) != self[1:]
        ):
            return None
        return problem


class Reply(NamedTuple):
    """The update's values (None: rejected) with what goes along at times: its type, and a state owed."""

    update: tuple[Any, ...] | None
    kind: type | None
    state: Arrays | None


class Worker:
    """One actor; `prepare` first, then `step` again and again, `final_state` last.

    It is its own link: what it sends is the reply to `step`.
    """

    sending_counts = True

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, "asyncqn learning")
        self.learning: Future[Failure | None] | None = None
        self.over = threading.Event()
        self.learning_takes = 0.0
        self.told_kind = False

    def prepare(
        self,
        setup: WorkerSetup,
        source: Reference | Problem,
        worker: int,
        state: Arrays | None,
    ) -> str | Failure:
        """Prepare the actor and return "ready", or "data" if the problem cannot be built here and must be
        sent.

        `worker` and `state` are those of a worker that continues from a checkpoint; otherwise `state` is
        None.
        """
        algorithm, theta0, seed, timing_model, self.unit = setup
        theta0 = theta0.copy()  # what comes from the object store is read-only
        try:
            built = source.build() if isinstance(source, Reference) else source
            if built is None:
                return "data"
            self.loop = WorkerLoop(
                algorithm, built, theta0, seed, timing_model=timing_model
            )
            if state is not None:
                self.loop.restore(worker, state)
            iterate = algorithm.init(theta0)
            self.copy = View(iterate, sent_fields(algorithm, iterate))
        except Exception as error:
            return failure("a worker could not be prepared", error)
        return "ready"

    def step(
        self, message: tuple[Any, ...], order: tuple[Any, ...] | None = None
    ) -> tuple[Any, ...] | Reply | Failure:
        """Compute on the iterate in `message`, whose first member is the order unless that comes separately.

        Most replies are the values of the update alone, because Ray is slow with further small objects.
        """
        self.begun = time.perf_counter()
        assign, values = (
            (Assign(*order), message) if order else (Assign(*message[0]), message[1:])
        )
        if (failed := self._settle()) is not None:
            return failed
        self.state: Arrays | None = None
        try:
            self.loop.compute_and_send(self, assign, self.copy.take(values))
        except Exception as error:
            return failure(assign, error)
        if self.learning_takes > INLINE_LEARN_SECONDS:
            self.learning = self.pool.submit(self._learn)
        # The first learning is always inline, since its time is not known yet.
        elif (failed := self._learn()) is not None:
            return failed
        if self.update is None:
            return Reply(None, None, self.state)
        sent, known, self.told_kind = tuple(self.update), self.told_kind, True
        if known and self.state is None:
            return sent
        return Reply(sent, None if known else type(self.update), self.state)

    def final_state(self, worker: int) -> Arrays | Failure:
        """Return the worker's state after everything that it computed."""
        return self._settle() or state_arrays(worker, self.loop.local)

    def hurry(self) -> None:
        """Stop stretching computations: the run is over."""
        self.over.set()

    def _learn(self) -> Failure | None:
        begun = time.perf_counter()
        try:
            self.loop.learn()
        except Exception as error:
            assert self.loop.order is not None
            return failure(self.loop.order, error)
        self.learning_takes = time.perf_counter() - begun
        return None

    def _settle(self) -> Failure | None:
        """Wait for the learning of the last step; return its failure, or None."""
        learning, self.learning = self.learning, None
        return learning.result() if learning is not None else None

    # -- the link

    def hand_in(self, arrays: Arrays) -> None:
        self.state = arrays

    def send(self, update: Any | None, local: Any, seconds: float | None) -> Any:
        self.update = update
        return local

    def now(self) -> float:
        return self.begun / self.unit  # when the message came

    def sleep_until(self, until: float) -> bool:
        return not self.over.wait(max(0.0, until * self.unit - time.perf_counter()))


def _kind(problem: Problem) -> str:
    return f"{type(problem).__module__}.{type(problem).__qualname__}"
