"""The worker's side of the Ray engine: an actor around a `WorkerLoop`, whose update is the reply to a call.

This file does not know Ray: `ray.master` makes actors of its class.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from asyncqn.engines.copies import View, sent_fields
from asyncqn.engines.failures import Failure, failure
from asyncqn.engines.worker_loop import Step, WorkerLoop
from asyncqn.engines.worker_setup import WorkerSetup
from asyncqn.runs.checkpoint import Arrays
from asyncqn.runs.snapshot import state_arrays


class Reply(NamedTuple):
    """The result of a step: the update (None if it was rejected), its seconds, and a state that was owed.

    The update is a plain tuple: a class of the user's script would travel anew with every reply.
    """

    update: tuple[Any, ...] | None
    seconds: float | None
    state: Arrays | None


class Worker:
    """One actor; `prepare` first, then `step` again and again, `final_state` last.

    It is the link of its own loop: what it sends is the reply to `step`.
    """

    sending_counts = True
    loop: WorkerLoop
    view: View
    unit: float

    def prepare(self, setup: WorkerSetup, worker: int) -> Failure | None:
        """Make the worker's state, or load that of a worker of the checkpoint."""
        self.unit = setup.unit
        try:
            self.loop = setup.loop(worker, warm=True)
            iterate = setup.algorithm.init(setup.theta0)
            self.view = View(iterate, sent_fields(setup.algorithm, iterate))
        except Exception as error:
            return failure("a worker could not be prepared", error)
        return None

    def step(self, order: Step, values: tuple[Any, ...]) -> Reply | Failure:
        """Carry out an order, computing on these values of the iterate."""
        self.begun = time.perf_counter()
        self.owed: Arrays | None = None
        try:
            # Without deaths, which this engine refuses in a timing model, every order has an update.
            self.loop.compute_and_send(self, order, self.view.take(values))
            self.loop.learn()
        except Exception as error:
            return failure(order, error)
        return Reply(self.update, self.seconds, self.owed)

    def final_state(self, worker: int) -> Arrays:
        """Return the worker's state after everything that it computed."""
        return state_arrays(worker, self.loop.local)

    # -- the link

    def hand_in(self, arrays: Arrays) -> None:
        self.owed = arrays

    def send(self, update: Any | None, seconds: float | None) -> None:
        self.update = None if update is None else tuple(update)
        self.seconds = seconds

    def now(self) -> float:
        return self.begun / self.unit  # when the message came

    def sleep_until(self, until: float) -> bool:
        time.sleep(max(0.0, until * self.unit - time.perf_counter()))
        return True
