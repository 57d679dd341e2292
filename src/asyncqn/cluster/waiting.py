"""WaitingAnswers: the updates that wait for their commit, and the rules by which they make one.

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

EACH_ANSWER, ROUND, ALL_PARTS = Closes.EACH_ANSWER, Closes.ROUND, Closes.ALL_PARTS


class Answer(NamedTuple):
    """An update that waits for its commit; one that does not count will be recorded as dropped."""

    worker: int
    read: int
    part: int | None
    update: Any | None
    counts: bool = True


class WaitingAnswers:
    """The answers since the last commit; versions and times are told by the caller.

    max_staleness: where each update is a commit, one that is older comes in vain.
    reach: time a broadcast needs to reach the workers, from which a round's timeout counts.
    copied: copies an update that must outlast the next step of its worker.
    """

    def __init__(
        self,
        stages: Stages,
        handout: HandOut | None,
        max_staleness: int | None,
        reach: float,
        copied: Callable[[Any], Any],
    ) -> None:
        self.stages, self.handout, self.max_staleness, self.reach = stages, handout, max_staleness, reach
        self._copied = copied
        self.answers: list[Answer] = []
        self.lasting = False
        """The arrays of an answer are those that the algorithm made, which last until it is committed."""
        self.round_ends = math.inf
        """When the open round may close without everyone."""

    def add(self, answer: Answer, stage: Stage, version: int, took: float) -> list[Answer] | None:
        """Return the updates to commit now, [] while this one waits, or None where it is dropped.

        Parameters
        ----------
        answer : Answer
            The update that has arrived.
        stage : Stage
            The stage of the current version.
        version : int
            The current version.
        took : float
            Time from the hand-out to the arrival.
        """
        asked = stage_at(self.stages, answer.read)
        # The stage of the version that was read decides, not the current one: rules may have changed
        # meanwhile.
        if asked.closes is EACH_ANSWER:
            return self._by_itself(answer, asked, stage, version)
        if asked.closes is ALL_PARTS:
            return self._of_a_part(answer, version, took)
        if asked.answers is not None:
            return self._fresh(answer, version, asked.answers)
        # Its round closed without it.
        if answer.read < version:
            return None
        self.answers.append(answer)
        return []

    def _by_itself(self, answer: Answer, asked: Stage, stage: Stage, version: int) -> list[Answer] | None:
        """In vain where it belongs to a stage that is over, or is too old."""
        delay, most, stage_most = version - answer.read, self.max_staleness, asked.max_delay
        young = (most is None or delay <= most) and (stage_most is None or delay <= stage_most)
        # An update of an earlier stage must not reach a stage with other rules.
        kept = young and stage is asked
        if self.handout is not None and answer.part is not None and stage is asked:
            self.handout.taken(answer.part, answer.read, kept=kept)
        return [answer] if kept else None

    def _of_a_part(self, answer: Answer, version: int, took: float) -> list[Answer]:
        """All that wait, where this was the last part that was missing."""
        assert self.handout is not None
        assert answer.part is not None
        if not self.handout.answered(answer.part, answer.read, version, took):
            # A worker's computations are recorded in its own order, so it waits for those before it.
            self.answers.append(answer._replace(update=None, counts=False))
            return []
        if not self.handout.complete:
            # Its worker goes on to other blocks, and an engine may use the arrays again.
            kept = answer.update if self.lasting else self._copied(answer.update)
            self.answers.append(answer._replace(update=kept))
            return []
        return [*self.take(), answer]

    def _fresh(self, answer: Answer, version: int, enough: int) -> list[Answer] | None:
        """All that wait, once so many were computed at the present version."""
        fresh = answer.read == version
        if not fresh and not self.answers:
            return None
        # Its worker goes on, and may use the arrays again; one in vain stands where it came.
        self.answers.append(
            answer._replace(update=self._copied(answer.update) if fresh else None, counts=fresh)
        )
        return self.take() if sum(waiting.counts for waiting in self.answers) == enough else []

    def take(self) -> list[Answer]:
        """All that wait; none waits any more."""
        answers, self.answers = self.answers, []
        return answers

    # -- rounds that wait for their workers

    def open_round(self, stage: Stage, now: float) -> None:
        """A version was sent to the workers of a round."""
        if stage.closes is ROUND and stage.answers is None:
            self.round_ends = now + self.reach + stage.timeout

    def close_round(self, stage: Stage, members: Collection[int], now: float) -> list[Answer]:
        """Return what is to be committed if the round is over, else []."""
        if stage.closes is not ROUND or stage.answers is not None:
            return []
        answered = {answer.worker for answer in self.answers}
        # Members that died do not hold up the round.
        everyone = answered.issuperset(members)
        # The tolerance keeps 0.7 * 10 workers from asking for eight.
        enough = len(answered) >= stage.quorum * len(members) - 1e-9
        over = everyone or (now >= self.round_ends and enough)
        return self.take() if answered and over else []
