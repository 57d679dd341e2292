"""The master of every real engine, as a state machine: events in, orders out, no threads, sockets or clocks.

    core = Core(potential, algorithm, theta0=..., commits=..., seed=..., evaluate=..., workers=W)
    core.begin()                            once, before anything else: evaluates the start
    w      = core.join(now)                 a worker came; its number (never used twice)
    orders = core.ask(w, now)               it is free and wants work
    orders = core.answer(w, update, now)    its update arrived (None: rejected by `master.compute`)
    orders = core.lost(w, now)              it is gone, and what it was computing with it
    orders = core.tick(now)                 time passed; due at `core.deadline` at the latest
    core.stop(status, message)              end early; what is under way counts as dropped
    core.deposit(w, state_arrays(w, state)) a worker's state for the checkpoint being taken
    saved  = core.whole_checkpoint()        the checkpoint, once nobody owes a state any more, else None
    run    = core.finish(states)            after the end: the `Run`
    saved  = core.last_checkpoint(states)   after `finish`: the checkpoint of the end

An engine carries out the orders: `Assign` means "send worker `worker` the iterate as it is now
(`core.sent()`), to compute its k-th step from"; no order for a worker means that it waits.  After
every call the engine looks at `core.done`.  All calls must be made one at a time (under a lock, or
from one thread).  `now` is in the run's unit of time; a `now` before the last one counts as the last.

The arrays of an update must keep their numbers until the worker is assigned again: in rounds the
core holds the answers until the round closes (answers of blocks, whose workers go on before, it
copies).  A worker computes with `master.compute`, sends, then
`master.learn`s with the view it read; computations under way at the end are finished by their
workers, learned from, and recorded as dropped, as a replay will do.

Checkpoints: `due(commit)` is asked after every commit; where it says yes, a snapshot of the master
is taken and every worker owes its state.  `Assign.deposit` tells the engine to fetch the worker's
state *before* it begins the assigned step; `core.whole_checkpoint` hands it out to be written.  To
go on from a checkpoint: `Core(..., start=saved)`, join every worker of `core.returning` by its
number, with the state `saved.tree(f"worker.{w}", algorithm.init_worker(potential, theta0))`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from asyncqn.algorithms.stability import advise
from asyncqn.checkpoint import Arrays, Saved, flatten
from asyncqn.engines.parts import Parts
from asyncqn.engines.recording import Recording
from asyncqn.errors import BadInput
from asyncqn.master import Diverged, Master
from asyncqn.plain import to_plain
from asyncqn.replay import conclude
from asyncqn.run import Run, manifest
from asyncqn.schedule import Schedule
from asyncqn.streams import Stream
from asyncqn.types import (
    Algorithm,
    Array,
    Asynchronous,
    Blocks,
    Callback,
    Growing,
    Potential,
    Rounds,
    Staged,
    Task,
)


def sent_fields(algorithm: Algorithm, iterate: Any) -> tuple[str, ...]:
    """The fields of the iterate that a worker reads: the algorithm's `sent`, else all."""
    return tuple(getattr(algorithm, "sent", iterate._fields))


def state_arrays(worker: int, state: Any) -> Arrays:
    """A worker's state as copies, by the names under which checkpoints keep it."""
    return flatten(f"worker.{worker}", state)


class Assign(NamedTuple):
    """Send `worker` the current iterate, which is version `read`, for its k-th step."""

    worker: int
    read: int
    k: int
    part: int = -1
    deposit: bool = False

    def task(self, seed: int) -> Task:
        return Task(self.worker, self.read, Stream(seed, self.worker, self.k), self.part)


class Member:
    """What the master knows of a worker; `read` is the version it computes on, -1 while it does not."""

    __slots__ = ("k", "last_read", "part", "read", "since", "waiting")

    def __init__(self, k: int = 0) -> None:
        self.k, self.read, self.last_read, self.since, self.waiting = k, -1, -1, 0.0, False
        self.part = -1


def _copied(update: Any | None) -> Any | None:
    """An update with arrays of its own."""
    if update is None:
        return None
    return update._make(part.copy() if isinstance(part, np.ndarray) else part for part in update)


class Answer(NamedTuple):
    """An answer that waits for its commit; one that does not count will be recorded as dropped."""

    worker: int
    read: int
    part: int
    update: Any | None
    counts: bool = True


class Core:
    """See the top of this file.

    workers: how many are expected (for guards and advice); engine: describes the engine in the
    manifest (`kind` at least); pause: entered around every evaluation,
    so that the engine's clock can stand still; max_staleness: an asynchronous update that is older
    is dropped; silence: a worker that computes longer counts as lost; reach: time a broadcast needs
    to reach the workers, from which a round's timeout counts; service: time that a commit takes (the
    engine waits until `core.time` before it carries out orders); start: a checkpoint to go on from.
    """

    def __init__(
        self, potential: Potential, algorithm: Algorithm, *, theta0: Array, commits: int, seed: int,
        evaluate: int, workers: int, engine: Mapping[str, Any], callback: Callback | None = None,
        pause: Callable[[], AbstractContextManager[None]] = nullcontext,
        max_staleness: int | None = None, silence: float = math.inf, reach: float = 0.0,
        service: float = 0.0,
        due: Callable[[int], bool] | None = None, start: Saved | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(algorithm.pattern, (Asynchronous, Rounds, Blocks, Staged, Growing)):
            name = type(algorithm.pattern).__name__
            raise BadInput(f"real engines do not know the message pattern {name}: use the simulator.")
        self.potential, self.algorithm, self.theta0 = potential, algorithm, theta0
        self.commits, self.seed, self.workers = commits, seed, workers
        self.max_staleness, self.silence, self.reach = max_staleness, silence, reach
        self.service = service
        self.pattern = algorithm.pattern
        self.parts = Parts(self.pattern) if isinstance(self.pattern, (Blocks, Staged, Growing)) else None
        self.engine = to_plain(dict(engine))
        self.master = Master(algorithm, potential, theta0, workers=workers, last=commits, evaluate=evaluate,
                             callback=callback, pause=pause)  # fmt: skip
        self._sent = sent_fields(algorithm, self.master.iterate)
        self.recording = Recording()
        self.members: dict[int, Member] = {}
        self.status, self.message = "", ""
        self.lost_workers = self.joined_later = 0
        self.resumed_from: int | None = None
        self._now = 0.0
        self._next = 0
        self._gone: set[int] = set()
        self._stale_sum = self._stale_rows = self._evaluations = 0
        self._answers: list[Answer] = []
        self._round_ends = math.inf
        self._due = due
        self._owed: set[int] = set()
        self._snapshot: Saved | None = None
        self._returning: dict[int, int] = {}
        if start is not None:
            self._restore(start)
        self._open_round(self._now)

    # -- what an engine reads

    @property
    def done(self) -> bool:
        return self.status != ""

    @property
    def version(self) -> int:
        return self.master.version

    @property
    def time(self) -> float:
        """The time of the last event."""
        return self._now

    @property
    def returning(self) -> list[int]:
        """The workers of the checkpoint this run goes on from, to be joined again by number."""
        return sorted(self._returning)

    @property
    def next_worker(self) -> int:
        """The number that the next new worker gets."""
        return self._next

    @property
    def deadline(self) -> float:
        """When `tick` must be called at the latest."""
        ends = self._round_ends if self._round_ends > self._now else math.inf
        if self.parts is not None and any(member.waiting for member in self.members.values()):
            ends = self.parts.next_backup
        if self.silence < math.inf:
            busy = [m.since for m in self.members.values() if m.read >= 0]
            ends = min(ends, min(busy, default=math.inf) + self.silence)
        return ends

    def sent(self) -> tuple[Array, ...]:
        """The arrays of the iterate that workers read, in the order of `sent_fields`."""
        iterate = self.master.iterate
        return tuple([getattr(iterate, name) for name in self._sent])

    # -- events

    def begin(self) -> None:
        """Evaluate the starting point (a checkpoint has that row already)."""
        if self.version == 0 and not self.master.records:
            self._guarded(self.master.evaluate, 0.0)

    def join(self, now: float, worker: int | None = None) -> int:
        """A worker came; it gets a new number, or the given one where numbers carry meaning."""
        self._advance(now)
        if worker is None:
            worker = self._next
        elif worker in self.members or worker in self._gone:
            raise ValueError(f"worker number {worker} was used before")
        self._next = max(self._next, worker + 1)
        self.members[worker] = Member(self._returning.pop(worker, 0))
        self.joined_later += self.version > 0 and self.version != self.resumed_from
        return worker

    def ask(self, worker: int, now: float) -> list[Assign]:
        """The worker is free: it gets the current version, or may have to wait for the next."""
        member = self.members.get(worker)
        if self.done or member is None or member.read >= 0:
            return []
        self._advance(now)
        if isinstance(self.pattern, Rounds) and member.last_read == self.version:
            member.waiting = True
            return []
        return self._assign(worker, member)

    def answer(self, worker: int, update: Any | None, now: float, *, ask: bool = True) -> list[Assign]:
        """An update arrived; with `ask` the worker wants work again at once."""
        member = self.members.get(worker)
        if self.done or member is None or member.read < 0:
            return []
        self._advance(now)
        read, member.read = member.read, -1
        orders: list[Assign] = []
        answer = Answer(worker, read, member.part, update)
        if self.parts is not None and read >= self.parts.warmup:
            if not self.parts.answered(answer.part, read, self.version, self._now - member.since):
                # A worker's computations are recorded in its own order, so it waits for those before it.
                self._answers.append(answer._replace(update=None, counts=False))
            else:
                orders = self._close_version(answer)
        elif isinstance(self.pattern, Rounds):
            if read < self.version:
                self._drop(answer)
            else:
                self._answers.append(answer)
                orders = self._close_round()
        elif (self.parts is not None and self.version >= self.parts.warmup) or (
            self.max_staleness is not None and self.version - read > self.max_staleness
        ):
            self._drop(answer)
        else:
            self._commit([answer])
        return orders + self.ask(worker, now) if ask else orders

    def lost(self, worker: int, now: float, *, replacing: bool = False) -> list[Assign]:
        """A worker is gone; without workers, and none `replacing` it, the run ends."""
        gone = self.members.pop(worker, None)
        if gone is None:
            return []
        self._advance(now)
        self._gone.add(worker)
        self.lost_workers += 1
        if worker in self._owed and self._snapshot is not None:
            self._owed.discard(worker)
            del self._snapshot.document["workers"][str(worker)]
        orders = self._close_round() if isinstance(self.pattern, Rounds) and not self.done else []
        if self.parts is not None and gone.read >= 0 and not self.done:
            self.parts.lost(gone.part, gone.read, self.version)
            orders = self._assign_waiting()
        if not self.members and not replacing and not self.done:
            self.stop("stopped", f"every worker was gone after {self.version} of {self.commits} commits.")
        return orders

    def tick(self, now: float) -> list[Assign]:
        """Time passed: a round may be over, a silent worker given up."""
        self._advance(now)
        if self.done:
            return []
        orders: list[Assign] = []
        if self.silence < math.inf:
            for worker, member in list(self.members.items()):
                if member.read >= 0 and self._now - member.since >= self.silence:
                    orders += self.lost(worker, now)
        if isinstance(self.pattern, Rounds) and not self.done:
            orders += self._close_round()
        if self.parts is not None and not self.done:
            orders += self._assign_waiting()
        return orders

    def stop(self, status: str, message: str) -> None:
        """End the run: "completed", "stopped", "diverged" or "interrupted", and why in a sentence."""
        if not self.done:
            self.status, self.message = status, message

    # -- rounds and commits

    def _advance(self, now: float) -> None:
        if now > self._now:
            self._now = now

    def _assign(self, worker: int, member: Member) -> list[Assign]:
        part = -1 if self.parts is None else self.parts.choose(worker, self.version, self._now)
        if self.parts is not None and part < 0:
            member.waiting = True
            return []
        order = Assign(worker, self.version, member.k, part, worker in self._owed)
        member.k += 1
        member.read = member.last_read = self.version
        member.part, member.since, member.waiting = part, self._now, False
        return [order]

    def _assign_waiting(self) -> list[Assign]:
        waiting = [(w, member) for w, member in self.members.items() if member.waiting]
        return [order for w, member in waiting for order in self._assign(w, member)]

    def _close_version(self, answer: Answer) -> list[Assign]:
        """Commit the version if enough of its blocks are answered, else keep the answer until it is."""
        assert self.parts is not None
        if not self.parts.complete:
            # Its worker goes on to other blocks, and may use the arrays again.
            self._answers.append(answer._replace(update=_copied(answer.update)))
            return []
        answers, self._answers = [*self._answers, answer], []
        self._commit(answers)
        self.parts.open()
        return [] if self.done else self._assign_waiting()

    def _drop(self, answer: Answer) -> None:
        self.recording.dropped(answer.worker, answer.read, self._now, answer.part)

    def _open_round(self, now: float) -> None:
        if isinstance(self.pattern, Rounds):
            self._round_ends = now + self.reach + self.pattern.timeout

    def _close_round(self) -> list[Assign]:
        """Commit the round if it is over; the next broadcast goes to those who wait for it."""
        assert isinstance(self.pattern, Rounds)
        answered = {answer.worker for answer in self._answers}
        everyone = self.members.keys() <= answered
        enough = len(answered) >= self.pattern.quorum * len(self.members) - 1e-9
        if not answered or not (everyone or (self._now >= self._round_ends and enough)):
            return []
        answers, self._answers = self._answers, []
        self._commit(answers)
        if self.done:
            return []
        self._open_round(self._now)
        return self._assign_waiting()

    def _commit(self, answers: list[Answer]) -> None:
        self._now += self.service
        self.recording.delivered(answers, self._now)
        updates = [answer.update for answer in answers if answer.counts]
        self._tell_progress([answer.read for answer in answers if answer.counts])
        if not self._guarded(self.master.commit, updates, self._now):
            return
        if self.version == self.commits:
            self.stop("completed", f"{self.commits} commits were made.")
        elif self._due is not None and self._snapshot is None and self._due(self.version):
            self._snapshot = self.snapshot()
            self._owed = set(self.members)

    def _tell_progress(self, read: list[int]) -> None:
        """Mean staleness since the last evaluation, and who is there, for the callback's `Progress`."""
        if self._evaluations != len(self.master.records):
            self._evaluations, self._stale_sum, self._stale_rows = len(self.master.records), 0, 0
        self._stale_sum += self.version * len(read) - sum(read)
        self._stale_rows += len(read)
        self.master.staleness = self._stale_sum / self._stale_rows
        self.master.alive = len(self.members)

    def _guarded(self, call: Callable[..., None], *arguments: Any) -> bool:
        try:
            call(*arguments)
        except StopIteration:
            self.stop("stopped", f"the callback stopped the run after commit {self.version}.")
        except Diverged as divergence:
            self.stop("diverged", str(divergence))
        return not self.done

    # -- checkpoints

    def snapshot(self) -> Saved:
        """The master as it is now; computations under way are rows in vain, and count as begun."""
        recording = self.recording.copy()
        for worker, read, part in self._under_way():
            recording.dropped(worker, read, self._now, part)
        document, arrays = self.master.save()
        arrays.update({f"schedule.{name}": c for name, c in recording.schedule().arrays().items()})
        document |= {
            "time": self._now, "next": self._next, "lost": self.lost_workers, "joined": self.joined_later,
            "workers": {str(w): member.k for w, member in self.members.items()},
            "manifest": self.manifest(),
        }  # fmt: skip
        return Saved(document, arrays)

    def deposit(self, worker: int, arrays: Arrays) -> None:
        """A worker's state, as it is before it begins what it was assigned."""
        if self._snapshot is not None and worker in self._owed:
            self._snapshot.arrays.update(arrays)
            self._owed.discard(worker)

    def whole_checkpoint(self) -> Saved | None:
        """The checkpoint being taken, handed out once, when every worker's state is in it."""
        if self._snapshot is None or self._owed:
            return None
        saved, self._snapshot = self._snapshot, None
        return saved

    def last_checkpoint(self, states: Mapping[int, Any]) -> Saved:
        """The checkpoint of the end, after `finish`; workers without a state are not kept."""
        saved = self.snapshot()
        saved.document["workers"] = {w: k for w, k in saved.document["workers"].items() if int(w) in states}
        for worker in map(int, saved.document["workers"]):
            saved.arrays.update(state_arrays(worker, states[worker]))
        return saved

    def manifest(self) -> dict[str, Any]:
        """What is run, with what, and where."""
        return manifest(
            self.potential, self.algorithm, seed=self.seed, commits=self.commits,
            evaluate=self.master.evaluate_every,
            engine={
                **self.engine, "workers": self.workers, "workers_lost": self.lost_workers,
                "workers_joined": self.joined_later, "resumed_from": self.resumed_from,
            },
        )  # fmt: skip

    def _under_way(self) -> list[tuple[int, int, int]]:
        """(worker, version, part) of what is not delivered: answers that wait, computations."""
        answered = [(answer.worker, answer.read, answer.part) for answer in self._answers]
        return answered + [(w, m.read, m.part) for w, m in sorted(self.members.items()) if m.read >= 0]

    def _restore(self, start: Saved) -> None:
        document = start.document
        self.master.restore(start)
        schedule = Schedule.from_arrays(start.under("schedule."))
        self.recording = Recording.of(schedule)
        if self.parts is not None:
            self.parts.resume(self.recording.schedule())
        self._now = float(document["time"])
        self._returning = {int(w): int(k) for w, k in document["workers"].items()}
        self._next = int(document["next"])
        self._gone = set(schedule.worker.tolist()) - set(self._returning)
        self.lost_workers, self.joined_later = int(document["lost"]), int(document["joined"])
        self.resumed_from = self.version
        if self.version >= self.commits:
            self.stop("completed", f"{self.version} commits were made.")

    # -- the end

    def finish(self, states: Mapping[int, Any]) -> Run:
        """The run, from the states of the workers that are still there."""
        for worker, read, part in self._under_way():
            self.recording.dropped(worker, read, self._now, part)
        self._answers = []
        for member in self.members.values():
            member.read = -1
        self.master.callback = None  # a replay evaluates its end too, and has no callback
        if self.status != "diverged":
            try:
                self.master.evaluate(self.master.time)
            except Diverged as divergence:
                self.status, self.message = "diverged", str(divergence)
        locals_ = [states[w] for w in sorted(states)]
        if self.status == "diverged":
            advice = advise(self.algorithm, self.potential, self.theta0, self.workers, locals_)
            self.message = f"{self.message}: {advice}"
        return conclude(self.master, self.recording.schedule(), locals_, self.status, self.message,
                        self.theta0, self.manifest())  # fmt: skip
