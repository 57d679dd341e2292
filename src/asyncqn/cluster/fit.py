"""Fit a cluster to a recorded run: laws from measured times, message time from the rate of commits.

`fit` is the entry point (`Cluster.from_run`).  Computation times and the master's times are measured by the
engines.  Message times cannot be measured without synchronized clocks, so `_message` finds the value at which
a simulation makes as many commits per time as the run did.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.laws import LogNormal, Trace
from asyncqn.cluster.virtual_time import simulate
from asyncqn.core.schedule import Schedule
from asyncqn.core.stages import Stages, stage_at, time_share
from asyncqn.errors import BadInput, require
from asyncqn.parameters import from_json
from asyncqn.types import extra

if TYPE_CHECKING:
    from asyncqn.runs.run import Run

_COMPUTATIONS = 2_000
"""Computations, about, of a simulation whose rate is compared with that of the run: enough for a mean within
a few per cent, and done in milliseconds."""
_FEWEST = 50
"""Commits, at least, of that simulation."""
_HALVINGS = 16
"""Bisection steps: the message time is found to a hundred-thousandth of its bound."""


def fit(run: Run, workers: int | None, per_worker: bool) -> Cluster:
    """Fit a cluster to a run; see `Cluster.from_run` for the parameters."""
    engine = run.manifest["engine"]
    # A simulated run names its cluster, so there is nothing to fit.
    if engine["kind"] == "simulator":
        simulated: Cluster = from_json(Cluster, engine["cluster"], "the run's cluster")
        return simulated if workers is None else with_workers(simulated, workers)
    measured = engine.get("measured")
    if not measured or not measured["workers"]:
        raise BadInput(
            "the run has no measured computation times (an older version recorded it): record it again."
        )
    if run.algorithm is None:
        raise BadInput(
            "the run's algorithm is unknown: pass it to load_run(algorithm=...)."
        )
    laws = _laws(measured["workers"], per_worker)
    # A worker counts by its computations: one that joined late says little.
    counts = np.array([w["computations"] for w in measured["workers"].values()], float)
    fixed = np.array([w.get("fixed", 0.0) for w in measured["workers"].values()])
    # The master's times are measured directly, unlike those of messages.
    link, master = _master(measured["master"])
    bare = Cluster(
        len(measured["workers"]),
        times=laws if per_worker else laws[0],
        master=master,
        link=link,
        rows=rows_stated(
            run.algorithm, run.schedule.commits, int(run.manifest["problem"]["n_data"])
        ),
        fixed=float((counts * fixed).sum() / counts.sum()),
    )
    fitted = replace(
        bare, message=_message(bare, run.schedule.commit_times(), run.algorithm.stages)
    )
    return fitted if workers is None else with_workers(fitted, workers)


def of_schedule(schedule: Schedule, workers: int | None, per_worker: bool) -> Cluster:
    """Return the cluster whose workers take the times of a schedule; see `Cluster.from_schedule`."""
    require(
        len(schedule) > 0, "the schedule has no rows, so there are no times to learn."
    )
    made = np.concatenate([[0.0], schedule.commit_times()])
    order = np.argsort(schedule.worker, kind="stable")
    worker = schedule.worker[order]
    end = schedule.time[order]
    before = np.concatenate([[-math.inf], end[:-1]])
    before[np.flatnonzero(np.diff(worker, prepend=-1))] = -math.inf
    # A worker begins when the version that it reads is there and its own last computation is over.
    length = end - np.maximum(made[schedule.read[order]], before)
    present = np.unique(worker).tolist()
    laws = [_trace(length[worker == w]) for w in present]
    times = laws if per_worker else _trace(length)
    cluster = Cluster(len(present), times=times)
    return cluster if workers is None else with_workers(cluster, workers)


def _trace(length: npt.NDArray[np.float64]) -> Trace:
    """Return the law that repeats these times; a computation without length lasts no shorter than a rounding."""
    least = max(float(length.max()), 1e-300) * 1e-9
    return Trace(np.maximum(length, least).tolist())


def with_workers(cluster: Cluster, workers: int) -> Cluster:
    """Return the cluster with another number of workers, all present from the start to the end.

    Where laws or speeds differ between workers, the new workers receive them in turn.
    """

    def again(value: Any) -> Any:
        # A tuple has one entry per worker; a single value serves all.
        return (
            [value[w % len(value)] for w in range(workers)]
            if isinstance(value, tuple)
            else value
        )

    speeds = {
        name: again(getattr(cluster, name))
        for name in ("times", "worker_mean", "worker_std")
    }
    return replace(
        cluster, workers=workers, **speeds, deaths={}, joins={}, recoveries={}
    )


def _laws(workers: dict[str, Any], per_worker: bool) -> list[LogNormal]:
    """Return one law per worker, or one for all: few computations say little of one worker's spread."""
    counts = np.array([w["computations"] for w in workers.values()], float)
    means = np.array([w["mean"] for w in workers.values()])
    spreads = np.array([w["log_std"] for w in workers.values()])
    if not per_worker:
        mean = float((counts * means).sum() / counts.sum())
        # With one law for all, the differences between workers are part of the spread.
        between = np.log(means / mean)
        spread = math.sqrt(
            float((counts * (spreads**2 + between**2)).sum() / counts.sum())
        )
        means, spreads = np.array([mean]), np.array([spread])
    # std = mean sqrt(exp(s^2) - 1) for a log-normal variable whose logarithm has the standard deviation s.
    return [
        LogNormal(float(m), float(m * math.sqrt(math.expm1(s * s))))
        for m, s in zip(means, spreads)
    ]


def _master(measured: dict[str, Any]) -> tuple[float, float]:
    """Return (link, master): an update without a commit is two messages; a commit takes the rest."""
    update, commit = measured.get("update"), measured.get("commit")
    exchange = update["mean"] if update else 0.0
    service = commit["mean"] if commit else 0.0
    return exchange / 2.0, max(0.0, service - exchange)


def rows_stated(algorithm: Any, version: int, n_data: int) -> float | None:
    """Return the number of rows to which a cluster's times refer, or None if the algorithm is silent.

    Parts differ by a row where the rows cannot be cut evenly, so this is the mean over all parts.
    """
    rows_of = extra(algorithm, "rows_of")
    if rows_of is None:
        return None
    stages = algorithm.stages
    parts = stage_at(stages, version).parts
    part = (
        np.array([-1], np.int32) if parts is None else np.arange(parts, dtype=np.int32)
    )
    rows = rows_of(n_data, np.full(part.size, version, np.int32), part)
    return float(np.mean(rows)) / time_share(stages, version)


def unlike_tasks(sizes: Iterable[float | None]) -> str | None:
    """Return a warning where clusters without `rows` charge computations of these sizes the same time."""
    rows = [size for size in sizes if size is not None]
    least, most = min(rows, default=1.0), max(rows, default=1.0)
    if most <= 1.5 * least:
        return None
    return (
        f"a cluster without rows charges computations of {least:.3g} and of {most:.3g} rows the same time, "
        "which favours the larger: give Cluster(rows=...), the number of rows that its times refer to."
    )


def stretched_to(
    cluster: Cluster, algorithm: Any, commits: int, n_data: int
) -> Cluster:
    """Return the cluster with its times scaled to the rows that the algorithm uses."""
    if cluster.rows is None:
        return cluster
    rows, name = rows_stated(algorithm, commits, n_data), type(algorithm).__name__
    if rows is None:
        raise BadInput(
            f"a cluster with rows needs an algorithm with rows_of, unlike {name}: leave rows out."
        )
    return cluster.scaled(rows / cluster.rows)


def _message(bare: Cluster, times: npt.NDArray[np.float64], stages: Stages) -> float:
    """Return the message time at which the cluster makes commits at the rate of a run."""
    require(
        times.size >= 2,
        "the run is too short for a fit: it has fewer than two commits.",
    )
    # A commit takes an update of every part, or of every worker of a round.
    rows = bare.workers if stages[-1].listens else stages[-1].rows
    commits = min(times.size, max(_FEWEST, _COMPUTATIONS // rows))
    wanted = float(times[-1]) / times.size

    def pace(message: float) -> float:
        # The same seed for every candidate makes the rate a smooth function of the message time.
        schedule = simulate(replace(bare, message=message), stages, commits, 0)
        return float(schedule.commit_times()[-1]) / commits

    # Even without messages the simulated cluster is slower than the run, for instance because workers share
    # processors.
    if pace(0.0) >= wanted:
        return 0.0
    # If messages were everything, W workers in parallel would need about W times the time per commit.
    low, high = 0.0, wanted * bare.workers
    # The first guess may be too short where workers wait for each other.
    while pace(high) < wanted:
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if pace(middle) < wanted else (low, middle)
    return (low + high) / 2.0
