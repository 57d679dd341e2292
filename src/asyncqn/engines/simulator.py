"""The simulator: real numbers on the time axis of a simulated cluster.

A schedule does not depend on the numbers, so it is simulated first and then executed by `core.execute`.  The
rest of this file serves runs that may end long before their last commit: `_in_stretches` simulates and
executes a short schedule first, and `Handover` carries the state to a longer one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.fit import stretched_to
from asyncqn.cluster.simulate import simulate
from asyncqn.core.execute import Finished, Loop, LoopState, execute
from asyncqn.core.outcome import Outcome
from asyncqn.core.request import Request
from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.core.stopping import TO_THE_END
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.parameters import Checked, parameter
from asyncqn.runs.conclude import conclude
from asyncqn.runs.draws import rows_to_keep
from asyncqn.runs.execution import run_schedule
from asyncqn.runs.manifest import run_manifest
from asyncqn.runs.run import Run
from asyncqn.storage.growing import GrowingRows
from asyncqn.storage.serialise import to_json
from asyncqn.types import Callback, Progress

_MAX_COMPUTATIONS, _MIN_STRETCH = 1_000_000, 64
"""Number of computations beyond which a schedule is simulated in stretches, because the whole takes longer
than a user wants to wait; and the shortest stretch, in commits, that is worth the trouble."""


@dataclass(frozen=True)
class Simulator(Checked):
    """Run an algorithm on a simulated cluster: the clock is the cluster's, the numbers are real.

    Parameters
    ----------
    cluster : Cluster
        The timing model whose times are drawn.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=10, worker_mean=70.0, worker_std=14.0))
    >>> run = aq.minimize(problem, aq.AsyncSGD(h=1e-4, batch=20), engine=engine, commits=200)
    >>> run.time > 200 / 10 * 50
    True
    """

    cluster: Annotated[
        Cluster, parameter(words="a Cluster, as in Simulator(Cluster(workers=4))")
    ]

    @property
    def workers(self) -> int:
        return self.cluster.workers

    def minimize(self, request: Request) -> Run:
        engine = {
            "kind": "simulator",
            "workers": self.workers,
            "cluster": to_json(self.cluster),
        }
        algorithm = request.algorithm
        cluster = stretched_to(
            self.cluster, algorithm, request.commits, int(request.problem.n_data)
        )
        with listening_for_interrupts(request.checkpoints):
            # A checkpoint refers to rows of the one schedule of the whole run, so it is simulated at once.
            if request.checkpoints is not None:
                schedule = simulate(
                    cluster, algorithm.stages, request.commits, request.seed
                )
                return run_schedule(request, schedule, engine=engine)
            return conclude(
                _in_stretches(request, cluster), run_manifest(request, engine)
            )


def _in_stretches(request: Request, cluster: Cluster) -> Finished:
    """Simulate and execute few commits first where the run may end long before the last.

    A schedule does not depend on the numbers, so nobody knows beforehand how much of it will be needed.  A
    run that outlives its schedule continues with one four times as long.
    """
    kept, told = rows_to_keep(request), request
    lengths = schedule_lengths(request)
    if len(lengths) > 1 and request.callback is not None:
        told = replace(request, callback=OncePerCommit(request.callback))
    handover = Handover(kept)
    for length in lengths:
        schedule = simulate(cluster, request.algorithm.stages, length, request.seed)
        # The same seed draws the same times, so a longer schedule begins like the shorter one.
        handover.take_over(schedule, cluster.workers, last=length == lengths[-1])
        finished = execute(
            replace(told, commits=length),
            schedule,
            workers=cluster.workers,
            kept=kept,
            watch=handover,
        )
        # The run ended before its schedule did; otherwise the next, longer one continues it.
        if finished.outcome is not Outcome.COMPLETED:
            break
    return finished


def schedule_lengths(request: Request) -> list[int]:
    """Return the lengths, in commits, of the schedules to simulate in turn; the last is the whole run."""
    rows = request.algorithm.stages[-1].rows
    lengths = [request.commits]
    while (
        request.stopping != TO_THE_END
        and lengths[0] * rows > _MAX_COMPUTATIONS
        and lengths[0] > _MIN_STRETCH
    ):
        # Four times as long each: the discarded stretches cost at most a third of the last one.
        lengths.insert(0, lengths[0] // 4)
    return lengths


class Handover:
    """Carries the numerical loop from a schedule to a longer one with the same beginning.

    A schedule lacks the computations that were under way when it ended.  So the state is copied at the last
    version before any of those began, and the commits after it are made again.

    `kept` are the stored iterates of the run; those after that version are dropped.
    """

    def __init__(self, kept: GrowingRows | None) -> None:
        self._kept = kept
        self._state: LoopState | None = None
        self._before: tuple[int, Schedule] | None = None
        self._settled = 0

    def take_over(self, schedule: Schedule, workers: int, *, last: bool) -> None:
        """Prepare the loop to continue with this schedule; with `last`, no other follows."""
        # Only a user's own law of times can change early times when more are drawn; then the run starts
        # again.
        if self._before is not None and not _begin_alike(*self._before, schedule):
            self._state = None
        if self._state is None and self._kept is not None:
            self._kept.truncate(0)
        self._settled = 0 if last else settled_version(schedule, workers)
        self._before = self._settled, schedule

    def begin(self, loop: Loop) -> None:
        if self._state is not None:
            state, self._state = self._state, None
            loop.restore(state)
            if self._kept is not None:
                self._kept.truncate(loop.master.version // loop.master.keep)

    def committed(self, loop: Loop) -> None:
        if loop.master.version == self._settled:
            self._state = loop.state()

    def stopped(self, loop: Loop) -> None:
        pass


def settled_version(schedule: Schedule, workers: int) -> int:
    """Return a version such that the schedule has all computations that read an earlier one.

    It is the earliest at which a worker may have begun what it was computing at the end of the schedule.
    """
    # A worker that has not delivered anything yet may still compute on version 0.
    if schedule.workers < workers or len(set(schedule.worker.tolist())) < workers:
        return 0
    read, commit = schedule.read, schedule.commit
    ends = np.maximum(commit, read) if schedule.part is None else read
    last = {int(w): int(end) for w, end in zip(schedule.worker, ends)}
    delivered = int(np.flatnonzero(commit != DROPPED)[-1])
    return min(
        *last.values(), int(read[delivered + 1 :].min(initial=schedule.commits - 1))
    )


def _begin_alike(version: int, schedule: Schedule, longer: Schedule) -> bool:
    """Return whether computations that read a version before this one are the same rows of both schedules."""
    early, others = schedule.read < version, longer.read < version
    rows = np.flatnonzero(early)
    if not np.array_equal(rows, np.flatnonzero(others)):
        return False
    mine, theirs = schedule.arrays(), longer.arrays()
    return all(np.array_equal(mine[name][rows], theirs[name][rows]) for name in mine)


class OncePerCommit:
    """A callback that is called at most once per commit, although stretches repeat commits."""

    def __init__(self, callback: Callback) -> None:
        self.callback, self.last = callback, -1

    def __call__(self, progress: Progress) -> None:
        if progress.commit > self.last:
            self.last = progress.commit
            self.callback(progress)
