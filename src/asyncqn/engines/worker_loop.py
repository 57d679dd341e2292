"""A worker's life on every real engine: receive, step, send, and only then learn (Algorithm 2).

`WorkerLoop` computes; an engine provides a `Link`, a way to receive orders and to send updates.  Learning
comes after sending because the master need not wait for it: the update travels meanwhile.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.virtual_time import worker_times
from asyncqn.core.assignment import new_tuple
from asyncqn.core.stages import time_share
from asyncqn.core.streams import Stream
from asyncqn.core.worker import WorkerSteps, explosion_limit
from asyncqn.engines.failures import failure
from asyncqn.errors import WorkerFailed
from asyncqn.runs.checkpoint import Arrays, Saved
from asyncqn.runs.snapshot import state_arrays
from asyncqn.types import Algorithm, Array, Problem, Task


class Step(NamedTuple):
    """The order that sends `worker` the current iterate, which is version `read`, for its k-th step."""

    worker: int
    read: int
    k: int
    part: int | None = None
    hand_in: bool = False
    """Whether the worker first hands in its state, for a checkpoint (`engines.run_file`)."""

    def task(self, seed: int) -> Task:
        # `new_tuple`, because this runs at every step.
        worker, read, k, part, _ = self
        return new_tuple(
            Task, (worker, read, new_tuple(Stream, (seed, worker, k)), part)
        )

    def __str__(self) -> str:
        return f"worker {self.worker} failed in its step {self.k}, computing on version {self.read}"


class Received(NamedTuple):
    """An order, and the iterate to compute on."""

    order: Step
    view: Any


class Link(Protocol):
    """A way to send to the master, and the time of the run."""

    sending_counts: bool
    """Whether sending is part of the time that a worker needs for a computation."""

    def hand_in(self, arrays: Arrays) -> None:
        """Send the worker's state, for the checkpoint that is being taken."""
        ...

    def send(self, update: Any | None, seconds: float | None) -> None:
        """Send an update (None: it was rejected), and the duration of its computation if it was measured."""
        ...

    def now(self) -> float:
        """Return the time of the run, in its unit."""
        ...

    def sleep_until(self, until: float) -> bool:
        """Sleep until that time of the run; return False if the run is over before."""
        ...


class ReceivingLink(Link, Protocol):
    """A link over which orders come."""

    def receive(self, timed: bool) -> Received | None:
        """Wait for the next order and return it, or None when the run is over.

        `timed` says whether the computation that follows is measured.
        """
        ...


class WorkerLoop:
    """One worker of a run.

    Parameters
    ----------
    algorithm, problem, theta0, seed
        The run's own.
    timing_model : Cluster or None
        The cluster to whose drawn times computations are stretched.
    wire : Algorithm or None
        The algorithm as it runs behind a wire that rounds, where the link has one.
    learns_first : bool
        Whether the worker learns before it sends: where it reads the master's own iterate, which changes with
        the commit of its update.
    measured : callable
        Says of a computation, by its number, whether its time is measured; by default all are.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        theta0: Array,
        seed: int,
        *,
        timing_model: Cluster | None = None,
        wire: Any = None,
        learns_first: bool = False,
        measured: Callable[[int], bool] = lambda computation: True,
    ) -> None:
        self.steps = WorkerSteps(wire or algorithm, problem, explosion_limit(theta0))
        self.local = algorithm.init_worker(self.steps.problem, theta0)
        self.order: Step | None = None
        """The order under way, or the last one."""
        self._seed, self._stages = seed, algorithm.stages
        self._timing_model = timing_model
        self._times: Iterator[float] | None = None
        self._learns_first, self._measured = learns_first, measured
        self._computation, self._timed = 0, True
        self._last_learning = 0.0
        """Seconds of learning from the last update that was measured, and of sending it where that counts."""

    def restore(self, worker: int, arrays: Arrays) -> None:
        """Take over the state that a worker of this number had at a checkpoint."""
        self.local = Saved({}, arrays).tree(f"worker.{worker}", self.local)

    def run(self, link: ReceivingLink) -> None:
        """Work until the run is over, or the worker dies."""
        while (received := link.receive(self._timed)) is not None:
            if not self.compute_and_send(link, *received):
                return
            self.learn()

    def compute_and_send(self, link: Link, order: Step, view: Any) -> bool:
        """Carry out an order up to the sending of its update; return False if the worker dies in it."""
        self.order = order  # kept for the sentence of an error
        begun = time.perf_counter() if self._timed else 0.0
        arrived = link.now() if self._timing_model is not None else 0.0
        if order.hand_in:
            # Before the step: together with the master's snapshot this is the run between two commits.
            link.hand_in(state_arrays(order.worker, self.local))
        self._view, self._task = view, order.task(self._seed)
        try:
            self._update = self.steps.compute(view, self.local, self._task)
            if self._learns_first:
                self.local = self.steps.learn(
                    view, self.local, self._task, self._update
                )
        except Exception as error:
            # The sentence names worker, step and version, so that the failing call can be repeated.
            raise WorkerFailed(failure(order, error).sentence) from error
        if self._timing_model is not None and not self._stretch(link, order, arrived):
            return False
        seconds = None
        if self._timed:
            computed = time.perf_counter()
            # What learning from the last update took delays this one, so it counts here.
            seconds = computed - begun + self._last_learning
        link.send(self._update, seconds)
        if self._timed:
            self._sent = computed if link.sending_counts else time.perf_counter()
        return True

    def learn(self) -> None:
        """Learn from the update that was sent last."""
        if not self._learns_first:
            try:
                self.local = self.steps.learn(
                    self._view, self.local, self._task, self._update
                )
            except Exception as error:
                assert self.order is not None
                raise WorkerFailed(failure(self.order, error).sentence) from error
        if self._timed:
            self._last_learning = time.perf_counter() - self._sent
        self._computation += 1
        # Measuring every one of many short computations would slow them down.
        self._timed = self._measured(self._computation)

    def _stretch(self, link: Link, order: Step, arrived: float) -> bool:
        """Stretch a computation to its drawn time, with both messages; return False if the worker dies in
        it."""
        assert self._timing_model is not None
        model = self._timing_model
        # There may be more workers than the model has, such as those that were added.
        number = order.worker % model.workers
        if self._times is None:
            # Made here because a worker's number, which draws its times, comes with its first order.
            self._times = worker_times(model, self._seed, number, order.k)
        share = time_share(self._stages, order.read)
        duration = model.fixed + next(self._times) * share
        computed = arrived + model.message / 2 + duration
        death = model.deaths.get(number, math.inf)
        # The timing model lets the worker die during this computation: it sleeps until then and sends
        # nothing.
        if computed > death:
            return not link.sleep_until(death)
        link.sleep_until(computed + model.message / 2)
        return True
