"""Stages: how updates reach the master, as a short sequence that every algorithm declares.

A stage states how many commits it has, how the rows are cut, what share of them is used, and when the master
commits.  Most algorithms have one stage:

    `EachUpdate`    Each update is a commit (`ASYNCHRONOUS`, `not_older_than`), of one of n parts (`batches`).
    `FreshRound`    A number of updates computed at the current version make a commit (`fresh_rounds`).
    `Round`         The updates of all workers make a commit, or of a share of them (`rounds`).
    `AllParts`      An update of every part of the data makes a commit (`blocks`).

A warm-up on batches before exact passes, or samples that grow to all rows, are sequences of stages.

Stages are data; the class below each kind, a `Rule`, has its state while it lasts.  `core.assignment` asks the
rule, for the simulator and for the real engines alike.  A kind of your own is a `Stage` with a `Rule`:
examples/fedbuff.py has one.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np

from asyncqn.errors import BadInput, require
from asyncqn.kernels import block_rule, part_order

__all__ = [
    "ASYNCHRONOUS",
    "AllParts",
    "Arrival",
    "EachUpdate",
    "FreshRound",
    "Growth",
    "Hand",
    "Order",
    "Round",
    "Rule",
    "Stage",
    "batches",
    "blocks",
    "fresh_rounds",
    "not_older_than",
    "rounds",
]


class Order(Enum):
    """The rule that chooses the next part of the data; the numbers are those of `kernels.part_order`."""

    IN_TURN = part_order.IN_TURN
    BY_AGE = part_order.BY_AGE
    AT_RANDOM = part_order.AT_RANDOM


class Growth(NamedTuple):
    """The schedule by which parts become active: parts 0 to first - 1 at the start, then one by one.

    The next part becomes active after rounds * first updates, and one more after every `each` further
    updates. With rounds = 3 and each = 2 this is when updates >= 3 first + 2 (active - first).  Once `quick`
    parts are active, every update activates one more; None turns this off.
    """

    first: int
    rounds: int = 3
    each: int = 2
    quick: int | None = None

    def updates(self, parts: int) -> int:
        """Return the number of updates after which all parts are active."""
        quick = parts if self.quick is None else min(self.quick, parts)
        return (
            self.rounds * self.first + self.each * (quick - self.first) + parts - quick
        )


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
        self.stage, self.seed = stage, seed
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

    def rule(self, seed: int, before: Rule | None) -> Rule:
        """Return the rule of this stage, after that of another stage or of none."""
        raise NotImplementedError

    def check(self, name: str) -> None:
        """Raise `BadInput` where the parameters have no meaning."""


@dataclass(frozen=True)
class EachUpdate(Stage):
    """Each update is a commit.

    Parameters
    ----------
    commits : int, optional
        Number of commits of the stage; by default all that are left.
    blocks : int, optional
        Number of parts of the rows; by default workers draw their own rows.
    order : Order, default Order.IN_TURN
        Order in which parts are assigned.
    growth : Growth, optional
        How parts become active; by default all are.
    max_delay : int, optional
        An update that read a version more than this number of commits ago is dropped: it takes no commit
        number, and its worker receives the current iterate.
    """

    blocks: int | None = None  # type: ignore[misc]
    order: Order = Order.IN_TURN
    growth: Growth | None = None
    max_delay: int | None = None

    waits: ClassVar[bool] = False

    def rule(self, seed: int, before: Rule | None) -> EachUpdateRule:
        return EachUpdateRule(self, seed)

    def check(self, name: str) -> None:
        require(
            self.max_delay is None or self.max_delay >= 0,
            f"{name}.stages: max_delay must be at least 0, not {self.max_delay}.",
        )
        growth = self.growth
        require(
            growth is None
            or (
                1 <= growth.first <= (self.blocks or 0)
                and min(growth.rounds, growth.each) >= 1
                and (growth.quick is None or growth.quick >= growth.first)
            ),
            f"{name}.stages: growth needs parts, starts with at least one and at most all of them, and has "
            f"positive rates, unlike {self!r}.",
        )


class EachUpdateRule(Rule):
    """Commit an update unless it is too old; parts come from `kernels.part_order`."""

    def __init__(self, stage: EachUpdate, seed: int) -> None:
        super().__init__(stage, seed)
        self.max_delay = math.inf if stage.max_delay is None else stage.max_delay
        self.order: part_order.PartOrder | None = None
        if stage.blocks is not None:
            # Without growth all parts are active from the start.
            first, rounds, each, quick = stage.growth or Growth(stage.blocks)
            growth = (first, rounds, each, stage.blocks if quick is None else quick)
            self.order = part_order.new_order(stage.order.value, stage.blocks, growth)

    def opened(self, version: int, now: float) -> None:
        pass

    def assign(self, worker: int, version: int, now: float) -> Hand | None:
        if self.order is None:
            return OWN_ROWS
        part = part_order.hand_out(*self.order, self.seed)
        return Hand(part, part)

    def add(self, arrival: Arrival, version: int, spent: float) -> list[Arrival] | None:
        young = version - arrival.read <= self.max_delay
        if self.order is not None:
            self._take_back(arrival.part, arrival.read if young else -1)
        return [arrival] if young else None

    def _take_back(self, part: int | None, read: int) -> None:
        if self.order is not None:
            numbers, parts, _, heap = self.order
            part_order.take_back(numbers, parts, heap, part, read)

    def lost(self, worker: int, read: int, hand: Hand, version: int) -> None:
        self._take_back(hand.part, -1)

    def resume(self, read: np.ndarray, part: np.ndarray, kept: np.ndarray) -> None:
        if self.order is not None:
            part_order.go_on_after(self.order, read.size, part[kept], read[kept])


@dataclass(frozen=True)
class FreshRound(Stage):
    """A fixed number of updates, all computed at the current version, make a commit.

    Other updates are dropped, and a worker computes again at once, so that it may contribute twice.

    Parameters
    ----------
    commits : int, optional
        Number of commits of the stage; by default all that are left.
    updates : int, default 1
        Number of updates per commit.
    """

    updates: int = 1

    goes_on: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        return self.updates

    def rule(self, seed: int, before: Rule | None) -> FreshRoundRule:
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
    commits : int, optional
        Number of commits of the stage; by default all that are left.
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

    def rule(self, seed: int, before: Rule | None) -> RoundRule:
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
    commits : int, optional
        Number of commits of the stage; by default all that are left.
    blocks : int, default 1
        Number of blocks into which the rows are cut.
    pieces : int, default 1
        Number of pieces of each block; its worker sends an update for each.
    share : float, default 1.0
        Share of the rows that the stage uses.
    backup_after : float, default inf
        Idle workers duplicate a part once it has been out for this number of mean durations, less six
        standard deviations; the first update wins (`kernels.block_rule`).
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

    def rule(self, seed: int, before: Rule | None) -> AllPartsRule:
        cut = (self.blocks, self.pieces)
        # A new sample of the same cut continues with the ages of its parts; only durations change.
        if isinstance(before, AllPartsRule) and before.cut == cut:
            before.continue_with(self)
            return before
        return AllPartsRule(self, seed)

    def check(self, name: str) -> None:
        require(
            min(self.blocks, self.pieces) >= 1,
            f"{name}.stages: blocks and pieces must be at least 1, unlike {self!r}.",
        )


class AllPartsRule(Rule):
    """Hand out blocks by `kernels.block_rule`, and count the parts that are missing."""

    retries = True

    def __init__(self, stage: AllParts, seed: int) -> None:
        super().__init__(stage, seed)
        self.cut = (stage.blocks, stage.pieces)
        self.backup_after, self.size = stage.backup_after, stage.rows
        self.parts = block_rule.new_parts(*self.cut)
        self.timed_from = 0
        """The first version whose durations are comparable with the present ones."""

    def continue_with(self, stage: AllParts) -> None:
        """Continue with another sample of the same parts."""
        if stage.share != self.stage.share:
            self.parts.times[:] = 0.0
            self.timed_from = -1  # until the next version opens
        self.stage, self.backup_after = stage, stage.backup_after

    def opened(self, version: int, now: float) -> None:
        super().opened(version, now)
        if self.timed_from < 0:
            self.timed_from = version
        self.missing, self.deadline = self.size, math.inf
        part, block, node, _ = self.parts
        block_rule.open_version(part, block, node)

    def assign(self, worker: int, version: int, now: float) -> Hand | None:
        first, last, overdue = block_rule.take(
            *self.parts, worker, now, self.backup_after
        )
        if first < 0:
            self.deadline = overdue
            return None
        self.deadline = math.inf
        return Hand(first, last)

    def add(self, arrival: Arrival, version: int, spent: float) -> list[Arrival] | None:
        # Durations on another sample would spoil the estimate of what is late.
        first = arrival.read >= self.timed_from and block_rule.receive(
            *self.parts, arrival.part, arrival.read, spent
        )
        if first:
            self.missing -= 1
            self.waiting.append(arrival)
        else:
            # It waits, too: a worker's computations are recorded in its own order.
            self.waiting.append(arrival._replace(update=None, counts=False))
        return []

    def complete(self, present: Collection[int], now: float) -> bool:
        return self.missing == 0

    def lost(self, worker: int, read: int, hand: Hand, version: int) -> None:
        if read == version and self.missing > 0:
            part, block, node, _ = self.parts
            block_rule.give_back(part, block, node, *hand)

    def resume(self, read: np.ndarray, part: np.ndarray, kept: np.ndarray) -> None:
        np.maximum.at(self.parts.part["delivered"], part[kept], read[kept])


Stages = tuple[Stage, ...]

ASYNCHRONOUS: Stages = (EachUpdate(),)


def rounds(timeout: float, quorum: float) -> Stage:
    """Return a stage of synchronous rounds, to the end of the run."""
    return Round(timeout=float(timeout), quorum=float(quorum))


def fresh_rounds(updates: int) -> Stage:
    """Return a stage of rounds that close on a number of updates computed at the current version."""
    return FreshRound(updates=updates)


def not_older_than(max_delay: int) -> Stage:
    """Return a stage in which each update is a commit, unless its staleness exceeds `max_delay`."""
    return EachUpdate(max_delay=max_delay)


def batches(
    n: int,
    commits: int | None = None,
    order: Order = Order.IN_TURN,
    growth: Growth | None = None,
    *,
    max_delay: int | None = None,
) -> Stage:
    """Return a stage in which each update is a commit, and belongs to one of n parts of the data."""
    return EachUpdate(commits, n, order, growth, max_delay)


def blocks(
    n: int,
    backup_after: float,
    pieces: int = 1,
    *,
    share: float = 1.0,
    commits: int | None = None,
) -> Stage:
    """Return a stage whose versions need n blocks of `pieces` pieces each, on a share of the rows."""
    return AllParts(commits, n, pieces, share, float(backup_after))


def stage_index(stages: Stages, version: int) -> int:
    """Return the index of the stage that computes on a version and makes the next."""
    for i, stage in enumerate(stages):
        if stage.commits is None or version < stage.commits:
            return i
        version -= stage.commits
    # Versions beyond the last stage's end belong to it: it lasts.
    return len(stages) - 1


def stage_at(stages: Stages, version: int) -> Stage:
    """Return the stage that computes on a version and makes the next."""
    # Most runs have one stage, and this is called at every commit.
    if stages[0].commits is None:
        return stages[0]
    return stages[stage_index(stages, version)]


def time_share(stages: Stages, version: int) -> float:
    """Return the duration of a computation on a version, as a share of the time that a cluster states.

    A cluster states the time of a computation of the first stage, and of whole blocks of all rows.
    """
    stage, first = stage_at(stages, version), stages[0]
    # Only a change of rule, such as batches before blocks, changes how much of the data a computation has; a
    # cluster states the time for the cut of the first stage.
    longer = 1.0
    # A pass in 4 blocks after batches of a hundredth: each block has 25 times the rows of a batch.
    if type(stage) is not type(first) and stage.blocks and first.blocks:
        longer = first.blocks / stage.blocks
    return stage.share / stage.pieces * longer


def last_versions(stages: Stages) -> list[float]:
    """Return the version with which each stage ends; infinite for a stage without an end."""
    return list(
        accumulate(
            math.inf if stage.commits is None else stage.commits for stage in stages
        )
    )


def check_stages(stages: object, name: str) -> None:
    """Raise `BadInput` unless this is a sequence of stages of which only the last has no end."""
    wanted = f"{name}.stages must be a tuple of asyncqn.core.stages.Stage, such as ASYNCHRONOUS"
    if not isinstance(stages, tuple) or not stages:
        raise BadInput(f"{wanted}, not {stages!r}.")
    for stage in stages:
        if not isinstance(stage, Stage) or type(stage) is Stage:
            raise BadInput(f"{wanted}; it holds {stage!r}.")
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
