"""resume: continue a run from its last checkpoint, to its own end or to a later one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asyncqn.algorithms import algorithm_to_json
from asyncqn.algorithms.fit import check_fit
from asyncqn.columns import Table
from asyncqn.core.problem import is_ours
from asyncqn.core.stopping import MaxPasses, MaxTime, Target, Tolerance
from asyncqn.engines.named import engine_from_json
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import DamagedFile, require
from asyncqn.minimize import commits_of, showing
from asyncqn.parameters import CheckpointEvery, Commits, Folder, checked
from asyncqn.runs.checkpoint import Checkpoints, Saved, with_prefix
from asyncqn.runs.checkpoint_reading import load_checkpoint
from asyncqn.runs.data_digest import data_digest
from asyncqn.runs.manifest import (
    needs_imports,
    problem_entry,
    rebuild_inputs,
    request_again,
    require_inputs,
    stopping_of,
)
from asyncqn.runs.replay import value_at_start
from asyncqn.runs.run import Run
from asyncqn.storage.serialise import to_json
from asyncqn.types import Algorithm, Callback, Engine, Problem, extra


@checked
def resume(
    folder: Folder,
    problem: Problem | None = None,
    algorithm: Algorithm | None = None,
    *,
    engine: Engine | None = None,
    commits: Commits | None = None,
    max_passes: MaxPasses = None,
    max_time: MaxTime = None,
    target: Target = None,
    tol: Tolerance = None,
    callback: Callback | None = None,
    checkpoint_every: CheckpointEvery = 30.0,
    allow_imports: bool = False,
    progress: bool | None = None,
    verbose: bool = False,
) -> Run:
    """Continue a run from its newest complete checkpoint; the same folder receives further checkpoints.

    Parameters
    ----------
    folder : path
        Folder of the checkpoints.
    problem : Problem, optional
        The checkpoint's problem; by default it is rebuilt, where the checkpoint describes it.
    algorithm : Algorithm, optional
        The checkpoint's algorithm; by default it is rebuilt, where the checkpoint describes it.
    engine : Engine, optional
        Where the workers run; by default the engine that wrote the checkpoint. A simulator's checkpoint
        needs a simulator.
    commits : int, optional
        Number of commits, from the first one, instead of the run's own. With a later limit or a smaller
        tolerance than its own, a run that has ended continues.
    max_passes : float, optional
        Number of passes over the data, from the first one, instead of the run's own.
    max_time : float, optional
        Longest duration, from the first commit, instead of the run's own.
    target : float, optional
        Value of the run's metric at which it ends, instead of the run's own.
    tol : float, optional
        Tolerance at which an exact method has converged, instead of the run's own.
    callback : callable, optional
        Called with a `Progress` after every evaluation. A `Patience` is restored from the checkpoint.
    checkpoint_every : int or float, default 30.0
        Interval between two checkpoints: an int counts commits, a float counts seconds.
    allow_imports : bool, default False
        Whether a user's own classes, which the run names as "module:Class", are imported. This runs their
        code.
    progress : bool, optional
        Whether to show a progress bar on stderr; by default on a terminal or in a notebook, after half a
        second of work.
    verbose : bool, default False
        Whether to write plain lines to stderr, at most one per second.

    Returns
    -------
    Run
        The whole run, from its first commit.

    Examples
    --------
    >>> import tempfile
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> def stop(progress):
    ...     if progress.commit >= 100:
    ...         raise StopIteration
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=aq.Threads(2), commits=200,
    ...                         callback=stop, checkpoint=folder)
    ...     run = aq.resume(folder)
    ...     longer = aq.resume(folder, commits=300)
    >>> run.status, run.nit, longer.nit
    ('completed', 200, 300)
    """
    saved = load_checkpoint(folder)
    about, theta0 = saved.document["manifest"], saved.arrays["theta0"]
    problem, algorithm = _inputs(folder, saved, problem, algorithm, allow_imports)
    chosen = _engine_for(about, engine)
    # The manifest has this key only for a run whose number of commits is a bound that nobody chose.
    open_ended = commits is None and bool(about.get("open_ended"))
    if commits is None:
        commits = int(about["commits"])
        stochastic = extra(algorithm, "standing") is None
        if open_ended and stochastic and max_passes is not None:
            commits = commits_of(algorithm, problem.n_data, max_passes)
    require(
        commits >= saved.commit,
        f"the run has made {saved.commit} commits: it cannot end after {commits}.",
    )
    limits: dict[str, Any] = {"max_passes": max_passes, "max_time": max_time}
    limits |= {"target": target, "tol": tol}
    later = {name: limit for name, limit in limits.items() if limit is not None}
    imports = needs_imports(problem, algorithm)
    place = Checkpoints(folder, checkpoint_every, saved, imports)
    callbacks = [] if callback is None else [callback]
    total = None if open_ended else commits
    with (
        closing(place) as checkpoints,
        showing(callbacks, chosen, progress, verbose, total, "resume") as tell,
    ):
        request = request_again(
            about,
            problem,
            algorithm,
            theta0,
            commits=commits,
            open_ended=open_ended,
            stopping=replace(stopping_of(about), **later),
            callback=tell,
            checkpoints=checkpoints,
        )
        return chosen.minimize(request)


def _engine_for(about: Mapping[str, Any], engine: Engine | None) -> Engine:
    """Return the engine that continues a run; one that would change its numbers is refused."""
    entry = about["engine"]
    # A simulated schedule is drawn from its cluster; a real one is recorded as it happens.
    chosen = engine if engine is not None else engine_from_json(entry)
    require(
        to_json(chosen.cluster) == entry.get("cluster")
        if isinstance(chosen, Simulator)
        else entry["kind"] != "simulator",
        "a simulated run can be resumed only on the simulator and only on its own cluster, and a real run only "
        "on a real engine: pass such an engine, or none.",
    )
    wire = entry.get("wire") or "exact"
    require(
        getattr(chosen, "wire", "exact") == wire,
        f"the run sends its messages with wire = '{wire}', and its numbers depend on that: pass such an "
        "engine, or none.",
    )
    return chosen


def _inputs(
    folder: str | Path,
    saved: Saved,
    problem: Problem | None,
    algorithm: Algorithm | None,
    allow_imports: bool,
) -> tuple[Problem, Algorithm]:
    """Return the problem and the algorithm, given or rebuilt, after a comparison with the checkpoint."""
    given, rebuilt = problem, problem is None and algorithm is None
    about = saved.document["manifest"]
    problem, algorithm = rebuild_inputs(
        folder, about, problem, algorithm, allow_imports
    )
    problem, algorithm = require_inputs(
        "checkpoint", "resume(folder", about, problem, algorithm
    )
    differences = _differences(saved, problem, algorithm, given)
    # Where all came from the checkpoint, the user cannot have made the mistake.
    if rebuilt and differences:
        raise DamagedFile(
            f"the checkpoint contradicts itself ({'; '.join(differences)})."
        )
    require(
        not differences,
        f"the checkpoint belongs to another run ({'; '.join(differences)}): pass its own inputs, or "
        "begin another run where this one ended, with minimize(..., theta0=run.theta).",
    )
    check_fit(algorithm, problem)
    return problem, algorithm


def _differences(
    saved: Saved, problem: Problem, algorithm: Algorithm, given: Problem | None
) -> list[str]:
    """Return phrases about how the checkpoint's inputs differ from those it shall continue with.

    A problem that the user passed may hold other data under the same description, so its data are compared
    as well: by their digest for our own models, else by U at the start.
    """
    manifest, theta0 = saved.document["manifest"], saved.arrays["theta0"]
    phrases = _changes("problem", manifest["problem"], problem_entry(problem))
    old, new = manifest["algorithm"], algorithm_to_json(algorithm)
    # Parameters of another kind of algorithm have other names, so comparing them would only add noise.
    if old["kind"] != new["kind"]:
        phrases.append(f"the algorithm was {old['kind']}, not {new['kind']}")
    else:
        before, after = old["parameters"] or {}, new["parameters"] or {}
        phrases += _changes("algorithm", before, after)
    if phrases or given is None:
        return phrases
    # The digest of a user's class may depend on scratch arrays, so only our own are compared.
    recorded = manifest.get("data")
    if recorded and is_ours(type(given)) and data_digest(given) != recorded:
        return ["the problem holds other data"]
    start = value_at_start(Table(with_prefix("metrics.", saved.arrays)))
    # U at the start is computed last and only if nothing else differs: it costs a pass over the data.
    if start is None:
        return []
    value = float(given.value(theta0))
    # Another processor sums in another order; real changes of the data are far larger.
    rounding = 1e-9 if theta0.dtype == np.float64 else 1e-4
    if math.isclose(value, start, rel_tol=rounding, abs_tol=1e-12):
        return []
    return [f"U at the start was {start:.12g}, not {value:.12g}"]


def _changes(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each entry that differs."""
    return [
        f"the {what}'s {name} was {old.get(name)!r}, not {new.get(name)!r}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]
