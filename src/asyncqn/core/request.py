"""Request: what a run is asked for, what it tells while it lasts, and who carries it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from asyncqn.core.algorithm import Algorithm, Standing
from asyncqn.core.problem import Array, Problem
from asyncqn.core.stopping import TO_THE_END, Stopping

if TYPE_CHECKING:
    from asyncqn.runs.checkpoint import Checkpoints
    from asyncqn.runs.run import Run


class Progress(NamedTuple):
    """What a callback is shown: the state right after commit `commit`; `theta` is a copy.

    staleness: the mean over the updates since the last call; workers: how many are there.
    """

    commit: int
    time: float
    theta: Array
    metrics: dict[str, float]
    staleness: float = 0.0
    workers: int = 0


Callback: TypeAlias = Callable[[Progress], Any]
StoppingRule: TypeAlias = Callable[[Standing], str | None]
"""Asked where a method with exact gradients stands; returns why the run has converged, or None to go on."""


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
    every version that it judges on all rows, by what it knows there.  Recordings of 0.1 did not."""
    stop: StoppingRule | None = None
    """A rule of the caller's own, asked after every commit of a method with exact gradients."""
    open_ended: bool = False
    """Whether `commits` is a default bound and not a wish: making them all is then a stop, not an end."""


class Engine(Protocol):
    """Decides who computes what when, carries the messages, returns a `Run`.

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
