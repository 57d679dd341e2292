"""The numerical loop: every number of a run from (algorithm, potential, theta0, seed, schedule).

A computation is a pure function of the version it reads and of its worker's own past.  So it can
be executed the moment its version exists, before the next commit: no version is ever copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from asyncqn.algorithms.stability import advise
from asyncqn.core.checkpoint import Checkpoints, Saved, flatten
from asyncqn.core.float32_wire import Rounded
from asyncqn.core.master import (
    CallbackFailed,
    CallbackStopped,
    Diverged,
    Master,
    compute,
    learn,
    potential_stopped,
)
from asyncqn.core.run import Run, manifest, rows_computed
from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.core.stopping import TO_THE_END, Ended, Stopping, converged, slope_of
from asyncqn.core.streams import Stream
from asyncqn.errors import DamagedFile
from asyncqn.types import Algorithm, Array, Callback, Potential, Task, extra


def execute(
    potential: Potential,
    algorithm: Algorithm,
    schedule: Schedule,
    *,
    theta0: Array,
    seed: int,
    commits: int,
    evaluate: int,
    engine: dict[str, Any],
    stopping: Stopping = TO_THE_END,
    callback: Callback | None = None,
    checkpoints: Checkpoints | None = None,
) -> Run:
    """Compute all that the schedule says was computed, and commit it as the schedule says.

    `commits` is how many were asked for; a schedule in which every worker died has fewer.
    """
    schedule.check_parts(algorithm.stages)
    N = schedule.commits
    # A part of a schedule may lack workers that came later; the engine knows how many there were.
    workers = max(schedule.workers, engine.get("workers", 0))
    master = Master(algorithm, potential, theta0, workers=workers, last=N, evaluate=evaluate,
                    stopping=stopping, callback=callback)  # fmt: skip
    locals_: dict[int, Any] = {}
    steps: dict[int, int] = {}
    pending: dict[int, Any] = {}
    status, message, failure = "completed", f"{N} commits were made.", None
    worker, read, commit = schedule.worker.tolist(), schedule.read.tolist(), schedule.commit.tolist()
    time = schedule.commit_times().tolist()
    part = None if schedule.part is None else schedule.part.tolist()
    starts = np.argsort(schedule.read, kind="stable").tolist()  # computations in the order they begin
    ends = [row for row in range(len(schedule)) if commit[row] != DROPPED]
    begun = ended = 0
    about = manifest(
        potential, algorithm, seed=seed, commits=commits, evaluate=evaluate, engine=engine, stopping=stopping
    )
    passes = (
        None
        if stopping.max_passes is None
        else np.cumsum(rows_computed(algorithm, schedule, potential.n_data)) / potential.n_data
    )
    # A float32 wire rounded what the workers read and sent.
    worker_side: Any = Rounded(algorithm) if engine.get("wire") == "float32" else algorithm
    first = 0
    if checkpoints is not None:
        checkpoints.prepare()
        if checkpoints.start is not None:
            sample = Task(0, 0, Stream(seed, 0, 0), algorithm.stages[0].first_part)
            first = resume_execution(checkpoints.start, master, locals_, steps, pending, sample)
            begun = int((schedule.read < first).sum())
            ended = int(((schedule.commit <= first) & (schedule.commit != DROPPED)).sum())
            waiting = np.flatnonzero((schedule.read < first) & (schedule.commit > first))
            if set(pending) != set(waiting.tolist()):
                raise DamagedFile("the checkpoint does not hold the updates that its schedule waits for.")
    try:
        if first == 0:
            master.evaluate(0.0)
        for version in range(first, N + 1):
            if version > first:
                rows = []
                while ended < len(ends) and commit[ends[ended]] == version:
                    rows.append(ends[ended])
                    ended += 1
                answers = [pending.pop(row) for row in rows]
                if passes is not None:
                    master.passes = float(passes[rows[-1]])
                master.commit(answers, time[version - 1], [read[row] for row in rows])
                if checkpoints is not None and (checkpoints.interrupted or checkpoints.due(version)):
                    checkpoints.write(execution_snapshot(master, locals_, steps, pending, about))
                    if checkpoints.interrupted and version < N:
                        status, message = checkpoints.ending(version)
                        break
            while begun < len(starts) and read[starts[begun]] == version:
                row = starts[begun]
                begun += 1
                w = worker[row]
                if w not in locals_:
                    locals_[w], steps[w] = algorithm.init_worker(potential, theta0), 0
                task = Task(w, version, Stream(seed, w, steps[w]), None if part is None else part[row])
                steps[w] += 1
                update = compute(worker_side, potential, master.iterate, locals_[w], task, master.limit)
                locals_[w] = learn(worker_side, potential, master.iterate, locals_[w], task, update)
                if commit[row] != DROPPED:
                    pending[row] = update
        else:
            if commits > N:
                status, message = "stopped", f"every worker was gone after {N} of {commits} commits."
    except Ended as ended:
        status, message = ended.status, f"{ended}, after {master.version} commits."
    except (CallbackStopped, CallbackFailed) as end:
        if checkpoints is not None:
            checkpoints.write(execution_snapshot(master, locals_, steps, pending, about))
        failure = end.__cause__
        status, message = "stopped", f"the callback stopped the run after commit {master.version}."
    except StopIteration as error:
        raise potential_stopped(error, master.version) from error
    except Diverged as divergence:
        status = "diverged"
        message = f"{divergence}: {advise(algorithm, potential, theta0, workers, list(locals_.values()))}"
    if failure is not None:
        raise failure
    if status not in ("completed", "diverged"):
        evaluate_the_end(master)
    done = schedule if master.version == N else schedule.until(master.version)
    return conclude(master, done, list(locals_.values()), status, message, theta0, about)


def conclude(
    master: Master, schedule: Schedule, locals_: Sequence[Any], status: str, message: str, theta0: Array,
    about: dict[str, Any],
) -> Run:  # fmt: skip
    """The `Run` of a master that has made its last commit; `locals_` are the states of the workers."""
    totals = master.algorithm.counters(master.iterate, locals_)
    standing = master.standing()
    if standing is not None and status == "completed":
        message = f"{message[:-1]}; {slope_of(standing)}."
    if standing is not None and status in ("converged", "stalled"):
        theta, fun = standing.point.copy(), float(master.potential.value(standing.point))
    else:
        theta, fun = answer(master)
    return Run(
        theta=theta,
        fun=fun,
        status=status,
        message=message,
        schedule=schedule,
        metrics=master.metrics(),
        counters={
            "pairs_accepted": 0, "pairs_rejected": 0,
            **{name: int(total) for name, total in totals.items()},
            "updates_rejected": master.rejected,
            "staleness_max": int(schedule.staleness.max(initial=0)),
        },
        manifest=about,
        theta0=theta0.copy(),
        fingerprints=np.array(master.fingerprints, np.uint32),
        algorithm=master.algorithm,
        potential=master.potential,
    )  # fmt: skip


def evaluate_the_end(master: Master) -> None:
    """The last row of the metric table, where the last commit was not due for one; nobody is told."""
    master.callback = None
    with suppress(Ended):
        master.evaluate(master.time)


def answer(master: Master) -> tuple[Array, float]:
    """The point that a run reports, and U there: where it converged, else the lowest that is offered."""
    standing, tol = master.standing(), master.stopping.tol
    if tol is not None and standing is not None and converged(standing, tol):
        return np.array(standing.point, copy=True), float(master.potential.value(standing.point))
    theta, records = master.iterate.theta, master.records
    known = bool(records) and records[-1]["commit"] == master.version
    lowest = records[-1]["fun"] if known else float(master.potential.value(theta))
    offer = extra(master.algorithm, "answers")
    for other in () if offer is None else offer(master.iterate):
        fun = float(master.potential.value(other))
        if fun < lowest or (np.isfinite(fun) and not np.isfinite(lowest)):
            theta, lowest = other, fun
    return np.array(theta, copy=True), lowest


def execution_snapshot(
    master: Master, locals_: dict[int, Any], steps: dict[int, int], pending: dict[int, Any],
    about: dict[str, Any],
) -> Saved:  # fmt: skip
    """The loop between two versions: the master, all workers, and the updates that wait for their commit."""
    saved = master.save()
    for worker, local in locals_.items():
        saved.arrays.update(flatten(f"worker.{worker}", local))
    for row, update in pending.items():
        saved.arrays.update(flatten(f"pending.{row}", update))
    saved.document.update(
        manifest=about,
        workers={str(w): k for w, k in steps.items()},
        pending=list(pending),
        rejected_pending=[row for row, update in pending.items() if update is None],
    )
    return saved


def resume_execution(
    saved: Saved, master: Master, locals_: dict[int, Any], steps: dict[int, int], pending: dict[int, Any],
    task: Task,
) -> int:  # fmt: skip
    """Fill the loop's state from a checkpoint; returns the version to go on from.

    One step of a worker that is thrown away, on `task`, shows what an update of this algorithm is like.
    """
    algorithm, potential, theta0 = master.algorithm, master.potential, master.theta0
    sample = algorithm.step(master.iterate, algorithm.init_worker(potential, theta0), potential, task)
    master.restore(saved)
    for worker, k in saved.document["workers"].items():
        locals_[int(worker)] = saved.tree(f"worker.{worker}", algorithm.init_worker(potential, theta0))
        steps[int(worker)] = int(k)
    for row in saved.document["pending"]:
        rejected = row in saved.document["rejected_pending"]
        pending[row] = None if rejected else saved.tree(f"pending.{row}", sample, in_place=False)
    return master.version
