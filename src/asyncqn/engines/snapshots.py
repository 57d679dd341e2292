"""Checkpoints of a coordinator: the snapshot being taken, and the one of the end.

When a checkpoint is due, a snapshot of the master is taken and every worker owes its state.  A worker hands
its state in before it begins its next step, so that all of them together are the run between two commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from asyncqn.engines.orders import state_arrays
from asyncqn.engines.schedule_recorder import ScheduleRecorder
from asyncqn.runs.checkpoint import Arrays, Saved
from asyncqn.runs.snapshot import save_master

if TYPE_CHECKING:
    from asyncqn.engines.coordinator import Coordinator


class Snapshots:
    """The checkpoints of a run, of which at most one is being taken or written.

    A disk that is slower than the commits therefore costs checkpoints and no memory, and a checkpoint is as
    recent as the disk allows.  `due` is called after every commit and says whether a checkpoint is wanted;
    None means never.
    """

    def __init__(self, due: Callable[[int], bool] | None) -> None:
        self._due = due
        self._saved: Saved | None = None
        self.writing = False
        """Whether the last one is being written; the writer sets it."""
        self.soon = False
        """Whether one is wanted before it is due."""
        self.owed: set[int] = set()
        """The workers that have not handed in their state yet."""

    def due(self, version: int) -> bool:
        """Return whether a checkpoint is to begin after this commit."""
        # One checkpoint at a time: a slow disk skips checkpoints instead of filling the memory.
        if self._due is None or self._saved is not None or self.writing:
            return False
        return self._due(version) or self.soon

    def begin(self, saved: Saved, workers: Iterable[int]) -> None:
        """Begin a checkpoint with the master's part; every worker owes its state now."""
        self._saved, self.owed, self.soon = saved, set(workers), False

    def hand_in(self, worker: int, arrays: Arrays) -> None:
        """Add a worker's state, as it is before its assigned step begins."""
        if self._saved is not None and worker in self.owed:
            self._saved.arrays.update(arrays)
            self.owed.discard(worker)

    def forget(self, worker: int) -> None:
        """Leave a lost worker out of the checkpoint; the next one, which records the loss, is due soon."""
        self.soon = True
        if self._saved is not None and worker in self.owed:
            self.owed.discard(worker)
            # A worker without a state does not return from this checkpoint.
            del self._saved.document["workers"][str(worker)]

    def whole(self) -> Saved | None:
        """Return the checkpoint once, when it has every worker's state; None before and after that."""
        if self.owed:
            return None
        saved, self._saved = self._saved, None
        return saved


def take(state: Coordinator) -> Saved:
    """Return a snapshot of the master; computations under way are dropped rows, and count as begun."""
    # Computations under way have used random numbers; a resumed run must count them as begun.
    under_way = ScheduleRecorder()
    for worker, read, part in state.under_way():
        under_way.dropped(worker, read, state.time, part)
    saved = save_master(state.master)
    saved.logs["schedule"] = state.recorder.log()
    rows = under_way.rows(0, len(under_way))
    saved.arrays.update(
        {f"under_way.{name}": rows[name].copy() for name in rows.dtype.names or ()}
    )
    saved.document.update(
        time=state.time,
        next=state.next_worker,
        lost=state.lost_workers,
        joined=state.joined_later,
        workers={str(w): member.k for w, member in state.members.items()},
        manifest=state.manifest(),
    )
    return saved


def last_checkpoint(state: Coordinator, states: Mapping[int, Any]) -> Saved:
    """Return the checkpoint of the end, after `finish`; workers without a state are left out."""
    saved = take(state)
    saved.document["workers"] = {
        w: k for w, k in saved.document["workers"].items() if int(w) in states
    }
    for worker in map(int, saved.document["workers"]):
        saved.arrays.update(state_arrays(worker, states[worker]))
    return saved
