"""One stage's rule, asked and told by hand: which part a worker gets, and what became of it."""

from __future__ import annotations

from asyncqn.core.stages import Arrival, Hand, Stage


class PartsByHand:
    """A rule without a machine; a worker gets the pieces of its block one by one."""

    def __init__(self, stage: Stage, seed: int = 0) -> None:
        self.stage, self.rule = stage, stage.rule(seed)
        self.hands: dict[int, Hand] = {}
        self.opened(0)

    def opened(self, version: int) -> None:
        self.rule.opened(version, 0.0)
        self.hands.clear()

    def choose(self, worker: int, version: int, now: float) -> int | None:
        hand = self.hands.pop(worker, None) or self.rule.assign(worker, version, now)
        if hand is None:
            return None
        assert hand.part is not None
        assert hand.last is not None
        if hand.part < hand.last:
            self.hands[worker] = Hand(hand.part + 1, hand.last)
        return hand.part

    def delivered(self, part: int, read: int, version: int, took: float = 0.0) -> bool:
        """Whether the update counts, now or once all parts are there."""
        spent = took * self.stage.pieces
        ready = self.rule.add(Arrival(0, read, part, None), version, spent)
        return bool(ready) or (ready == [] and self.rule.waiting[-1].counts)

    def lost(self, worker: int, part: int, read: int, version: int) -> None:
        hand = self.hands.pop(worker, None)
        last = part if hand is None else hand.last
        self.rule.lost(worker, read, Hand(part, last), version)

    @property
    def complete(self) -> bool:
        return self.rule.complete((), 0.0)
