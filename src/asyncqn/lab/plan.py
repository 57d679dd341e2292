"""plan: short real runs, clusters fitted to them, and simulated runs that predict how many workers pay.

Read `plan` first.  It records each algorithm once, fits a cluster, and simulates every number of workers on
it; `_check_optimum` and `_check_reach` refuse targets that cannot be reached before many simulations are
made.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from asyncqn.algorithms.defaults import default_algorithm
from asyncqn.algorithms.exact.choice import exact_algorithm
from asyncqn.algorithms.fit import check_fit
from asyncqn.algorithms.table.choice import table_algorithm
from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.fit import with_workers
from asyncqn.engines.simulator import Simulator
from asyncqn.engines.threads import Threads
from asyncqn.errors import BadInput, require
from asyncqn.lab.blame import student
from asyncqn.minimize import minimize
from asyncqn.parameters import Seed, Workers, checked, parameter
from asyncqn.runs.run import Run
from asyncqn.types import Algorithm, Engine, Problem, extra

Make = Callable[[Problem, int], Algorithm]
"""Returns the algorithm for a problem and a number of workers."""

DEFAULT_COMMIT_LIMIT = 200_000
"""Commits after which a stochastic method has missed the target, by default; about a minute of simulation."""
MIN_RECORDED_COMMITS = 20
"""Smallest number of commits of a recorded run; fewer would say little about the times."""
MAX_TIME_RATIO = 0.9
"""More workers pay if they reduce the time below this share of what fewer need.  Our own
choice."""


CANDIDATES: dict[str, Make] = {
    "default": default_algorithm,
    "exact-lbfgs": exact_algorithm,
    "table-lbfgs": table_algorithm,
}
"""The methods without a step size, which can be planned for any problem."""


class Prediction(NamedTuple):
    """The predicted time of an algorithm with a number of workers to the target, over the seeds."""

    algorithm: str
    workers: int
    time: float
    """The mean in seconds; infinite if a seed did not reach the target."""
    low: float
    high: float
    """Ends of the 95 % interval of the expected time, assuming that the cluster is right."""


class Checked(NamedTuple):
    """A prediction and the measured time."""

    algorithm: str
    workers: int
    predicted: float
    real: float
    """Seconds to the target on the run's clock; infinite if it was not reached."""

    @property
    def ratio(self) -> float:
        """Predicted time over measured time."""
        return self.predicted / self.real if self.real > 0 else math.nan


class Plan(NamedTuple):
    """The result of `plan`."""

    clusters: dict[str, Cluster]
    """The cluster fitted to the recorded run, by algorithm."""
    predictions: tuple[Prediction, ...]
    best: Prediction
    """The prediction with the shortest time."""
    pays: int
    """The largest number of workers that pays with the best algorithm: each step up to it saves at least a
    tenth."""
    checked: Checked | None = None


@checked
def plan(
    problem: Problem,
    *,
    target: Annotated[float, parameter()],
    metric: str = "fun",
    workers: Sequence[Workers] = (
        *(1, 2, 4, 8, 16),
        *(32, 64, 128, 256),
    ),
    algorithms: Mapping[str, Make | Algorithm] | None = None,
    record: Annotated[float, parameter(unit="s", gt=0.0)] = 30.0,
    engine: Callable[[int], Engine] = Threads,
    recorded: Mapping[str, Run] | None = None,
    recorded_workers: Workers | None = None,
    seeds: Annotated[int, parameter(ge=1, le=1_000_000)] = 3,
    seed: Seed = 0,
    commits: Annotated[int | None, parameter(ge=1)] = None,
    check: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """Predict which algorithm and how many workers reach `target` first, from short recorded runs.

    Every algorithm runs for its share of `record` seconds on `engine`. The cluster that is fitted to that
    run (`Cluster.from_run`) is then simulated with each number of workers, from the same seeds for all.

    Parameters
    ----------
    problem : Problem
        The problem to minimise.
    target : float
        Value of the metric at which the time is taken, as in `minimize`.
    metric : str, default "fun"
        Column of the metric table that the target refers to.
    workers : sequence of int, default (1, 2, 4, 8, 16, 32, 64, 128, 256)
        Numbers of workers to plan for.
    algorithms : mapping from str to Algorithm or callable, optional
        Algorithms by name; a callable makes one from (problem, workers). By default the methods without a
        step size.
    record : float, default 30.0
        Seconds for which runs are recorded, all algorithms together.
    engine : callable, default Threads
        Makes the engine of the recorded runs from a number of workers.
    recorded : mapping from str to Run, optional
        Runs made before, such as those of MPI or Ray, by the algorithm's name; they replace recording.
    recorded_workers : int, optional
        Workers of the recorded runs; by default the number of processors, and at most the largest of
        `workers`.
    seeds : int, default 3
        Simulations that are averaged for each prediction.
    seed : int, default 0
        Seed of all random numbers; the same seed and schedule give the same bits.
    commits : int, optional
        Commits after which the target counts as missed.
    check : bool, default False
        Whether to run the best prediction for real, with as many workers as were recorded.
    tell : callable, optional
        Called with a sentence about each step.

    Returns
    -------
    Plan
        Predictions with their scatter; `best` is the fastest of them.

    Notes
    -----
    The prediction assumes that each worker has a processor to itself, as fast as the recorded ones.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=400, seed=0)
    >>> target = problem.optimum + 1e-3 * abs(problem.optimum)
    >>> found = aq.plan(problem, target=target, workers=(1, 4), record=0.2, seeds=2, recorded_workers=1)
    >>> sorted({(p.algorithm, p.workers) for p in found.predictions if p.algorithm == "default"})
    [('default', 1), ('default', 4)]
    >>> found.best.time < 60.0
    True
    """
    _check(seeds, workers, record)
    say = tell or (lambda sentence: None)
    # More workers than processors would slow each other down, which the fitted cluster could not know.
    many = recorded_workers or min(os.cpu_count() or 1, max(workers))
    if recorded and algorithms is None:
        algorithms = {name: planned(name, run) for name, run in recorded.items()}
    # Our candidates that do not fit the problem are dropped; a user's own raise an error.
    makers = _makers(problem, algorithms or CANDIDATES, many)
    end: dict[str, Any] = {"target": target, "metric": metric}
    # Cheap checks before expensive ones: recording takes `record` seconds, and simulations take minutes.
    _check_optimum(problem, target, metric)
    clusters: dict[str, Cluster] = {}
    lowest = math.inf
    for name, make in makers.items():
        run = (recorded or {}).get(name)
        if run is None:
            say(f"recording {name} on {counted(many)}")
            run = _recorded(
                problem, make(problem, many), engine(many), seed, record / len(makers)
            )
        # One cluster per algorithm: their computations have different numbers of rows.
        clusters[name] = Cluster.from_run(run)
        lowest = min(lowest, _lowest(run, name, metric))
    # A recorded run that has reached the target proves that it can be reached.
    if lowest > target:
        say("checking that the target can be reached")
        _check_reach(
            problem, makers, clusters, many, lowest, seed=seed, commits=commits, **end
        )
    predictions = []
    for name, make in makers.items():
        for count in sorted({*workers, many} if check else set(workers)):
            say(f"simulating {name} on {counted(count)}")
            # Methods such as Block L-BFGS depend on the number of workers, so they are made anew.
            algorithm, cluster = (
                make(problem, count),
                with_workers(clusters[name], count),
            )
            different = range(seed, seed + seeds)
            found = _predicted(
                problem, name, algorithm, cluster, different, commits=commits, **end
            )
            predictions.append(found)
    # With `check`, the recorded number of workers was simulated as well, but was perhaps not asked for.
    asked = [p for p in predictions if p.workers in workers]
    best = min(asked, key=lambda p: (p.time, p.workers))
    require(best.time < math.inf, _unreached(target, metric, lowest))
    checked = None
    if check:
        say("checking the best for real")
        # The check runs on the machine that was recorded, so it needs the same number of workers.
        mine = min((p for p in predictions if p.workers == many), key=lambda p: p.time)
        algorithm = makers[mine.algorithm](problem, many)
        # A seed that no simulation used, so the check is not on data that the prediction has seen.
        real = _time_to(
            problem, algorithm, engine(many), seed=seed + seeds, commits=commits, **end
        )
        checked = Checked(mine.algorithm, many, mine.time, real)
    return Plan(clusters, tuple(asked), best, _pays(asked, best.algorithm), checked)


def _check(seeds: int, workers: Sequence[int], record: float) -> None:
    require(
        seeds >= 2,
        f"seeds must be at least 2, not {seeds!r}: intervals come from their scatter.",
    )
    sound = len(workers) > 0 and min(workers) >= 1
    require(sound, f"workers must be numbers of at least 1, not {workers!r}.")
    require(
        0.0 < record < math.inf,
        f"record must be a positive number of seconds, not {record!r}.",
    )


def _check_optimum(problem: Problem, target: float, metric: str) -> None:
    """Raise `BadInput`, before anything is recorded, for a target below the known minimum."""
    optimum = extra(problem, "optimum")
    # For other metrics nothing is known about their minimum.
    # `error` is the distance of U from the optimum, relative to it (`core.master`).
    least = {"fun": optimum, "error": 0.0}.get(metric) if optimum is not None else None
    require(
        least is None or target >= least,
        f"the target {target:g} of {metric} is below its minimum, {least}: give one that can be reached.",
    )


def _check_reach(
    problem: Problem,
    makers: Mapping[str, Make],
    clusters: Mapping[str, Cluster],
    workers: int,
    lowest: float,
    *,
    target: float,
    metric: str,
    **options: Any,
) -> None:
    """Raise `BadInput` if no algorithm reaches the target in one simulated run on the recorded workers."""
    for name, make in makers.items():
        algorithm, engine = (
            make(problem, workers),
            Simulator(with_workers(clusters[name], workers)),
        )
        run = _run_to(
            problem, algorithm, engine, target=target, metric=metric, **options
        )
        lowest = min(lowest, _lowest(run, name, metric))
        if lowest <= target:
            return
    raise BadInput(_unreached(target, metric, lowest))


def _unreached(target: float, metric: str, lowest: float) -> str:
    return (
        f"no algorithm reached the target {target:g} of {metric}: give one that can be reached (the lowest "
        f"value seen is {lowest:.6g})."
    )


def _lowest(run: Run, name: str, metric: str) -> float:
    """Return the lowest value of the metric in a run."""
    columns = ", ".join(run.metrics.columns)
    require(
        metric in run.metrics,
        f"{name} has no column '{metric}' to plan for; it has {columns}.",
    )
    return float(np.nanmin(run.metrics[metric], initial=math.inf))


def counted(workers: int) -> str:
    """Return a phrase such as "3 workers"."""
    return f"{workers} worker{'s' * (workers != 1)}"


def planned(name: str, run: Run) -> Make | Algorithm:
    """Return the candidate of this name, or else the algorithm of the run."""
    made: Make | Algorithm | None = CANDIDATES.get(name, run.algorithm)
    if made is None:
        raise BadInput(
            "the run's algorithm is unknown: pass it to load_run(algorithm=...)."
        )
    return made


def _recorded(
    problem: Problem, algorithm: Algorithm, engine: Engine, seed: int, seconds: float
) -> Run:
    """Return a run of this duration, or of a few commits if they take longer; convergence does not end it.

    Metrics are evaluated as often as in a run to a target.  The clock excludes evaluations, but they fill the
    processor's caches with other rows, which slows the small samples that follow.
    """
    evaluate = _evaluate(algorithm)
    options: dict[str, Any] = {
        "engine": engine,
        "seed": seed,
        "tol": None,
        "evaluate": evaluate,
        "progress": False,
    }
    # `tol=None`: a run that converges early would have too few computations to fit.
    run = minimize(
        problem, algorithm, commits=DEFAULT_COMMIT_LIMIT, max_time=seconds, **options
    )
    return (
        run
        if run.nit >= MIN_RECORDED_COMMITS
        else minimize(problem, algorithm, commits=MIN_RECORDED_COMMITS, **options)
    )


def _makers(
    problem: Problem, given: Mapping[str, Make | Algorithm], workers: int
) -> dict[str, Make]:
    """Return each algorithm as a function of the workers; our own candidates only if they fit the problem."""

    def fixed(algorithm: Any) -> Make:
        return lambda problem, workers: algorithm

    # An algorithm may be callable itself; only algorithms have `stages`.
    makers = {
        n: a if callable(a) and not hasattr(a, "stages") else fixed(a)
        for n, a in given.items()
    }
    for name in list(makers):
        try:
            check_fit(makers[name](problem, workers), problem, workers)
        except BadInput:
            if given is not CANDIDATES:
                raise
            del makers[name]
    return makers


def _evaluate(algorithm: Algorithm) -> int | None:
    """Return the commits between two evaluations: 1 for exact methods, a twentieth of a pass for a table of
    many parts, and the default of `minimize` for stochastic methods."""
    if extra(algorithm, "standing") is None:
        return None
    first = algorithm.stages[0]
    return 1 if first.waits else max(1, (first.blocks or 1) // 20)


def _time_to(
    problem: Problem,
    algorithm: Algorithm,
    engine: Engine,
    *,
    commits: int | None,
    **options: Any,
) -> float:
    """Return the time at which a run reaches its target, or infinity if it ends before."""
    run = _run_to(problem, algorithm, engine, commits=commits, **options)
    return (
        run.time
        if run.metrics[options["metric"]][-1] <= options["target"]
        else math.inf
    )


def _run_to(
    problem: Problem,
    algorithm: Algorithm,
    engine: Engine,
    *,
    commits: int | None,
    **options: Any,
) -> Run:
    """Run to a target; a stochastic method misses it after `DEFAULT_COMMIT_LIMIT` commits."""
    if commits is None and extra(algorithm, "standing") is None:
        commits = DEFAULT_COMMIT_LIMIT
    evaluate = _evaluate(algorithm)
    # An exact method without a limit ends by convergence.
    options |= {"commits": commits, "evaluate": evaluate, "progress": False}
    return minimize(problem, algorithm, engine=engine, **options)


def _predicted(
    problem: Problem,
    name: str,
    algorithm: Algorithm,
    cluster: Cluster,
    seeds: range,
    **options: Any,
) -> Prediction:
    engine, times = Simulator(cluster), []
    for seed in seeds:
        times.append(
            _time_to(problem, algorithm, engine, seed=seed, check=False, **options)
        )
        if times[-1] == math.inf:  # the mean is infinite whatever the other seeds give
            return Prediction(name, cluster.workers, math.inf, math.inf, math.inf)
    mean = float(np.mean(times))
    # The interval covers the scatter over seeds, not an error of the fitted cluster.
    wide = (
        student(len(times) - 1) * float(np.std(times, ddof=1)) / math.sqrt(len(times))
    )
    return Prediction(name, cluster.workers, mean, max(0.0, mean - wide), mean + wide)


def _pays(predictions: Sequence[Prediction], algorithm: str) -> int:
    """Return the largest number of workers up to which each step of the list saves at least a tenth."""
    mine = sorted(
        (p for p in predictions if p.algorithm == algorithm), key=lambda p: p.workers
    )
    most, time = mine[0].workers, mine[0].time
    for prediction in mine[1:]:
        if not prediction.time <= MAX_TIME_RATIO * time:
            break
        most, time = prediction.workers, prediction.time
    return most
