"""Stages: how updates reach the master, as a short sequence that every algorithm declares.

A stage states how many commits it has, how the rows are cut, what share of them is used, and when the master
commits.  Most algorithms have one stage:

    `EachUpdate`    Each update is a commit (`ASYNCHRONOUS`), and may belong to one of n parts of the rows.
    `FreshRound`    A number of updates computed at the current version make a commit.
    `Round`         The updates of all workers make a commit, or of a share of them.
    `AllParts`      An update of every part of the data makes a commit.

A warm-up on batches before exact passes, or samples that grow to all rows, are sequences of stages.

Stages are data; the class below each kind, a `Rule`, has its state while it lasts.  `core.assignment` asks the
rule, for the simulator and for the real engines alike.  A kind of your own is a `Stage` with a `Rule`:
examples/fedbuff.py has one.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from asyncqn.core.part_order import Growth, Order, PartOrder
from asyncqn.errors import BadInput, require

__all__ = [
    "ASYNCHRONOUS",
    "AllParts",
    "Arrival",
    "EachUpdate",
    "FreshRound",
    "Growth",
    "Hand",
    "Round",
    "Rule",
    "Stage",
]

DEVIATIONS = 6.0
"""Standard deviations of the durations by which idle workers help earlier; measured in
docs/results/earlier.md."""


class Arrival(NamedTuple):
    """An update that has reached the master; one that does not count will be recorded as dropped."""

    worker: int
    read: int
    part: int | None
    update: Any | None
    counts: bool = True


class Hand(NamedTuple):
    """The parts that a worker computes one after the other: from `part` to `last`, both None if not cut."""

    part: int | None = None
    last: int | None = None


OWN_ROWS = Hand()


class Rule:
    """The state of a stage while it lasts: who computes what, and which updates make a commit.

    It has no clock: times and versions are arguments.  `deadline` is when it wants to be asked again.
    """

    deadline = math.inf
    retries = False
    """Whether a worker that was refused is asked for again at every event, and not at the next version."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.waiting: list[Arrival] = []
        """Updates that wait for the next commit, in the order in which they are summed."""

    def opened(self, version: int, now: float) -> None:
        """Begin a version."""
        self.waiting = []

    def assign(self, worker: int, version: int, now: float) -> Hand | None:
        """Return what a free worker computes at this version, or None to let it wait."""
        return OWN_ROWS

    def add(self, arrival: Arrival, version: int, spent: float) -> list[Arrival] | None:
        """Return the updates to commit now, [] while this one waits, or None where it is dropped.

        `spent` is the time of its computation, as that of a whole block where a block lies in pieces.
        """
        raise NotImplementedError

    def complete(self, present: Collection[int], now: float) -> bool:
        """Return whether the waiting updates make a commit; asked when all updates of a moment are in."""
        return False

    def lost(self, worker: int, read: int, hand: Hand, version: int) -> None:
        """Take note that a worker is gone in its computation on version `read`."""

    def resume(self, read: np.ndarray, part: np.ndarray, kept: np.ndarray) -> None:
        """Continue after recorded computations of this stage, of which some were `kept`."""


@dataclass(frozen=True)
class Stage:
    """One stage of a run; the base of its kinds.

    Parameters
    ----------
    commits : int, optional
        Number of commits of the stage; by default all that are left.

    Notes
    -----
    Class attributes and fields of a kind say the rest. `blocks`: number of blocks into which the rows are cut;
    None where workers draw their own rows. `pieces`: number of pieces of each block; `Task.part` numbers the
    pieces of all blocks. `share`: share of the rows that the stage uses; a computation takes that share of the
    time. `waits`: whether an update may wait for its commit. `goes_on`: whether a worker continues meanwhile;
    the arrays of an update must then stay valid beyond the worker's next step. `listens`: whether a worker
    takes up the newest version once it is free, without a reply. `at_once`: whether an update is judged on its
    arrival, and not when all updates of the moment are in; `Rule.complete` is then never asked.
    """

    commits: int | None = None

    blocks: ClassVar[int | None] = None
    pieces: ClassVar[int] = 1
    share: ClassVar[float] = 1.0
    waits: ClassVar[bool] = True
    goes_on: ClassVar[bool] = False
    listens: ClassVar[bool] = False
    at_once: ClassVar[bool] = True

    @property
    def parts(self) -> int | None:
        """Number of parts into which the rows are cut, or None if they are not cut."""
        return None if self.blocks is None else self.blocks * self.pieces

    @property
    def first_part(self) -> int | None:
        """The part to use for a trial computation, or None if the rows are not cut."""
        return None if self.blocks is None else 0

    @property
    def rows(self) -> int:
        """Return the number of updates per commit, as far as the stage determines it."""
        return 1

    def rule(self, seed: int) -> Rule:
        """Return the rule of this stage at its start."""
        raise NotImplementedError

    def check(self, name: str) -> None:
        """Raise `BadInput` where the parameters have no meaning."""


@dataclass(frozen=True)
class EachUpdate(Stage):
    """Each update is a commit.

    Parameters
    ----------
    blocks : int, optional
        Number of parts of the rows; by default workers draw their own rows.
    order : "turn", "age" or "random", default "turn"
        Order in which parts are assigned (`core.part_order`).
    growth : Growth, optional
        How parts become active; by default all are.
    max_delay : int, optional
        An update that read a version more than this number of commits ago is dropped: it takes no commit
        number, and its worker receives the current iterate.
    """

    blocks: int | None = None  # type: ignore[misc]
    order: Order = "turn"
    growth: Growth | None = None
    max_delay: int | None = None

    waits: ClassVar[bool] = False

    def rule(self, seed: int) -> EachUpdateRule:
        return EachUpdateRule(self, seed)

    def check(self, name: str) -> None:
        require(
            self.max_delay is None or self.max_delay >= 0,
            f"{name}.stages: max_delay must be at least 0, not {self.max_delay}.",
        )
        first, quick = self.growth or (self.blocks, None)
        require(
            first is None
            or (1 <= first <= (self.blocks or 0) and (quick is None or quick >= first)),
            f"{name}.stages: growth needs parts, and starts with at least one and at most all of them, unlike "
            f"{self!r}.",
        )


class EachUpdateRule(Rule):
    """Commit an update unless it is too old."""

    def __init__(self, stage: EachUpdate, seed: int) -> None:
        super().__init__(stage, seed)
        self.max_delay = math.inf if stage.max_delay is None else stage.max_delay
        self.order: PartOrder | None = None
        if stage.blocks is not None:
            self.order = PartOrder(stage.order, stage.blocks, stage.growth, seed)

    def assign(self, worker: int, version: int, now: float) -> Hand | None:
        if self.order is None:
            return OWN_ROWS
        part = self.order.next()
        return Hand(part, part)

    def add(self, arrival: Arrival, version: int, spent: float) -> list[Arrival] | None:
        young = version - arrival.read <= self.max_delay
        if self.order is not None and arrival.part is not None:
            self.order.done(arrival.part, arrival.read if young else None)
        return [arrival] if young else None

    def lost(self, worker: int, read: int, hand: Hand, version: int) -> None:
        if self.order is not None and hand.part is not None:
            self.order.done(hand.part, None)

    def resume(self, read: np.ndarray, part: np.ndarray, kept: np.ndarray) -> None:
        if self.order is not None:
            self.order.resume(read.size, part[kept], read[kept])


@dataclass(frozen=True)
class FreshRound(Stage):
    """A fixed number of updates, all computed at the current version, make a commit.

    Other updates are dropped, and a worker computes again at once, so that it may contribute twice.

    Parameters
    ----------
    updates : int, default 1
        Number of updates per commit.
    """

    updates: int = 1

    goes_on: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        return self.updates

    def rule(self, seed: int) -> FreshRoundRule:
        return FreshRoundRule(self, seed)

    def check(self, name: str) -> None:
        require(
            self.updates >= 1,
            f"{name}.stages: updates must be at least 1, not {self.updates}.",
        )


class FreshRoundRule(Rule):
    """Commit once enough updates of the current version are there."""

    def __init__(self, stage: FreshRound, seed: int) -> None:
        super().__init__(stage, seed)
        self.missing = self.enough = stage.updates

    def opened(self, version: int, now: float) -> None:
        super().opened(version, now)
        self.missing = self.enough

    def add(self, arrival: Arrival, version: int, spent: float) -> list[Arrival] | None:
        if arrival.read == version:
            self.missing -= 1
            self.waiting.append(arrival)
        elif not self.waiting:
            return None
        else:
            # A worker's computations are recorded in its own order, so it waits for those before it.
            self.waiting.append(arrival._replace(update=None, counts=False))
        return self.waiting if self.missing == 0 else []


@dataclass(frozen=True)
class Round(Stage):
    """A commit takes the updates of all workers, or of a share of them.

    Parameters
    ----------
    timeout : float, default inf
        A round closes when all workers have sent an update, or when `timeout` has passed since its version was
        made and a share `quorum` of them has.
    quorum : float, default 1.0
        See `timeout`.
    """

    timeout: float = math.inf
    quorum: float = 1.0

    listens: ClassVar[bool] = True
    at_once: ClassVar[bool] = False

    def rule(self, seed: int) -> RoundRule:
        return RoundRule(self, seed)


class RoundRule(Rule):
    """Let every worker contribute once to a round, and drop late updates."""

    def __init__(self, stage: Round, seed: int) -> None:
        super().__init__(stage, seed)
        self.timeout, self.quorum = stage.timeout, stage.quorum

    def opened(self, version: int, now: float) -> None:
        super().opened(version, now)
        self.begun: set[int] = set()
        self.senders: set[int] = set()
        self.over = False
        self.deadline = now + self.timeout

    def assign(self, worker: int, version: int, now: float) -> Hand | None:
        if worker in self.begun:
            return None
        self.begun.add(worker)
        return OWN_ROWS

    def add(self, arrival: Arrival, version: int, spent: float) -> list[Arrival] | None:
        # The round is over, even if its commit is still under way.
        if arrival.read < version or self.over:
            return None
        self.senders.add(arrival.worker)
        self.waiting.append(arrival)
        return []

    def complete(self, present: Collection[int], now: float) -> bool:
        sent = len(self.senders)
        # Workers that died after they had sent are senders, too, but hold nothing up.
        if sent >= max(len(present), 1) and self.senders.issuperset(present):
            self.over = True
        # The tolerance keeps 0.7 * 10 workers from asking for eight.
        elif sent and now >= self.deadline:
            self.over = sent >= self.quorum * len(present) - 1e-9
        return self.over

    def lost(self, worker: int, read: int, hand: Hand, version: int) -> None:
        # It may be back within the round.
        if worker not in self.senders:
            self.begun.discard(worker)


@dataclass(frozen=True)
class AllParts(Stage):
    """A version closes when an update of every part of the data has arrived.

    Parameters
    ----------
    blocks : int, default 1
        Number of blocks into which the rows are cut.
    pieces : int, default 1
        Number of pieces of each block; its worker sends an update for each.
    share : float, default 1.0
        Share of the rows that the stage uses.
    backup_after : float, default inf
        Idle workers duplicate a part once it has been out for this number of mean durations, less six
        standard deviations; the first update wins.
    """

    blocks: int = 1  # type: ignore[misc]
    pieces: int = 1  # type: ignore[misc]
    share: float = 1.0  # type: ignore[misc]
    backup_after: float = math.inf

    goes_on: ClassVar[bool] = True
    at_once: ClassVar[bool] = False

    @property
    def rows(self) -> int:
        return self.blocks * self.pieces

    def rule(self, seed: int) -> AllPartsRule:
        return AllPartsRule(self, seed)

    def check(self, name: str) -> None:
        require(
            min(self.blocks, self.pieces) >= 1,
            f"{name}.stages: blocks and pieces must be at least 1, unlike {self!r}.",
        )


class AllPartsRule(Rule):
    """Give every worker a block, and then let idle workers help with what is late.

    A worker computes the pieces of its block in order, and sends them one by one without waiting.  No
    computation is interrupted: a worker that learns that its version is over finishes the present piece.
    """

    retries = True

    def __init__(self, stage: AllParts, seed: int) -> None:
        super().__init__(stage, seed)
        self.blocks, self.pieces = stage.blocks, stage.pieces
        self.backup_after = stage.backup_after
        # The number of durations, their sum and the sum of their squares.
        self.count = 0
        self.total = self.squares = 0.0

    def opened(self, version: int, now: float) -> None:
        super().opened(version, now)
        parts = self.blocks * self.pieces
        self.deadline = math.inf
        self.untouched = list(range(self.blocks))
        """Blocks of which no worker has any piece, by number."""
        self.missing = [self.pieces] * self.blocks
        """How many pieces of each block have no update."""
        self.done = [False] * parts
        self.copies = [0] * parts
        """How often a piece was assigned to workers that are still there."""
        self.out: OrderedDict[int, float] = OrderedDict()
        """When each piece that is under way was assigned last, in that order; -inf: its worker is gone."""

    def assign(self, worker: int, version: int, now: float) -> Hand | None:
        # Its own number first: with one block per worker, every worker keeps the same rows.
        home = worker % self.blocks
        if self.untouched:
            i = bisect_left(self.untouched, home)
            block = self.untouched.pop(i if i < len(self.untouched) else 0)
            first = block * self.pieces
            last = first + self.pieces - 1
        else:
            first = last = self._late_piece(home, now)
            if first < 0:
                return None
        for piece in range(first, last + 1):
            self.copies[piece] += 1
            if not self.done[piece]:
                self.out[piece] = now
                self.out.move_to_end(piece)
        self.deadline = math.inf
        return Hand(first, last)

    def _late_piece(self, home: int, now: float) -> int:
        """Return a piece for an idle worker to help with, or -1 where none is overdue.

        It is the one with the fewest copies, in the block that misses most, assigned earliest, and last in its
        block, which its own worker reaches last.
        """
        wait = self._patience()
        late: list[tuple[int, int, float, int, int]] = []
        self.deadline = math.inf
        for piece, assigned in self.out.items():
            if assigned > -math.inf and now < assigned + wait:
                self.deadline = assigned + wait
                break
            block = piece // self.pieces
            distance = (block - home) % self.blocks
            place = (self.copies[piece], -self.missing[block], assigned)
            late.append((*place, distance, -piece))
        return -min(late)[-1] if late else -1

    def _patience(self) -> float:
        """Return how long a piece is out before another worker duplicates it.

        Unnecessary help keeps a worker from the next version, so there should be none where durations are
        steady.  Where they vary, the slowest of many workers is far beyond the mean, and help must begin early.
        """
        if self.backup_after == math.inf:
            return math.inf
        count = max(self.count, 1)
        mean = self.total / count
        deviation = math.sqrt(max(0.0, self.squares / count - mean * mean))
        return max(0.0, self.backup_after * mean - DEVIATIONS * deviation)

    def add(self, arrival: Arrival, version: int, spent: float) -> list[Arrival] | None:
        self.count += 1
        self.total += spent
        self.squares += spent**2
        part = arrival.part
        assert part is not None
        if arrival.read == version and not self.done[part]:
            self.done[part] = True
            self.missing[part // self.pieces] -= 1
            self.out.pop(part, None)
            self.waiting.append(arrival)
        else:
            # It waits, too: a worker's computations are recorded in its own order.
            self.waiting.append(arrival._replace(update=None, counts=False))
        return []

    def complete(self, present: Collection[int], now: float) -> bool:
        return not any(self.missing)

    def lost(self, worker: int, read: int, hand: Hand, version: int) -> None:
        if read != version or hand.part is None or hand.last is None:
            return
        for piece in range(hand.part, hand.last + 1):
            self.copies[piece] -= 1
            if not self.done[piece]:
                self.out[piece] = -math.inf
                self.out.move_to_end(piece, last=False)
        block = hand.part // self.pieces
        first = block * self.pieces
        # Nobody has begun with this block.
        if self.copies[first] == 0:
            insort(self.untouched, block)
            for piece in range(first, first + self.pieces):
                self.out.pop(piece, None)


Stages: TypeAlias = tuple[Stage, ...]

ASYNCHRONOUS: Stages = (EachUpdate(),)


def first_versions(stages: Stages) -> list[int]:
    """Return the version with which each stage begins."""
    return list(accumulate((stage.commits or 0 for stage in stages[:-1]), initial=0))


def stage_index(stages: Stages, version: int) -> int:
    """Return the index of the stage that computes on a version and makes the next."""
    return bisect_right(first_versions(stages), version) - 1


def stage_at(stages: Stages, version: int) -> Stage:
    """Return the stage that computes on a version and makes the next."""
    return stages[stage_index(stages, version)]


def time_share(stages: Stages, version: int) -> float:
    """Return the duration of a computation on a version, as a share of the time that a cluster states.

    A cluster states the time of a whole block of all rows, in the cut of the first stage: after batches of a
    hundredth, each of 4 blocks takes 25 times as long.
    """
    stage, first = stage_at(stages, version), stages[0]
    return stage.share / stage.pieces * (first.blocks or 1) / (stage.blocks or 1)


def check_stages(stages: object, name: str) -> None:
    """Raise `BadInput` unless this is a sequence of stages of which only the last has no end."""
    wanted = f"{name}.stages must be a tuple of asyncqn.core.stages.Stage, such as ASYNCHRONOUS"
    if not isinstance(stages, tuple) or not stages:
        raise BadInput(f"{wanted}, not {stages!r}.")
    for stage in stages:
        if not isinstance(stage, Stage):
            raise BadInput(f"{wanted}; it holds {stage!r}.")
        kind = type(stage)
        if kind.rule is Stage.rule:
            raise BadInput(f"{name}.stages: {kind.__name__} has no rule of its own.")
        stage.check(name)
    # A stage without an end would make all later ones unreachable.
    ends = [stage.commits is not None for stage in stages]
    require(
        all(ends[:-1]) and not ends[-1],
        f"{name}.stages: the last stage, and no other, has no end.",
    )
    require(
        len({stage.parts is None for stage in stages}) == 1,
        f"{name}.stages: either every stage cuts the data into parts, or none does.",
    )
