"""plan: short real runs, clusters fitted to them, and simulated runs that predict how many workers pay.

A target that cannot be reached is refused before many simulations are made.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from asyncqn.lab.blame import student_interval
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
"""More workers pay if they reduce the time below this share of what fewer need.  Our own choice."""
WORKERS = tuple(2**k for k in range(9))
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


class Measurement(NamedTuple):
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
    checked: Measurement | None = None


@checked
def plan(
    problem: Problem,
    *,
    target: Annotated[float, parameter()],
    metric: str = "fun",
    workers: Sequence[Workers] = WORKERS,
    algorithms: Mapping[str, Make | Algorithm] | None = None,
    record: Annotated[float, parameter(gt=0.0)] = 30.0,
    engine: Callable[[int], Engine] = Threads,
    recorded: Mapping[str, Run] | None = None,
    recorded_workers: Workers | None = None,
    seeds: Annotated[int, parameter(ge=2, le=1_000_000)] = 3,
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
    >>> plan = aq.plan(problem, target=target, workers=(1, 4), record=0.2, seeds=2, recorded_workers=1)
    >>> sorted({(p.algorithm, p.workers) for p in plan.predictions if p.algorithm == "default"})
    [('default', 1), ('default', 4)]
    >>> plan.best.time < 60.0
    True
    """
    require(len(workers) > 0, "workers is empty: name at least one number of workers.")
    say = tell or (lambda sentence: None)
    # More workers than processors would slow each other down, which the fitted cluster could not know.
    many = recorded_workers or min(os.cpu_count() or 1, max(workers))
    runs = dict(recorded or {})
    if runs and algorithms is None:
        algorithms = {name: _planned(name, run) for name, run in runs.items()}
    # Our candidates that do not fit the problem are dropped; a user's own raise an error.
    makers = _makers(problem, algorithms or CANDIDATES, many)
    goal = _Goal(problem, target, metric, commits)
    # Recording takes `record` seconds, and simulations take minutes.
    goal.check_optimum()
    for name, make in makers.items():
        if name not in runs:
            say(f"recording {name} on {counted(many)}")
            algorithm, seconds = make(problem, many), record / len(makers)
            runs[name] = _recorded(problem, algorithm, engine(many), seed, seconds)
        goal.see(runs[name], name)
    # One cluster per algorithm: their computations have different numbers of rows.
    clusters = {name: Cluster.from_run(runs[name]) for name in makers}
    predictions: list[Prediction] = []
    seeds_here = range(seed, seed + seeds)
    for count in sorted({*workers, many} if check else set(workers)):
        for name, make in makers.items():
            say(f"simulating {name} on {counted(count)}")
            # Methods such as exact L-BFGS depend on the number of workers, so they are made anew.
            algorithm = make(problem, count)
            cluster = with_workers(clusters[name], count)
            predictions.append(goal.predict(name, algorithm, cluster, seeds_here))
        # More workers are staler: a target that the fewest miss is not worth more simulations.
        require(min(p.time for p in predictions) < math.inf, goal.unreached())
    # With `check`, the recorded number of workers was simulated as well, but perhaps not requested.
    requested = [p for p in predictions if p.workers in workers]
    # Of equal times, the fewest workers.
    best = min(requested, key=lambda p: p.time)
    measurement = None
    if check:
        say("checking the best for real")
        # The check runs on the machine that was recorded, so it needs the same number of workers.
        recorded_here = [p for p in predictions if p.workers == many]
        mine = min(recorded_here, key=lambda p: p.time)
        algorithm = makers[mine.algorithm](problem, many)
        # A seed that no simulation used, so the check is not on data that the prediction has seen.
        real = goal.time(algorithm, engine(many), seed + seeds, check=True)
        measurement = Measurement(mine.algorithm, many, mine.time, real)
    pays = _pays(requested, best.algorithm)
    return Plan(clusters, tuple(requested), best, pays, checked=measurement)


@dataclass
class _Goal:
    """A target of one problem, and the runs to it."""

    problem: Problem
    target: float
    metric: str
    commits: int | None
    lowest: float = math.inf
    """The lowest value of the metric in any run so far."""

    def check_optimum(self) -> None:
        """Raise `BadInput`, before anything is recorded, for a target below the known minimum."""
        optimum = extra(self.problem, "optimum")
        # `error` is the distance of U from the optimum, relative to it (`core.master`).  For other metrics
        # nothing is known about their minimum.
        least = {"fun": optimum, "error": 0.0}.get(self.metric)
        require(
            optimum is None or least is None or self.target >= least,
            f"the target {self.target:g} of {self.metric} is below its minimum, {least}: give one that can be "
            "reached.",
        )

    def unreached(self) -> str:
        """Return the sentence about a target that nothing reached."""
        return (
            f"no algorithm reached the target {self.target:g} of {self.metric}: give one that can be reached "
            f"(the lowest value seen is {self.lowest:.6g})."
        )

    def see(self, run: Run, name: str) -> None:
        """Note the lowest value of the metric in a run."""
        columns = ", ".join(run.metrics.columns)
        require(
            self.metric in run.metrics,
            f"{name} has no column '{self.metric}' to plan for; it has {columns}.",
        )
        values = run.metrics[self.metric]
        self.lowest = float(np.nanmin(values, initial=self.lowest))

    def time(
        self, algorithm: Algorithm, engine: Engine, seed: int, check: bool = False
    ) -> float:
        """Return the time at which a run reaches the target, or infinity if it ends before."""
        commits = self.commits
        # An exact method without a limit ends by convergence.
        if commits is None and extra(algorithm, "standing") is None:
            commits = DEFAULT_COMMIT_LIMIT
        run = minimize(
            self.problem,
            algorithm,
            engine=engine,
            seed=seed,
            target=self.target,
            metric=self.metric,
            commits=commits,
            evaluate=_evaluate(algorithm),
            check=check,
            progress=False,
        )
        self.see(run, type(algorithm).__name__)
        last = run.metrics[self.metric][-1]
        return run.time if last <= self.target else math.inf

    def predict(
        self, name: str, algorithm: Algorithm, cluster: Cluster, seeds: range
    ) -> Prediction:
        """Return the mean time over the seeds, with its interval."""
        times: list[float] = []
        for seed in seeds:
            time = self.time(algorithm, Simulator(cluster), seed)
            times.append(time)
            # The mean is infinite whatever the other seeds give.
            if time == math.inf:
                return Prediction(name, cluster.workers, *[math.inf] * 3)
        # The interval covers the scatter over seeds, not an error of the fitted cluster.
        mean, _, low, high = student_interval(np.array(times))
        return Prediction(name, cluster.workers, mean, max(0.0, low), high)


def counted(workers: int) -> str:
    """Return a phrase such as "3 workers"."""
    return f"{workers} worker{'s' * (workers != 1)}"


def _planned(name: str, run: Run) -> Make | Algorithm:
    """Return the candidate of this name, or else the algorithm of the run."""
    candidate: Make | Algorithm | None = CANDIDATES.get(name, run.algorithm)
    if candidate is None:
        raise BadInput(
            "the run's algorithm is unknown: pass it to load_run(algorithm=...)."
        )
    return candidate


def _recorded(
    problem: Problem, algorithm: Algorithm, engine: Engine, seed: int, seconds: float
) -> Run:
    """Return a run of this duration, or of a few commits if they take longer; convergence does not end it.

    Metrics are evaluated as often as in a run to a target.  The clock excludes evaluations, but they fill the
    processor's caches with other rows, which slows the small samples that follow.
    """
    for commits, limit in (
        (DEFAULT_COMMIT_LIMIT, seconds),
        (MIN_RECORDED_COMMITS, None),
    ):
        run = minimize(
            problem,
            algorithm,
            engine=engine,
            seed=seed,
            commits=commits,
            max_time=limit,
            # A run that converges early would have too few computations to fit.
            tol=None,
            evaluate=_evaluate(algorithm),
            progress=False,
        )
        if run.nit >= MIN_RECORDED_COMMITS:
            break
    return run


def _makers(
    problem: Problem, algorithms: Mapping[str, Make | Algorithm], workers: int
) -> dict[str, Make]:
    """Return each algorithm as a function of the workers; our own candidates only if they fit the problem."""

    def fixed(algorithm: Any) -> Make:
        return lambda problem, workers: algorithm

    makers: dict[str, Make] = {}
    for name, candidate in algorithms.items():
        make: Any = candidate
        # An algorithm may be callable itself; only algorithms have `stages`.
        if not callable(candidate) or hasattr(candidate, "stages"):
            make = fixed(candidate)
        try:
            check_fit(make(problem, workers), problem, workers)
        except BadInput:
            if algorithms is not CANDIDATES:
                raise
        else:
            makers[name] = make
    return makers


def _evaluate(algorithm: Algorithm) -> int | None:
    """Return the commits between two evaluations: 1 for exact methods, a twentieth of a pass for a table of
    many parts, and the default of `minimize` for stochastic methods."""
    if extra(algorithm, "standing") is None:
        return None
    first = algorithm.stages[0]
    if first.waits:
        return 1
    return max(1, (first.blocks or 1) // 20)


def _pays(predictions: Sequence[Prediction], algorithm: str) -> int:
    """Return the largest number of workers up to which each step of the list saves at least a tenth."""
    mine = [p for p in predictions if p.algorithm == algorithm]
    best, *more = sorted(mine, key=lambda p: p.workers)
    for prediction in more:
        if not prediction.time <= MAX_TIME_RATIO * best.time:
            break
        best = prediction
    return best.workers
