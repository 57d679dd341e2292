"""Time to a target: simulated time and commits until a metric falls to a value."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncqn.algorithms.fit import check_fit
from asyncqn.cluster.cluster import Cluster
from asyncqn.core.request import Request
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import require
from asyncqn.minimize import starting_point
from asyncqn.runs.run import Run
from asyncqn.types import Algorithm, Array, Problem, Progress

HOPELESS = 1e6
"""Factor on the metric's start beyond which a run is stopped as divergent."""


class TimeToTarget(NamedTuple):
    """The result of `time_to`: status "reached", "too slow" or "diverged"; time and commits of the first
    success."""

    status: str
    time: float | None
    commits: int | None
    last: float
    """The metric at the end, which distinguishes a near miss from a far one."""
    pairs: float | None = None
    """The share of curvature pairs that were accepted; None if none was offered."""
    lowest: float | None = None
    """The lowest value of the metric; None if it was never finite."""


def accepted_share(run: Run) -> float | None:
    """Return the share of the offered curvature pairs that a run's memories accepted."""
    accepted, rejected = (run.counters.get(f"pairs_{word}", 0) for word in ("accepted", "rejected"))
    return accepted / (accepted + rejected) if accepted + rejected else None


def commits_within(algorithm: Algorithm, cluster: Cluster, limit: float) -> int:
    """Return a number of commits that suffices until time `limit`.

    The mean rate of commits is at most sum_w 1/cycle_w; a third more allows for a fast start.  A round may
    close with its first update, which may come early; less than 1/20 of the mean time is very rare.
    """
    cycle = cluster.means() + cluster.message + cluster.master
    stage = algorithm.stages[0]
    if stage.waits and stage.updates is None:
        # A round is a broadcast, a computation of the fastest worker, and an update: two turns of the link.
        shortest = cluster.message + cluster.master + 2.0 * cluster.link + 0.05 * float(cluster.means().min())
        return int(limit / max(shortest, 1e-6 * limit)) + 2
    # `rows` updates make a commit; ten commits per worker cover short runs.
    return int(4 / 3 * limit * float(np.sum(1.0 / cycle)) / stage.rows) + 10 * cluster.workers


def time_to(
    model: Problem,
    algorithm: Algorithm,
    cluster: Cluster,
    *,
    target: float,
    limit: float,
    seed: int,
    metric: str = "error",
    theta0: Array | None = None,
    evaluate: int | None = None,
    hopeless: float = HOPELESS,
) -> TimeToTarget:
    """Run on the simulated cluster until `metric` <= `target`, or until simulated time `limit`.

    The metric is evaluated every `evaluate` commits: by default at every round, and at every fifth commit of
    an asynchronous algorithm, which is far below the spread between repetitions.  A run whose metric exceeds
    `hopeless` times its start counts as diverged and is stopped.
    """
    require(limit > 0, f"limit must be a positive time, not {limit!r}.")
    if evaluate is None:
        evaluate = 1 if algorithm.stages[0].waits else 5
    reached: list[Progress] = []
    seen: list[float] = []

    def look(progress: Progress) -> None:
        require(metric in progress.metrics, f"{type(model).__name__} has no metric '{metric}'.")
        value = progress.metrics[metric]
        # Before the value counts: a success after the limit is none.
        if progress.time > limit:
            raise StopIteration
        seen.append(value)
        if value <= target:
            reached.append(progress)
        if value <= target or not value <= hopeless * max(1.0, abs(seen[0])):
            raise StopIteration

    # `minimize` would check this too, but the simulator is called directly, without its other checks.
    check_fit(algorithm, model, cluster.workers)
    run = Simulator(cluster).minimize(
        Request(
            model,
            algorithm,
            theta0=starting_point(model, theta0, seed),
            seed=seed,
            commits=commits_within(algorithm, cluster, limit),
            evaluate=evaluate,
            callback=look,
        )
    )
    # A number and not infinity, because studies are stored as JSON.
    last = seen[-1] if seen and np.isfinite(seen[-1]) else float(np.finfo(np.float64).max)
    pairs = accepted_share(run)
    lowest = min((value for value in seen if np.isfinite(value)), default=None)
    if reached:
        return TimeToTarget("reached", float(reached[0].time), reached[0].commit, last, pairs, lowest)
    # NaN fails the comparison, and counts as diverged.
    lost = run.status == "diverged" or not last <= hopeless * max(1.0, abs(seen[0]))
    return TimeToTarget("diverged" if lost else "too slow", None, None, last, pairs, lowest)
