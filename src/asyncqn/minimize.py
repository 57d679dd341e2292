"""minimize: the one call from which everything starts."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Annotated

import numpy as np

from asyncqn.algorithms.defaults import TOLERANCE, Waits, default_algorithm, default_evaluate, most_commits
from asyncqn.algorithms.fit import check_fit
from asyncqn.algorithms.stability import warnings_before
from asyncqn.checks.costs import relative_costs
from asyncqn.checks.first_calls import check_first_calls
from asyncqn.core.problem import check_members
from asyncqn.core.request import Request
from asyncqn.core.stopping import MaxPasses, MaxTime, Metric, Patience, Stopping, Target, Tolerance
from asyncqn.errors import BadInput, StabilityWarning, require
from asyncqn.parameters import (
    CheckpointEvery,
    CheckProblem,
    Commits,
    Evaluate,
    Folder,
    Keep,
    Kind,
    RealArray,
    Refused,
    Seed,
    checked,
    parameter,
    real_array,
)
from asyncqn.runs.checkpoint import Checkpoints
from asyncqn.runs.run import Run
from asyncqn.types import Algorithm, Array, Callback, Engine, Problem, Progress, StoppingRule, extra

_log = logging.getLogger("asyncqn.minimize")
_START = 0x7E7A0

Objective = Annotated[
    Problem, parameter("What is minimised, U", words="an object with dim, n_data, value and grad")
]
Method = Annotated[
    Algorithm | None,
    parameter(
        "Who computes the next iterate; None: what suits the problem and the workers",
        words="an algorithm, such as AsyncSGD(h=1e-3, batch=10), or None",
    ),
]
Where = Annotated[
    Engine | None,
    parameter(
        "Where the workers run; None: threads of this process, one per processor",
        words="an engine, such as Threads(2), or None",
    ),
]
Start = Annotated[RealArray | None, parameter("Where the run begins; None: the problem's own, else zeros")]
Told = Annotated[Callback | None, parameter("Called with a `Progress` for every row of the metric table")]


def _callbacks(value: object) -> object:
    """Return what can be called back: a function, a patience, or several of these."""
    several = value if isinstance(value, (list, tuple)) and value else [value]
    if value is not None and not all(callable(each) or isinstance(each, Patience) for each in several):
        raise Refused
    return value


Callbacks = Annotated[
    Callback | Patience | Sequence[Callback | Patience] | None,
    Kind(("a function", "a Patience", "a list of these", "None"), _callbacks, None),
    parameter("Called with a `Progress` for every row of the metric table; a `Patience`; or a list of such"),
]
ShowProgress = Annotated[
    bool | None, parameter("Whether to show a bar; None: on a terminal and in a notebook, and not elsewhere")
]
Verbose = Annotated[bool, parameter("Whether to write plain lines to stderr")]
CheckpointFolder = Annotated[Folder | None, parameter("For checkpoints, from which `resume` goes on")]


@checked
def minimize(
    problem: Objective,
    algorithm: Method = None,
    *,
    engine: Where = None,
    theta0: Start = None,
    commits: Annotated[
        Commits | None, parameter("Of the master, at most; None: until an exact method has converged")
    ] = None,
    seed: Seed = 0,
    tol: Tolerance = TOLERANCE,
    max_passes: MaxPasses = None,
    max_time: MaxTime = None,
    target: Target = None,
    metric: Metric = "fun",
    callback: Callbacks = None,
    evaluate: Evaluate = None,
    checkpoint: CheckpointFolder = None,
    checkpoint_every: CheckpointEvery = 30.0,
    check: CheckProblem = True,
    keep: Keep = None,
    stop: Annotated[
        StoppingRule | None, parameter("A stopping rule of one's own, for methods with exact gradients")
    ] = None,
    progress: ShowProgress = None,
    verbose: Verbose = False,
    waits: Waits = True,
) -> Run:
    """Minimise `problem` with `algorithm` on `engine`, until it has converged or made `commits` commits.

    algorithm: by default the one that `algorithms.defaults` picks for the problem and the workers.
    engine: by default threads of this process, as many as it has processors.
    theta0: the start; by default the problem's own `initial`, else zeros.
    commits: at most so many commits of the master.  A stochastic method makes them all, and needs to be told
    them or `max_passes`; a method with exact gradients ends when it has converged (or after 10,000 passes,
    as `stopped`).
    seed: of minibatches, noise, simulated delays and the default start.
    tol: when an exact method has converged, see `core.stopping`; None: it goes on to the last commit.
    max_passes: end after so many passes over the data; max_time: after so long on the engine's clock.
    target, metric: end when a row of the metric table has this column at or below the target.
    callback: called with a `Progress` for every row; raise StopIteration to stop.  Or a `Patience`, which
    ends the run when a metric does not improve any more.  Or a list of both.
    evaluate: commits between two evaluations of U at theta (default: about 200 in all, fewer where samples
    grow).  Each is a row of the metric table, and so is every other version at which an exact method
    knows U and its gradient: of the last point kept, at no cost.  Versions judged on a sample have no
    row, since nobody knows U there, nor have those of a problem with `metrics` of its own.  0: the start is
    the only row, and the run reports what an exact method last judged.
    checkpoint: a folder for checkpoints, from which `resume` goes on; with it, Ctrl-C ends the run in
    good order (status "interrupted", after SIGTERM "terminated").
    checkpoint_every: an integer counts commits, a float seconds between two checkpoints.
    check: compare a problem of your own with itself before the run (`checks.first_calls`): its gradient
    with its values, rows with rows, equal calls with each other.
    keep: store every so many commits the iterate, as `Run.keep`; `replay(run, keep=...)` does so for any run.
    stop: a stopping rule of your own, for methods with exact gradients.  It is called with a `types.Standing`
    after every commit, before `tol` is looked at; it returns a sentence to end the run as converged, or None
    to go on, and may raise StopIteration to stop it.  Saved runs do not hold it: `resume` goes on without.
    progress: show a bar on stderr; None: on a terminal or in a notebook, after half a second of work.
    verbose: write plain lines to stderr instead, at most one a second.
    waits: whether a slow worker may be waited for, where no algorithm is given.  The methods that are chosen
    by default wait at the end of every exact pass, while idle workers help the slow ones.  False: nobody ever
    waits (`TableLBFGS`); the cost of a message, as a cluster states it or as it is measured on a real engine,
    decides into how many parts the rows are cut, and the manifest records the algorithm that was chosen.

    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, engine=aq.Simulator(aq.Cluster(workers=4)), seed=1)
    >>> run.status, run.fun - problem.optimum < 1e-6
    ('converged', True)
    """
    callbacks, patience = sort_callbacks(callback)
    stopping = Stopping(tol, max_passes, max_time, target, metric, patience)
    check_members(problem)
    if engine is None:
        from asyncqn.engines.threads import Threads

        engine = Threads(os.cpu_count() or 1)
    algorithm = _chosen(problem, engine, theta0, seed, waits) if algorithm is None else algorithm
    require(
        waits or not any(stage.waits for stage in algorithm.stages),
        f"waits=False, but {type(algorithm).__name__} waits for slow workers: leave one of the two out.",
    )
    open_ended = commits is None
    commits, evaluate = _length(algorithm, problem, commits, evaluate, stopping)
    check_fit(algorithm, problem, engine.workers)
    for sentence in warnings_before(algorithm, engine.workers):
        warnings.warn(sentence, StabilityWarning, stacklevel=3)
    start = starting_point(problem, theta0, seed)
    if check:
        check_first_calls(problem, start)
    checkpoints = None if checkpoint is None else Checkpoints(checkpoint, checkpoint_every)
    total = None if open_ended or max_passes is not None else commits
    with (
        nullcontext() if checkpoints is None else closing(checkpoints),
        showing(callbacks, engine, progress, verbose, total, "minimize") as told,
    ):
        request = Request(
            *(problem, algorithm, start, commits, seed),
            *(evaluate, told, stopping, checkpoints, keep),
            every_version=evaluate is not None,
            open_ended=open_ended,
            stop=stop,
        )
        names = type(algorithm).__name__, type(engine).__name__
        _log.info("%s on %s begins: at most %d commits, seed %d", *names, commits, seed)
        run = engine.minimize(request)
    if run is not None:  # None: another rank of MPI has the run
        _log.info("%s on %s ends, %s: %s U = %.6g", *names, run.status, run.message, run.fun)
    return run


def _chosen(problem: Problem, engine: Engine, theta0: RealArray | None, seed: int, waits: bool) -> Algorithm:
    """Return the algorithm for a problem on an engine; where nobody may wait, messages bear on it, too."""
    if waits:
        return default_algorithm(problem, engine.workers)
    costs = relative_costs(problem, starting_point(problem, theta0, seed), engine)
    return default_algorithm(problem, engine.workers, waits=False, **costs._asdict())


def _length(
    algorithm: Algorithm, problem: Problem, commits: int | None, evaluate: int | None, stopping: Stopping
) -> tuple[int, int | None]:
    """How many commits there are at most, and how many between two evaluations (None: no more)."""
    exact, rows_of = extra(algorithm, "standing") is not None, extra(algorithm, "rows_of")
    passes = stopping.max_passes
    require(
        passes is None or rows_of is not None,
        f"max_passes needs a method rows_of, which {type(algorithm).__name__} does not have: use commits.",
    )
    require(
        commits is not None or passes is not None or (exact and stopping.tol is not None),
        "commits is missing: say how many the run shall make, or max_passes.",
    )
    require(
        stopping.patience is None or evaluate != 0,
        "Patience watches evaluations, and evaluate = 0 makes none: leave evaluate out.",
    )
    if commits is None and not exact and passes is not None:
        commits = commits_of(algorithm, problem.n_data, passes)
    most = most_commits(algorithm) if commits is None else commits
    between = default_evaluate(algorithm, commits) if evaluate is None else evaluate
    return most, between or None


def commits_of(algorithm: Algorithm, n_data: int, passes: float) -> int:
    """Return how many commits a stochastic method needs at most for so many passes over the data.

    A commit has at least one update, so the fewest rows that an update is computed from give the bound.
    """
    rows_of, begins, fewest = extra(algorithm, "rows_of"), 0, n_data
    assert rows_of is not None
    for stage in algorithm.stages:
        part = np.arange(-1 if stage.parts is None else 0, stage.parts or 0, dtype=np.int32)
        rows = np.asarray(rows_of(n_data, np.full_like(part, begins), part))
        fewest = min(fewest, int(rows.min()))
        begins += stage.commits or 0
    return max(1, math.ceil(passes * n_data / max(fewest, 1)))


def sort_callbacks(
    given: Callback | Patience | Sequence[Callback | Patience] | None,
) -> tuple[list[Callback], Patience | None]:
    """Return the functions and the patience among the callbacks of a run."""
    several = [given] if given is None or callable(given) or isinstance(given, Patience) else list(given)
    patience = [each for each in several if isinstance(each, Patience)]
    require(len(patience) < 2, "a run has one Patience: leave the others out of callback.")
    return [each for each in several if callable(each)], patience[0] if patience else None


@contextmanager
def showing(
    callbacks: Sequence[Callback],
    engine: Engine,
    progress: bool | None,
    verbose: bool,
    total: int | None,
    label: str,
) -> Iterator[Callback | None]:
    """Inside the block the yielded callback calls all of these and shows the progress of the run.

    None where there is nobody to call: engines save the work then.
    """
    from asyncqn.engines.simulator import Simulator
    from asyncqn.view.progress import as_callback, logged, shown

    simulated = isinstance(engine, Simulator)
    with shown(progress, verbose, total, label) as advance, logged(_log, total, label) as log:
        displays = [as_callback(each, simulated=simulated) for each in (advance, log) if each is not None]
        told = [*displays, *callbacks]

        def call_all(progress: Progress) -> None:
            for each in told:
                each(progress)

        yield call_all if len(told) > 1 else told[0] if told else None


@checked
def starting_point(problem: Objective, theta0: Start = None, seed: Seed = 0) -> Array:
    """The start of a run: theta0, or the problem's own, as a fresh contiguous vector of its dtype.

    Parameters
    ----------
    problem : Problem
        What is to be minimised.
    theta0 : array of dim numbers, optional
        The start; None takes what `minimize` takes by default: the problem's `initial`, else zeros.
    seed : int, default 0
        Of the default start.

    Returns
    -------
    ndarray of shape (dim,)
        In the problem's dtype; a start that cannot be used raises `BadInput`.

    Examples
    --------
    >>> import asyncqn as aq
    >>> aq.starting_point(aq.LinearGaussian.random(dim=3, n_data=10, seed=0)).shape
    (3,)
    """
    check_members(problem)
    said = np.float64 if extra(problem, "dtype") is None else extra(problem, "dtype")
    try:
        dtype = np.dtype(said)
    except TypeError:
        raise BadInput(f"theta must be float64 or float32, but the problem says {said!r}.") from None
    require(
        dtype in (np.dtype(np.float64), np.dtype(np.float32)),
        f"theta must be float64 or float32, but the problem says {dtype}.",
    )
    if theta0 is None:
        initial = extra(problem, "initial")
        theta0 = (
            initial(np.random.Generator(np.random.Philox(key=[seed, _START])))
            if initial is not None
            else np.zeros(problem.dim, dtype)
        )
    try:
        given = real_array(theta0)  # the problem's own start may be anything
    except Refused as refusal:
        raise BadInput(f"theta0 must be an array of real numbers, not {refusal}.") from None
    require(given.dtype.kind != "b", "theta0 must be an array of real numbers, not of truth values.")
    if given.dtype in (np.float32, np.float64) and extra(problem, "dtype") is None:
        dtype = given.dtype
    start = np.array(given, dtype=dtype, order="C")
    require(
        start.shape == (problem.dim,),
        f"theta0 must be a vector of dim = {problem.dim} numbers, not of shape {given.shape}.",
    )
    require(bool(np.isfinite(start).all()), "theta0 contains NaN or infinity.")
    return start
