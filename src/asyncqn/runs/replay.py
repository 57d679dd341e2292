"""Replay: compute a recorded run again from its schedule, and report where two runs differ.

`replay` rebuilds the inputs, runs the schedule and compares fingerprints; `first_difference` and `_cause`
turn a difference into one sentence that names the commit and the probable reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np

from asyncqn.algorithms.fit import check_fit
from asyncqn.columns import Table
from asyncqn.core.outcome import Outcome
from asyncqn.errors import ReplayMismatch, require
from asyncqn.parameters import Folder, checked, parameter
from asyncqn.runs.archive import load_run
from asyncqn.runs.execution import run_schedule
from asyncqn.runs.manifest import request_again, require_inputs
from asyncqn.runs.run import Run
from asyncqn.types import Algorithm, Problem


@checked
def replay(
    run: Run | Folder,
    problem: Problem | None = None,
    algorithm: Algorithm | None = None,
    *,
    allow_imports: bool = False,
    keep: Annotated[int | None, parameter(ge=1)] = None,
) -> Run:
    """Compute a recorded run again from its schedule, bit for bit.

    Parameters
    ----------
    run : Run or path
        A run, or the folder of a saved run.
    problem : Problem, optional
        The problem; by default it is rebuilt from the run, where the run describes it.
    algorithm : Algorithm, optional
        The algorithm; by default it is rebuilt from the run, where the run describes it.
    allow_imports : bool, default False
        Whether a user's own classes, which the run names as "module:Class", are imported. This runs their
        code.
    keep : int, optional
        Commits between two iterates that are stored in `Run.keep`; by default as in the recorded run.

    Returns
    -------
    Run
        The run as computed again; it equals the recorded run in every bit.

    Raises
    ------
    ReplayMismatch
        The numbers differ; the message names the first commit with other bits.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=aq.Threads(2), commits=200)
    >>> bool((aq.replay(run).theta == run.theta).all())
    True
    """
    recorded = run
    if not isinstance(recorded, Run):
        recorded = load_run(
            recorded,
            problem=problem,
            algorithm=algorithm,
            allow_imports=allow_imports,
        )
    # An explicit argument wins over what the run describes.
    problem = problem if problem is not None else recorded.problem
    algorithm = algorithm if algorithm is not None else recorded.algorithm
    manifest = recorded.manifest
    problem, algorithm = require_inputs(
        "run", "replay(run", manifest, problem, algorithm
    )
    require(
        int(problem.dim) == recorded.theta0.size,
        f"the run is of dimension {recorded.theta0.size} but the problem has dim = {problem.dim}: "
        "pass the problem that was minimised.",
    )
    # A problem that was passed may lack what the algorithm needs.
    check_fit(algorithm, problem)
    request = request_again(
        manifest,
        *(problem, algorithm, recorded.theta0),
        # A run that ended early is replayed up to its end and not up to what was asked for.
        commits=manifest["commits"]
        if recorded.status is Outcome.COMPLETED
        else recorded.schedule.commits,
        keep=manifest.get("keep") if keep is None else keep,
    )
    again = run_schedule(request, recorded.schedule, engine=manifest["engine"])
    difference = first_difference(recorded, again)
    if difference is not None:
        raise ReplayMismatch(difference)
    # A user or a signal may have ended the recorded run, which a replay cannot know.
    return replace(again, status=recorded.status, message=recorded.message)


def first_difference(recorded: Run, again: Run) -> str | None:
    """Return where two runs of one schedule first differ, as a sentence, or None where every bit agrees."""
    a, b = recorded.fingerprints, again.fingerprints
    # The two may have different lengths if the replay ended at another commit.
    n = min(a.size, b.size)
    # 32 bits may collide, so the final theta is compared as well.
    parted = np.flatnonzero(a[:n] != b[:n])
    if (
        not parted.size
        and a.size == b.size
        and recorded.theta.tobytes() == again.theta.tobytes()
    ):
        return None
    # Commits count from 1. With equal fingerprints only the reported point differs, which belongs to the
    # end.
    where = a.size
    if parted.size:
        where = int(parted[0]) + 1
    elif a.size != b.size:
        where = n + 1
    cause = _cause(recorded, again)
    return f"the replay first differs at commit {where} of {recorded.schedule.commits}; {cause}."


def _cause(recorded: Run, again: Run) -> str:
    """Return a phrase about what changed between a recording and its replay, as far as both manifests
    tell."""
    old, new = recorded.manifest, again.manifest
    # Other data explain every difference, so nothing else is worth naming.
    if old.get("data") and new.get("data") and old["data"] != new["data"]:
        return "the problem holds other data than the recording: pass the data that were minimised"
    changes = []
    if old.get("code") != new["code"]:
        changes.append("asyncqn's own code changed")
    # A recording without this entry is not evidence of a change.
    if old.get("problem_code", new.get("problem_code")) != new.get("problem_code"):
        changes.append("the code of the package that the problem comes from changed")
    before, now = old["versions"], new["versions"]
    changes += [
        f"{name} {before.get(name)} is now {now[name]}"
        for name in now
        if before.get(name) != now[name]
    ]
    parts = [part for part in ("problem", "algorithm") if old[part] != new[part]]
    changes += [f"the {part} differs" for part in parts]
    if changes:
        return f"since the recording {', '.join(changes)}"
    return (
        "code, versions and machine are as recorded: the problem's data or code changed, or its gradient or "
        "the algorithm's step is not a function of its arguments"
    )


def value_at_start(metrics: Table) -> float | None:
    """Return U at theta0, or None if the run did not evaluate it."""
    evaluated = (
        metrics.rows > 0
        and {"commit", "fun"} <= set(metrics)
        and metrics["commit"][0] == 0
    )
    return float(metrics["fun"][0]) if evaluated else None
