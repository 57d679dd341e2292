"""The numerical loop: every number of a run from (algorithm, problem, theta0, seed, schedule).

This is the idea of the project in code.  `execute` is the entry point, `Loop.run` the loop itself; the
simulator and the replay call it, and the tests compare every real engine with it.

A computation is a pure function of the version that it reads and of its worker's own past.  It can therefore
be executed the moment its version exists, before the next commit, and no version is ever copied, although
its update may be committed much later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, Protocol

from asyncqn.core.algorithm import Task
from asyncqn.core.assignment import new_tuple
from asyncqn.core.master import KeptRows, Master, problem_stopped
from asyncqn.core.outcome import Outcome
from asyncqn.core.request import Request
from asyncqn.core.schedule import Schedule, Turn
from asyncqn.core.stopping import Ended
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


class Turns(Protocol):
    """A source of turns: a `Schedule`, or a simulated cluster that continues as far as it is asked."""

    @property
    def commits(self) -> int | None:
        """Number of commits; None if it lasts as long as there are workers."""
        ...

    @property
    def workers(self) -> int:
        """Number of workers."""
        ...

    def turns(self, commits: int) -> Iterator[Turn]:
        """Yield what happens at each version, for at most `commits` commits."""
        ...

    def until(self, commit: int) -> Schedule:
        """Return the schedule up to a commit, the last one that was asked for or an earlier one."""
        ...


class Watch(Protocol):
    """An observer that follows the loop from commit to commit, such as a writer of checkpoints."""

    def begin(self, loop: Loop) -> None:
        """Start to observe a loop at version 0; `Loop.restore` may set it to a later version."""

    def committed(self, loop: Loop) -> None:
        """Observe a commit; raise `Ended` to end the run here."""

    def stopped(self, loop: Loop) -> None:
        """Observe the end of the run."""


def execute(
    request: Request,
    source: Turns,
    *,
    workers: int = 0,
    wire: str = "exact",
    kept: KeptRows | None = None,
    watch: Watch | None = None,
) -> Finished:
    """Run the computations of a schedule and commit their updates in its order.

    Parameters
    ----------
    request : Request
        What is run.  `request.commits` is how many commits were asked for; a schedule in which every worker
        died has fewer.
    source : Schedule or VirtualTime
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
    N = request.commits if source.commits is None else source.commits
    master = Master(
        replace(request, commits=N), max(source.workers, workers), kept=kept
    )
    loop = Loop(master, request.seed, wire)
    outcome = Outcome.COMPLETED
    message = f"{N} commits were made."
    failure: BaseException | None = None
    if watch is not None:
        watch.begin(loop)
    try:
        # A loop that `watch` restored has its first row already.
        if master.version == 0:
            master.evaluate(0.0)
        turns = source.turns(N)
        if master.version > 0:
            # Counted again, because a run without `max_passes` has not counted its rows.
            master.rows = 0
            for _, _, ends, _ in islice(turns, master.version):
                master.count(ends)
            # The checkpoint may be that of the end.
            master.stop_at_once()
        loop.run(turns, watch)
        if request.commits > master.version:
            outcome = Outcome.STOPPED
            message = f"every worker was gone after {master.version} of {request.commits} commits."
    except Ended as ended:
        outcome = ended.outcome
        message = str(ended)
        failure = ended.__cause__
    except StopIteration as error:
        raise problem_stopped(error, master.version) from error
    if watch is not None and outcome is not Outcome.DIVERGED:
        watch.stopped(loop)
    if failure is not None:
        raise failure
    # Computations under way at the end count as dropped.
    schedule = source.until(master.version)
    # By number, as the real engines have them.
    locals_ = [loop.locals[w] for w in sorted(loop.locals)]
    return Finished(master, schedule, locals_, outcome, message)


class Loop:
    """The numerical loop between two versions: the workers, and the updates that wait for their commit."""

    def __init__(self, master: Master, seed: int, wire: str = "exact") -> None:
        self.master, self.seed = master, seed
        self.locals: dict[int, Any] = {}
        self.steps: dict[int, int] = {}
        self.pending: dict[int, deque[Any]] = {}
        """By worker, the updates that it has computed and that have not arrived; None: rejected."""
        algorithm: Any = master.algorithm
        # A float32 wire rounded what the workers read and sent.
        if wire == "float32":
            algorithm = Float32Wire(algorithm)
        self.worker = WorkerSteps(algorithm, master.problem, master.limit)

    def run(self, turns: Iterable[Turn], watch: Watch | None = None) -> None:
        """Compute and commit turn by turn; raises `Ended` where the run ends before the last."""
        master = self.master
        seed = self.seed
        work = self.worker
        locals_ = self.locals
        steps = self.steps
        pending = self.pending
        for version, begins, ends, time in turns:
            # First run every computation that reads this version, although it may end much later ...
            for w, part in begins:
                # Workers may join late: their state is created when they first compute.
                if w not in locals_:
                    local = master.algorithm.init_worker(work.problem, master.theta0)
                    locals_[w] = local
                    steps[w] = 0
                    pending[w] = deque()
                k = steps[w]
                local = locals_[w]
                iterate = master.iterate
                # k counts the worker's own steps, so its random numbers do not depend on what others do.
                stream = new_tuple(Stream, (seed, w, k))
                task = new_tuple(Task, (w, version, stream, part))
                steps[w] = k + 1
                update = work.compute(iterate, local, task)
                locals_[w] = work.learn(iterate, local, task, update)
                pending[w].append(update)
            # ... then commit the updates that make the next version.
            updates, staleness = [], []
            for w, read, _, _, counts in ends:
                # A dropped computation still ran: its worker learned from it.
                update = self._ended(w)
                if counts:
                    updates.append(update)
                    staleness.append(version - read)
            if updates:
                master.count(ends)
                master.commit(updates, time, staleness)
                if watch is not None:
                    watch.committed(self)

    def _ended(self, worker: int) -> Any:
        """Return the oldest update of a worker that has not arrived."""
        waiting = self.pending.get(worker)
        if not waiting:
            raise DamagedFile(
                "the checkpoint is damaged: it lacks updates that its schedule waits for."
            )
        return waiting.popleft()
