"""The protocols every room speaks: `Potential`, `Algorithm`, `Engine`, and what passes between them.

The numbers of a run are a function of (algorithm, potential, theta0, seed, schedule).  An
algorithm therefore never asks for the time, a random source or its neighbours: all it may know
stands in its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from asyncqn.core.request import Request
    from asyncqn.core.stages import Stages
    from asyncqn.core.streams import Stream
    from asyncqn.runs.run import Run

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Rows: TypeAlias = npt.NDArray[np.int64]
Counters: TypeAlias = npt.NDArray[np.int64]


@runtime_checkable
class Potential(Protocol):
    """What is minimised: U(theta) = -log p(theta) - sum_i log p(Y_i | theta), a sum over `n_data` points.

    These four are all a user must write.  Everything must be pure: equal arguments give equal
    bits, and no argument but `out` is written to: a run hands out read-only views (`core.read_only`).

    Extras that are used where they exist (`POTENTIAL_EXTRAS`), asked for by `extra`:

    * `dtype`: of theta (float64 when absent);
    * `initial(rng)`: a starting point drawn with a `numpy.random.Generator` (zeros when absent);
    * `metrics(theta)`: a dict of further numbers for the metric table;
    * `optimum`: U*, where it is known, which adds the column `error` = (U - U*)/U*;
    * `value_rows(theta, rows)`: the estimate of U(theta) from `rows`, scaled as `grad` scales its own;
      `BlockLBFGS` judges its steps by it;
    * `grad_with_value(theta, rows, out)`: `grad` that returns `value_rows`, for the price of one pass;
    * `curvature_diagonal(theta)`: a positive vector near the diagonal of the Hessian, for
      `initial_scale="diagonal"`;
    * `curvature_size`, `grad_with_curvature(theta, rows, out, curvature)` and `inverse_metric_from(curvature,
      step, batch)`: a structured H0 from short summaries that add up over data points as gradients do (see
      `ProfiledFactorization`), for `StagedLBFGS`;
    * `sampled_metric`: True where the summary of a sample of rows serves for all, so that samples may grow;
      `grad_with_curvature` then takes one argument more, the number of rows in the sample, and an empty
      `curvature` where none is wanted: for `MetricLBFGS`;
    * `names`: a name for each number of theta, for tables and ArviZ;
    * `reference()`: plain data (JSON) from which `asyncqn.models.rebuild` makes it again.

    >>> import numpy as np
    >>> import asyncqn as aq
    >>> class Mean:
    ...     def __init__(self, y):
    ...         self.y, self.dim, self.n_data = y, 1, len(y)
    ...     def value(self, theta):
    ...         return 0.5 * float(((self.y - theta) ** 2).sum())
    ...     def grad(self, theta, rows, out):
    ...         out[:] = self.n_data / len(rows) * (theta - self.y[rows]).sum()
    >>> run = aq.minimize(Mean(np.array([1.0, 2.0, 6.0])), engine=aq.Simulator(aq.Cluster(workers=1)))
    >>> round(float(run.theta[0]), 6)
    3.0
    """

    @property
    def dim(self) -> int: ...
    @property
    def n_data(self) -> int: ...
    def value(self, theta: Array) -> float:
        """U(theta) over all data."""

    def grad(self, theta: Array, rows: Rows, out: Array) -> Any:
        """Write into `out` the estimate of grad U(theta) from the data points `rows`.

        out = -grad log p(theta) - (n_data / len(rows)) * sum_{i in rows} grad log p(Y_i | theta).
        A row may occur more than once; `rows = arange(n_data)` gives the exact gradient.
        """


class Task(NamedTuple):
    """What a worker is asked to compute: its own k-th step, from version `read` of the iterate."""

    worker: int
    read: int
    stream: Stream
    part: int | None = None
    """Which fixed part of the data to use, where the stage cuts them (`core.stages`); None: fresh rows."""


class Commit(NamedTuple):
    """What the master knows of the commit under way, for `Algorithm.apply`."""

    version: int
    """The version that this commit makes."""
    staleness: Sequence[int]
    """l_n of each update, in their order: commits between the version it was computed from and this one."""
    value: Callable[[Array], float]
    """U over all data, computed by the master itself: it costs a pass, so ask only where it decides."""
    inverse_metric_from: Callable[..., Any] | None = None
    """The potential's own, where it has one; the last answer is kept."""


class Standing(NamedTuple):
    """Where a method with exact gradients stands: at the last point it kept, judged on all rows."""

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
    """An optimizer as four pure functions; implemented by frozen dataclasses of parameters.

    `Iterate` (the master's state), `Update` (a message) and the worker's state are NamedTuples of
    arrays, which `learn` and `apply` may write in place.  `Iterate` has at least a field `theta`.
    `step` returns an update that stays valid until the same worker's next `step`.  Where workers read
    only some fields of the iterate, an attribute `sent` names them; real engines send no others.

    A run reports `iterate.theta` when it ends.  Where that may be a trial, an optional method
    `answers(iterate)` lists further points, such as the last one kept; the lowest of all is reported.
    An algorithm with exact gradients has a method `standing(iterate)`: a `Standing`, or None while
    nothing was judged on all rows; by it a run ends as converged or stalled.

    Further extras (`ALGORITHM_EXTRAS`), none of which a user must write:

    * `requires`: the extras that a potential must have, by name; `algorithms.fit` checks them;
    * `max_workers`: how many workers it can use (any number when absent);
    * `warnings(workers)`: sentences on parameters that are likely to fail with so many workers;
    * `advice(potential, theta0, workers, locals_)`: a sentence on what to change after a divergence;
    * `temperature(k)`: 1 / beta of the noise that a worker adds at its k-th step.  A run may end a few times
      dim * temperature above its start (`algorithms.noise`); without it, a run that rises has diverged;
    * `noise_floor(potential, theta, workers, iterate, locals_)`: how far above a minimum at `theta`
      minibatches may lift U, where the parameters are stable, else 0; `iterate` and `locals_` are the
      states at the end;
    * `finished(iterate)`: why the run ends as completed before its last commit; None: it goes on;
    * `results(iterate)`: arrays by name that the run reports besides theta, as `Run.results`;
    * `rows_of(n_data, read, part)`: of how many rows each computation takes the gradient (arrays of the
      versions read and of the parts asked for); `Run.passes` and `max_passes` count them.

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
        """How updates reach the master: `core.stages.ASYNCHRONOUS`, or what else is there."""

    def check(self, potential: Potential) -> None:
        """Raise `BadInput` when the parameters do not fit the potential."""

    def init(self, theta0: Array) -> Any:
        """The master's state at version 0, in arrays of its own."""

    def init_worker(self, potential: Potential, theta0: Array) -> Any:
        """The state of a worker that has not computed anything yet."""

    def step(self, view: Any, local: Any, potential: Potential, task: Task) -> Any:
        """The update to send, from the iterate `view` (not to be written to)."""

    def learn(self, view: Any, local: Any, potential: Potential, task: Task) -> Any:
        """What the worker does after sending; returns its new state."""

    def forget(self, local: Any) -> Any:
        """The worker's state with its curvature memory emptied, after a rejected update."""

    def apply(self, iterate: Any, updates: Sequence[Any], commit: Commit) -> Any:
        """The master's state after committing `updates`: one, or the answers of a round."""

    def counters(self, iterate: Any, locals_: Sequence[Any]) -> dict[str, int]:
        """Totals worth reporting, such as pairs accepted and rejected."""


POTENTIAL_EXTRAS = (
    "dtype",
    "initial",
    "metrics",
    "optimum",
    "value_rows",
    "grad_with_value",
    "curvature_diagonal",
    "curvature_size",
    "grad_with_curvature",
    "inverse_metric_from",
    "sampled_metric",
    "names",
    "reference",
)
ALGORITHM_EXTRAS = (
    "sent",
    "answers",
    "standing",
    "finished",
    "results",
    "rows_of",
    "requires",
    "max_workers",
    "warnings",
    "advice",
    "temperature",
    "noise_floor",
)
_EXTRAS = frozenset((*POTENTIAL_EXTRAS, *ALGORITHM_EXTRAS))


def extra(of: Potential | Algorithm | None, name: str) -> Any:
    """What a potential or an algorithm offers beyond its protocol; None where it does not."""
    if name not in _EXTRAS:
        raise KeyError(f"'{name}' is no extra: declare it in asyncqn.types")
    return getattr(of, name, None)


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
