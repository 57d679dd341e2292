"""WaitingUpdates: the updates that wait for their commit, and the rules by which they make one.

An update is committed by itself, or with its round, or with a fixed number of fresh updates, or with one of
every part of the data: the stage of the version that it read decides (`core.stages`).  `add` takes an update
and returns what is to be committed now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from asyncqn.cluster.handout import HandOut
from asyncqn.core.stages import Closes, Stage, Stages, stage_at

EACH_UPDATE, ROUND, ALL_PARTS = Closes.EACH_UPDATE, Closes.ROUND, Closes.ALL_PARTS


class Arrival(NamedTuple):
    """An update that waits for its commit; one that does not count will be recorded as dropped."""

    worker: int
    read: int
    part: int | None
    update: Any | None
    counts: bool = True


class WaitingUpdates:
    """The updates since the last commit; the caller passes versions and times in.

    Parameters
    ----------
    stages : Stages
        The stages of the algorithm.
    handout : HandOut, optional
        The assignment of parts, where the stages cut the data.
    max_staleness : int, optional
        Where each update is a commit, an update with more staleness is dropped.
    reach : float
        Time that a broadcast needs to reach the workers; a round's timeout counts from there.
    copied : callable
        Copies an update that must outlast the next step of its worker.
    """

    def __init__(
        self,
        stages: Stages,
        handout: HandOut | None,
        max_staleness: int | None,
        reach: float,
        copied: Callable[[Any], Any],
    ) -> None:
        self.stages, self.handout, self.max_staleness, self.reach = (
            stages,
            handout,
            max_staleness,
            reach,
        )
        self._copied = copied
        self.arrivals: list[Arrival] = []
        self.lasting = False
        """Whether the arrays of an update stay valid until its commit, so that no copy is needed."""
        self.round_ends = math.inf
        """Time at which the open round may close although some workers are missing."""

    def add(
        self, arrival: Arrival, stage: Stage, version: int, took: float
    ) -> list[Arrival] | None:
        """Return the updates to commit now, [] while this one waits, or None where it is dropped.

        Parameters
        ----------
        arrival : Arrival
            The update that has arrived.
        stage : Stage
            The stage of the current version.
        version : int
            The current version.
        took : float
            Time from the hand-out to the arrival.
        """
        asked = stage_at(self.stages, arrival.read)
        # The stage of the version that was read decides, not the current one: rules may have changed
        # meanwhile.
        if asked.closes is EACH_UPDATE:
            return self._by_itself(arrival, asked, stage, version)
        if asked.closes is ALL_PARTS:
            return self._of_a_part(arrival, version, took)
        if asked.updates is not None:
            return self._fresh(arrival, version, asked.updates)
        # Its round closed without it.
        if arrival.read < version:
            return None
        self.arrivals.append(arrival)
        return []

    def _by_itself(
        self, arrival: Arrival, asked: Stage, stage: Stage, version: int
    ) -> list[Arrival] | None:
        """Return the update alone, or None where its stage is over or it is too old."""
        delay, most, stage_most = (
            version - arrival.read,
            self.max_staleness,
            asked.max_delay,
        )
        young = (most is None or delay <= most) and (
            stage_most is None or delay <= stage_most
        )
        # An update of an earlier stage must not reach a stage with other rules.
        kept = young and stage is asked
        if self.handout is not None and arrival.part is not None and stage is asked:
            self.handout.taken(arrival.part, arrival.read, kept=kept)
        return [arrival] if kept else None

    def _of_a_part(self, arrival: Arrival, version: int, took: float) -> list[Arrival]:
        """Return all waiting updates if this one completes the version, else []."""
        assert self.handout is not None
        assert arrival.part is not None
        if not self.handout.delivered(arrival.part, arrival.read, version, took):
            # A worker's computations are recorded in its own order, so it waits for those before it.
            self.arrivals.append(arrival._replace(update=None, counts=False))
            return []
        if not self.handout.complete:
            # Its worker goes on to other blocks, and an engine may use the arrays again.
            kept = arrival.update if self.lasting else self._copied(arrival.update)
            self.arrivals.append(arrival._replace(update=kept))
            return []
        return [*self.take(), arrival]

    def _fresh(
        self, arrival: Arrival, version: int, enough: int
    ) -> list[Arrival] | None:
        """Return all waiting updates once `enough` of them were computed at the current version."""
        fresh = arrival.read == version
        if not fresh and not self.arrivals:
            return None
        # The worker continues and may overwrite the arrays; a stale update keeps its place but carries
        # nothing.
        self.arrivals.append(
            arrival._replace(
                update=self._copied(arrival.update) if fresh else None, counts=fresh
            )
        )
        return (
            self.take()
            if sum(waiting.counts for waiting in self.arrivals) == enough
            else []
        )

    def take(self) -> list[Arrival]:
        """Return all waiting updates, and clear the list."""
        arrivals, self.arrivals = self.arrivals, []
        return arrivals

    # -- rounds that wait for their workers

    def open_round(self, stage: Stage, now: float) -> None:
        """Start the timeout of a round whose version was just broadcast."""
        if stage.closes is ROUND and stage.updates is None:
            self.round_ends = now + self.reach + stage.timeout

    def close_round(
        self, stage: Stage, members: Collection[int], now: float
    ) -> list[Arrival]:
        """Return the updates to commit if the round is over, else []."""
        if stage.closes is not ROUND or stage.updates is not None:
            return []
        senders = {arrival.worker for arrival in self.arrivals}
        # Members that died do not hold up the round.
        everyone = senders.issuperset(members)
        # The tolerance keeps 0.7 * 10 workers from asking for eight.
        enough = len(senders) >= stage.quorum * len(members) - 1e-9
        over = everyone or (now >= self.round_ends and enough)
        return self.take() if senders and over else []
