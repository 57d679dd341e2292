"""Request: the checked arguments of a run, the progress that it reports, and the engine that runs it.

`minimize` builds a `Request` and passes it to an `Engine`; callbacks receive `Progress`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from asyncqn.core.algorithm import Algorithm, Standing
from asyncqn.core.problem import Array, Problem
from asyncqn.core.stopping import TO_THE_END, Stopping

if TYPE_CHECKING:
    # The core imports no higher room at run time; these two names serve annotations alone.
    from asyncqn.runs.checkpoint import Checkpoints
    from asyncqn.runs.run import Run


class Progress(NamedTuple):
    """The argument of a callback of `minimize`: one row of the metric table and the state of the run.

    Attributes
    ----------
    commit : int
        How many commits were made; the start is commit 0.
    time : float
        The time of this commit on the engine's clock, in its unit: seconds, or simulated time.
    theta : ndarray
        A copy of the point that the row is about.
    metrics : dict of str to float
        The row: `commit`, `time`, `fun` (U over all rows), `error` where the optimum is known, `grad_norm` of
        methods with exact gradients, and what the problem's own `metrics` computes.
    staleness : float
        The mean staleness, in commits, of the updates since the last call.
    workers : int
        How many workers there are at this moment.
    workers_lost : int
        How many workers were lost since the run began.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> seen = []
    >>> def callback(progress: aq.Progress) -> None:
    ...     seen.append(progress.metrics["fun"])
    ...     if progress.commit >= 100:
    ...         raise StopIteration
    >>> run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=aq.Threads(2), commits=200,
    ...                   evaluate=50, callback=callback)
    >>> run.nit, len(seen), seen[-1] < seen[0]
    (100, 3, True)
    """

    commit: int
    time: float
    theta: Array
    metrics: dict[str, float]
    staleness: float = 0.0
    workers: int = 0
    workers_lost: int = 0


def headcount(alive: int, expected: int, lost: int) -> str:
    """Return a phrase such as "3 of 4 workers, 1 lost"."""
    # Workers that were added may exceed the expected number.
    of = f"{alive} of {max(alive, expected)} workers"
    return f"{of}, {lost} lost" if lost else of


Callback: TypeAlias = Callable[[Progress], Any]
StoppingRule: TypeAlias = Callable[[Standing], str | None]
"""Receives the report of a method with exact gradients; returns why the run has converged, or None to
continue."""


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `minimize`, checked and complete."""

    problem: Problem
    algorithm: Algorithm
    theta0: Array
    commits: int
    seed: int = 0
    evaluate: int | None = 1
    """Commits between two rows of the metric table, which has the start and the end as well; None: it has the
    start alone.  The end of a stochastic method is evaluated all the same: it may have risen."""
    callback: Callback | None = None
    stopping: Stopping = TO_THE_END
    checkpoints: Checkpoints | None = None
    keep: int | None = None
    every_version: bool = False
    """Whether a method with exact gradients notes a row, calls the callback and compares with the target at
    every version that it judges on all rows, by what it knows there."""
    stop: StoppingRule | None = None
    """A rule of the caller's own, asked after every commit of a method with exact gradients."""
    open_ended: bool = False
    """Whether `commits` is a default bound and not a wish: making them all is then a stop, not an end."""


class Engine(Protocol):
    """An object that runs workers: it assigns tasks, carries messages, and returns a `Run`.

    Any object with `workers`, the number of workers, and `minimize(request)` is an engine.  It may also have
    `message_seconds(theta0)`, the seconds of a message of theta's length to a worker and back, for the choice
    of a method; without it, a message is assumed to take a millisecond.

    Examples
    --------
    >>> import asyncqn as aq
    >>> class Serial:
    ...     workers = 1
    ...     def minimize(self, request):
    ...         return aq.Simulator(aq.Cluster(workers=1)).minimize(request)
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> aq.minimize(problem, engine=Serial()).status
    'converged'
    """

    @property
    def workers(self) -> int: ...
    def minimize(self, request: Request) -> Run: ...
