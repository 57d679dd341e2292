"""Checks that users run on their own classes: `check_problem` and `check_algorithm`.

Every engine, and the replay, relies on the rules checked here.  A rule that is broken raises
`BadInput` with one sentence that names it.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncqn.algorithms.fit import check_fit
from asyncqn.algorithms.paper.async_sgd import AsyncSGD
from asyncqn.checks.first_calls import compare_functions
from asyncqn.cluster.cluster import Cluster
from asyncqn.core.problem import check_members
from asyncqn.core.stages import check_stages
from asyncqn.core.streams import Stream
from asyncqn.core.worker import WorkerSteps
from asyncqn.engines.named import ENGINES, engine_class
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import AsyncqnError, BadInput, MissingExtra, ReplayMismatch, require
from asyncqn.minimize import minimize, starting_point
from asyncqn.runs.replay import first_difference, replay
from asyncqn.types import Algorithm, Array, Commit, Problem, Task, extra

PASSED = "passed"


def check_problem(
    problem: Problem,
    *,
    theta: Array | None = None,
    seed: int = 0,
    travel: bool = True,
    engines: Sequence[str] | None = None,
) -> dict[str, str]:
    """Check that a problem keeps the rules of `asyncqn.Problem`; raise `BadInput` where it breaks one.

    Its functions must agree with each other, as `minimize` tests as well, and its extras with them. A short
    run of gradient steps on each engine must replay bit for bit.

    Parameters
    ----------
    problem : Problem
        The problem to check.
    theta : array of dim numbers, optional
        The point to check at; by default a random point near the start.
    seed : int, default 0
        Seed of that point and of the runs.
    travel : bool, default True
        Whether the problem must be picklable and give the same bits after the journey.
    engines : sequence of str, optional
        Names of the engines to run on; None for all.

    Returns
    -------
    dict from str to str
        For each engine "passed", or "not tried: " and the reason, such as a package that is not installed.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=5, n_data=50, seed=0)
    >>> aq.check_problem(problem, engines=["simulator", "threads"])
    {'simulator': 'passed', 'threads': 'passed'}
    """
    check_members(problem)
    name = type(problem).__name__
    if theta is None:
        noise = np.random.default_rng(seed).standard_normal(int(problem.dim))
        theta = starting_point(problem, None, seed)
        theta += 0.1 * noise.astype(theta.dtype)
    theta = starting_point(problem, theta, seed)
    compare_functions(problem, theta, strict=True)
    _check_extras(name, problem, theta, seed)
    g = _gradient(problem, theta)
    if travel:
        require(
            _bits(_gradient(_travelled(problem), theta)) == _bits(g),
            f"{name}.grad gives other bits after the problem was pickled.",
        )
    # Steps so short that no problem diverges: the run is about bits, not about descent.
    h = 1e-6 / (1.0 + float(np.abs(g).max()))
    steps = AsyncSGD(h=h, batch=min(4, int(problem.n_data)))
    names = ENGINES if engines is None else engines
    return {kind: _trial(name, kind, steps, problem, 2, 20, seed) for kind in names}


def check_algorithm(
    algorithm: Algorithm,
    problem: Problem,
    *,
    workers: int = 3,
    commits: int = 60,
    seed: int = 0,
    engines: Sequence[str] | None = None,
) -> dict[str, str]:
    """Check that an algorithm keeps the rules of `asyncqn.Algorithm`; raise `BadInput` where it breaks one.

    `step`, `learn` and `apply` must depend on their arguments alone, write only to what they own, and
    preserve the dtype.  The algorithm must survive pickle.  A simulated run must equal a second one and its
    replay, and a run on each engine must equal its replay.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm to check.
    problem : Problem
        The problem on which it runs.
    workers : int, default 3
        Number of workers, or `max_workers` of the algorithm if that is fewer.
    commits : int, default 60
        Commits of each run.
    seed : int, default 0
        Seed of all runs.
    engines : sequence of str, optional
        Names of the engines to run on; None for all.

    Returns
    -------
    dict from str to str
        For each engine "passed", or "not tried: " and the reason, such as a package that is not installed.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=5, n_data=50, seed=0)
    >>> aq.check_algorithm(aq.AsyncSGD(h=1e-4, batch=5), problem, engines=["simulator"])
    {'simulator': 'passed'}
    """
    name = type(algorithm).__name__
    for attribute in ("stages", "init", "init_worker", "step", "apply"):
        require(
            hasattr(algorithm, attribute),
            f"{name} is not an algorithm: it has no '{attribute}'.",
        )
    check_stages(algorithm.stages, name)
    twin = _travelled(algorithm)
    check_fit(algorithm, problem)
    _check_functions(name, algorithm, problem, starting_point(problem, None, seed))
    count = min(workers, extra(algorithm, "max_workers") or workers)
    engine = Simulator(Cluster(count, 1.0, 0.5, message=0.1, master=0.01))
    options: dict[str, Any] = {"commits": commits, "seed": seed, "progress": False}
    first, second = (
        minimize(problem, each, engine=engine, **options) for each in (algorithm, twin)
    )
    require(
        first_difference(first, second) is None,
        f"{name} keeps a state of its own: two equal runs differ; all state belongs in the iterate and the "
        "workers' states.",
    )
    names = ENGINES if engines is None else engines
    return {
        kind: _trial(name, kind, algorithm, problem, count, commits, seed)
        for kind in dict.fromkeys(("simulator", *names))
    }


def _trial(
    name: str,
    kind: str,
    algorithm: Algorithm,
    problem: Problem,
    workers: int,
    commits: int,
    seed: int,
) -> str:
    """Run on an engine and replay; return what became of it, and raise `BadInput` that blames `name`."""
    cls: Any = engine_class(kind)
    try:
        if kind == "mpi":  # it has the ranks with which the program was started
            engine = cls()
            require(engine.workers > 0, "there is no rank beside this one.")
        else:
            engine = cls(Cluster(workers) if kind == "simulator" else workers)
    except BadInput as reason:
        return f"not tried: {reason}"
    try:
        run: Any = minimize(
            problem,
            algorithm,
            engine=engine,
            commits=commits,
            seed=seed,
            check=False,
            progress=False,
        )
        if run is not None:  # None: a rank that only computes
            replay(run, problem, algorithm)
    except MissingExtra as reason:
        return f"not tried: {reason}"
    except ReplayMismatch as error:
        raise BadInput(
            f"{name} does not replay from a run on {kind}: {error}"
        ) from None
    except Exception as error:
        first_line = str(error).splitlines()[0].rstrip(".: ")
        if not isinstance(error, AsyncqnError):
            first_line = f"{type(error).__name__}: {first_line}"
        raise BadInput(f"{name} fails on {kind}: {first_line}.") from error
    return PASSED


def _check_functions(
    name: str, algorithm: Algorithm, problem: Problem, theta0: Array
) -> None:
    """Check each method by itself, on the first step of one worker."""

    def same(call: Callable[[], Any], arguments: Any, sentence: str) -> Any:
        # Compared as bytes: NaN equals itself, and 0.0 differs from -0.0.
        before = _bits(arguments)
        result = call()
        require(_bits(arguments) == before, sentence)
        return result

    iterate = same(
        lambda: algorithm.init(theta0), theta0, f"{name}.init writes to theta0."
    )
    steps = WorkerSteps(algorithm, problem, math.inf)
    theta = getattr(iterate, "theta", None)
    require(
        isinstance(theta, np.ndarray)
        and _bits(theta) == _bits(theta0)
        and not np.shares_memory(theta, theta0),
        f"{name}.init must return a state whose field 'theta' is a copy of theta0, in its dtype.",
    )
    first, second, other = (algorithm.init_worker(problem, theta0) for _ in range(3))
    part = algorithm.stages[0].first_part
    task, elsewhere, later = (
        Task(worker, k, Stream(0, worker, k), part)
        for worker, k in ((0, 0), (1, 0), (0, 1))
    )
    update = same(
        lambda: algorithm.step(iterate, first, problem, task),
        iterate,
        f"{name}.step writes to its view.",
    )
    require(update is not None, f"{name}.step must return its update, not None.")
    require(
        _bits(algorithm.step(iterate, second, problem, task)) == _bits(update),
        f"{name}.step is not a function of its arguments: equal ones gave another update.",
    )
    same(
        lambda: algorithm.step(iterate, other, problem, elsewhere),
        update,
        f"{name}.step overwrites the update of another worker: buffers belong in the worker's state.",
    )
    first = same(
        lambda: steps.learn(iterate, first, task, update),
        (iterate, update),
        f"{name}.learn writes to its view or to the update that was sent.",
    )
    # `apply` may write in place, so the second call needs its own copies.
    twin, message = copy.deepcopy((iterate, update))
    commit = Commit(1, [0], problem.value, extra(problem, "inverse_metric_from"))
    after = algorithm.apply(iterate, [update], commit)
    require(
        isinstance(after, type(iterate)),
        f"{name}.apply must return the new iterate, not {after!r}.",
    )
    require(
        after.theta.dtype == theta0.dtype, f"{name}.apply changes the dtype of theta."
    )
    require(
        _bits(algorithm.apply(twin, [message], commit).theta) == _bits(after.theta),
        f"{name}.apply is not a function of its arguments: equal ones gave another theta.",
    )
    state = steps.learn(iterate, first, task, None)
    require(
        type(algorithm.step(after, state, problem, later)) is type(update),
        f"{name}.step must work after {name}.forget as before it.",
    )
    counters = extra(algorithm, "counters")
    totals = {} if counters is None else counters(after, [state])
    require(
        all(isinstance(total, (int, np.integer)) for total in totals.values()),
        f"{name}.counters must return a dict from names to integers.",
    )


def _check_extras(name: str, problem: Problem, theta: Array, seed: int) -> None:
    initial = extra(problem, "initial")
    if initial is not None:
        # Two generators in the same state: equal draws show that no other randomness is used.
        starts = [np.asarray(initial(np.random.default_rng(seed))) for _ in range(2)]
        require(
            starts[0].shape == theta.shape and _bits(starts[0]) == _bits(starts[1]),
            f"{name}.initial must return dim numbers, and draw from its argument alone.",
        )
    curvature = extra(problem, "curvature_diagonal")
    if curvature is not None:
        diagonal = np.asarray(curvature(theta))
        positive = bool((diagonal > 0).all() and np.isfinite(diagonal).all())
        require(
            diagonal.shape == theta.shape and positive,
            f"{name}.curvature_diagonal must return one positive finite number per coordinate.",
        )
    optimum = extra(problem, "optimum")
    if optimum is not None:
        U = float(problem.value(theta))
        slack = 1e3 * float(np.finfo(theta.dtype).eps) * (1.0 + abs(U))
        require(
            optimum - slack <= U,
            f"{name}.optimum = {optimum:.6g} is above a value it takes, {U:.6g}.",
        )
    metrics = extra(problem, "metrics")
    if metrics is not None:
        values = metrics(theta).items()
        require(
            all(isinstance(key, str) and np.ndim(value) == 0 for key, value in values),
            f"{name}.metrics must return a dict from names to single numbers.",
        )


def _gradient(problem: Problem, theta: Array) -> Array:
    out = np.full_like(theta, np.nan)
    problem.grad(theta, np.arange(problem.n_data), out)
    return out


def _travelled(value: Any) -> Any:
    """Return a user's object as another process would receive it."""
    try:
        return pickle.loads(pickle.dumps(value))  # noqa: S301 - made in this line
    except Exception as error:  # whatever the class's own __reduce__ may raise
        raise BadInput(
            f"{type(value).__name__} cannot be pickled, so it cannot travel to a worker ({error})."
        ) from None


def _bits(state: Any) -> Any:
    """Return a state with its arrays as bytes, for comparison."""
    if isinstance(state, np.ndarray):
        return state.dtype.str, state.shape, state.tobytes()
    if isinstance(state, (tuple, list)):
        return tuple(_bits(part) for part in state)
    return state
