"""Parts: which part of the data each computation on a real engine gets, where the pattern hands out parts.

While the pattern warms up, parts go round.  Then every version wants each piece of each block once.
The rules are the simulator's (`kernels.blocks`) but for one: messages are quick here, so a worker is
handed one piece at a time, and a piece that nobody has begun can be taken from another's block at
once, from its end.  A worker goes on with its own block, else takes up an untouched one, by the age
of its last answer, from the worker's own number onward, else such a piece.  Where every piece is
begun, it duplicates one that has been out for long.
"""

from __future__ import annotations

import math

from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.kernels.blocks import DEVIATIONS
from asyncqn.types import Blocks, Growing, Staged


class Parts:
    """The state of the hand-out; versions and times are told by the caller."""

    def __init__(self, pattern: Blocks | Staged | Growing) -> None:
        self.growing = pattern if isinstance(pattern, Growing) else None
        self.warmup = pattern.warmup if isinstance(pattern, Staged) else 0
        self.batches = pattern.batches if isinstance(pattern, Staged) else 0
        self.blocks = pattern if isinstance(pattern, Blocks) else pattern.blocks
        P = self.blocks.n_parts
        self.needed = max(1, min(P, math.ceil(self.blocks.quorum * P - 1e-9)))
        self._turn = 0
        self._answered = [-1] * P  # the version of a piece's newest answer
        self._seen, self._total, self._squares = 0, 0.0, 0.0
        self._stage = 0  # of the sample whose answer times were seen
        self.open()

    def open(self) -> None:
        """A new version wants every piece."""
        P = self.blocks.n_parts
        self._done, self._copies, self._handed, self._fresh = [False] * P, [0] * P, [0.0] * P, 0
        self._own: dict[int, int] = {}  # the block that a worker took up last

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
        """Whether enough pieces of the open version are answered."""
        return self._fresh >= self.needed

    @property
    def patience(self) -> float:
        """How long a piece is out before it is duplicated; see `kernels.blocks`.

        In several pieces the spread does not shorten it: what nobody has begun is taken at once, so that
        copies are only for workers that hang, and each in vain would delay the next version.
        """
        if self._seen == 0:
            return 0.0
        mean = self._total / self._seen
        deviation = math.sqrt(max(0.0, self._squares / self._seen - mean * mean))
        shorter = DEVIATIONS * deviation if self.blocks.pieces == 1 else 0.0
        return max(0.0, self.blocks.backup_after * mean - shorter)

    @property
    def next_backup(self) -> float:
        """When the next piece will have been out for long."""
        out = [h for h, c, done in zip(self._handed, self._copies, self._done) if c > 0 and not done]
        return min(out, default=math.inf) + self.patience

    def choose(self, worker: int, version: int, now: float) -> int:
        """The part for an idle worker, handed out with this call; -1: there is nothing to do yet."""
        if version < self.warmup:
            self._turn += 1
            return (self._turn - 1) % self.batches
        chosen = self._next_of_own(worker)
        if chosen < 0:
            chosen = self._of_others(worker, now)
        if chosen >= 0:
            self._copies[chosen] += 1
            self._handed[chosen] = now
        return chosen

    def _untouched(self, block: int) -> list[int]:
        """The pieces of a block that nobody has begun, or whose workers are gone."""
        first = block * self.blocks.pieces
        return [q for q in range(first, first + self.blocks.pieces) if self._copies[q] == 0]

    def _next_of_own(self, worker: int) -> int:
        """The next piece of the block that the worker took up."""
        own = self._own.get(worker)
        return -1 if own is None else next(iter(self._untouched(own)), -1)

    def _of_others(self, worker: int, now: float) -> int:
        """An untouched block's first piece, else an untouched piece, else one that is out for long."""
        B, p = self.blocks.n_blocks, self.blocks.pieces
        order = [(worker + j) % B for j in range(B)]
        untouched = {b: pieces for b in order if (pieces := self._untouched(b))}
        whole = [b for b, pieces in untouched.items() if len(pieces) == p]
        if whole:
            own = min(whole, key=lambda b: min(self._answered[b * p : b * p + p]))
            self._own[worker] = own
            return own * p
        if untouched:
            return max(untouched.values(), key=len)[-1]
        patience = self.patience
        late = [
            q for b in order for q in range(b * p + p - 1, b * p - 1, -1)
            if not self._done[q] and now >= self._handed[q] + patience
        ]  # fmt: skip
        return min(late, key=lambda q: (self._copies[q], self._handed[q]), default=-1)

    def answered(self, part: int, read: int, version: int, took: float) -> bool:
        """An answer came; whether it counts, for this version or as a late one of an older."""
        stage = 0 if self.growing is None else self.growing.stage(read)
        if stage != self._stage:  # answers of another sample take another time
            self._stage, self._seen, self._total, self._squares = stage, 0, 0.0, 0.0
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
        """Whoever computed this piece of the open version is gone."""
        if read == version and read >= self.warmup:
            self._copies[part] -= 1
