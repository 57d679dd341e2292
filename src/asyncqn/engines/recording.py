"""Recording: a schedule while it is being made, in columns that grow by 16 bytes per computation.

A commit's number need not be stored: commits are consecutive, so that two bits beside the worker
(dropped, first of a new commit, same commit as the delivered row before) tell all of them.
"""

from __future__ import annotations

from array import array

import numpy as np

from asyncqn.schedule import DROPPED, Schedule

_DROPPED, _NEW, _SAME = range(3)


class Recording:
    """Rows in the order in which computations ended; `schedule()` gives them as a `Schedule`."""

    def __init__(self) -> None:
        self._worker, self._read, self._time = array("i"), array("i"), array("d")

    def __len__(self) -> int:
        return len(self._read)

    @property
    def nbytes(self) -> int:
        """Memory of the columns, without what they keep in reserve."""
        return sum(column.itemsize * len(column) for column in (self._worker, self._read, self._time))

    def _add(self, worker: int, read: int, time: float, kind: int) -> None:
        self._worker.append(worker << 2 | kind)
        self._read.append(read)
        self._time.append(time)

    def delivered(self, workers: list[int], read: list[int], time: float) -> None:
        """The computations that the next commit holds, in the order in which they are summed."""
        for position, worker in enumerate(workers):
            self._add(worker, read[position], time, _SAME if position else _NEW)

    def dropped(self, worker: int, read: int, time: float) -> None:
        """A computation in vain."""
        self._add(worker, read, time, _DROPPED)

    def copy(self) -> Recording:
        other = Recording()
        other._worker, other._read, other._time = self._worker[:], self._read[:], self._time[:]
        return other

    def schedule(self) -> Schedule:
        coded = np.array(self._worker, np.int32)
        kind = coded & 3
        commit = np.where(kind == _DROPPED, DROPPED, np.cumsum(kind == _NEW)).astype(np.int32)
        return Schedule(coded >> 2, np.array(self._read, np.int32), commit, np.array(self._time))

    @classmethod
    def of(cls, schedule: Schedule) -> Recording:
        """The recording that gives `schedule`, to go on with."""
        recording = cls()
        steps = np.diff(np.maximum.accumulate(schedule.commit), prepend=0)
        kind = np.where(schedule.commit == DROPPED, _DROPPED, np.where(steps > 0, _NEW, _SAME))
        recording._worker.extend((schedule.worker << 2 | kind).tolist())
        recording._read.extend(schedule.read.tolist())
        recording._time.extend(schedule.time.tolist())
        return recording
