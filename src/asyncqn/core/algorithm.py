"""Algorithm: how a problem is minimised, as a user writes it, and what passes between master and workers.

`Task` goes to a worker and `Commit` accompanies its update to the master; `Standing` is what a method with
exact gradients reports about itself; `Algorithm` is the protocol that uses all three.

An algorithm never reads a clock, a random generator or another worker's state: everything it may know is in
its arguments.  The numbers of a run are therefore a function of (algorithm, problem, theta0, seed, schedule).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from asyncqn.core.problem import PROBLEM_EXTRAS, Array, Problem

# Only the annotations need these two; importing them here would close a cycle.
if TYPE_CHECKING:
    from asyncqn.core.stages import Stages
    from asyncqn.core.streams import Stream


class Task(NamedTuple):
    """A request to a worker: compute its k-th step from version `read` of the iterate."""

    worker: int
    read: int
    stream: Stream
    part: int | None = None
    """Which fixed part of the data to use, where the stage cuts them (`core.stages`); None: fresh rows."""


class Commit(NamedTuple):
    """The facts about the commit under way that the master passes to `Algorithm.apply`."""

    version: int
    """The version that this commit makes."""
    staleness: Sequence[int]
    """l_n of each update, in their order: commits between the version it was computed from and this one."""
    value: Callable[[Array], float]
    """U over all data, computed by the master itself.  It costs a pass, so call it only where it decides."""
    inverse_metric_from: Callable[..., Any] | None = None
    """The problem's own function, where it has one; its last result is cached."""


class Standing(NamedTuple):
    """The report of a method with exact gradients about the last point that it accepted, over all rows."""

    point: Array
    value: float
    """U(point)."""
    grad_norm: float
    """|grad U(point)|."""
    first_grad_norm: float
    """The same at the first point judged on all rows."""
    decrease: float
    """How much lower than `value` U may still lie, judged by the least curvature seen: |g|^2 / 2 times the
    largest s's / s'y of the pairs in use; infinite where nothing is known."""
    stalled: bool
    """No step from `point` moves it or lowers U any more."""


class Algorithm(Protocol):
    """An algorithm as four pure functions and its stages; implemented by frozen dataclasses of parameters.

    `Iterate` (the master's state), `Update` (a message) and the worker's state are NamedTuples of arrays,
    which `step` and `apply` may write in place. `Iterate` has at least the field `theta`. `step` returns
    an update that stays valid until the same worker's next `step`. Where workers read only some fields of
    the iterate, an attribute `sent` names them; real engines send no others.

    A run reports `iterate.theta` when it ends. Where that may be a trial point, an optional method
    `candidates(iterate)` lists further candidates, such as the last accepted point; the lowest of all is
    reported. An algorithm with exact gradients has a method `standing(iterate)` that returns a `Standing`,
    or None before a point was judged on all rows; it decides whether a run ends as converged or stalled.

    All further members are optional (`ALGORITHM_EXTRAS` lists them):

    * `check(problem)`: raises `BadInput` when the parameters do not fit the problem;
    * `learn(view, local, problem, task)`: the worker's state after its update was sent; without it, the same;
    * `forget(local)`: the worker's state with its curvature memory emptied, after an update was rejected
      because its numbers, and perhaps those of the state, were not finite; without it, the same;
    * `counters(iterate, locals_)`: totals worth reporting by name, such as pairs accepted and rejected;
    * `requires`: names of the optional members that the problem must have; `algorithms.fit` checks them;
    * `max_workers`: the largest number of workers; unlimited when absent;
    * `warnings(workers)`: sentences about parameters that are likely to fail with this number of workers;
    * `advice(problem, theta0, workers, locals_)`: a sentence on what to change after a divergence;
    * `temperature(k)`: 1 / beta of the noise that a worker adds at its k-th step.  A run may end a few times
      dim * temperature above its start (`core.outcome.risen`); without it, a run that rises has diverged;
    * `finished(iterate)`: why the run is complete before its last commit, or None to continue;
    * `results(iterate)`: arrays by name that the run reports besides theta, as `Run.results`;
    * `rows_of(n_data, read, part)`: number of rows in the gradient of each computation, from arrays of the
      versions read and of the parts handed out; `Run.passes` and `max_passes` count them.

    Examples
    --------
    >>> import asyncqn as aq
    >>> class DelayAdaptive(aq.AsyncSGD):
    ...     def apply(self, iterate, updates, commit):
    ...         for update, staleness in zip(updates, commit.staleness):
    ...             iterate.theta[:] += update.d_theta / (1 + staleness)
    ...         return iterate
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = DelayAdaptive(h=1e-3, batch=20)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=300)
    >>> run.success and run.fun < problem.value(run.theta0)
    True
    """

    @property
    def stages(self) -> Stages:
        """The message pattern, such as `core.stages.ASYNCHRONOUS`; see the top of `core.stages`."""

    def init(self, theta0: Array) -> Any:
        """Return the master's state at version 0, in newly allocated arrays."""

    def init_worker(self, problem: Problem, theta0: Array) -> Any:
        """Return the state of a worker that has not computed anything yet."""

    def step(self, view: Any, local: Any, problem: Problem, task: Task) -> Any:
        """Return the update to send, computed from the iterate `view`, which must not be written to."""

    def apply(self, iterate: Any, updates: Sequence[Any], commit: Commit) -> Any:
        """Return the master's state after committing `updates`: one update, or all updates of a round."""


ALGORITHM_EXTRAS = (
    "check",
    "learn",
    "forget",
    "counters",
    "sent",
    "candidates",
    "standing",
    "finished",
    "results",
    "rows_of",
    "requires",
    "max_workers",
    "warnings",
    "advice",
    "temperature",
)
# One set: `extra` is called with problems and algorithms alike.
_EXTRAS = frozenset((*PROBLEM_EXTRAS, *ALGORITHM_EXTRAS))


def extra(of: Problem | Algorithm | None, name: str) -> Any:
    """Return an optional member of a problem or an algorithm, or None where it has none."""
    # A misspelt name would silently read as "not offered", so it is an error of the caller.
    if name not in _EXTRAS:
        raise KeyError(
            f"'{name}' is not an optional member: declare it in asyncqn.core.algorithm"
        )
    return getattr(of, name, None)
