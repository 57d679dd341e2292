"""The machine that decides who computes what next: events in, orders out.

It has no clock, no threads, no messages and no theta.  `engines.coordinator` drives it by a clock and
`cluster.virtual_time` by a heap of simulated events.  The `Rule` of the present stage (`core.stages`) answers
its questions.

Its events are `join`, `ready`, `deliver` and `lost`; a driver calls `settle` when all events of a moment are in,
or when `deadline` has come, and carries out the orders that it gets.

An `Apply` is an order and `committed` its answer, because a master may take time for it, or end the run.
Until then the version that exists is the old one: who joins meanwhile reads that, and nobody who waits for the
next version gets an order.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from asyncqn.core.stages import (
    OWN_ROWS,
    Arrival,
    Hand,
    Stages,
    first_versions,
    stage_at,
    stage_index,
)

new_tuple = tuple.__new__
"""Makes a named tuple from a plain one in a third of the time: there are some at every commit."""


class Assign(NamedTuple):
    """Let a worker compute on version `read`: its own rows, or the parts from `part` to `last`."""

    worker: int
    read: int
    part: int | None
    last: int | None


class Apply(NamedTuple):
    """Make the next version of these updates, of which some may not count, and call `committed`.

    Updates that arrive too late to count may be added to the list until then.
    """

    arrivals: list[Arrival]


class Drop(NamedTuple):
    """Record a computation whose update is of no use."""

    arrival: Arrival


Orders: TypeAlias = list[Assign | Apply | Drop]


class Assignment:
    """The state of the machine; see the top of this file.

    Parameters
    ----------
    stages : tuple of Stage
        The stages of the algorithm.
    seed : int, default 0
        Seed of the run, for parts that are assigned at random.
    version : int, default 0
        The version to begin with.
    now : float, default 0.0
        The time at which it was made.
    """

    def __init__(
        self, stages: Stages, seed: int = 0, version: int = 0, now: float = 0.0
    ) -> None:
        self.stages = stages
        self.seed = seed
        self.version = version
        self.present: set[int] = set()
        """The workers that are there."""
        self.closing = False
        """Whether a commit is under way."""
        self._free: list[int] = []  # workers to give something to, by number
        self._resting: set[int] = set()  # workers that wait for the next version
        self._hands: dict[int, tuple[int, Hand]] = {}  # what is under way, by worker
        stage = stage_index(stages, version)
        self.stage, self.rule = stages[stage], stages[stage].rule(seed)
        # Updates that read a version before the present stage are of no use.
        self._since = first_versions(stages)[stage]
        self.rule.opened(version, now)

    # -- what a driver reads

    @property
    def waiting(self) -> list[Arrival]:
        """The updates that wait for their commit."""
        return self.rule.waiting

    @property
    def deadline(self) -> float:
        """The time by which `settle` must be called, if nothing happens before."""
        return math.inf if self.closing else self.rule.deadline

    # -- events

    def join(self, worker: int) -> None:
        """Take note of a worker that is there."""
        self.present.add(worker)

    def ready(self, worker: int, now: float) -> Assign | None:
        """Assign something to a free worker; it waits for `settle` where that cannot be decided yet."""
        if self.stage.at_once:
            hand = self.rule.assign(worker, self.version, now)
            if hand is not None:
                return self._assigned(worker, hand)
        insort(self._free, worker)
        return None

    def deliver(
        self,
        worker: int,
        read: int,
        part: int | None = None,
        update: Any | None = None,
        spent: float = 0.0,
    ) -> Apply | Drop | None:
        """Take in an update that was computed on version `read`.

        `spent` is the time of its computation, as that of a whole block where a block lies in pieces.
        """
        arrival: Arrival = new_tuple(Arrival, (worker, read, part, update, True))
        if part is not None:
            self._advance(worker, part)
        # An update of an earlier stage must not reach a stage with other rules.
        if read < self._since:
            return new_tuple(Drop, (arrival,))
        ready = self.rule.add(arrival, self.version, spent)
        if ready is None:
            return new_tuple(Drop, (arrival,))
        if ready:
            self.closing = True
            return new_tuple(Apply, (ready,))
        return None

    def lost(self, worker: int) -> None:
        """Take note that a worker is gone, and what it was computing with it."""
        self.present.discard(worker)
        read, hand = self._hands.pop(worker, (self.version, OWN_ROWS))
        if worker in self._resting:
            self._resting.discard(worker)
        elif (i := bisect_left(self._free, worker)) < len(self._free) and (
            self._free[i] == worker
        ):
            del self._free[i]
        elif read >= self._since:
            self.rule.lost(worker, read, hand, self.version)

    def settle(self, now: float) -> Orders:
        """Return the orders that follow when all events of this moment are in."""
        rule, free = self.rule, self._free
        if self.stage.at_once and not free:
            return []
        if not self.closing and rule.complete(self.present, now):
            self.closing = True
            return [Apply(rule.waiting)]
        orders: Orders = []
        self._free = []
        for i, worker in enumerate(free):
            hand = rule.assign(worker, self.version, now)
            if hand is not None:
                orders.append(self._assigned(worker, hand))
            elif not rule.retries:
                self._resting.add(worker)
            else:
                # Nothing is left for anybody, until something happens or a part is overdue.
                self._free = free[i:]
                break
        return orders

    def committed(self, now: float) -> None:
        """Take note that the commit is made: its version is there."""
        self.version += 1
        stage = self.stage
        if stage.commits is not None:
            self.stage = stage_at(self.stages, self.version)
            if self.stage is not stage:
                self.rule = self.stage.rule(self.seed)
                self._since = self.version
        self.closing = False
        self.rule.opened(self.version, now)
        if self._resting:
            self._free = sorted(self._resting.union(self._free))
            self._resting.clear()

    def resume(
        self, read: np.ndarray, part: np.ndarray, kept: np.ndarray, now: float
    ) -> None:
        """Continue after recorded computations: the versions read, the parts, and which of them counted."""
        mine = read >= self._since
        self.rule.resume(read[mine], part[mine], kept[mine])
        self.rule.opened(self.version, now)

    # -- what a worker has in hand

    def _assigned(self, worker: int, hand: Hand) -> Assign:
        version = self.version
        part, last = hand
        if part is not None:
            self._hands[worker] = version, hand
        order: Assign = new_tuple(Assign, (worker, version, part, last))
        return order

    def _advance(self, worker: int, part: int) -> None:
        """Take note that a worker has delivered a part, and continues with the next of its block."""
        read, hand = self._hands.get(worker, (0, OWN_ROWS))
        if hand.last is None:
            return
        if part < hand.last:
            self._hands[worker] = read, Hand(part + 1, hand.last)
        else:
            del self._hands[worker]
