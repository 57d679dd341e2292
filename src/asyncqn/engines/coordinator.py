"""The master of every real engine: the machine of `core.assignment`, driven by a clock, with its numbers.

Threads, processes, MPI and Ray differ only in how messages travel.  What they must agree on is here, where a test
can drive it without starting anything.  An engine calls `begin` once; `join` when a worker is ready and `ask` when
it wants work; `deliver` when an update has arrived, None if it was rejected; and `lost` when a worker is gone.
It calls `tick` by `deadline` at the latest, and `finish` after the end, which gives the `Run`.  After every call
it reads `done`.  All calls must be made one at a time.  `now` is in the run's unit of time; a `now` before the
last one counts as the last.

A `Step` means "send worker `worker` the iterate as it is now (`sent`), to compute its k-th step from"; a worker
without a step waits.  The arrays of an update must stay valid until the worker gets its next step, and until
the commit at which a stage releases its workers.  Computations under way at the end are finished by their workers,
learned from (`core.worker`), and recorded as dropped, as a replay will do.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from asyncqn.cluster.cluster import Cluster
from asyncqn.core.assignment import Apply, Assign, Drop, new_tuple
from asyncqn.core.execute import Finished
from asyncqn.core.master import Master, problem_stopped
from asyncqn.core.outcome import Outcome
from asyncqn.core.request import Request, headcount
from asyncqn.core.schedule import Recorder
from asyncqn.core.stages import Arrival, EachUpdate, Stages, check_stages, time_share
from asyncqn.core.stopping import Ended
from asyncqn.engines.copies import sent_fields
from asyncqn.engines.measured import Measured
from asyncqn.engines.run_file import RunFile
from asyncqn.engines.worker_loop import Step
from asyncqn.runs.conclude import conclude
from asyncqn.runs.draws import rows_to_keep
from asyncqn.runs.manifest import EngineManifest
from asyncqn.runs.run import Run
from asyncqn.types import Array

_log = logging.getLogger("asyncqn.engines")


@dataclass(slots=True)
class Member:
    """The master's record of a worker; `read` is the version it computes on, None while it does not."""

    k: int
    since: float = 0.0
    waiting: bool = False
    read: int | None = None
    part: int | None = None
    last: int | None = None
    version: int = -1
    """The version for which it was given the parts up to `last`."""


class Coordinator:
    """The master's state machine; see the top of this file.

    Parameters
    ----------
    request : Request
        The problem, the algorithm and the options of the run.
    workers : int
        Number of workers that are expected, for guards and advice.
    engine : dict
        The engine's entry in the manifest, with `kind` at least.
    pause : callable, default nullcontext
        Returns a context that is entered around every evaluation, so that the engine's clock can stand still.
    max_staleness, give_up_after, timing_model
        Options of `RealEngine`.

    Attributes
    ----------
    failure : BaseException, optional
        The exception of the callback, which the engine raises after `finish`.
    snapshots : RunFile
        The manifest and the checkpoints.
    time : float
        Of the last event.
    """

    def __init__(
        self,
        request: Request,
        *,
        workers: int,
        engine: EngineManifest,
        pause: Callable[[], AbstractContextManager[None]] = nullcontext,
        max_staleness: int | None = None,
        give_up_after: float = math.inf,
        timing_model: Cluster | None = None,
    ) -> None:
        self.request, self.workers = request, workers
        self.algorithm = request.algorithm
        stages = _no_older(self.algorithm.stages, max_staleness)
        check_stages(stages, type(self.algorithm).__name__)
        self.master = Master(request, workers, pause, rows_to_keep(request))
        self.recorder, self.measured = Recorder(), Measured()
        self.members: dict[int, Member] = {}
        self.gone: set[int] = set()
        """Numbers that are never given again: they stand for random streams."""
        self.next_worker = 0
        self.expecting: Callable[[], bool] = lambda: False
        """Whether further workers will come, so that the run goes on when the last one is lost."""
        self.done = False
        self.outcome, self.message = Outcome.STOPPED, ""
        self.failure: BaseException | None = None
        self.lost_workers = self.joined_later = 0
        self.silent: list[int] = []
        """Workers that did not respond after the end, and were given up."""
        self.time = 0.0
        self.give_up_after, self.timing_model = give_up_after, timing_model
        self.reach = 0.0 if timing_model is None else timing_model.message / 2
        """Time that a message needs to reach a worker."""
        self.service = 0.0 if timing_model is None else timing_model.master
        """Time that a commit takes: the engine waits until `time` before it carries out steps."""
        self.timed = stages[-1].waits or give_up_after < math.inf
        """Whether `tick` has anything to do."""
        self._counts_rows = request.stopping.max_passes is not None
        self._sent = sent_fields(self.algorithm, self.master.iterate)
        self.snapshots = RunFile(self, engine)
        self.machine = self.snapshots.machine(stages)
        # The checkpoint may be that of the end.
        if self.snapshots.start is not None:
            self._guarded(self.master.stop_at_once)

    # -- what an engine reads

    @property
    def version(self) -> int:
        return self.master.version

    @property
    def deadline(self) -> float:
        """The time by which `tick` must be called."""
        ends = self.machine.deadline
        # One that has passed changes nothing until something else happens.
        ends = ends if ends > self.time else math.inf
        if self.give_up_after < math.inf:
            busy = [m.since for m in self.members.values() if m.read is not None]
            ends = min(ends, min(busy, default=math.inf) + self.give_up_after)
        return ends

    @property
    def headcount(self) -> str:
        """A phrase with the numbers of present and lost workers."""
        return headcount(len(self.members), self.workers, self.lost_workers)

    def sent(self) -> tuple[Array, ...]:
        """Return the arrays of the iterate that workers read, in the order of `sent_fields`."""
        iterate = self.master.iterate
        return tuple([getattr(iterate, name) for name in self._sent])

    # -- events

    def begin(self) -> None:
        """Evaluate the starting point (a checkpoint has that row already)."""
        if self.version == 0 and not self.master.records:
            self._guarded(self.master.evaluate, 0.0)

    def new_worker(self) -> int:
        """Return a number for a worker: those of the checkpoint come first, then numbers never used before."""
        if self.snapshots.returning:
            return self.snapshots.returning.pop(0)
        self.next_worker += 1
        return self.next_worker - 1

    def join(self, now: float, worker: int | None = None) -> int:
        """Admit a worker and return its number."""
        self._advance(now)
        if worker is None:
            worker = self.new_worker()
        elif worker in self.members or worker in self.gone:
            raise ValueError(f"worker number {worker} was used before")
        self.next_worker = max(self.next_worker, worker + 1)
        self.members[worker] = Member(self.snapshots.steps_made.get(worker, 0))
        self.machine.join(worker)
        self.master.alive = len(self.members)
        # Workers that return with a checkpoint have not joined late.
        if self.version > 0 and self.version != self.snapshots.resumed_from:
            self.joined_later += 1
            words = "worker %d joined after commit %d: %s"
            _log.info(words, worker, self.version, self.headcount)
        return worker

    def ask(self, worker: int, now: float) -> list[Step]:
        """Assign the current version to a free worker, or let it wait for the next one."""
        member = self.members.get(worker)  # late questions have no effect
        if self.done or member is None or member.read is not None or member.waiting:
            return []
        self._advance(now)
        return self._next(worker, member)

    def _next(self, worker: int, member: Member) -> list[Step]:
        if member.part != member.last and member.version == self.master.version:
            assert member.part is not None
            # The next part of its block.
            return [self._step(worker, member, member.part + 1)]
        order = self.machine.ready(worker, self.time)
        if order is not None:
            return [self._begin(order)]
        member.waiting = True
        return self._settle()

    def deliver(
        self,
        worker: int,
        update: Any | None,
        now: float,
        *,
        ask: bool = True,
        spent: float | None = None,
    ) -> list[Step]:
        """Accept an update that has arrived, and return the steps that follow.

        With `ask` the worker wants work again at once.  `spent` is the time of its computation, if it was
        measured.
        """
        member = self.members.get(worker)
        if self.done or member is None or member.read is None:
            return []
        self._advance(now)
        # From here on the worker is free, whatever becomes of its update.
        read, member.read = member.read, None
        if spent is not None:
            share = time_share(self.algorithm.stages, read)
            self.measured.computed(worker, spent, share)
        took = (self.time - member.since) * self.machine.stage.pieces
        order = self.machine.deliver(worker, read, member.part, update, took)
        if type(order) is Apply:
            self._commit(order.arrivals)
        elif type(order) is Drop:
            self.recorder.dropped(worker, read, self.time, member.part)
        steps = self._settle()
        if ask and not self.done:
            steps += self._next(worker, member)
        return steps

    def served(self, begun: float, now: float, version: int) -> None:
        """Record that an update, and what it led to, kept the master busy from `begun` to `now`.

        `version` is the version at which it came; a later one now means that it made a commit.
        """
        if not self.done:
            self.measured.served(now - begun, commit=self.version > version)

    def lost(self, worker: int, now: float) -> list[Step]:
        """Remove a worker that is gone; the run ends if there is no other, and none is expected."""
        if self.members.pop(worker, None) is None:
            return []
        self._advance(now)
        self.gone.add(worker)
        self.lost_workers += 1
        # For the callback, which sees how many workers there are.
        self.master.alive, self.master.lost = len(self.members), self.lost_workers
        words = "worker %d was lost after commit %d: %s."
        _log.warning(words, worker, self.version, self.headcount)
        self.snapshots.forget(worker)
        self.machine.lost(worker)
        steps = self._settle()
        if not self.members and not self.expecting():
            self.stop_without_workers()
        return steps

    def tick(self, now: float) -> list[Step]:
        """Do what time demands: close a round that is over, and give up silent workers."""
        self._advance(now)
        steps: list[Step] = []
        if self.give_up_after < math.inf:
            # A copy, because `lost` removes members.
            for worker, member in list(self.members.items()):
                silent = self.time - member.since >= self.give_up_after
                if member.read is not None and silent and not self.done:
                    steps += self.lost(worker, now)
        return steps + self._settle()

    # -- orders of the machine

    def _advance(self, now: float) -> None:
        if now > self.time:
            self.time = now

    def _settle(self) -> list[Step]:
        """Carry out what the machine decides now that an event is in."""
        steps: list[Step] = []
        while not self.done and (orders := self.machine.settle(self.time)):
            for order in orders:
                if isinstance(order, Apply):
                    self._commit(order.arrivals)
                elif isinstance(order, Assign):
                    steps.append(self._begin(order))
        return steps

    def _begin(self, order: Assign) -> Step:
        member = self.members[order.worker]
        member.version, member.last = order.read, order.last
        member.waiting = False
        return self._step(order.worker, member, order.part)

    def _step(self, worker: int, member: Member, part: int | None) -> Step:
        version, owes = self.master.version, worker in self.snapshots.owed
        # k is taken here and not by the worker: a computation that is lost has still used its random
        # numbers.
        step: Step = new_tuple(Step, (worker, version, member.k, part, owes))
        member.k += 1
        member.read, member.part = version, part
        member.since = self.time
        return step

    def _commit(self, arrivals: list[Arrival]) -> None:
        # Order matters from here on: record, count, commit, and only then answer the machine.
        master = self.master
        # A timing model lets a commit take time; without one, service is 0.
        self.time += self.service
        # The schedule is recorded before the commit, which may end the run.
        self.recorder.delivered(arrivals, self.time)
        updates, staleness = [], []
        for _, read, _, update, counts in arrivals:
            if counts:
                updates.append(update)
                staleness.append(master.version - read)
        if self._counts_rows:
            master.count(arrivals)
        if not self._guarded(master.commit, updates, self.time, staleness):
            return
        self.machine.committed(self.time)
        if master.version == self.request.commits:
            self.stop(Outcome.COMPLETED, f"{master.version} commits were made.")
        else:
            self.snapshots.take_if_due()

    def _guarded(self, call: Callable[..., None], *arguments: Any) -> bool:
        try:
            call(*arguments)
        except StopIteration as error:
            raise problem_stopped(error, self.version) from error
        except Ended as ended:
            # An error of the callback is raised after the run has been concluded and saved.
            self.failure = ended.__cause__
            self.stop(ended.outcome, str(ended))
        return not self.done

    # -- the end

    def stop(self, outcome: Outcome, message: str) -> None:
        """End the run with an outcome and a sentence that explains it."""
        if not self.done:
            self.done = True
            self.outcome, self.message = outcome, message

    def stop_without_workers(self) -> None:
        """End the run because no worker is left."""
        commits = f"{self.version} of {self.request.commits} commits"
        self.stop(Outcome.STOPPED, f"every worker was gone after {commits}.")

    def under_way(self) -> list[tuple[int, int, int | None]]:
        """Return (worker, version, part) of every update that waits and of every computation under way."""
        # The updates of a commit that ended the run are recorded.
        waiting = [] if self.machine.closing else self.machine.waiting
        rows = [(arrival.worker, arrival.read, arrival.part) for arrival in waiting]
        # Sorted, so that the rows of a checkpoint do not depend on the order of joining.
        for worker, member in sorted(self.members.items()):
            if member.read is not None:
                rows.append((worker, member.read, member.part))
        return rows

    def finish(self, states: Mapping[int, Any]) -> Run:
        """Return the run, from the states of the workers that are still there."""
        for worker, read, part in self.under_way():
            self.recorder.dropped(worker, read, self.time, part)
        self.machine.waiting.clear()
        for member in self.members.values():
            member.read = None
        # By number, as a replay has them.
        locals_ = [states[w] for w in sorted(states)]
        schedule = self.recorder.schedule()
        ended = Finished(self.master, schedule, locals_, self.outcome, self.message)
        return conclude(ended, self.snapshots.manifest())


def _no_older(stages: Stages, most: int | None) -> Stages:
    """Return the stages with a limit on staleness, where each update is a commit."""
    if most is None:
        return stages
    return tuple(
        replace(stage, max_delay=min(most, stage.max_delay or most))
        if isinstance(stage, EachUpdate)
        else stage
        for stage in stages
    )
