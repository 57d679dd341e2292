"""RunFile: manifest and checkpoints of a real run, and how one continues from a checkpoint.

When a checkpoint is due, a snapshot of the master is taken and every worker owes its state.  A worker hands
its state in before it begins its next step, so that all of them together are the run between two commits.
At most one checkpoint is being taken or written: a disk that is slower than the commits costs checkpoints and no
memory, and a checkpoint is as recent as the disk allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asyncqn.core.assignment import Assignment
from asyncqn.core.outcome import Outcome
from asyncqn.core.schedule import DROPPED, Recorder, rows_computed
from asyncqn.core.stages import Stages
from asyncqn.runs.checkpoint import Arrays, Saved
from asyncqn.runs.data_digest import data_digest
from asyncqn.runs.manifest import EngineManifest, run_manifest
from asyncqn.runs.snapshot import (
    restore_master,
    save_master,
    save_recorder,
    state_arrays,
)
from asyncqn.storage.serialise import to_json

if TYPE_CHECKING:
    from asyncqn.engines.coordinator import Coordinator

LAST_WAIT = 30.0
"""Least time, in seconds, that workers have to finish after the end of a run.  Our own choice: a user who
waits for a result accepts half a minute, and almost every computation is shorter."""
_LAST_WAIT_COMPUTATIONS = 20.0
"""The same in mean computation times of the slowest worker, where that is longer.  Our own choice."""


class RunFile:
    """The stored part of a real run: manifest and checkpoints; `engine` is the engine's entry in the manifest."""

    def __init__(self, run: Coordinator, engine: EngineManifest) -> None:
        self._run, self._engine = run, to_json(dict(engine))
        # Computed once: the manifest is written with every checkpoint.
        self._data = data_digest(run.request.problem)
        self.checkpoints = run.request.checkpoints
        self.start = None if self.checkpoints is None else self.checkpoints.start
        """The checkpoint that the run continues from."""
        self.steps_made: dict[int, int] = {}
        """By the workers of that checkpoint."""
        self.returning: list[int] = []
        """Those of them that have no thread, process or rank yet."""
        self.resumed_from: int | None = None
        self._saved: Saved | None = None
        self.writing = False
        """Whether the last checkpoint is being written; the writer sets it."""
        self._soon = False  # whether a checkpoint is wanted before it is due
        self.owed: set[int] = set()
        """The workers that have not handed in their state yet."""

    # -- continuing

    def machine(self, stages: Stages) -> Assignment:
        """Return the machine of the run, after giving the run the numbers of the checkpoint, if there is one."""
        run, start = self._run, self.start
        seed = run.request.seed
        if start is None:
            return Assignment(stages, seed)
        document, schedule = start.document, start.schedule()
        restore_master(run.master, start)
        schedule.check_parts(stages)
        run.recorder = Recorder.of(schedule)
        run.time, run.next_worker = float(document["time"]), int(document["next"])
        run.lost_workers, run.joined_later = document["lost"], document["joined"]
        self.steps_made = {int(w): int(k) for w, k in document["workers"].items()}
        self.returning = sorted(self.steps_made)
        run.gone = set(schedule.worker.tolist()) - set(self.steps_made)
        self.resumed_from = run.version
        if run.version >= run.request.commits:
            run.stop(Outcome.COMPLETED, f"{run.version} commits were made.")
        kept = schedule.commit != DROPPED
        if run.request.stopping.max_passes is not None:
            # Counted again, because a run without `max_passes` has not counted its rows.
            n_data = run.request.problem.n_data
            rows = rows_computed(run.algorithm, schedule, n_data)
            run.master.rows = int(rows[kept].sum())
        machine = Assignment(stages, seed, run.version, run.time)
        if schedule.part is not None:
            machine.resume(schedule.read, schedule.part, kept, run.time)
        return machine

    def worker_state(self, worker: int, arrays: Arrays) -> Any:
        """Return a worker's state from the arrays that `state_arrays` made of it."""
        request = self._run.request
        template = request.algorithm.init_worker(request.problem, request.theta0)
        return Saved({}, arrays).tree(f"worker.{worker}", template)

    # -- checkpoints

    def take_if_due(self) -> None:
        """Begin a checkpoint with the master's part, if one is due; every worker owes its state now."""
        # Between two commits, where the state is a function of the schedule; one checkpoint at a time.
        if self.checkpoints is None or self._saved is not None or self.writing:
            return
        if self.checkpoints.due(self._run.version) or self._soon:
            self._saved, self._soon = self._take(), False
            self.owed = set(self._run.members)

    def hand_in(self, worker: int, arrays: Arrays) -> None:
        """Add a worker's state, as it is before its assigned step begins."""
        if self._saved is not None and worker in self.owed:
            self._saved.arrays.update(arrays)
            self.owed.discard(worker)

    def forget(self, worker: int) -> None:
        """Leave a lost worker out of the checkpoint; the next one, which records the loss, is due soon."""
        self._soon = True
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

    def _take(self) -> Saved:
        """Return a snapshot of the master; computations under way are dropped rows, and count as begun."""
        run = self._run
        saved = save_master(run.master)
        # Computations under way have used random numbers; a resumed run must count them as begun.
        save_recorder(saved, run.recorder, run.under_way(), run.time)
        saved.document.update(
            time=run.time,
            next=run.next_worker,
            lost=run.lost_workers,
            joined=run.joined_later,
            workers={str(w): member.k for w, member in run.members.items()},
            manifest=self.manifest(),
        )
        return saved

    def last(self, states: Mapping[int, Any]) -> Saved:
        """Return the checkpoint of the end, after `finish`; workers without a state are left out."""
        saved = self._take()
        steps = saved.document["workers"]
        saved.document["workers"] = {w: k for w, k in steps.items() if int(w) in states}
        for worker in map(int, saved.document["workers"]):
            saved.arrays.update(state_arrays(worker, states[worker]))
        return saved

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the run so far."""
        run = self._run
        engine = {
            **self._engine,
            "workers": run.workers,
            "workers_lost": run.lost_workers,
            "workers_joined": run.joined_later,
            **({"workers_silent": sorted(run.silent)} if run.silent else {}),
            "resumed_from": self.resumed_from,
            "measured": run.measured.to_json(),
        }
        return run_manifest(run.request, engine, self._data)

    # -- signals, and the end

    def stop_where_interrupted(self) -> None:
        """End the run after a signal."""
        if self.checkpoints is not None and self.checkpoints.interrupted:
            self._run.stop(*self.checkpoints.ending(self._run.version))

    @property
    def hurried(self) -> bool:
        """Return whether a second signal asks not to wait for workers that still compute."""
        return self.checkpoints is not None and self.checkpoints.hurry

    def last_wait(self, unit: float) -> float:
        """Return the seconds that workers have after the end; `unit` is the length of a unit of time in
        seconds.

        They finish what they compute, which takes about as long as before; a worker that is stopped, or waits
        for something that never comes, must not keep a finished run from returning.
        """
        computing = _LAST_WAIT_COMPUTATIONS * self._run.measured.slowest() * unit
        return min(self._run.give_up_after * unit, max(LAST_WAIT, computing))

    def give_up(self, worker: int, now: float) -> None:
        """Remove a worker that does not respond after the end."""
        self._run.silent.append(worker)
        self._run.lost(worker, now)
