"""minimize: the entry point of the library.

It checks its arguments, chooses an algorithm and an engine where none is given, tests a user's problem, and
passes a `Request` to the engine.  Everything else happens there (docs/explanation/one-run.md).
"""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np

from asyncqn.algorithms.defaults import (
    TOLERANCE,
    default_algorithm,
    default_evaluate,
    most_commits,
)
from asyncqn.algorithms.fit import check_fit
from asyncqn.algorithms.stability import warnings_before
from asyncqn.checks.costs import Costs, measured_costs, stated_costs
from asyncqn.checks.first_calls import check_first_calls, mistake_at_the_end
from asyncqn.core.outcome import Outcome
from asyncqn.core.problem import check_members
from asyncqn.core.request import Request
from asyncqn.core.stopping import (
    MaxPasses,
    MaxTime,
    Patience,
    Stopping,
    Target,
    Tolerance,
)
from asyncqn.errors import BadInput, StabilityWarning, require
from asyncqn.parameters import (
    CheckpointEvery,
    Commits,
    Evaluate,
    Folder,
    Keep,
    RealArray,
    Refused,
    Seed,
    checked,
    parameter,
    real_array,
)
from asyncqn.parameters.kinds import precision
from asyncqn.runs.checkpoint import Checkpoints
from asyncqn.runs.manifest import needs_imports
from asyncqn.runs.run import Run
from asyncqn.types import (
    Algorithm,
    Array,
    Callback,
    Engine,
    Problem,
    Progress,
    StoppingRule,
    extra,
)

_log = logging.getLogger("asyncqn.minimize")
# The second word of the key, which separates the default start from other streams of the same seed.
_START = 0x7E7A0

Objective = Annotated[
    Problem, parameter(words="an object with dim, n_data, value and grad")
]
Method = Annotated[
    Algorithm | None,
    parameter(words="an algorithm, such as AsyncSGD(h=1e-3, batch=10), or None"),
]
Where = Annotated[
    Engine | None, parameter(words="an engine, such as Threads(2), or None")
]
Start = RealArray | None


Callbacks = Annotated[
    Callback | Patience | Sequence[Callback | Patience] | None,
    parameter(words="a function, a Patience, a list of these or None"),
]
CheckpointFolder = Folder | None


@checked
def minimize(
    problem: Objective,
    algorithm: Method = None,
    *,
    engine: Where = None,
    theta0: Start = None,
    commits: Commits | None = None,
    seed: Seed = 0,
    tol: Tolerance = TOLERANCE,
    max_passes: MaxPasses = None,
    max_time: MaxTime = None,
    target: Target = None,
    metric: str = "fun",
    callback: Callbacks = None,
    evaluate: Evaluate = None,
    checkpoint: CheckpointFolder = None,
    checkpoint_every: CheckpointEvery = 30.0,
    check: bool = True,
    keep: Keep = None,
    stop: StoppingRule | None = None,
    progress: bool | None = None,
    verbose: bool = False,
    waits: bool | None = None,
) -> Run:
    """Minimise `problem` with `algorithm` on `engine`, until it has converged or made `commits` commits.

    Parameters
    ----------
    problem : Problem
        The function U: a model of asyncqn, `FiniteSum`, `from_torch`, `from_jax`, or your own class.
    algorithm : Algorithm, optional
        Computes the next iterate; by default the one that suits the problem and the workers.
    engine : Engine, optional
        Where the workers run; by default threads of this process, one per processor.
    theta0 : array-like of shape (dim,), optional
        The starting point; by default the problem's own `initial`, else zeros.
    commits : int, optional
        Largest number of commits. A stochastic method makes all of them and needs either this or
        `max_passes`; a method with exact gradients ends when it has converged, or after 10,000 passes with
        the status "stopped".
    seed : int, default 0
        Seed of minibatches, noise, simulated delays and the default start.
    tol : float, default 1e-08
        Tolerance at which a method with exact gradients has converged; None makes it continue to the last
        commit. See Notes.
    max_passes : float, optional
        Largest number of passes over the data; rows of updates that make no commit do not count.
    max_time : float, optional
        Longest duration, on the engine's clock and in its unit.
    target : float, optional
        The run ends when the column `metric` of the metric table is at or below this number.
    metric : str, default "fun"
        Column of the metric table that `target` refers to.
    callback : callable, Patience, or a list of both, optional
        A callable is called with a `Progress` for every row of the metric table, and raises StopIteration
        to end the run. A `Patience` ends the run when a metric no longer improves.
    evaluate : int, optional
        Commits between two evaluations of U at theta; by default about 200 evaluations in all, fewer where
        samples grow. 0 evaluates the start only, and the run reports the last value that an exact method
        computed; rows on a data server are not evaluated by an exact method unless you say so.
    checkpoint : path, optional
        Folder for checkpoints, from which `resume` continues. With it, Ctrl-C finishes the current commit,
        writes a checkpoint and ends the run with the status "interrupted"; SIGTERM ends it with "terminated".
    checkpoint_every : int or float, default 30.0
        Interval between two checkpoints: an int counts commits, a float counts seconds.
    check : bool, default True
        Whether your own problem is tested before the run: its gradient against its values, sums of rows
        against all rows, and equal calls against each other. A run that converges is tested at its end
        again; where U still falls there, its status is "stalled".
    keep : int, optional
        Commits between two iterates that are stored in `Run.keep`; `replay(run, keep=...)` stores them for
        any run.
    stop : callable, optional
        Your own stopping rule, for methods with exact gradients. It is called with a `types.Standing`
        after every commit, before `tol` is tested, and returns a sentence to end the run as converged or
        None to continue; it may raise StopIteration. Saved runs do not hold it, so `resume` continues
        without it.
    progress : bool, optional
        Whether to show a progress bar on stderr; by default on a terminal or in a notebook, after half a
        second of work.
    verbose : bool, default False
        Whether to write plain lines to stderr, at most one per second.
    waits : bool, optional
        Whether the default method may wait for slow workers. By default `TableLBFGS`, which never waits, is
        chosen where the problem has rows enough and no metric of its own; other methods wait at the end of
        every exact pass, while idle workers help the slow ones. False: always `TableLBFGS`. True: never.
        Costs of messages, as the cluster states or a real engine measures them, set its number of parts.

    Returns
    -------
    Run
        The final point, why the run ended, and everything that `replay` needs. On MPI, ranks other than 0
        return None.

    Notes
    -----
    A method with exact gradients has converged when its gradient g is small both against U and against the
    first gradient: with t = max(tol, 100 eps), |g| max(1, |theta|) <= t max(1, |U|), and |g| <= t |g_first|
    unless the remaining decrease is below the rounding error of U.

    The metric table has a row for every evaluation, and one for every other version at which an exact
    method knows U and its gradient, which costs nothing. Versions that were judged on a sample have no row,
    because U is not known there. A problem with its own `metrics` has rows for evaluations only.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, engine=aq.Simulator(aq.Cluster(workers=4)), seed=1)
    >>> run.status, run.fun - problem.optimum < 1e-6
    ('converged', True)
    """
    # A patience is part of the stopping rule, so that it is saved with the run and replayed.
    several = callback if isinstance(callback, Sequence) else [callback]
    callbacks = [each for each in several if callable(each)]
    rules = [each for each in several if isinstance(each, Patience)]
    require(len(rules) < 2, "callback contains two Patience rules: pass only one.")
    patience = rules[0] if rules else None
    stopping = Stopping(tol, max_passes, max_time, target, metric, patience)
    # Before anything reads a member, so that a wrong object gets its own sentence.
    check_members(problem)
    if engine is None:
        # Imported here: a caller with another engine should not load this one.
        from asyncqn.engines.threads import Threads

        engine = Threads(os.cpu_count() or 1)
    compared = False
    if algorithm is None:
        algorithm, compared = choose_algorithm(
            problem, engine, theta0, seed, waits, check
        )
    require(
        waits is not False or not any(stage.waits for stage in algorithm.stages),
        f"waits=False, but {type(algorithm).__name__} waits for slow workers: leave one of the two out.",
    )
    # Stored in the manifest: a resumed run then knows that its number of commits is a bound, not a wish.
    open_ended = commits is None
    exact = extra(algorithm, "standing") is not None
    # The master would have to fetch all rows, and gets U with the gradients.
    silent = evaluate is None and exact and extra(problem, "stand_in") is not None
    evaluate = 0 if silent else evaluate
    commits, evaluate = _length(algorithm, problem, commits, evaluate, stopping)
    check_fit(algorithm, problem, engine.workers)
    for sentence in warnings_before(algorithm, engine.workers):
        warnings.warn(sentence, StabilityWarning, stacklevel=3)
    # After the cheap checks: a user's `initial` may take long.
    start = starting_point(problem, theta0, seed)
    if check and not compared:
        check_first_calls(problem, start)
    # After all checks, because a wrong argument should not leave a folder behind.
    checkpoints = None
    if checkpoint is not None:
        imports = needs_imports(problem, algorithm)
        checkpoints = Checkpoints(checkpoint, checkpoint_every, imports=imports)
    # The bar needs a total; a run that ends by convergence or passes has none.
    total = None if open_ended or max_passes is not None else commits
    with (
        nullcontext() if checkpoints is None else closing(checkpoints),
        showing(callbacks, engine, progress, verbose, total, "minimize") as report,
    ):
        request = Request(
            problem,
            algorithm,
            start,
            commits,
            seed,
            evaluate,
            report,
            stopping,
            checkpoints,
            keep,
            # With evaluate=0 the versions that an exact method knows get no rows either.
            every_version=silent or evaluate is not None,
            open_ended=open_ended,
            stop=stop,
        )
        names = type(algorithm).__name__, type(engine).__name__
        _log.info("%s on %s begins: at most %d commits, seed %d", *names, commits, seed)
        run = engine.minimize(request)
    by_gradient = target is None and stop is None
    if check and by_gradient and run is not None:
        run = _doubted(run, start)
    if run is not None:  # None on an MPI rank that does not hold the run
        _log.info(
            "%s on %s ends, %s: %s U = %.6g", *names, run.status, run.message, run.fun
        )
    return run


def _doubted(run: Run, start: Array) -> Run:
    """Return a run that has converged as stalled, if its gradient there is not that of the values."""
    if run.status is not Outcome.CONVERGED or run.problem is None:
        return run
    mistake = mistake_at_the_end(run.problem, start, run.theta)
    if mistake is None:
        return run
    message = f"no minimum was found, although the gradient is small: {mistake}"
    return replace(run, status=Outcome.STALLED, message=message)


PROHIBITIVE_COST = 1e12
"""Row gradients: messages so dear that no problem has rows enough for them."""


class Choice(NamedTuple):
    """The default algorithm, and whether the problem's functions were compared on the way."""

    algorithm: Algorithm
    compared: bool


def choose_algorithm(
    problem: Problem,
    engine: Engine,
    theta0: RealArray | None = None,
    seed: int = 0,
    waits: bool | None = None,
    check: bool = True,
) -> Choice:
    """Choose the default algorithm for a problem on an engine, whose messages and commits have their costs.

    On a real engine the costs are measured, unless the choice does not depend on them.  With `check`, the
    problem's functions are compared before they are timed, so that a mistake in them gets its sentence.
    """

    def choose(costs: Costs) -> Algorithm:
        return default_algorithm(
            problem,
            engine.workers,
            waits=waits,
            message=costs.message,
            master=costs.master,
        )

    free = choose(Costs(0.0, 0.0))
    if free == choose(Costs(PROHIBITIVE_COST, PROHIBITIVE_COST)):
        return Choice(free, compared=False)
    costs = stated_costs(engine)
    if costs is not None:
        return Choice(choose(costs), compared=False)
    start = starting_point(problem, theta0, seed)
    if check:
        check_first_calls(problem, start)
    costs = measured_costs(problem, start, engine)
    return Choice(choose(costs), compared=check)


def _length(
    algorithm: Algorithm,
    problem: Problem,
    commits: int | None,
    evaluate: int | None,
    stopping: Stopping,
) -> tuple[int, int | None]:
    """Return the largest number of commits, and the commits between two evaluations (None: no more)."""
    exact = extra(algorithm, "standing") is not None
    passes = stopping.max_passes
    require(
        passes is None or extra(algorithm, "rows_of") is not None,
        f"max_passes needs an algorithm with rows_of, unlike {type(algorithm).__name__}: use commits.",
    )
    require(
        commits is not None
        or passes is not None
        or (exact and stopping.tol is not None),
        "commits is missing: pass the number of commits, or max_passes.",
    )
    require(
        stopping.patience is None or evaluate != 0,
        "Patience needs evaluations, and evaluate = 0 turns them off: leave evaluate out.",
    )
    if commits is None and not exact and passes is not None:
        commits = commits_of(algorithm, problem.n_data, passes)
    # An exact method ends by itself; the bound only keeps it from running for ever.
    most = most_commits(algorithm) if commits is None else commits
    between = default_evaluate(algorithm, commits) if evaluate is None else evaluate
    return most, between or None


def commits_of(algorithm: Algorithm, n_data: int, passes: float) -> int:
    """Return the most commits that a stochastic method needs for a number of passes over the data.

    A commit has at least one update, so the smallest update gives the bound.
    """
    rows_of = extra(algorithm, "rows_of")
    fewest = n_data
    version = 0  # the first of a stage
    for stage in algorithm.stages:
        # Stages differ in the rows of an update; -1 stands for rows that workers draw themselves.
        parts = [-1] if stage.parts is None else range(stage.parts)
        part = np.array(parts, np.int32)
        rows = rows_of(n_data, np.full_like(part, version), part)
        fewest = min(fewest, int(np.min(rows)))
        version += stage.commits or 0
    return max(1, math.ceil(passes * n_data / max(fewest, 1)))


@contextmanager
def showing(
    callbacks: Sequence[Callback],
    engine: Engine,
    progress: bool | None,
    verbose: bool,
    total: int | None,
    label: str,
) -> Iterator[Callback | None]:
    """Yield a callback that calls all of these and shows the progress of the run.

    It is None if there is nothing to call, so that engines can skip the work.
    """
    from asyncqn.engines.simulator import Simulator
    from asyncqn.view.progress import as_callback, logged, shown

    simulated = isinstance(engine, Simulator)
    with (
        shown(progress, verbose, total, label) as advance,
        logged(_log, total, label) as log,
    ):
        displays = [
            as_callback(each, simulated=simulated)
            for each in (advance, log)
            if each is not None
        ]
        # Displays come first, so that a callback that ends the run has its last row on the screen.
        calls = [*displays, *callbacks]

        def call_all(progress: Progress) -> None:
            for each in calls:
                each(progress)

        yield call_all if calls else None


@checked
def starting_point(problem: Objective, theta0: Start = None, seed: Seed = 0) -> Array:
    """Return the start of a run, theta0 or the problem's own, as a new vector of the problem's dtype.

    Parameters
    ----------
    problem : Problem
        The problem to minimise.
    theta0 : array-like of shape (dim,), optional
        The start; by default what `minimize` takes: the problem's `initial`, else zeros.
    seed : int, default 0
        Seed of the default start.

    Returns
    -------
    ndarray of shape (dim,)
        The start in the problem's dtype; `BadInput` where it cannot be used.

    Examples
    --------
    >>> import asyncqn as aq
    >>> aq.starting_point(aq.LinearGaussian.random(dim=3, n_data=10, seed=0)).shape
    (3,)
    """
    check_members(problem)
    own_dtype = extra(problem, "dtype")
    try:
        dtype = precision("float64" if own_dtype is None else own_dtype)
    except Refused:
        raise BadInput(
            f"theta must be float64 or float32, but the problem has dtype = {own_dtype!r}."
        ) from None
    initial = extra(problem, "initial")
    if theta0 is None and initial is not None:
        theta0 = initial(np.random.Generator(np.random.Philox(key=[seed, _START])))
    elif theta0 is None:
        theta0 = np.zeros(problem.dim, dtype)
    try:
        values = real_array(theta0)  # a user's `initial` may return anything
    except Refused as refusal:
        raise BadInput(
            f"theta0 must be an array of real numbers, not {refusal}."
        ) from None
    # NumPy would convert True to 1.0 without a word.
    require(
        values.dtype.kind != "b",
        "theta0 must be an array of real numbers, not of booleans.",
    )
    # A problem without a dtype follows the precision of its start.
    # Integers are not such a wish: [0, 0, 0] starts a float64 run.
    if own_dtype is None and values.dtype in (np.float32, np.float64):
        dtype = values.dtype
    # Always a copy: the run would otherwise change the caller's array.
    start = np.array(values, dtype=dtype, order="C")
    require(
        start.shape == (problem.dim,),
        f"theta0 must be a vector of dim = {problem.dim} numbers, not of shape {values.shape}.",
    )
    require(
        bool(np.isfinite(start).all()),
        "theta0 contains NaN or infinity: pass finite numbers.",
    )
    return start
