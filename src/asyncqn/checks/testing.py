"""Checks that users run on their own classes: `check_problem` and `check_algorithm`.

Every engine, and the replay, relies on the rules checked here.  A rule that is broken raises
`BadInput` with one sentence that names it.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncqn.algorithms.fit import check_fit
from asyncqn.algorithms.paper.async_sgd import AsyncSGD
from asyncqn.checks.first_calls import compare_functions
from asyncqn.checks.trial import PASSED, NotTried, gradient_elsewhere, try_engine
from asyncqn.cluster.cluster import Cluster
from asyncqn.core.problem import check_members
from asyncqn.core.stages import check_stages
from asyncqn.core.streams import Stream
from asyncqn.engines.named import ENGINES
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import BadInput, ReplayMismatch, require
from asyncqn.minimize import minimize, starting_point
from asyncqn.runs.replay import first_difference, replay
from asyncqn.types import Algorithm, Array, Commit, Problem, Rows, Task, extra

_MAX_BLOCKS = 200
"""Largest number of samples into which the rows are cut; their mean gradient must be that of all rows."""

IN_THIS_PROCESS = ("simulator", "threads")
"""Engines that start no other process, and take no time to start."""


def check_problem(
    problem: Problem,
    *,
    theta: Array | None = None,
    seed: int = 0,
    travel: bool = True,
    engines: Sequence[str] = tuple(ENGINES),
) -> dict[str, str]:
    """Check that a problem keeps the rules of `asyncqn.Problem`; raise `BadInput` where it breaks one.

    Its functions must agree with each other (`checks.first_calls`, which `minimize` calls as well).  Its
    gradient must be unbiased over all subsamples, and its extras must agree with it.  A short run of gradient
    steps on each engine must replay bit for bit.

    Parameters
    ----------
    problem : Problem
        The problem to check.
    theta : array of dim numbers, optional
        The point to check at; by default a random point near the start.
    seed : int, default 0
        Seed of that point and of the runs.
    travel : bool, default True
        Whether the problem must give the same bits in another process.
    engines : sequence of str
        Names of the engines to run on; by default all.

    Returns
    -------
    dict from str to str
        For each engine "passed", or "not tried: " and the reason, such as a package that is not installed.
    """
    check_members(problem)
    name = type(problem).__name__
    rng = np.random.default_rng(seed)
    if theta is None:
        theta = starting_point(problem, None, seed)
        theta += 0.1 * rng.standard_normal(theta.size).astype(theta.dtype)
    theta = starting_point(problem, theta, seed)
    everything = np.arange(problem.n_data)
    compare_functions(problem, theta, strict=True)
    g = _gradient(problem, theta, everything)
    _check_subsamples(name, problem, theta, g, everything)
    _check_extras(name, problem, theta, seed)
    if travel:
        _check_travel(name, problem, theta, everything[:7])
    # Steps so short that no problem diverges: the run is about bits, not about descent.
    steps = AsyncSGD(
        h=1e-6 / (1.0 + float(np.abs(g).max())), batch=min(4, int(problem.n_data))
    )
    return {
        kind: try_engine(kind, steps, problem, 2, 20, seed, name) for kind in engines
    }


def _gradient(problem: Problem, theta: Array, rows: Rows) -> Array:
    out = np.full_like(theta, np.nan)
    problem.grad(theta, rows, out)
    return out


def _check_subsamples(
    name: str, problem: Problem, theta: Array, g: Array, everything: Rows
) -> None:
    """Check that the gradients of blocks, each weighted by its share of the rows, add up to the whole one."""
    n = everything.size
    # Rounding of a sum over the rows, with room for users' own algorithms of summation.
    tolerance = 1e4 * float(np.finfo(theta.dtype).eps)
    mean = np.zeros(theta.size)
    size = 0.0
    for block in np.array_split(everything, min(n, _MAX_BLOCKS)):
        part = _gradient(problem, theta, block).astype(np.float64)
        mean += block.size / n * part
        size += block.size / n * float(np.linalg.norm(part))
    off = float(np.linalg.norm(mean - g))
    require(
        off <= tolerance * size,
        f"{name}.grad is not unbiased: averaged over all subsamples it is off by {off:.3g}; scale the "
        "data's share by n_data / len(rows) and count the prior once.",
    )
    once, twice = (
        _gradient(problem, theta, np.array(rows)).astype(np.float64)
        for rows in ([0], [0, 0])
    )
    require(
        float(np.linalg.norm(twice - once)) <= tolerance * float(np.linalg.norm(once)),
        f"{name}.grad does not count a row that occurs twice as two.",
    )


def _check_extras(name: str, problem: Problem, theta: Array, seed: int) -> None:
    initial = extra(problem, "initial")
    if initial is not None:
        # Two generators in the same state: equal draws show that no other randomness is used.
        starts = [np.asarray(initial(np.random.default_rng(seed))) for _ in range(2)]
        require(
            starts[0].shape == theta.shape,
            f"{name}.initial must return a vector of dim numbers.",
        )
        require(
            _bits(starts[0]) == _bits(starts[1]),
            f"{name}.initial must draw from its argument alone.",
        )
    curvature = extra(problem, "curvature_diagonal")
    if curvature is not None:
        diagonal = np.asarray(curvature(theta))
        require(
            diagonal.shape == theta.shape
            and bool((diagonal > 0).all() and np.isfinite(diagonal).all()),
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
        require(
            all(
                isinstance(key, str) and np.ndim(value) == 0
                for key, value in metrics(theta).items()
            ),
            f"{name}.metrics must return a dict from names to single numbers.",
        )


def _check_travel(name: str, problem: Problem, theta: Array, rows: Rows) -> None:
    try:
        # Tried here first, for a message that names the class and not a process.
        pickle.dumps(problem)
    except Exception as error:  # whatever the class's own __reduce__ may raise
        raise BadInput(
            f"{name} cannot be pickled, so it cannot travel to a worker ({error})."
        ) from None
    try:
        there = gradient_elsewhere(problem, theta, rows)
    except NotTried:
        return  # the engines say why
    except BadInput as error:
        raise BadInput(
            f"{name} does not work in another process ({str(error).rstrip('.')})."
        ) from None
    require(
        there == _gradient(problem, theta, rows).tobytes(),
        f"{name}.grad gives other bits in another process.",
    )


def check_algorithm(
    algorithm: Algorithm,
    problem: Problem,
    *,
    workers: int = 3,
    commits: int = 60,
    seed: int = 0,
    engines: Sequence[str] = tuple(ENGINES),
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
    engines : sequence of str
        Names of the engines to run on; by default all.

    Returns
    -------
    dict from str to str
        For each engine "passed", or "not tried: " and the reason, such as a package that is not installed.
    """
    name = type(algorithm).__name__
    called = (
        "check",
        "init",
        "init_worker",
        "step",
        "learn",
        "forget",
        "apply",
        "counters",
    )
    for attribute in ("stages", *called):
        require(
            hasattr(algorithm, attribute),
            f"{name} is not an algorithm: it has no '{attribute}'.",
        )
    check_stages(algorithm.stages, name)
    try:
        copied = pickle.loads(pickle.dumps(algorithm))  # noqa: S301 - made in this line
    except Exception as error:
        raise BadInput(
            f"{name} cannot be pickled, so it cannot travel to a worker ({error})."
        ) from None
    check_fit(algorithm, problem)
    _check_functions(
        name, algorithm, problem, starting_point(problem, None, seed), seed
    )
    most = extra(algorithm, "max_workers") or workers
    engine = Simulator(Cluster(min(workers, most), 1.0, 0.5, message=0.1, master=0.01))
    runs = [
        minimize(problem, a, engine=engine, commits=commits, seed=seed, progress=False)
        for a in (algorithm, copied)
    ]
    require(
        first_difference(*runs) is None,
        f"{name} keeps a state of its own: two equal runs differ; all state belongs in the iterate and the "
        "workers' states.",
    )
    try:
        replay(runs[0], problem, algorithm)
    except ReplayMismatch as error:
        raise BadInput(f"{name} does not replay: {error}") from None
    others = {
        kind: try_engine(
            kind, algorithm, problem, min(workers, most), commits, seed, name
        )
        for kind in engines
        if kind != "simulator"
    }
    return {"simulator": PASSED, **others}


def _check_functions(
    name: str, algorithm: Algorithm, problem: Problem, theta0: Array, seed: int
) -> None:
    def same(call: Callable[[], Any], kept: Any, sentence: str) -> Any:
        # Compared as bytes: NaN equals itself, and 0.0 differs from -0.0.
        before = _bits(kept)
        result = call()
        require(_bits(kept) == before, sentence)
        return result

    iterate = same(
        lambda: algorithm.init(theta0), theta0, f"{name}.init writes to theta0."
    )
    theta = getattr(iterate, "theta", None)
    require(
        isinstance(theta, np.ndarray),
        f"{name}.init must return a state with a field 'theta'.",
    )
    require(
        not np.shares_memory(iterate.theta, theta0),
        f"{name}.init must copy theta0, not keep it.",
    )
    require(
        _bits(iterate.theta) == _bits(theta0),
        f"{name}.init must begin at theta0, in its dtype.",
    )
    first, second, other = (algorithm.init_worker(problem, theta0) for _ in range(3))
    part = algorithm.stages[0].first_part
    task = Task(0, 0, Stream(seed, 0, 0), part)
    update = same(
        lambda: algorithm.step(iterate, first, problem, task),
        iterate,
        f"{name}.step writes to its view.",
    )
    require(
        _bits(algorithm.step(iterate, second, problem, task)) == _bits(update),
        f"{name}.step is not a function of its arguments: equal ones gave another update.",
    )
    elsewhere = Task(1, 0, Stream(seed, 1, 0), part)
    same(
        lambda: algorithm.step(iterate, other, problem, elsewhere),
        update,
        f"{name}.step overwrites the update of another worker: buffers belong in the worker's state.",
    )
    first = same(
        lambda: algorithm.learn(iterate, first, problem, task),
        (iterate, update),
        f"{name}.learn writes to its view or to the update that was sent.",
    )
    # `apply` may write in place, so the second call needs its own copies.
    twin, message = copy.deepcopy((iterate, update))
    commit = Commit(1, [0], problem.value, extra(problem, "inverse_metric_from"))
    after = algorithm.apply(iterate, [update], commit)
    require(
        after.theta.dtype == theta0.dtype, f"{name}.apply changes the dtype of theta."
    )
    require(
        _bits(algorithm.apply(twin, [message], commit).theta) == _bits(after.theta),
        f"{name}.apply is not a function of its arguments: equal ones gave another theta.",
    )
    state = algorithm.forget(first)
    again = algorithm.step(after, state, problem, Task(0, 1, Stream(seed, 0, 1), part))
    require(
        type(again) is type(update),
        f"{name}.step must work after {name}.forget as before it.",
    )
    totals = algorithm.counters(after, [state])
    require(
        all(isinstance(total, (int, np.integer)) for total in totals.values()),
        f"{name}.counters must return a dict from names to integers.",
    )


def _bits(state: Any) -> Any:
    """Return a state with its arrays as bytes, for comparison."""
    if isinstance(state, np.ndarray):
        return state.dtype.str, state.shape, state.tobytes()
    if isinstance(state, (tuple, list)):
        return tuple(_bits(part) for part in state)
    return state
