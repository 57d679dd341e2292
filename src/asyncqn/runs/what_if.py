"""Counterfactual runs: compute a run again on another schedule, with the same rows and the same noise.

Random numbers belong to (seed, worker, step), so two runs differ only by what was changed.  `changed` is the
entry point; `_schedule` decides between the recorded schedule and a simulated one.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from asyncqn.algorithms.fit import check_fit
from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.fit import fit, rows_stated, stretched_to, unlike_tasks
from asyncqn.cluster.virtual_time import simulate
from asyncqn.core.schedule import Schedule
from asyncqn.core.stages import AllParts
from asyncqn.errors import StabilityWarning, require
from asyncqn.parameters import Checked, Seed
from asyncqn.runs.execution import run_schedule
from asyncqn.runs.manifest import EngineManifest, request_again, require_inputs
from asyncqn.runs.run import Run
from asyncqn.storage.serialise import to_json
from asyncqn.types import Algorithm


@dataclass(frozen=True)
class Change(Checked):
    """The requested changes; see `Run.what_if`."""

    fresh: bool = False
    without_worker: int | None = None
    workers: int | None = None
    cluster: Cluster | None = None
    algorithm: Algorithm | None = None
    seed: Seed | None = None


def changed(run: Run, change: Change) -> Run:
    """Compute a run again with the requested changes."""
    manifest = run.manifest
    algorithm = change.algorithm if change.algorithm is not None else run.algorithm
    problem, algorithm = require_inputs(
        "run", "load_run(folder", manifest, run.problem, algorithm
    )
    # Another algorithm may need members that this problem lacks.
    check_fit(algorithm, problem)
    seed = manifest["seed"] if change.seed is None else change.seed
    schedule, cluster = _schedule(run, algorithm, change, seed)
    if change.without_worker is not None:
        schedule = _without(schedule, algorithm, change.without_worker)
    # After a worker was removed, so that "fresh" refers to the commits that are left.
    if change.fresh:
        schedule = schedule.with_fresh_reads()
    require(
        schedule.commits > 0,
        "no commit is left: all of them came from the worker that was left out.",
    )
    commits = schedule.commits
    request = request_again(
        manifest, problem, algorithm, run.theta0, commits=commits, seed=seed
    )
    return run_schedule(request, schedule, engine=_engine(run, change, cluster))


def _engine(run: Run, change: Change, cluster: Cluster | None) -> EngineManifest:
    """Return the manifest's entry for the engine: that of the run, and what was changed."""
    changes = {
        name: value
        for name, value in vars(change).items()
        if value is not None and value is not False
    }
    if change.algorithm is not None:
        changes["algorithm"] = type(change.algorithm).__name__
    if cluster is None:
        engine = dict(run.manifest["engine"])
        # Measured times belong to the recorded run, not to this one.
        engine.pop("measured", None)
    else:
        engine = {"kind": "simulator", "workers": cluster.workers}
        engine["cluster"] = to_json(cluster)
    return {**engine, "what_if": to_json(changes)}


def _schedule(
    run: Run, algorithm: Algorithm, change: Change, seed: int
) -> tuple[Schedule, Cluster | None]:
    """Return the recorded schedule, or a simulated one with the cluster that it was simulated on."""
    cluster = change.cluster
    require(
        cluster is None or change.workers is None,
        "give either cluster, which states its own number of workers, or workers, not both.",
    )
    # An algorithm with other stages cannot follow the recorded schedule.
    other_messages = run.algorithm is None or algorithm.stages != run.algorithm.stages
    if cluster is None and (change.workers is not None or other_messages):
        cluster = fit(run, change.workers, False)
    if cluster is None:
        return run.schedule, None
    n_data = int(run.manifest["problem"]["n_data"])
    # Another algorithm gets the commits that were asked for: the recorded run may have converged early.
    commits = (
        run.manifest["commits"]
        if change.algorithm is not None
        else run.schedule.commits
    )
    if cluster.rows is None and change.algorithm is not None:
        warning = unlike_tasks(
            rows_stated(each, 0, n_data) for each in (run.algorithm, algorithm) if each
        )
        if warning is not None:
            warnings.warn(warning, StabilityWarning, stacklevel=4)
    # A cluster with `rows` gives an algorithm with larger batches longer times.
    stretched = stretched_to(cluster, algorithm, commits, n_data)
    return simulate(stretched, algorithm.stages, commits, seed), cluster


def _without(schedule: Schedule, algorithm: Algorithm, worker: int) -> Schedule:
    require(
        bool((schedule.worker == worker).any()),
        f"there is no worker {worker} in the run: its workers are numbered 0 to {schedule.workers - 1}.",
    )
    require(
        len(algorithm.stages) == 1 and not isinstance(algorithm.stages[0], AllParts),
        "a worker cannot be left out where every version needs all parts of the data, because another worker "
        "would have computed its parts: use what_if(workers=...), or a cluster in which it dies.",
    )
    return schedule.without_worker(worker)
