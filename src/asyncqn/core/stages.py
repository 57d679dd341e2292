"""Stages: how updates reach the master, as a short sequence that every algorithm declares.

A stage states how many commits it has, how the rows are cut, what share of them is used, and when the master
commits.  Most algorithms have one stage:

    `ASYNCHRONOUS`
        Each update is a commit, and workers draw their own rows.
    `not_older_than(max_delay)`
        The same, but updates that are older are dropped.
    `batches(n, commits, order)`
        Each update is a commit, and comes from one of n parts of the data.
    `rounds(timeout, quorum)`
        Updates are committed together, round by round.
    `fresh_rounds(updates)`
        A fixed number of updates, all computed at the current version, make a commit.
    `blocks(n, backup_after, pieces)`
        A version closes when an update of every part of the data has arrived.

A warm-up on batches before exact passes, or samples that grow to all rows, are sequences of stages.

Stages are data and not code, so the simulator and the real engines apply the same rules, and a schedule can
be simulated without computing a single gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import NamedTuple

from asyncqn.errors import BadInput, require
from asyncqn.kernels import part_order

__all__ = [
    "ASYNCHRONOUS",
    "Closes",
    "Growth",
    "Order",
    "Stage",
    "batches",
    "blocks",
    "fresh_rounds",
    "not_older_than",
    "rounds",
]


class Closes(Enum):
    """The event at which the master commits and creates a new version."""

    EACH_UPDATE = "each update"
    ROUND = "a round"
    ALL_PARTS = "all parts"


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


@dataclass(frozen=True)
class Stage:
    """One stage of a run; the top of this file lists the usual ones.

    Parameters
    ----------
    closes : Closes
        When the master commits.
    commits : int, optional
        Number of commits of the stage; by default all that are left.
    blocks : int, optional
        Number of blocks into which the rows are cut; by default workers draw their own rows.
    pieces : int, default 1
        Number of pieces into which each block is cut; `Task.part` numbers the pieces of all blocks.
    share : float, default 1.0
        Share of the rows that the stage uses; a computation takes that share of the time.
    timeout : float, default 0.0
        A round closes when all workers have sent an update, or when `timeout` has passed since the broadcast
        reached them and a share `quorum` of them has.
    quorum : float, default 1.0
        See `timeout`.
    backup_after : float, default inf
        Idle workers duplicate a part once it has been out for this number of mean durations, less six
        standard deviations; the first update wins (`kernels.block_rule`).
    order : Order, default Order.IN_TURN
        Order in which parts are assigned, where each update is a commit.
    growth : Growth, optional
        How parts become active, where each update is a commit; by default all are active.
    max_delay : int, optional
        Where each update is a commit, an update that read a version more than this number of commits ago is
        dropped: it takes no commit number, and its worker receives the current iterate.
    updates : int, optional
        A round closes on this number of updates computed at the current version; others are dropped, and a
        worker computes again at once, so that it may contribute twice.  By default `timeout` decides.

    Notes
    -----
    Where a worker `goes_on` before its update is committed, the arrays of the update must stay valid until
    then, beyond the worker's next step.
    """

    closes: Closes
    commits: int | None = None
    blocks: int | None = None
    pieces: int = 1
    share: float = 1.0
    timeout: float = 0.0
    quorum: float = 1.0
    backup_after: float = math.inf
    order: Order = Order.IN_TURN
    growth: Growth | None = None
    max_delay: int | None = None
    updates: int | None = None

    @property
    def parts(self) -> int | None:
        """Number of parts into which the rows are cut, or None if they are not cut."""
        return None if self.blocks is None else self.blocks * self.pieces

    @property
    def first_part(self) -> int | None:
        """The part to use for a trial computation, or None if the rows are not cut."""
        return None if self.blocks is None else 0

    @property
    def waits(self) -> bool:
        """Return whether an update may wait for its commit."""
        return self.closes is not Closes.EACH_UPDATE

    @property
    def goes_on(self) -> bool:
        """Return whether a worker continues to compute while its update waits for its commit."""
        return self.closes is Closes.ALL_PARTS or self.updates is not None

    @property
    def rows(self) -> int:
        """Return the number of updates per commit, as far as the stage determines it."""
        return self.parts or 1 if self.closes is Closes.ALL_PARTS else self.updates or 1

    def part_order(self) -> part_order.PartOrder:
        """Return the initial state of the assignment of parts, where each update is a commit."""
        if self.parts is None or self.closes is not Closes.EACH_UPDATE:
            return part_order.new_order(part_order.NO_PARTS, 0, (0, 1, 1, 0))
        # Without growth all parts are active from the start.
        first, rounds, each, quick = self.growth or Growth(self.parts)
        fixed = (first, rounds, each, self.parts if quick is None else quick)
        return part_order.new_order(self.order.value, self.parts, fixed)


Stages = tuple[Stage, ...]

ASYNCHRONOUS: Stages = (Stage(Closes.EACH_UPDATE),)


def rounds(timeout: float, quorum: float) -> Stage:
    """Return a stage of synchronous rounds, to the end of the run."""
    return Stage(Closes.ROUND, timeout=float(timeout), quorum=float(quorum))


def fresh_rounds(updates: int) -> Stage:
    """Return a stage of rounds that close on a number of updates computed at the current version."""
    return Stage(Closes.ROUND, updates=updates)


def not_older_than(max_delay: int) -> Stage:
    """Return a stage in which each update is a commit, unless its staleness exceeds `max_delay`."""
    return Stage(Closes.EACH_UPDATE, max_delay=max_delay)


def batches(
    n: int,
    commits: int | None = None,
    order: Order = Order.IN_TURN,
    growth: Growth | None = None,
    *,
    max_delay: int | None = None,
) -> Stage:
    """Return a stage in which each update is a commit, and belongs to one of n parts of the data."""
    return Stage(
        Closes.EACH_UPDATE, commits, n, order=order, growth=growth, max_delay=max_delay
    )


def blocks(
    n: int,
    backup_after: float,
    pieces: int = 1,
    *,
    share: float = 1.0,
    commits: int | None = None,
) -> Stage:
    """Return a stage whose versions need n blocks of `pieces` pieces each, on a share of the rows."""
    return Stage(
        Closes.ALL_PARTS, commits, n, pieces, share, backup_after=float(backup_after)
    )


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
    if (
        stage.closes is not first.closes
        and stage.blocks is not None
        and first.blocks is not None
    ):
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
        if not isinstance(stage, Stage):
            raise BadInput(f"{wanted}; it holds {stage!r}.")
        _check_stage(stage, name)
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


def _check_stage(stage: Stage, name: str) -> None:
    """Raise `BadInput` where what a stage says of delays, updates and parts has no meaning."""
    each, round_ = stage.closes is Closes.EACH_UPDATE, stage.closes is Closes.ROUND
    require(
        stage.max_delay is None or (each and stage.max_delay >= 0),
        f"{name}.stages: max_delay must be at least 0 and needs a stage in which each update is a "
        f"commit, not {stage!r}.",
    )
    require(
        stage.updates is None or (round_ and stage.updates >= 1),
        f"{name}.stages: updates must be at least 1 and needs a stage of rounds, not {stage!r}.",
    )
    require(
        (stage.blocks is None) <= (stage.closes is not Closes.ALL_PARTS)
        and not (round_ and stage.blocks),
        f"{name}.stages: blocks need a stage that commits each update or all parts, not {stage!r}.",
    )
    require(
        stage.growth is None
        or (
            each
            and 1 <= stage.growth.first <= (stage.parts or 0)
            and min(stage.growth.rounds, stage.growth.each) >= 1
            and (stage.growth.quick is None or stage.growth.quick >= stage.growth.first)
        ),
        f"{name}.stages: growth needs a stage that commits each update, starts with at least one and at most "
        f"all parts, and has positive rates, unlike {stage!r}.",
    )
