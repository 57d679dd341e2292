"""The ledger of a master: who is there, what was recorded, how it stands; and its checkpoints.

`engines.core` turns events into orders on top of it.  When `due(commit)` says yes, `begin_checkpoint`
takes a snapshot of the master, and every worker owes its state: `hand_in` adds one, and
`whole_checkpoint` hands the checkpoint out once nobody owes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from asyncqn.core.checkpoint import Arrays, Saved, flatten
from asyncqn.core.master import Master
from asyncqn.core.request import Request
from asyncqn.core.run import manifest, rows_computed
from asyncqn.core.segments import segments_after
from asyncqn.core.serialise import to_json
from asyncqn.core.streams import Stream
from asyncqn.engines.handout import HandOut
from asyncqn.engines.schedule_recorder import ScheduleRecorder
from asyncqn.types import Algorithm, Task, extra


def sent_fields(algorithm: Algorithm, iterate: Any) -> tuple[str, ...]:
    """The fields of the iterate that a worker reads: the algorithm's `sent`, else all."""
    return tuple(extra(algorithm, "sent") or iterate._fields)


def state_arrays(worker: int, state: Any) -> Arrays:
    """A worker's state as copies, by the names under which checkpoints keep it."""
    return flatten(f"worker.{worker}", state)


class Assign(NamedTuple):
    """Send `worker` the current iterate, which is version `read`, for its k-th step."""

    worker: int
    read: int
    k: int
    part: int | None = None
    hand_in: bool = False

    def task(self, seed: int) -> Task:
        return Task(self.worker, self.read, Stream(seed, self.worker, self.k), self.part)


class Member:
    """What the master knows of a worker; `read` is the version it computes on, None while it does not."""

    __slots__ = ("k", "last_read", "part", "read", "since", "waiting")

    def __init__(self, k: int = 0) -> None:
        self.k, self.since, self.waiting = k, 0.0, False
        self.read: int | None = None
        self.last_read: int | None = None
        self.part: int | None = None


class Answer(NamedTuple):
    """An answer that waits for its commit; one that does not count will be recorded as dropped."""

    worker: int
    read: int
    part: int | None
    update: Any | None
    counts: bool = True


class Ledger:
    """What the master knows; see `MasterState` for the arguments."""

    def __init__(
        self,
        request: Request,
        *,
        workers: int,
        engine: Mapping[str, Any],
        master: Master,
        due: Callable[[int], bool] | None,
    ) -> None:
        self.potential, self.algorithm, self.theta0 = request.potential, request.algorithm, request.theta0
        self.commits, self.seed, self.workers = request.commits, request.seed, workers
        self.request = request
        self.stages, self.stopping = request.algorithm.stages, request.stopping
        self.handout = HandOut(self.stages) if self.stages[0].parts is not None else None
        self.engine = to_json(dict(engine))
        self.master = master
        self.recorder = ScheduleRecorder()
        self.members: dict[int, Member] = {}
        self.status, self.message = "", ""
        self.failure: BaseException | None = None
        self.lost_workers = self.joined_later = 0
        self.resumed_from: int | None = None
        self.segments: list[dict[str, Any]] = []
        self._now = 0.0
        self._next = 0
        self._gone: set[int] = set()
        self._answers: list[Answer] = []
        self._due = due
        self._owed: set[int] = set()
        self._snapshot: Saved | None = None
        self._returning: dict[int, int] = {}

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

    def stop(self, status: str, message: str) -> None:
        """End the run: "completed", "stopped", "diverged" or "interrupted", and why in a sentence."""
        if not self.done:
            self.status, self.message = status, message

    # -- checkpoints

    def begin_checkpoint(self) -> None:
        """Take a snapshot if one is due and none is being taken: every worker owes its state now."""
        if self._due is not None and self._snapshot is None and self._due(self.version):
            self._snapshot = self.snapshot()
            self._owed = set(self.members)

    def forget(self, worker: int) -> None:
        """A worker is lost: the checkpoint being taken does without it."""
        if worker in self._owed and self._snapshot is not None:
            self._owed.discard(worker)
            del self._snapshot.document["workers"][str(worker)]

    def snapshot(self) -> Saved:
        """The master as it is now; computations under way are rows in vain, and count as begun."""
        under_way = ScheduleRecorder()
        for worker, read, part in self._under_way():
            under_way.dropped(worker, read, self._now, part)
        saved = self.master.save()
        saved.logs["schedule"] = self.recorder.log()
        rows = under_way.rows(0, len(under_way))
        saved.arrays.update({f"under_way.{name}": rows[name].copy() for name in rows.dtype.names or ()})
        saved.document.update({
            "time": self._now, "next": self._next, "lost": self.lost_workers, "joined": self.joined_later,
            "workers": {str(w): member.k for w, member in self.members.items()},
            "manifest": self.manifest(),
        })  # fmt: skip
        return saved

    def hand_in_state(self, worker: int, arrays: Arrays) -> None:
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
        engine = {
            **self.engine,
            "workers": self.workers,
            "workers_lost": self.lost_workers,
            "workers_joined": self.joined_later,
            "resumed_from": self.resumed_from,
        }
        about = manifest(self.request, engine)
        return {**about, "segments": self.segments} if self.segments else about

    def _under_way(self) -> list[tuple[int, int, int | None]]:
        """(worker, version, part) of what is not delivered: answers that wait, computations."""
        answered = [(answer.worker, answer.read, answer.part) for answer in self._answers]
        computing = sorted(self.members.items())
        return answered + [(w, m.read, m.part) for w, m in computing if m.read is not None]

    def restore(self, start: Saved) -> None:
        """Go on from a checkpoint."""
        document = start.document
        self.master.restore(start)
        schedule = start.schedule()
        schedule.check_parts(self.stages)
        self.recorder = ScheduleRecorder.of(schedule)
        if self.handout is not None:
            self.handout.resume(self.recorder.schedule())
        self._now = float(document["time"])
        self._returning = {int(w): int(k) for w, k in document["workers"].items()}
        self._next = int(document["next"])
        self._gone = set(schedule.worker.tolist()) - set(self._returning)
        self.lost_workers, self.joined_later = int(document["lost"]), int(document["joined"])
        self.resumed_from = self.version
        self.segments = segments_after(start, self.manifest(), self.version, len(schedule))
        if self.stopping.max_passes is not None:
            rows = rows_computed(self.algorithm, schedule, self.potential.n_data)
            self.master.passes = float(rows.sum()) / self.potential.n_data
        if self.version >= self.commits:
            self.stop("completed", f"{self.version} commits were made.")
