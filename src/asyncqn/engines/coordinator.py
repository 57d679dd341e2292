"""The master of every real engine, as a state machine: events in, orders out, no threads, sockets or clocks.

Threads, processes, MPI and Ray differ only in how messages travel.  Everything they must agree on is here,
where a test can drive it without starting anything:

- `c = Coordinator(request, workers=W, engine=...)`
- `c.begin()` once, before anything else: it evaluates the starting point.
- `w = c.join(now)` when a worker has come; its number is never used twice.
- `orders = c.ask(w, now)` when the worker is free and wants work.
- `orders = c.deliver(w, update, now)` when its update has arrived (None if it was rejected).
- `orders = c.lost(w, now)` when it is gone, and what it was computing with it.
- `orders = c.tick(now)` when time has passed, by `c.deadline` at the latest.
- `c.stop(outcome, message)` to end early; computations under way count as dropped.
- `c.snapshots.hand_in(w, state_arrays(w, state))` with a worker's state for the checkpoint being taken.
- `saved = c.snapshots.whole()` gives that checkpoint once no worker owes a state, and None before.
- `run = c.finish(states)` gives the `Run` after the end.
- `saved = last_checkpoint(c, states)` gives the checkpoint of the end, after `finish` (`engines.snapshots`).
- `c.failure` is the exception of the callback, which the engine raises after all that.

An engine carries out the orders: `Assign` means "send worker `worker` the iterate as it is now
(`coordinator.sent()`), to compute its k-th step from"; no order for a worker means that it waits.  After
every call the engine reads `coordinator.done`.  All calls must be made one at a time (under a lock, or from
one thread).  `now` is in the run's unit of time; a `now` before the last one counts as the last.

The arrays of an update must keep their numbers until the worker is assigned again: in rounds the coordinator
holds the updates until the round closes (updates of blocks, whose workers continue before, are copied).
Computations under way at the end are finished by their workers, learned from (`core.worker`), and recorded as
dropped, as a replay will do.

`Assign.hand_in` tells the engine to fetch the worker's state for a checkpoint (`engines.snapshots`)
*before* it begins the assigned step.  Where a run continues from a checkpoint,
every worker of `coordinator.returning` joins by its number, with the state that it had.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import numpy as np

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.handout import HandOut
from asyncqn.cluster.waiting import EACH_UPDATE, ROUND, Arrival, WaitingUpdates
from asyncqn.core.execute import Finished
from asyncqn.core.master import Master, new_tuple, problem_stopped
from asyncqn.core.outcome import Outcome
from asyncqn.core.request import Request, headcount
from asyncqn.core.schedule import rows_computed
from asyncqn.core.stages import check_stages, stage_at, time_share
from asyncqn.core.stopping import Ended
from asyncqn.engines.copies import copied
from asyncqn.engines.measured import Measured
from asyncqn.engines.orders import Assign, Member, sent_fields
from asyncqn.engines.schedule_recorder import ScheduleRecorder
from asyncqn.engines.snapshots import Snapshots, take
from asyncqn.runs.checkpoint import Arrays, Saved
from asyncqn.runs.conclude import conclude
from asyncqn.runs.data_digest import data_digest
from asyncqn.runs.draws import rows_to_keep
from asyncqn.runs.manifest import EngineManifest, run_manifest
from asyncqn.runs.run import Run
from asyncqn.runs.snapshot import restore_master
from asyncqn.storage.serialise import to_json
from asyncqn.types import Array, Rows

_log = logging.getLogger("asyncqn.engines")

LAST_WAIT = 30.0
"""Least time, in seconds, that workers have to finish after the end of a run.  Our own choice: a user who
waits for a result accepts half a minute, and almost every computation is shorter."""
_LAST_WAIT_COMPUTATIONS = 20.0
"""The same in mean computation times of the slowest worker, where that is longer.  Our own choice."""


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
        algorithm = request.algorithm
        check_stages(algorithm.stages, type(algorithm).__name__)
        self.request = request
        self.master = Master(request, workers, pause, rows_to_keep(request))
        self.problem, self.algorithm, self.theta0 = (
            request.problem,
            algorithm,
            request.theta0,
        )
        self.commits, self.seed, self.workers = request.commits, request.seed, workers
        self.stages, self.stopping = algorithm.stages, request.stopping
        self.handout = (
            HandOut(self.stages, self.seed)
            if self.stages[0].parts is not None
            else None
        )
        self.engine = to_json(dict(engine))
        # Computed once: the manifest is written with every checkpoint.
        self._data = data_digest(request.problem)
        self.recorder = ScheduleRecorder()
        self.members: dict[int, Member] = {}
        self.gone: set[int] = set()
        self.next_worker = 0
        """The number that the next new worker gets."""
        self.steps_made: dict[int, int] = {}
        """By the workers of the checkpoint this run continues from, until they have joined again."""
        self.done, self.outcome, self.message = False, Outcome.STOPPED, ""
        self.failure: BaseException | None = None
        self.lost_workers = self.joined_later = 0
        self.rows = (
            0  # rows of all computations so far; counted where `max_passes` asks for it
        )
        self.silent: list[int] = []
        """Workers that did not respond after the end, and were given up."""
        self.resumed_from: int | None = None
        self.time = 0.0
        """Of the last event."""
        self.measured = Measured()
        self.checkpoints = request.checkpoints
        self.start = None if self.checkpoints is None else self.checkpoints.start
        """The checkpoint that the run continues from."""
        self.snapshots = Snapshots(
            None if self.checkpoints is None else self.checkpoints.due
        )
        self.stage = self.stages[0]
        """The stage that computes on the current version."""
        # With one stage the share is the same for every version and need not be computed at every update.
        self._time_share = time_share(self.stages, 0) if len(self.stages) == 1 else None
        self.give_up_after, self.timing_model = give_up_after, timing_model
        self.reach = 0.0 if timing_model is None else timing_model.message / 2
        """Time that a broadcast needs to reach the workers."""
        self.service = 0.0 if timing_model is None else timing_model.master
        """Time that a commit takes: the engine waits until `time` before it carries out orders."""
        self.waiting = WaitingUpdates(
            self.stages, self.handout, max_staleness, self.reach, copied
        )
        # Stages that wait have timeouts or backups; others need no clock between two updates.
        self.timed = self.stages[-1].waits or give_up_after < math.inf
        """Whether `tick` has anything to do."""
        self._sent = sent_fields(algorithm, self.master.iterate)
        self._all_sent = self._sent == self.master.iterate._fields
        if self.start is not None:
            self._restore(self.start)
            self.stage = stage_at(self.stages, self.version)
            self._guarded(
                self.master.stop_where_due
            )  # the checkpoint may be that of the end
        self.waiting.open_round(self.stage, self.time)

    def _restore(self, start: Saved) -> None:
        """Continue from a checkpoint."""
        document, schedule = start.document, start.schedule()
        restore_master(self.master, start)
        schedule.check_parts(self.stages)
        self.recorder = ScheduleRecorder.of(schedule)
        if self.handout is not None:
            self.handout.resume(self.recorder.schedule())
        self.time, self.next_worker = float(document["time"]), int(document["next"])
        self.steps_made = {int(w): int(k) for w, k in document["workers"].items()}
        # A number that the schedule names must not be given to another worker: it stands for a random
        # stream.
        self.gone = set(schedule.worker.tolist()) - set(self.steps_made)
        self.lost_workers, self.joined_later = (
            int(document["lost"]),
            int(document["joined"]),
        )
        self.resumed_from = self.version
        if self.stopping.max_passes is not None:
            self._add_rows(rows_computed(self.algorithm, schedule, self.problem.n_data))
        if self.version >= self.commits:
            self.stop(Outcome.COMPLETED, f"{self.version} commits were made.")

    # -- what an engine reads

    @property
    def version(self) -> int:
        return self.master.version

    @property
    def returning(self) -> list[int]:
        """The workers of the checkpoint this run continues from, to be joined again by number."""
        return sorted(self.steps_made)

    @property
    def deadline(self) -> float:
        """The time by which `tick` must be called."""
        ends = (
            self.waiting.round_ends if self.waiting.round_ends > self.time else math.inf
        )
        # A backup is due only if somebody is free to compute it.
        if self.handout is not None and any(
            member.waiting for member in self.members.values()
        ):
            ends = self.handout.next_backup
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
        iterate: tuple[Array, ...] = self.master.iterate
        return (
            iterate
            if self._all_sent
            else tuple([getattr(iterate, name) for name in self._sent])
        )

    def worker_state(self, worker: int, arrays: Arrays) -> Any:
        """Return a worker's state from the arrays that `state_arrays` made of it."""
        template = self.algorithm.init_worker(self.problem, self.theta0)
        return Saved({}, arrays).tree(f"worker.{worker}", template)

    # -- events

    def begin(self) -> None:
        """Evaluate the starting point (a checkpoint has that row already)."""
        if self.version == 0 and not self.master.records:
            self._guarded(self.master.evaluate, 0.0)

    def join(self, now: float, worker: int | None = None) -> int:
        """Admit a worker and return its number: a new one, or the given one where numbers carry meaning."""
        self._advance(now)
        if worker is None:
            worker = self.next_worker
        elif worker in self.members or worker in self.gone:
            raise ValueError(f"worker number {worker} was used before")
        # Numbers are never reused: a number stands for a random stream.
        self.next_worker = max(self.next_worker, worker + 1)
        self.members[worker] = Member(self.steps_made.pop(worker, 0))
        self.master.alive = len(self.members)
        # Workers that return with a checkpoint have not joined late.
        if self.version > 0 and self.version != self.resumed_from:
            self.joined_later += 1
            _log.info(
                "worker %d joined after commit %d: %s",
                worker,
                self.version,
                self.headcount,
            )
        return worker

    def ask(self, worker: int, now: float) -> list[Assign]:
        """Assign the current version to a free worker, or let it wait for the next one."""
        member = self.members.get(worker)
        # Late questions, and those of workers that were given up, have no effect; the engine need not filter
        # them.
        if self.done or member is None or member.read is not None:
            return []
        self._advance(now)
        stage = self.stage
        # In a synchronous round a worker contributes once per version.
        if (
            stage.closes is ROUND
            and stage.updates is None
            and member.last_read == self.version
        ):
            member.waiting = True
            return []
        return self._assign(worker, member)

    def deliver(
        self,
        worker: int,
        update: Any | None,
        now: float,
        *,
        ask: bool = True,
        spent: float | None = None,
        timed: bool = True,
    ) -> list[Assign]:
        """Accept an update that has arrived, and return the orders that follow.

        With `ask` the worker wants work again at once.  `spent` is the time of its computation, which is
        measured if `timed`; measuring all of many short computations would slow them down.
        """
        member = self.members.get(worker)
        if self.done or member is None or member.read is None:
            return []
        self._advance(now)
        # From here on the worker is free, whatever becomes of its update.
        read, member.read = member.read, None
        if timed:
            took = self.time - member.since if spent is None else spent
            self.measured.computed(
                worker, took, self._time_share or time_share(self.stages, read)
            )
        arrival = new_tuple(Arrival, (worker, read, member.part, update, True))
        # None: dropped; empty: it waits; otherwise the updates that make this commit.
        ready = self.waiting.add(
            arrival, self.stage, self.version, self.time - member.since
        )
        orders: list[Assign] = []
        if ready is None:
            self._drop(arrival)
        elif ready:
            self._commit(ready)
            # The new version releases everyone who waited for it.
            if self.stage.closes is not EACH_UPDATE and not self.done:
                orders = self._assign_waiting()
        else:
            orders = self._close_round()
        return orders + self.ask(worker, now) if ask else orders

    def served(self, begun: float, now: float, version: int) -> None:
        """Record that an update, and what it led to, kept the master busy from `begun` to `now`.

        `version` is the version at which it came; a later one now means that it made a commit.
        """
        if not self.done:
            self.measured.served(now - begun, commit=self.version > version)

    def lost(self, worker: int, now: float, *, replacing: bool = False) -> list[Assign]:
        """Remove a worker that is gone; the run ends if there is no other, and none is `replacing` it."""
        gone = self.members.pop(worker, None)
        if gone is None:
            return []
        self._advance(now)
        # Its number stands for a random stream, so it is never given to another worker.
        self.gone.add(worker)
        self.lost_workers += 1
        # For the callback, which sees how many workers there are.
        self.master.alive, self.master.lost = len(self.members), self.lost_workers
        _log.warning(
            "worker %d was lost after commit %d: %s.",
            worker,
            self.version,
            self.headcount,
        )
        self.snapshots.forget(worker)
        orders = self._close_round()
        if (
            self.handout is not None
            and gone.read is not None
            and gone.part is not None
            and not self.done
        ):
            # Somebody else must compute its part, or the version never closes.
            self.handout.lost(worker, gone.part, gone.read, self.version)
            orders = self._assign_waiting()
        if not self.members and not replacing and not self.done:
            self.stop_without_workers()
        return orders

    def tick(self, now: float) -> list[Assign]:
        """Do what time demands: close a round that is over, and give up silent workers."""
        self._advance(now)
        if self.done:
            return []
        orders: list[Assign] = []
        if self.give_up_after < math.inf:
            # A copy, because `lost` removes members.
            for worker, member in list(self.members.items()):
                if (
                    member.read is not None
                    and self.time - member.since >= self.give_up_after
                ):
                    orders += self.lost(worker, now)
        orders += self._close_round()
        if self.handout is not None and not self.done:
            orders += self._assign_waiting()
        return orders

    # -- rounds and commits

    def _advance(self, now: float) -> None:
        if now > self.time:
            self.time = now

    def _assign(self, worker: int, member: Member) -> list[Assign]:
        version, part = self.master.version, None
        if self.handout is not None:
            part = self.handout.choose(worker, version, self.time)
            if part is None:
                member.waiting = True
                return []
        # k is taken here and not by the worker: a computation that is lost has still used its random
        # numbers.
        order = new_tuple(
            Assign, (worker, version, member.k, part, worker in self.snapshots.owed)
        )
        member.k += 1
        # `read` is cleared when the update arrives; `last_read` stays, for rounds.
        member.read = member.last_read = version
        member.part, member.since, member.waiting = part, self.time, False
        return [order]

    def _assign_waiting(self) -> list[Assign]:
        waiting = [(w, member) for w, member in self.members.items() if member.waiting]
        return [order for w, member in waiting for order in self._assign(w, member)]

    def _close_round(self) -> list[Assign]:
        """Commit the round if it is over; the next broadcast goes to those who wait for it."""
        if self.done or not (
            ready := self.waiting.close_round(self.stage, self.members, self.time)
        ):
            return []
        self._commit(ready)
        if self.done:
            return []
        self.waiting.open_round(self.stage, self.time)
        return self._assign_waiting()

    def _drop(self, arrival: Arrival) -> None:
        if self.stopping.max_passes is not None:
            self._count_passes([arrival])
        self.recorder.dropped(arrival.worker, arrival.read, self.time, arrival.part)

    def _commit(self, arrivals: list[Arrival]) -> None:
        # Order matters from here on: record, count, commit, and only then open the next version.
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
        if self.stopping.max_passes is not None:
            self._count_passes(arrivals)
        if not self._guarded(master.commit, updates, self.time, staleness):
            return
        self.stage = stage_at(self.stages, master.version)
        if self.handout is not None:
            self.handout.opened(master.version)
        if master.version == self.commits:
            self.stop(Outcome.COMPLETED, f"{self.commits} commits were made.")
        # Checkpoints are taken between two commits, where the state is a function of the schedule.
        elif self.snapshots.due(master.version):
            self.snapshots.begin(take(self), self.members)

    def _count_passes(self, arrivals: list[Arrival]) -> None:
        read = np.array([arrival.read for arrival in arrivals], np.int32)
        part = np.array(
            [-1 if arrival.part is None else arrival.part for arrival in arrivals],
            np.int32,
        )
        rows = cast(Any, self.algorithm).rows_of(self.problem.n_data, read, part)
        self._add_rows(rows)

    def _add_rows(self, rows: Rows) -> None:
        # Rows are counted, and not passes: a sum of fractions may fall short of `max_passes` by rounding, and
        # the run would make a commit that its replay, which counts rows too, does not make.
        self.rows += int(rows.sum())
        self.master.passes = self.rows / self.problem.n_data

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
            self.done, self.outcome, self.message = True, outcome, message

    def stop_without_workers(self) -> None:
        """End the run because no worker is left."""
        self.stop(
            Outcome.STOPPED,
            f"every worker was gone after {self.version} of {self.commits} commits.",
        )

    def stop_where_interrupted(self) -> None:
        """End the run after a signal."""
        if self.checkpoints is not None and self.checkpoints.interrupted:
            self.stop(*self.checkpoints.ending(self.version))

    def last_wait(self, unit: float) -> float:
        """Return the seconds that workers have after the end; `unit` is the length of a unit of time in
        seconds.

        They finish what they compute, which takes about as long as before; a worker that is stopped, or waits
        for something that never comes, must not keep a finished run from returning.
        """
        return min(
            self.give_up_after * unit,
            max(LAST_WAIT, _LAST_WAIT_COMPUTATIONS * self.measured.slowest() * unit),
        )

    def give_up(self, worker: int, now: float) -> None:
        """Remove a worker that does not respond after the end."""
        self.silent.append(worker)
        self.lost(worker, now)

    @property
    def hurried(self) -> bool:
        """Return whether a second signal asks not to wait for workers that still compute."""
        return self.checkpoints is not None and self.checkpoints.hurry

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the run so far."""
        engine = {
            **self.engine,
            "workers": self.workers,
            "workers_lost": self.lost_workers,
            "workers_joined": self.joined_later,
            **({"workers_silent": sorted(self.silent)} if self.silent else {}),
            "resumed_from": self.resumed_from,
            "measured": self.measured.to_json(),
        }
        return run_manifest(self.request, engine, self._data)

    def under_way(self) -> list[tuple[int, int, int | None]]:
        """Return (worker, version, part) of every update that waits and of every computation under way."""
        arrived = [
            (arrival.worker, arrival.read, arrival.part)
            for arrival in self.waiting.arrivals
        ]
        # Sorted, so that the rows of a checkpoint do not depend on the order of joining.
        computing = sorted(self.members.items())
        return arrived + [
            (w, m.read, m.part) for w, m in computing if m.read is not None
        ]

    def finish(self, states: Mapping[int, Any]) -> Run:
        """Return the run, from the states of the workers that are still there."""
        for worker, read, part in self.under_way():
            self.recorder.dropped(worker, read, self.time, part)
        # Rounds that never closed: their updates have just been recorded as dropped.
        self.waiting.take()
        for member in self.members.values():
            member.read = None
        # By number, as a replay has them.
        locals_ = [states[w] for w in sorted(states)]
        ended = Finished(
            self.master, self.recorder.schedule(), locals_, self.outcome, self.message
        )
        return conclude(ended, self.manifest())
