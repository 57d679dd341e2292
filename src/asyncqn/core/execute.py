"""The numerical loop: every number of a run from (algorithm, problem, theta0, seed, schedule).

This is the idea of the project in code.  `execute` is the entry point, `Loop.run` the loop itself; the
simulator and the replay call it, and the tests compare every real engine with it.

A computation is a pure function of the version that it reads and of its worker's own past.  It can therefore
be executed the moment its version exists, before the next commit, and no version is ever copied, although
its update may be committed much later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from asyncqn.core.algorithm import Task
from asyncqn.core.master import KeptRows, Master, new_tuple, problem_stopped
from asyncqn.core.outcome import Outcome
from asyncqn.core.request import Request
from asyncqn.core.schedule import DROPPED, Schedule, rows_computed
from asyncqn.core.stopping import Ended, EndedByCallback
from asyncqn.core.streams import Stream
from asyncqn.core.worker import Float32Wire, WorkerSteps
from asyncqn.errors import DamagedFile


class Finished(NamedTuple):
    """A run that has made its last commit, on any engine; `runs.conclude` makes a `Run` of it."""

    master: Master
    schedule: Schedule
    locals: Sequence[Any]
    """The states of the workers that are still there."""
    outcome: Outcome
    message: str


class LoopState(NamedTuple):
    """All that changes in a `Loop`, between two commits."""

    master: dict[str, Any]
    """The arguments of `Master.restore`."""
    workers: Mapping[int, tuple[Any, int]]
    """The state of each worker, and how many steps it made."""
    pending: Mapping[int, Any]
    """The updates that wait for their commit, by the rows of the schedule; None: rejected."""


class Watch(Protocol):
    """An observer that follows the loop from commit to commit, such as a writer of checkpoints."""

    def begin(self, loop: Loop) -> None:
        """Start to observe a loop at version 0; `Loop.restore` may set it to a later version."""

    def committed(self, loop: Loop) -> None:
        """Observe a commit; raise `Ended` to end the run here."""

    def stopped(self, loop: Loop) -> None:
        """Observe that the callback has ended the run."""


def execute(
    request: Request,
    schedule: Schedule,
    *,
    workers: int = 0,
    wire: str = "exact",
    kept: KeptRows | None = None,
    watch: Watch | None = None,
) -> Finished:
    """Run all computations of the schedule and commit their updates in its order.

    Parameters
    ----------
    request : Request
        What is run.  `request.commits` is how many commits were asked for; a schedule in which every worker
        died has fewer.
    schedule : Schedule
        Who reads which version, and which commit delivers it.
    workers : int, default 0
        How many workers there were, where the schedule may lack some of them.
    wire : {"exact", "float32"}, default "exact"
        The precision of the messages between master and workers.
    kept : KeptRows, optional
        Where every `request.keep`-th iterate goes.
    watch : Watch, optional
        Follows the loop from commit to commit.

    Returns
    -------
    Finished
        The master after its last commit, the schedule up to there, the workers' states and the outcome.
    """
    schedule.check_parts(request.algorithm.stages)
    N = schedule.commits
    master = Master(
        replace(request, commits=N), max(schedule.workers, workers), kept=kept
    )
    loop = Loop(master, schedule, request.seed, wire)
    outcome, message, failure = Outcome.COMPLETED, f"{N} commits were made.", None
    if watch is not None:
        watch.begin(loop)
    try:
        # A loop that `watch` restored has its first row already.
        if master.version == 0:
            master.evaluate(0.0)
        loop.run(watch)
        if request.commits > N:
            outcome = Outcome.STOPPED
            message = f"every worker was gone after {N} of {request.commits} commits."
    except Ended as ended:
        outcome, message, failure = ended.outcome, str(ended), ended.__cause__
        if watch is not None and isinstance(ended, EndedByCallback):
            watch.stopped(loop)
    except StopIteration as error:
        raise problem_stopped(error, master.version) from error
    if failure is not None:
        raise failure
    # Where the run ended early, the schedule is cut: computations under way then count as dropped.
    done = schedule if master.version == N else schedule.until(master.version)
    return Finished(master, done, list(loop.locals.values()), outcome, message)


class Loop:
    """The numerical loop between two versions: the workers, and the updates that wait for their commit."""

    def __init__(
        self, master: Master, schedule: Schedule, seed: int, wire: str = "exact"
    ) -> None:
        self.master, self.schedule, self.seed = master, schedule, seed
        self.locals: dict[int, Any] = {}
        self.steps: dict[int, int] = {}
        self.pending: dict[int, Any] = {}
        algorithm: Any = master.algorithm
        # A float32 wire rounded what the workers read and sent.
        if wire == "float32":
            algorithm = Float32Wire(algorithm)
        self.worker = WorkerSteps(algorithm, master.problem, master.limit)

    def run(self, watch: Watch | None = None) -> None:
        """Compute and commit to the end of the schedule; raises `Ended` where the run ends before."""
        master, schedule, seed = self.master, self.schedule, self.seed
        locals_, steps, pending = self.locals, self.steps, self.pending
        # Plain lists: reading one element of a NumPy array costs more than the rest of a short step.
        worker, commit = schedule.worker.tolist(), schedule.commit.tolist()
        time, passes = schedule.commit_times().tolist(), None
        if master.stopping.max_passes is not None:
            n_data = master.problem.n_data
            passes = (
                np.cumsum(rows_computed(master.algorithm, schedule, n_data)) / n_data
            )
        part = None if schedule.part is None else schedule.part.tolist()
        first, N = master.version, schedule.commits
        begins = np.argsort(
            schedule.read, kind="stable"
        )  # computations in the order they begin
        ends = np.flatnonzero(
            schedule.commit != DROPPED
        )  # and those delivered, in the order they end
        # begun[v] counts the computations that read a version up to v, and ended[v] those delivered up to
        # commit v. Two slices then say what happens between two versions.
        versions = np.arange(N + 1)
        begun = np.searchsorted(schedule.read[begins], versions, side="right").tolist()
        ended = np.searchsorted(schedule.commit[ends], versions, side="right").tolist()
        starts, delivered = begins.tolist(), ends.tolist()
        staleness = (schedule.commit - 1 - schedule.read).tolist()
        work = self.worker
        for version in range(first, N + 1):
            # First commit the updates that make this version ...
            if version > first:
                rows = delivered[ended[version - 1] : ended[version]]
                updates = list(map(pending.pop, rows))
                if passes is not None:
                    master.passes = float(passes[rows[-1]])
                master.commit(
                    updates, time[version - 1], list(map(staleness.__getitem__, rows))
                )
                if watch is not None:
                    watch.committed(self)
            # ... then run every computation that reads it, although the schedule lets it end later.
            for row in starts[begun[version - 1] if version else 0 : begun[version]]:
                w = worker[row]
                # Workers may join late: their state is created when they first compute.
                if w not in locals_:
                    locals_[w], steps[w] = (
                        master.algorithm.init_worker(work.problem, master.theta0),
                        0,
                    )
                k, local, iterate = steps[w], locals_[w], master.iterate
                # k counts the worker's own steps, so its random numbers do not depend on what others do.
                stream = new_tuple(Stream, (seed, w, k))
                task = new_tuple(
                    Task, (w, version, stream, None if part is None else part[row])
                )
                steps[w] = k + 1
                update = work.compute(iterate, local, task)
                locals_[w] = work.learn(iterate, local, task, update)
                # A dropped computation still ran: its worker learned from it.
                if commit[row] != DROPPED:
                    pending[row] = update

    def state(self) -> LoopState:
        """Return a copy of the state between two commits."""
        master = self.master
        whole = LoopState(
            {
                "iterate": master.iterate,
                "version": master.version,
                "time": master.time,
                "rejected": master.rejected,
                "rejected_in_a_row": master.rejected_in_a_row,
                "fingerprints": master.fingerprints,
                "records": master.records,
                "delays": (master.delays, master.delayed),
                "best": master.best,
            },
            {
                worker: (local, self.steps[worker])
                for worker, local in self.locals.items()
            },
            self.pending,
        )
        return deepcopy(whole)

    def restore(self, state: LoopState) -> None:
        """Continue from a state, whose arrays become the loop's own."""
        self.master.restore(**state.master)
        for worker, (local, steps) in state.workers.items():
            self.locals[worker], self.steps[worker] = local, steps
        self.pending.update(state.pending)
        read, commit, first = (
            self.schedule.read,
            self.schedule.commit,
            self.master.version,
        )
        # Exactly the computations that were begun before this version and end after it wait for their
        # commit.
        if set(self.pending) != set(
            np.flatnonzero((read < first) & (commit > first)).tolist()
        ):
            raise DamagedFile(
                "the checkpoint is damaged: it lacks updates that its schedule waits for."
            )
