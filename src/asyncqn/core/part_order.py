"""The assignment of parts of the data where each update is a commit.

    "turn"      Part k mod P for the k-th assignment.
    "age"       Of the parts that no worker has, the one whose newest update read the oldest version.
    "random"    A random part, a function of the seed and of the number of the assignment.

The order is a function of the earlier assignments, updates and losses alone.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from asyncqn.kernels.random import HAND_OUT, philox_words

Order: TypeAlias = Literal["turn", "age", "random"]
HELD_ROUNDS = 2
"""A part is given up once a worker has kept it while every active part was assigned this often.

Another worker may then take it, and the late update, if it comes, frees nothing: the parts of workers that are
many times slower than others are not left behind.  Two, so that a part which is merely slow is not given up
after a single round."""


class Growth(NamedTuple):
    """The schedule by which parts become active: parts 0 to first - 1 at the start, then one by one.

    One more becomes active when updates >= 3 first + 2 (active - first).  Once `quick` parts are active, every
    update activates one more; None turns this off.
    """

    first: int
    quick: int | None = None

    def active(self, updates: int, parts: int) -> int:
        """Return the number of active parts after a number of updates."""
        beyond = updates - 3 * self.first
        if beyond < 0:
            return self.first
        active = self.first + beyond // 2 + 1
        if self.quick is not None and active > self.quick:
            # `quick` parts are active at this many updates; from there on every update adds one.
            reached = 2 * (self.quick - self.first - 1)
            active = self.quick + beyond - reached
        return min(active, parts)


class PartOrder:
    """The state of the assignment of `parts` parts."""

    def __init__(
        self, order: Order, parts: int, growth: Growth | None, seed: int
    ) -> None:
        self.order = order
        self.parts = parts
        self.growth = growth
        self.seed = seed
        self.assignments = 0
        self.updates = 0
        self.active = 0
        # All else is used by age only.
        self.age = [-1] * parts
        """The version that a part's newest update read; -1: there is none."""
        self.last = [0] * parts
        """The number of a part's last assignment."""
        self.copies = [0] * parts
        """How many workers compute a part that was not given up."""
        self.late = [0] * parts
        """How many workers compute a part that was given up."""
        self.free: list[tuple[int, int]] = []
        """The heap of active parts that nobody computes, with their age."""
        self.line: deque[tuple[int, int]] = deque()
        """(number, part) of the assignments that have not been judged, in their order."""
        self._activate()

    def next(self) -> int:
        """Assign and return the part for the next computation.

        By age, if every active part is being computed, it is the one assigned longest ago.
        """
        number = self.assignments
        self.assignments += 1
        if self.order == "turn":
            return number % self.active
        if self.order == "random":
            return self._random_part(number)
        self._give_up()
        if self.free:
            part = heappop(self.free)[1]
        else:
            part = min(range(self.active), key=self.last.__getitem__)
        self.last[part] = number
        self.copies[part] += 1
        self.line.append((number, part))
        return part

    def done(self, part: int, read: int | None) -> None:
        """Note that a part is no longer computed: updated from version `read`, or dropped or lost (None)."""
        if read is not None:
            self.updates += 1
        if self.order == "age":
            if self.late[part] and not self.copies[part]:
                # The part is free, and its key in the heap must not change.
                self.late[part] -= 1
            else:
                if read is not None:
                    self.age[part] = max(self.age[part], read)
                self._release(part)
        if self.active < self.parts:
            self._activate()

    def resume(self, assignments: int, part: np.ndarray, read: np.ndarray) -> None:
        """Continue after a record: the number of assignments, and the part and version of each update."""
        # Computations under way at the checkpoint are lost, so that no part is held by a worker.
        for each, version in zip(part.tolist(), read.tolist()):
            self.age[each] = max(self.age[each], version)
        self.assignments = assignments
        self.updates = part.size
        self.free = [(self.age[each], each) for each in range(self.active)]
        heapify(self.free)
        self._activate()

    def _random_part(self, number: int) -> int:
        low = 2**32 - 1
        counter = (number, HAND_OUT, 0, 0)
        words = philox_words(
            *map(np.uint64, (*counter, self.seed & low, self.seed >> 32))
        )
        # A multiplication and a shift map 64 random bits to 0 .. active - 1; the bias is below active / 2^64.
        bits = int(words[0]) << 32 | int(words[1])
        return bits * self.active >> 64

    def _activate(self) -> None:
        """Activate the parts that the number of updates calls for."""
        active = self.parts
        if self.growth is not None:
            active = self.growth.active(self.updates, self.parts)
        for part in range(self.active, active):
            heappush(self.free, (self.age[part], part))
        self.active = active

    def _release(self, part: int) -> None:
        self.copies[part] -= 1
        if self.copies[part] == 0:
            heappush(self.free, (self.age[part], part))

    def _give_up(self) -> None:
        """Return to the heap the parts that a worker has kept for too long."""
        oldest = self.assignments - 1 - HELD_ROUNDS * self.active
        while self.line and self.line[0][0] <= oldest:
            number, part = self.line.popleft()
            # A part that was assigned again since then is judged by its newer assignment.
            if self.last[part] == number and self.copies[part]:
                self.late[part] += 1
                self._release(part)
