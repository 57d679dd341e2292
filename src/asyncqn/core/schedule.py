"""Schedule: who read which version, which commit delivered the update, and when.

Version 0 is theta0 and commit n (1..N) produces version n.  A schedule has one row per computation, in the
order in which computations ended.  Rows that share a commit are the updates of one round or one version, in
the order in which they are summed.  A computation whose update was dropped has commit 0.

A schedule knows nothing of theta: with an algorithm, a problem, theta0 and a seed it determines every number
of a run.  It is validated whenever it is made, because a file or a user may have made it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn.core.stages import Arrival, Stages, first_versions
from asyncqn.errors import BadInput, require
from asyncqn.parameters import REAL, Checked, checked, parameter

DROPPED = 0
"""The commit of a computation whose update was dropped: real commits count from 1."""

ROW = np.dtype(
    [
        ("worker", "<i4"),
        ("read", "<i4"),
        ("commit", "<i4"),
        ("time", "<f8"),
        ("part", "<i4"),
    ]
)
"""A recorded row; `part` is -1 where workers choose rows themselves."""

Ints = npt.NDArray[np.int32]


class Turn(NamedTuple):
    """The events from one version of the iterate to the next, in the order in which they are computed."""

    version: int
    begins: list[tuple[int, int | None]]
    """(worker, part) of every computation that reads this version and ends at some time."""
    ends: list[Arrival]
    """The computations that end with the commit, or between the commit before and this one; those that count
    make the next version, and without any there is none."""
    time: float
    """The time of the commit."""


class WorkerSummary(NamedTuple):
    """The totals of one worker: computations delivered and dropped, mean staleness, mean cycle time."""

    worker: int
    delivered: int
    dropped: int
    staleness: float
    cycle: float


def _whole_numbers(name: str, column: npt.ArrayLike) -> Ints:
    """Return the column as int32; raise `BadInput` instead of rounding or wrapping around."""
    given = np.asarray(column)
    if given.dtype == np.int32:
        return np.ascontiguousarray(given)
    require(
        given.size == 0 or given.dtype.kind in "iu",
        f"schedule: column '{name}' must hold integers, not {given.dtype}.",
    )
    require(
        given.size == 0 or -(2**31) <= int(given.min()) <= int(given.max()) < 2**31,
        f"schedule: column '{name}' holds numbers beyond 32 bits.",
    )
    return np.ascontiguousarray(given, np.int32)


@dataclass(frozen=True, eq=False, repr=False)
class Schedule(Checked):
    """One row per computation: its worker, the version it read, the commit that delivered it, and the time.

    All columns have the same length; they are validated when the schedule is made.

    Parameters
    ----------
    worker : array-like of int
        Number of the worker that computed, from 0.
    read : array-like of int
        Version of the iterate that it read; version 0 is the start.
    commit : array-like of int
        Commit that delivered its update; 0 where the update was dropped.
    time : array-like of float
        Time of that commit, or of the drop, on the engine's clock.
    part : array-like of int, optional
        Part of the data that was computed; without it, workers choose rows themselves.

    Examples
    --------
    >>> import asyncqn as aq
    >>> schedule = aq.Schedule(worker=[0, 1], read=[0, 0], commit=[1, 2], time=[1.0, 1.5])
    >>> schedule.staleness.tolist()
    [0, 1]
    """

    worker: Annotated[Ints, REAL]
    read: Annotated[Ints, REAL]
    commit: Annotated[Ints, REAL]
    time: Annotated[npt.NDArray[np.float64], REAL, parameter()]
    part: Annotated[Ints, REAL] | None = None
    """The part of the data that each computation used, where the algorithm assigns parts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("worker", "read", "commit", "part"):
            column = getattr(self, name)
            if column is not None:
                object.__setattr__(self, name, _whole_numbers(name, column))
        object.__setattr__(self, "time", np.ascontiguousarray(self.time, np.float64))
        self._validate()

    def _validate(self) -> None:
        n = self.worker.size
        for name, column in self.arrays().items():
            require(
                column.shape == (n,),
                f"schedule: column '{name}' must have {n} entries, one per computation.",
            )
        if n == 0:
            return
        require(
            bool((self.worker >= 0).all()),
            "schedule: worker numbers must not be negative.",
        )
        require(bool((self.read >= 0).all()), "schedule: no version is before 0.")
        require(
            bool(np.isfinite(self.time).all()), "schedule: every time must be finite."
        )
        require(
            bool((np.diff(self.time) >= 0).all()), "schedule: times must not decrease."
        )
        delivered = self.commit != DROPPED
        commits = self.commit[delivered]
        # Rows stand in the order in which computations ended, so commit numbers never decrease and never
        # skip one.
        steps = np.diff(commits, prepend=0)
        require(
            bool(((steps == 0) | (steps == 1)).all())
            and (commits.size == 0 or commits[0] == 1),
            "schedule: commits must be numbered 1, 2, 3, ... in order, without gaps.",
        )
        require(
            bool((self.read[delivered] < commits).all()),
            "schedule: a computation must read a version older than its own commit.",
        )
        # Sorted by worker, stably: each worker's computations stand together in their own order.
        order = np.argsort(self.worker, kind="stable")
        same = self.worker[order][1:] == self.worker[order][:-1]
        backwards = np.diff(self.read[order])[same] < 0
        require(
            not backwards.any(),
            "schedule: a worker read a version older than the one it had read before.",
        )

    def __repr__(self) -> str:
        late = self.staleness if self.staleness.size else np.zeros(1)
        end = self.time.max(initial=0.0)
        return (
            f"Schedule({len(self):,} computations by {self.workers:,} workers, {self.commits:,} commits, "
            f"staleness {late.mean():.3g} on average and at most {late.max():.0f}, until time {end:.6g})"
        )

    def __len__(self) -> int:
        return int(self.worker.size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        mine, others = self.arrays(), other.arrays()
        return mine.keys() == others.keys() and all(
            np.array_equal(mine[n], others[n]) for n in mine
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def commits(self) -> int:
        """N, the number of commits."""
        return int(self.commit.max(initial=0))

    @property
    def workers(self) -> int:
        """One more than the highest worker number."""
        return int(self.worker.max(initial=-1)) + 1

    @cached_property
    def staleness(self) -> Ints:
        """l_n of every delivered computation: commits between the version it read and its own."""
        delivered = self.commit != DROPPED
        return np.asarray((self.commit - 1 - self.read)[delivered], np.int32)

    @property
    def dropped(self) -> int:
        """Return how many computations were dropped."""
        return int((self.commit == DROPPED).sum())

    def commit_times(self) -> npt.NDArray[np.float64]:
        """Return the times of commits 1 to N."""
        delivered = self.commit != DROPPED
        first = np.flatnonzero(np.diff(self.commit[delivered], prepend=0))
        return np.asarray(self.time[delivered][first])

    def per_worker(self) -> list[WorkerSummary]:
        """Return one summary for each worker in the schedule."""
        summaries = []
        for worker in np.unique(self.worker).tolist():
            mine = self.worker == worker
            delivered = mine & (self.commit != DROPPED)
            count = int(delivered.sum())
            delays = (self.commit - 1 - self.read)[delivered]
            mean_delay = float(delays.mean()) if count else math.nan
            cycle = float(np.diff(self.time[mine], prepend=0.0).mean())
            dropped = int(mine.sum()) - count
            summaries.append(WorkerSummary(worker, count, dropped, mean_delay, cycle))
        return summaries

    def until(self, commit: int) -> Schedule:
        """Return the schedule up to and including commit `commit`.

        Computations under way at that moment count as dropped.  None of them reads version `commit` itself:
        it has only just been made.
        """
        if commit >= self.commits:
            return self
        ends = np.flatnonzero((self.commit == commit) & (self.commit != DROPPED))
        last = int(ends[-1]) + 1 if ends.size else 0
        # These had begun when the run ended, and their workers had drawn random numbers for them; a resume
        # must count them.
        begun = last + np.flatnonzero(self.read[last:] < commit)
        rows = np.concatenate([np.arange(last), begun])
        ended = np.concatenate(
            [self.commit[:last], np.full(begun.size, DROPPED, np.int32)]
        )
        time = self.time[rows]
        time[last:] = time[last - 1] if last else 0.0
        part = None if self.part is None else self.part[rows]
        return Schedule(self.worker[rows], self.read[rows], ended, time, part)

    def turns(self, commits: int) -> Iterator[Turn]:
        """Yield a turn for every version that makes one of `commits` commits, and what is left."""
        if commits < self.commits:
            yield from self.until(commits).turns(commits)
            return
        # Plain lists: reading one element of a NumPy array costs more than the rest of a short step.
        worker, read, time = (c.tolist() for c in (self.worker, self.read, self.time))
        part = [None] * len(self) if self.part is None else self.part.tolist()
        counting, last = self.commit != DROPPED, self.commits
        counts, delivered = counting.tolist(), np.flatnonzero(counting)
        # Computations in the order in which they begin; two slices say what happens at a version.
        begins = np.argsort(self.read, kind="stable")
        starts = begins.tolist()
        versions = np.arange(last + 1)
        begun = np.searchsorted(self.read[begins], np.arange(last + 2)).tolist()
        upto = np.searchsorted(self.commit[delivered], versions, "right")
        ended = np.concatenate([[-1], delivered])[upto] + 1
        bounds = [*ended.tolist(), len(self)]
        for version in range(last + 1):
            reads = starts[begun[version] : begun[version + 1]]
            rows = range(bounds[version], bounds[version + 1])
            if version == last and not reads and not rows:
                return
            ends = [
                Arrival(worker[row], read[row], part[row], None, counts[row])
                for row in rows
            ]
            at = time[rows[-1]] if rows else 0.0
            yield Turn(version, [(worker[row], part[row]) for row in reads], ends, at)

    def with_fresh_reads(self) -> Schedule:
        """Return the same commits by the same workers, each computed on the version just before it."""
        read = np.where(self.commit == DROPPED, self.read, self.commit - 1)
        return Schedule(self.worker, read, self.commit, self.time, self.part)

    def without_worker(self, worker: int) -> Schedule:
        """Return the schedule without the computations of one worker; the others keep their order.

        A read version whose commit is gone becomes the newest remaining version before it.
        """
        kept = self.worker != worker
        commits = np.unique(self.commit[kept & (self.commit != DROPPED)])
        left = np.zeros(self.commits + 1, np.int32)
        left[commits] = 1
        # New number of every old version: how many commits are left up to it.
        number = np.cumsum(left, dtype=np.int32)
        commit = np.where(self.commit == DROPPED, DROPPED, number[self.commit])
        part = None if self.part is None else self.part[kept]
        read = number[np.minimum(self.read, self.commits)]
        return Schedule(
            self.worker[kept], read[kept], commit[kept], self.time[kept], part
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns by name, for storage."""
        columns = {
            name: getattr(self, name)
            for name in ("worker", "read", "commit", "time", "part")
        }
        return {name: column for name, column in columns.items() if column is not None}

    @classmethod
    def from_arrays(cls, columns: dict[str, npt.NDArray[Any]]) -> Schedule:
        """Build a schedule from the columns of `arrays`."""
        try:
            return cls(**columns)
        except TypeError:
            names = ", ".join(columns) if isinstance(columns, dict) else repr(columns)
            raise BadInput(
                f"schedule: its columns are worker, read, commit, time and perhaps part, not {names}."
            ) from None

    @classmethod
    def from_rows(cls, rows: npt.NDArray[Any]) -> Schedule:
        """Build a schedule from recorded rows, of dtype `ROW`."""
        recorded = getattr(rows, "dtype", None) == ROW
        require(recorded, "schedule: rows must be those of a recorder.")
        part = rows["part"] if (rows["part"] >= 0).any() else None
        return cls(rows["worker"], rows["read"], rows["commit"], rows["time"], part)

    def check_parts(self, stages: Stages) -> None:
        """Refuse rows whose part of the data does not exist where `stages` cut the data."""
        if len(self) == 0 or stages[0].parts is None:
            return
        if self.part is None:
            raise BadInput(
                "schedule: the algorithm assigns parts of the data, so give the column 'part'."
            )
        stage = np.searchsorted(first_versions(stages), self.read, "right") - 1
        most = np.array([s.parts or 0 for s in stages])[stage]
        require(
            bool(((self.part >= 0) & (self.part < most)).all()),
            "schedule: column 'part' names a part of the data that the algorithm does not have.",
        )

    @classmethod
    @checked
    def from_table(
        cls,
        table: Any,
        *,
        worker: str = "worker",
        start: str = "start",
        end: str = "end",
        version: str = "version",
        commit: str = "commit",
    ) -> Schedule:
        """Build a schedule from the log of another asynchronous system, with one row per update.

        A worker whose computations overlap becomes as many workers as compute at the same time.

        Parameters
        ----------
        table : data frame, Arrow table or dict of arrays
            The log, with its rows in any order.
        worker : str, default "worker"
            Column with the name or the number of the worker.
        start : str, default "start"
            Column with the time at which the computation began: numbers, or dates.
        end : str, default "end"
            Column with the time at which its update was applied.
        version : str, default "version"
            Column with the version that it read, 0 at the start; if the table does not have it, the worker read what
            there was when it began.
        commit : str, default "commit"
            Column with the number of the version that the update became part of, 0 if it was dropped; if the table
            does not have it, every update makes a version.

        Returns
        -------
        Schedule
            The schedule, with times from the first start on.

        Examples
        --------
        >>> import asyncqn as aq
        >>> log = {"worker": ["a", "b", "a"], "start": [0.0, 0.0, 2.0], "end": [2.0, 3.0, 4.0]}
        >>> aq.Schedule.from_table(log).staleness.tolist()
        [0, 1, 1]
        """
        from asyncqn.core.log import schedule_of_log

        names = {
            "worker": worker,
            "start": start,
            "end": end,
            "version": version,
            "commit": commit,
        }
        return schedule_of_log(table, names)

    @classmethod
    @checked
    def serial(cls, commits: Annotated[int, parameter(ge=0, lt=2**31)]) -> Schedule:
        """Build the schedule of one worker: no staleness, and one unit of time per commit."""
        n = np.arange(1, commits + 1)
        return cls(np.zeros(commits, np.int32), n - 1, n, n.astype(np.float64))  # type: ignore[arg-type]


class Recorder:
    """Rows in the order in which computations ended; `schedule()` gives them as a `Schedule`.

    They take 24 bytes per computation.  Rows never change once they are written, so a checkpoint remembers how
    many there were and copies only the new ones.
    """

    def __init__(self) -> None:
        self.commits = 0
        # `array` and not lists: 4 or 8 bytes per entry, and an append as fast.
        self._worker = array("i")
        self._read = array("i")
        self._commit = array("i")
        self._time = array("d")
        self._part = array("i")

    def __len__(self) -> int:
        return len(self._read)

    def delivered(
        self, rows: Iterable[tuple[int, int, int | None, Any, bool]], time: float
    ) -> None:
        """Record the next commit; rows are (worker, read, part, _, counts), in the order of summation.

        Rows that do not count were dropped, and stand at their place in their worker's order.
        """
        commit = self.commits + 1
        for worker, read, part, _, counts in rows:
            self._worker.append(worker)
            self._read.append(read)
            self._commit.append(commit if counts else DROPPED)
            self._time.append(time)
            self._part.append(-1 if part is None else part)
            if counts:
                self.commits = commit

    def dropped(
        self, worker: int, read: int, time: float, part: int | None = None
    ) -> None:
        """Record a computation whose update was dropped."""
        self.delivered([(worker, read, part, None, False)], time)

    @property
    def last_time(self) -> float:
        """The time of the last row, 0 before the first."""
        return self._time[-1] if self._time else 0.0

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return a copy of some rows; another thread may append meanwhile."""
        rows = np.empty(stop - start, ROW)
        for name in ROW.names or ():
            rows[name] = getattr(self, f"_{name}")[start:stop]
        return rows

    def schedule(self) -> Schedule:
        """Return the schedule so far."""
        return Schedule.from_rows(self.rows(0, len(self)))

    @classmethod
    def of(cls, schedule: Schedule) -> Recorder:
        """Return a recorder that continues `schedule`."""
        recorder = cls()
        columns = {"part": np.full(len(schedule), -1), **schedule.arrays()}
        for name, column in columns.items():
            getattr(recorder, f"_{name}").extend(column.tolist())
        recorder.commits = schedule.commits
        return recorder


def rows_computed(
    algorithm: Any, schedule: Schedule, n_data: int
) -> npt.NDArray[np.int64]:
    """Return the number of rows in the gradient of each computation of a schedule."""
    part = (
        np.full(len(schedule), -1, np.int32) if schedule.part is None else schedule.part
    )
    rows: npt.NDArray[np.int64] = algorithm.rows_of(n_data, schedule.read, part)
    return rows
