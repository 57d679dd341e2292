"""A quasi-Newton method as plan x initial inverse x pair memory x safeguard.

plan
    A sequence of stages and what a worker computes in each: `EndlessTable` (`endless_table`), in which each
    update is a commit.
initial inverse
    H0, on which the pairs build: see `exact.inverse`.
pair memory
    The last M curvature pairs: `algorithms.pair_memory`.
safeguard
    Which point is accepted, what follows a failure, when to end: `algorithms.safeguard`.

The public classes hold parameters and name the parts; `QuasiNewton` below
composes them.  To add a method, write a class with parameters, a `plan` and an `initial_inverse`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from asyncqn.algorithms.exact.inverse import InitialInverse
from asyncqn.algorithms.pair_memory import RecursiveMemory, pair_totals
from asyncqn.algorithms.safeguard import Trial
from asyncqn.algorithms.safeguard import standing as safeguard_standing
from asyncqn.core.stages import Stages
from asyncqn.parameters import Checked
from asyncqn.types import Array, Commit, Counters, Problem, Rows, Standing, Task

RECENT_VALUES = 5
"""A trial may lie above the last accepted point, but not above all of the last five: the non-monotone rule of
`algorithms.safeguard`.  Our own choice."""
GROWING_EVALUATE = 25
"""Commits between two evaluations while samples grow: an evaluation uses all rows, and so costs as much as
many versions on a small sample."""


class Worker(NamedTuple):
    """A worker remembers nothing."""


class Iterate(NamedTuple):
    """The state of the coordinator; all arrays are written in place."""

    theta: Array
    """The trial under way, or the last stochastic iterate."""
    base: Array
    """The last accepted point; the start before there is one."""
    at_base: Array
    """Shape (k, d): the gradient at base and what else H0 needs of it."""
    memory: RecursiveMemory
    initial: Any
    """The state of H0, as its kind defines it."""
    trial: Trial
    """The safeguard's knowledge; the only field beside `course` that commits replace."""
    start: Array
    """A copy of theta0: the point to which a plan returns whose steps have failed."""
    course: Any
    """The state of the plan."""


class Plan(Protocol):
    """A sequence of stages and what is computed in each."""

    @property
    def stages(self) -> Stages:
        """Stages of a run: in each, how the rows are cut and when updates are committed."""

    def check(self, problem: Problem) -> None:
        """Raise `BadInput` where the rows cannot be cut as the plan wants."""

    def course(self, theta0: Array) -> Any:
        """Return the state of the plan at the start."""

    def step(self, method: Any, view: Iterate, problem: Any, task: Task) -> Any:
        """Return a worker's update."""

    def apply(
        self, method: Any, iterate: Iterate, updates: Sequence[Any], commit: Commit
    ) -> Iterate:
        """Return the iterate after a commit."""

    def standing(self, iterate: Iterate) -> Standing | None:
        """Return where the method stands; None while nothing was judged on all rows."""
        return safeguard_standing(iterate)

    def candidates(self, iterate: Iterate) -> tuple[Array, ...]:
        """Return the points of which the lowest is the result, beside theta."""
        return (iterate.base,)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        """Return of how many rows each computation takes the gradient."""


class QuasiNewton(Checked, ABC):
    """Base of the methods whose workers only compute: the coordinator tries points and accepts some of them.

    A method states its `plan`, the kind of its `initial_inverse`, and its parameters.
    """

    memory: int
    # Workers receive theta alone: base, pairs and table would cost many times as much to send.
    sent: ClassVar[tuple[str, ...]] = ("theta",)
    recent_values: ClassVar[int] = RECENT_VALUES

    @property
    def summary_size(self) -> int:
        """Numbers of curvature that an update brings beside the gradient: the parameter `curvature`."""
        # Only methods whose H0 comes in summaries have this parameter.
        return getattr(self, "curvature", 0)

    @property
    def evaluate_every(self) -> int:
        """Commits between two evaluations where the user does not say: an evaluation looks at all rows."""
        return 1

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """The stages and what is computed in each."""

    @property
    @abstractmethod
    def initial_inverse(self) -> type[InitialInverse]:
        """The kind of H0."""

    @property
    def requires(self) -> tuple[str, ...]:
        """Extras that the problem must offer."""
        return self.initial_inverse.requires

    @property
    def stages(self) -> Stages:
        return self.plan.stages

    def check(self, problem: Problem) -> None:
        self.plan.check(problem)

    def init(self, theta0: Array) -> Iterate:
        # k: the gradient alone, or with its image under H0.
        rows = getattr(self.initial_inverse, "vectors", 1)
        empty_memory = getattr(
            self.initial_inverse, "empty_memory", RecursiveMemory.empty
        )
        return Iterate(
            # The iterate owns all its arrays, because the coordinator writes them in place.
            theta=theta0.copy(),
            base=theta0.copy(),
            at_base=np.zeros((rows, theta0.size), theta0.dtype),
            memory=empty_memory(self.memory, theta0),
            initial=self.initial_inverse.empty(theta0, self.summary_size),
            # -inf is never the largest, so that empty places do not count in the non-monotone rule.
            trial=Trial((-math.inf,) * self.recent_values),
            start=theta0.copy(),
            course=self.plan.course(theta0),
        )

    def init_worker(self, problem: Problem, theta0: Array) -> Worker:
        # All state is the coordinator's: a worker that is lost loses nothing.
        return Worker()

    def step(self, view: Iterate, local: Worker, problem: Problem, task: Task) -> Any:
        return self.plan.step(self, view, problem, task)

    # A worker has no state, so that accepted and rejected updates mean nothing to it.

    def learn(
        self, view: Iterate, local: Worker, problem: Problem, task: Task
    ) -> Worker:
        return local

    def forget(self, local: Worker) -> Worker:
        return local

    def apply(
        self, iterate: Iterate, updates: Sequence[Any], commit: Commit
    ) -> Iterate:
        return self.plan.apply(self, iterate, updates, commit)

    def standing(self, iterate: Iterate) -> Standing | None:
        return self.plan.standing(iterate)

    def candidates(self, iterate: Iterate) -> tuple[Array, ...]:
        """Return the points that were judged, such as the last accepted one; theta itself is a trial."""
        return self.plan.candidates(iterate)

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        return self.plan.rows_of(n_data, read, part)

    def counters(self, iterate: Iterate, locals_: Sequence[Worker]) -> dict[str, int]:
        return pair_totals([iterate.memory.ring])
