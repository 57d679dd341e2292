"""ScheduleRecorder: a schedule while it is recorded, in columns that grow by 16 bytes per computation.

A stage that hands out parts of the data adds 4 bytes.  The number of a commit is not stored, because
commits are consecutive: see `core.schedule.NEW_COMMIT`.  Rows never change once they are written, so a
checkpoint remembers how many there were and copies only the new ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.schedule import (
    DROPPED,
    IN_VAIN,
    NEW_COMMIT,
    ROW,
    ROW_OF_PART,
    SAME_COMMIT,
    Schedule,
)
from asyncqn.storage.logs import Log


class ScheduleRecorder:
    """Rows in the order in which computations ended; `schedule()` gives them as a `Schedule`."""

    def __init__(self) -> None:
        # `array` and not lists: 4 or 8 bytes per entry, and an append as fast.
        self._worker, self._read, self._time, self._part = (
            array("i"),
            array("i"),
            array("d"),
            array("i"),
        )

    def __len__(self) -> int:
        return len(self._read)

    def delivered(
        self, rows: Iterable[tuple[int, int, int | None, Any, bool]], time: float
    ) -> None:
        """Record the next commit; rows are (worker, read, part, _, whether it counts), in the order of
        summation.

        Rows that do not count were dropped, and stand at their place in their worker's order.
        """
        kind = NEW_COMMIT
        for worker, read, part, _, counts in rows:
            # Two bits say how the computation ended; the worker's number is above them.
            self._worker.append(worker << 2 | (kind if counts else IN_VAIN))
            self._read.append(read)
            self._time.append(time)
            if part is not None:
                self._part.append(part)
            if counts:
                kind = SAME_COMMIT

    def dropped(
        self, worker: int, read: int, time: float, part: int | None = None
    ) -> None:
        """Record a computation whose update was dropped."""
        self.delivered([(worker, read, part, None, False)], time)

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return a copy of some rows; another thread may append meanwhile."""
        rows = np.empty(stop - start, ROW_OF_PART if self._part else ROW)
        rows["worker"], rows["read"] = self._worker[start:stop], self._read[start:stop]
        rows["time"] = self._time[start:stop]
        if self._part:
            rows["part"] = self._part[start:stop]
        return rows

    def log(self) -> Log:
        """Return the present rows as a log, which copies them when they are stored."""
        return Log(ROW_OF_PART if self._part else ROW, len(self), self.rows)

    def schedule(self) -> Schedule:
        return Schedule.from_rows(self.rows(0, len(self)))

    @classmethod
    def of(cls, schedule: Schedule) -> ScheduleRecorder:
        """Return a recorder that continues `schedule`."""
        recorder = cls()
        # Dropped rows have commit 0; the running maximum skips them.
        steps = np.diff(np.maximum.accumulate(schedule.commit), prepend=0)
        kind = np.where(
            schedule.commit == DROPPED,
            IN_VAIN,
            np.where(steps > 0, NEW_COMMIT, SAME_COMMIT),
        )
        recorder._worker.extend((schedule.worker << 2 | kind).tolist())
        recorder._read.extend(schedule.read.tolist())
        recorder._time.extend(schedule.time.tolist())
        if schedule.part is not None:
            recorder._part.extend(schedule.part.tolist())
        return recorder
