"""The worker's side of the Ray engine: an actor that computes, answers, and only then learns (Algorithm 2).

Learning runs in a thread of the actor's own after the answer is on its way, so that it overlaps the
journey of the message; the next computation waits for it.  This file does not know Ray: `ray_master`
makes actors of its class.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from asyncqn.checkpoint import Arrays, Saved
from asyncqn.cluster import Cluster
from asyncqn.engines.core import Assign, sent_fields, state_arrays
from asyncqn.engines.crew import Delays
from asyncqn.errors import AsyncqnError
from asyncqn.master import compute, explosion_limit, learn
from asyncqn.potentials import rebuild
from asyncqn.types import Algorithm, Array, Potential


class Brief(NamedTuple):
    """What every worker of a run is told, once, through the object store."""

    algorithm: Algorithm
    theta0: Array
    seed: int
    slow: Cluster | None
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
        plain = getattr(potential, "reference", lambda: None)()
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


class Failed(NamedTuple):
    """A computation that raised an error: a sentence, and where it happened."""

    sentence: str
    trace: str


class Answer(NamedTuple):
    """What a step gives: the update's values (None: rejected), its type the first time, the state owed."""

    update: tuple[Any, ...] | None
    kind: type | None
    state: Arrays | None


class Worker:
    """One actor; `prepare` first, then `step` again and again, `farewell` last."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, "asyncqn learning")
        self.learning: Future[Failed | None] | None = None
        self.over = threading.Event()
        self.told_kind = False
        self.delays: Delays | None = None

    def prepare(
        self, brief: Brief, source: Reference | Potential, worker: int, state: Arrays | None
    ) -> str | Failed:
        """Get ready; "data" means that the potential cannot be built here and must be sent.

        worker, state: of a worker that goes on from a checkpoint, else None as state.
        """
        self.algorithm, theta0, self.seed, self.slow, self.unit = brief
        theta0 = theta0.copy()  # what comes from the object store is read-only
        try:
            built = source.build() if isinstance(source, Reference) else source
            if built is None:
                return "data"
            self.potential = built
            self.limit = explosion_limit(theta0)
            self.local = self.algorithm.init_worker(self.potential, theta0)
            if state is not None:
                self.local = Saved({}, state).tree(f"worker.{worker}", self.local)
            iterate = self.algorithm.init(theta0)
            sent = sent_fields(self.algorithm, iterate)
            self.slots = [getattr(iterate, name) for name in sent]
            self.view = iterate._make([getattr(iterate, n) if n in sent else None for n in iterate._fields])
        except Exception as error:
            return _failed("a worker could not be prepared", error)
        return "ready"

    def step(self, order: tuple[Any, ...], arrays: tuple[Array, ...]) -> Answer | Failed:
        """Compute on the iterate that came as `arrays`."""
        begun = time.perf_counter()
        assign = Assign(*order)
        if (failure := self._settle()) is not None:
            return failure
        try:
            state = state_arrays(assign.worker, self.local) if assign.deposit else None
            for mine, arrived in zip(self.slots, arrays):
                np.copyto(mine, arrived)
            task = assign.task(self.seed)
            update = compute(self.algorithm, self.potential, self.view, self.local, task, self.limit)
        except Exception as error:
            return _failed(_where(assign), error)
        self._linger(begun, assign)
        self.learning = self.pool.submit(self._learn, assign, update)
        if update is None:
            return Answer(None, None, state)
        kind = None if self.told_kind else type(update)
        self.told_kind = True
        return Answer(tuple(update), kind, state)

    def farewell(self, worker: int) -> Arrays | Failed:
        """The worker's state after everything it computed."""
        return self._settle() or state_arrays(worker, self.local)

    def hurry(self) -> None:
        """Do not stretch computations any more: the run is over."""
        self.over.set()

    def _learn(self, assign: Assign, update: Any | None) -> Failed | None:
        try:
            self.local = learn(
                self.algorithm, self.potential, self.view, self.local, assign.task(self.seed), update
            )
        except Exception as error:
            return _failed(_where(assign), error)
        return None

    def _settle(self) -> Failed | None:
        """Wait until the last step is learned from."""
        learning, self.learning = self.learning, None
        return learning.result() if learning is not None else None

    def _linger(self, begun: float, assign: Assign) -> None:
        """Stretch a computation to its drawn time, both messages included."""
        if self.slow is not None:
            if self.delays is None:
                self.delays = Delays(self.slow, self.seed, assign.worker)
            until = begun + (self.slow.message + self.delays[assign.k]) * self.unit
            self.over.wait(max(0.0, until - time.perf_counter()))


def _kind(potential: Potential) -> str:
    return f"{type(potential).__module__}.{type(potential).__qualname__}"


def _where(assign: Assign) -> str:
    return f"worker {assign.worker} failed in its step {assign.k}, computing on version {assign.read}"


def _failed(what: str, error: Exception) -> Failed:
    reason = " ".join(str(error).split()).rstrip(".")
    return Failed(f"{what} ({type(error).__name__}: {reason}).", traceback.format_exc())
