"""HandOut: the assignment of parts of the data to computations, where a stage cuts the data.

Real engines and the simulator share these rules, and the compiled queues call the same kernels.  Where each
update is a commit, a rule chooses the next part: in turn, by age or at random (`kernels.part_order`).  Where
all parts close a version (`kernels.block_rule`), a worker takes a block that no worker has begun and computes
its pieces one by one.  When every block is begun, it duplicates a piece that is overdue.

`opened` starts a version, `choose` assigns a part, and `taken`, `delivered` and `lost` report its fate.
"""

from __future__ import annotations

import math

import numpy as np

from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.core.stages import Closes, Stage, Stages, stage_at
from asyncqn.kernels import block_rule, part_order


class HandOut:
    """The state of the assignment; the caller passes versions and times in."""

    def __init__(self, stages: Stages, seed: int = 0) -> None:
        self.stages, self.seed = stages, seed
        self._last: Stage | None = None
        self.opened(0)

    def opened(self, version: int) -> None:
        """Begin a version: every part is wanted again."""
        stage = stage_at(self.stages, version)
        last, self._last = self._last, stage
        # Pieces of an earlier version are of no use any more.
        self._own: dict[
            int, tuple[int, int]
        ] = {}  # the pieces in a worker's hand: next and last
        if stage.closes is not Closes.ALL_PARTS:
            if last is not stage:
                self._order = stage.part_order()
            return
        # A new cut has other parts; a new sample of the same cut has other durations only.
        if last is None or (last.closes, last.parts) != (stage.closes, stage.parts):
            assert stage.blocks is not None
            self._parts = block_rule.new_parts(stage.blocks, stage.pieces)
        elif last.share != stage.share:
            self._parts.times[:] = 0.0
        block_rule.open_version(self._parts, stage.pieces)

    def resume(self, schedule: Schedule) -> None:
        """Continue after the computations of `schedule`, for a run from a checkpoint."""
        if schedule.part is None:
            return
        self.opened(schedule.commits)
        stage = stage_at(self.stages, schedule.commits)
        each = stage.closes is Closes.EACH_UPDATE
        # A run may have changed its rule: only the computations of the present one count.
        asked = [stage_at(self.stages, read) for read in schedule.read.tolist()]
        mine = np.array(
            [s is stage if each else s.closes is stage.closes for s in asked], bool
        )
        kept = mine & (schedule.commit != DROPPED)
        part, read = schedule.part[kept], schedule.read[kept]
        if each:
            part_order.go_on_after(self._order, int(mine.sum()), part, read)
        else:
            np.maximum.at(self._parts.part["delivered"], part, read)
            block_rule.open_version(self._parts, stage.pieces)

    @property
    def complete(self) -> bool:
        """Return whether an update of every part of the open version has arrived."""
        return not self._parts.block["missing"].any()

    @property
    def next_backup(self) -> float:
        """Return when the next part will be overdue."""
        if self._last is None or self._last.closes is not Closes.ALL_PARTS:
            return math.inf
        part = self._parts.part
        out = (part["copies"] > 0) & (part["done"] == 0)
        return float(part["handed"][out].min(initial=math.inf)) + self._help_after(
            self._last
        )

    def _help_after(self, stage: Stage) -> float:
        return float(block_rule.help_after(self._parts.times, stage.backup_after))

    def choose(self, worker: int, version: int, now: float) -> int | None:
        """Assign a part to an idle worker and return it, or None where there is nothing to compute yet."""
        stage = stage_at(self.stages, version)
        assert stage.blocks is not None
        if stage.closes is Closes.EACH_UPDATE:
            return int(part_order.hand_out(self._order, self.seed))
        following, last = self._own.get(worker, (0, -1))
        if following > last:
            # Each worker begins with a block of its own, so that it computes the same rows at every version
            # and finds them in its cache.
            home = worker % stage.blocks
            following = int(
                block_rule.choose(
                    self._parts, home, now, self._help_after(stage), stage.pieces
                )
            )
            # No part is worth computing now: the worker waits for the next version or for a backup.
            if following < 0:
                return None
            last = block_rule.take_up(self._parts, following, now, stage.pieces)
        self._own[worker] = (following + 1, last)
        return following

    def taken(self, part: int, read: int, *, kept: bool) -> None:
        """Record the arrival of an update that is a commit by itself, and whether it was accepted."""
        part_order.take_back(self._order, part, read if kept else -1)

    def delivered(self, part: int, read: int, version: int, took: float) -> bool:
        """Record an update for a version of blocks; return whether it is the first for its part."""
        stage = stage_at(self.stages, version)
        asked = stage_at(self.stages, read)
        # Durations on another sample would spoil the estimate of what is late.
        if asked.share == stage.share:
            block_rule.note_time(self._parts.times, took * stage.pieces)
        # An earlier version closed with all its parts; this one may be cut into others.
        # A duplicate of a piece that has arrived already is dropped.
        return read == version and bool(
            block_rule.deliver(self._parts, part, read, stage.pieces)
        )

    def lost(self, worker: int, part: int, read: int, version: int) -> None:
        """Return to the pool the parts of the open version that a lost worker held."""
        following, last = self._own.pop(worker, (0, -1))
        stage = stage_at(self.stages, version)
        if stage.closes is Closes.EACH_UPDATE:
            part_order.take_back(self._order, part, -1)
        if read != version or stage.closes is not Closes.ALL_PARTS:
            return
        # The worker's current part and the pieces of its block that it had not begun.
        for q in {part, *range(following, last + 1)}:
            self._parts.part["copies"][q] -= 1
            self._parts.part["handed"][
                q
            ] = -math.inf  # overdue at once, so that any idle worker takes it
            block_rule.settle(self._parts, q // stage.pieces, stage.pieces)
