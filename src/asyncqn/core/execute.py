"""The numerical loop: every number of a run from (algorithm, potential, theta0, seed, schedule).

A computation is a pure function of the version it reads and of its worker's own past.  So it can
be executed the moment its version exists, before the next commit: no version is ever copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from asyncqn.algorithms.stability import advise
from asyncqn.core.master import Master, new_tuple, potential_stopped
from asyncqn.core.request import Request
from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.core.stopping import Ended, EndedByCallback, converged, slope_of
from asyncqn.core.streams import Stream
from asyncqn.core.worker import Float32Wire, WorkerSteps, sample_update
from asyncqn.errors import DamagedFile
from asyncqn.runs.checkpoint import Checkpoints, Saved, flatten
from asyncqn.runs.run import Run, manifest, rows_computed
from asyncqn.runs.segments import Segment, segments_after
from asyncqn.runs.table import Table
from asyncqn.types import Array, Task, extra


def execute(
    request: Request,
    schedule: Schedule,
    *,
    engine: dict[str, Any],
    segments: Sequence[Segment] = (),
) -> Run:
    """Compute all that the schedule says was computed, and commit it as the schedule says.

    `request.commits` is how many were asked for; a schedule in which every worker died has fewer.
    segments: what computed the parts of a run that went on with something else, in their order.
    """
    algorithm, checkpoints = request.algorithm, request.checkpoints
    schedule.check_parts(algorithm.stages)
    N = schedule.commits
    # A part of a schedule may lack workers that came later; the engine knows how many there were.
    workers = max(schedule.workers, engine.get("workers", 0))
    segments = segments or [Segment(request.potential, algorithm, engine.get("wire") or "exact")]
    first = segments[0]
    master = Master(
        replace(request, potential=first.potential, algorithm=first.algorithm, commits=N), workers
    )
    about = manifest(request, engine)
    loop = Loop(master, schedule, request.seed, segments)
    status, message, failure = "completed", f"{N} commits were made.", None
    if checkpoints is not None:
        checkpoints.prepare()
        if checkpoints.start is not None:
            loop.restore(checkpoints.start)
            if changed := segments_after(checkpoints.start, about, master.version, None):
                about["segments"] = changed
    try:
        if master.version == 0:
            master.evaluate(0.0)
        loop.run(checkpoints, about)
        if checkpoints is not None and checkpoints.interrupted and master.version < N:
            status, message = checkpoints.ending(master.version)
        elif request.commits > N:
            status, message = "stopped", f"every worker was gone after {N} of {request.commits} commits."
    except Ended as ended:
        status, message, failure = ended.status, str(ended), ended.__cause__
        if checkpoints is not None and isinstance(ended, EndedByCallback):
            checkpoints.write(loop.snapshot(about))
    except StopIteration as error:
        raise potential_stopped(error, master.version) from error
    if failure is not None:
        raise failure
    done = schedule if master.version == N else schedule.until(master.version)
    return conclude(master, done, list(loop.locals.values()), status, message, about)


class Loop:
    """The numerical loop between two versions: the workers, and the updates that wait for their commit."""

    def __init__(self, master: Master, schedule: Schedule, seed: int, segments: Sequence[Segment]) -> None:
        self.master, self.schedule, self.seed = master, schedule, seed
        self.segments = list(segments)
        self.locals: dict[int, Any] = {}
        self.steps: dict[int, int] = {}
        self.pending: dict[int, Any] = {}
        self._next_segment()

    def _next_segment(self) -> WorkerSteps:
        """Go on with the next algorithm and potential; returns the steps of the workers."""
        segment = self.segments.pop(0)
        self.master.go_on_with(segment.algorithm, segment.potential)
        # A float32 wire rounded what the workers read and sent.
        narrow = segment.wire == "float32"
        algorithm: Any = Float32Wire(segment.algorithm) if narrow else segment.algorithm
        self.worker = WorkerSteps(algorithm, segment.potential, self.master.limit)
        return self.worker

    def run(self, checkpoints: Checkpoints | None, about: dict[str, Any]) -> None:
        """Compute and commit to the end, or until a signal asks to end and the checkpoint is written."""
        master, schedule, segments, seed = self.master, self.schedule, self.segments, self.seed
        locals_, steps, pending = self.locals, self.steps, self.pending
        worker, commit = schedule.worker.tolist(), schedule.commit.tolist()
        time, passes = schedule.commit_times().tolist(), None
        if master.stopping.max_passes is not None:
            n_data = master.potential.n_data
            passes = np.cumsum(rows_computed(master.algorithm, schedule, n_data)) / n_data
        part = None if schedule.part is None else schedule.part.tolist()
        first, N = master.version, schedule.commits
        begins = np.argsort(schedule.read, kind="stable")  # computations in the order they begin
        ends = np.flatnonzero(schedule.commit != DROPPED)  # and those delivered, in the order they end
        versions = np.arange(N + 1)
        begun = np.searchsorted(schedule.read[begins], versions, side="right").tolist()
        ended = np.searchsorted(schedule.commit[ends], versions, side="right").tolist()
        starts, delivered = begins.tolist(), ends.tolist()
        staleness = (schedule.commit - 1 - schedule.read).tolist()
        work = self.worker
        for version in range(first, N + 1):
            if version > first:
                rows = delivered[ended[version - 1] : ended[version]]
                answers = list(map(pending.pop, rows))
                if passes is not None:
                    master.passes = float(passes[rows[-1]])
                master.commit(answers, time[version - 1], list(map(staleness.__getitem__, rows)))
                if checkpoints is not None and (checkpoints.interrupted or checkpoints.due(version)):
                    checkpoints.write(self.snapshot(about))
                    if checkpoints.interrupted and version < N:
                        return
            for row in starts[begun[version - 1] if version else 0 : begun[version]]:
                while segments and segments[0].begins(version, row):
                    work = self._next_segment()
                w = worker[row]
                if w not in locals_:
                    locals_[w], steps[w] = master.algorithm.init_worker(work.potential, master.theta0), 0
                k, local, iterate = steps[w], locals_[w], master.iterate
                stream = new_tuple(Stream, (seed, w, k))
                task = new_tuple(Task, (w, version, stream, None if part is None else part[row]))
                steps[w] = k + 1
                update = work.compute(iterate, local, task)
                locals_[w] = work.learn(iterate, local, task, update)
                if commit[row] != DROPPED:
                    pending[row] = update
            while segments and version >= segments[0].from_commit:
                work = self._next_segment()

    def snapshot(self, about: dict[str, Any]) -> Saved:
        """The master, all workers, and the updates that wait for their commit."""
        saved = self.master.save()
        for worker, local in self.locals.items():
            saved.arrays.update(flatten(f"worker.{worker}", local))
        for row, update in self.pending.items():
            saved.arrays.update(flatten(f"pending.{row}", update))
        saved.document.update(
            manifest=about,
            workers={str(w): k for w, k in self.steps.items()},
            pending=list(self.pending),
            rejected_pending=[row for row, update in self.pending.items() if update is None],
        )
        return saved

    def restore(self, saved: Saved) -> None:
        """Fill the loop's state from a checkpoint."""
        master = self.master
        algorithm, potential, theta0 = master.algorithm, self.worker.potential, master.theta0
        sample = sample_update(algorithm, potential, theta0, self.seed)
        master.restore(saved)
        for worker, k in saved.document["workers"].items():
            self.locals[int(worker)] = saved.tree(
                f"worker.{worker}", algorithm.init_worker(potential, theta0)
            )
            self.steps[int(worker)] = int(k)
        for row in saved.document["pending"]:
            rejected = row in saved.document["rejected_pending"]
            self.pending[row] = None if rejected else saved.tree(f"pending.{row}", sample, in_place=False)
        read, commit, first = self.schedule.read, self.schedule.commit, master.version
        if set(self.pending) != set(np.flatnonzero((read < first) & (commit > first)).tolist()):
            raise DamagedFile("the checkpoint does not hold the updates that its schedule waits for.")


def conclude(
    master: Master,
    schedule: Schedule,
    locals_: Sequence[Any],
    status: str,
    message: str,
    about: dict[str, Any],
) -> Run:
    """The `Run` of a master that has made its last commit; `locals_` are the states of the workers."""
    if status != "diverged" and (diverged := _evaluate_the_end(master)) is not None:
        status, message = "diverged", str(diverged)
    if status == "diverged":
        advice = advise(master.algorithm, master.potential, master.theta0, master.workers, locals_)
        message = f"{message}: {advice}"
    totals = master.algorithm.counters(master.iterate, locals_)
    standing = master.standing()
    if standing is not None and status == "completed":
        message = f"{message[:-1]}; {slope_of(standing)}."
    theta, fun = answer(master, status)
    return Run(
        theta=theta,
        fun=fun,
        status=status,
        message=message,
        schedule=schedule,
        metrics=Table.from_records(master.records),
        counters={
            "pairs_accepted": 0,
            "pairs_rejected": 0,
            **{name: int(total) for name, total in totals.items()},
            "updates_rejected": master.rejected,
            "staleness_max": int(schedule.staleness.max(initial=0)),
        },
        manifest=about,
        theta0=master.theta0.copy(),
        fingerprints=np.array(master.fingerprints, np.uint32),
        algorithm=master.algorithm,
        potential=master.potential,
        keep=master.draws(),
    )


def _evaluate_the_end(master: Master) -> Ended | None:
    """Add the last row of the metric table where it is missing; the end by divergence, if U is not finite."""
    master.callback = None
    try:
        if master.evaluates:
            master.evaluate(master.time)
    except Ended as ended:
        return ended if ended.status == "diverged" else None
    return None


def answer(master: Master, status: str = "") -> tuple[Array, float]:
    """The point that a run reports, and U there: at its target, where it converged, or the lowest offered.

    Where the end is not to be evaluated it is the point that the method judged last, and what it says of U.
    """
    standing, tol = master.standing(), master.stopping.tol
    if not master.evaluates:
        theta, fun = (master.iterate.theta, math.nan) if standing is None else standing[:2]
        return np.array(theta, copy=True), fun
    theta, records = master.iterate.theta, master.records
    known = bool(records) and records[-1]["commit"] == master.version
    if known and master.at_target(records[-1]):
        return np.array(theta, copy=True), records[-1]["fun"]
    settled = status == "stalled" or (tol is not None and standing is not None and converged(standing, tol))
    if standing is not None and settled:
        return np.array(standing.point, copy=True), master.value(standing.point)
    lowest = records[-1]["fun"] if known else master.value(theta)
    offer = extra(master.algorithm, "answers")
    for other in () if offer is None else offer(master.iterate):
        fun = master.value(other)
        if fun < lowest or (np.isfinite(fun) and not np.isfinite(lowest)):
            theta, lowest = other, fun
    return np.array(theta, copy=True), lowest
