"""Parts: which part of the data each computation on a real engine gets, where the pattern hands out parts.

The rules are those of the simulator (`kernels.blocks`): while it warms up, parts go round; then every
version wants each block once, untouched blocks go first, by the age of their last answer, from the
worker's own number onward, and a worker that finds all of them taken duplicates one that has been out
for long.
"""

from __future__ import annotations

import math

from asyncqn.schedule import DROPPED, Schedule
from asyncqn.types import Blocks, Staged


class Parts:
    """The state of the hand-out; versions and times are told by the caller."""

    def __init__(self, pattern: Blocks | Staged) -> None:
        staged = isinstance(pattern, Staged)
        self.warmup = pattern.warmup if isinstance(pattern, Staged) else 0
        self.batches = pattern.batches if isinstance(pattern, Staged) else 0
        self.blocks: Blocks = pattern.blocks if staged else pattern  # type: ignore[assignment,union-attr]
        B = self.blocks.n_blocks
        self.needed = max(1, min(B, math.ceil(self.blocks.quorum * B - 1e-9)))
        self._turn = 0
        self._answered = [-1] * B  # the version of a block's newest answer
        self._seen, self._total, self._squares = 0, 0.0, 0.0
        self.open()

    def open(self) -> None:
        """A new version wants every block."""
        B = self.blocks.n_blocks
        self._done, self._copies, self._handed, self._fresh = [False] * B, [0] * B, [0.0] * B, 0

    def resume(self, schedule: Schedule) -> None:
        """Go on after the computations of `schedule`."""
        if schedule.part is None:
            return
        warm = schedule.read < self.warmup
        self._turn = int(warm.sum())
        for part, read, commit in zip(schedule.part[~warm], schedule.read[~warm], schedule.commit[~warm]):
            if commit != DROPPED:
                self._answered[part] = max(self._answered[part], int(read))

    @property
    def complete(self) -> bool:
        """Whether enough blocks of the open version are answered."""
        return self._fresh >= self.needed

    @property
    def patience(self) -> float:
        """How long a block is out before it is duplicated; see `kernels.blocks`."""
        if self._seen == 0:
            return 0.0
        mean = self._total / self._seen
        deviation = math.sqrt(max(0.0, self._squares / self._seen - mean * mean))
        return max(0.0, self.blocks.backup_after * mean - 6.0 * deviation)

    @property
    def next_backup(self) -> float:
        """When the next block will have been out for long."""
        out = [h for h, c, done in zip(self._handed, self._copies, self._done) if c > 0 and not done]
        return min(out, default=math.inf) + self.patience

    def choose(self, worker: int, version: int, now: float) -> int:
        """The part for an idle worker, handed out with this call; -1: there is nothing to do yet."""
        if version < self.warmup:
            self._turn += 1
            return (self._turn - 1) % self.batches
        B, patience = self.blocks.n_blocks, self.patience
        best = backup = -1
        for j in range(B):
            b = (worker + j) % B
            if self._done[b]:
                continue
            if self._copies[b] == 0:
                if best < 0 or self._answered[b] < self._answered[best]:
                    best = b
            elif now >= self._handed[b] + patience and (
                backup < 0
                or (self._copies[b], self._handed[b]) < (self._copies[backup], self._handed[backup])
            ):
                backup = b
        chosen = best if best >= 0 else backup
        if chosen >= 0:
            self._copies[chosen] += 1
            self._handed[chosen] = now
        return chosen

    def _age(self, b: int) -> tuple[int, float]:
        """Backups go to the block with the fewest copies, then to the one handed out longest ago."""
        return self._copies[b], self._handed[b]

    def answered(self, part: int, read: int, version: int, took: float) -> bool:
        """A block's answer came; whether it counts, for this version or as a late one of an older."""
        self._seen += 1
        self._total += took
        self._squares += took * took
        if read <= self._answered[part]:
            return False
        self._answered[part] = read
        if read == version:
            self._done[part] = True
            self._fresh += 1
        return True

    def lost(self, part: int, read: int, version: int) -> None:
        """Whoever computed this block of the open version is gone."""
        if read == version and read >= self.warmup:
            self._copies[part] -= 1
