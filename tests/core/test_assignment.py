"""The machine that assigns work, under random events."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn.core.assignment import Apply, Assign, Assignment, Drop
from asyncqn.core.stages import (
    AllParts,
    Arrival,
    EachUpdate,
    FreshRound,
    Growth,
    Round,
    Stages,
)

STAGES: dict[str, Stages] = {
    "each update": (EachUpdate(),),
    "not older": (EachUpdate(max_delay=1),),
    "by age": (EachUpdate(blocks=5, order="age", growth=Growth(2)),),
    "fresh": (FreshRound(updates=3),),
    "rounds": (Round(timeout=2.0, quorum=0.5),),
    "blocks": (AllParts(blocks=4, backup_after=1.0),),
    "pieces": (AllParts(blocks=3, backup_after=0.5, pieces=3),),
    "growing": (
        AllParts(blocks=3, backup_after=1.0, share=0.5, commits=3),
        AllParts(blocks=3, backup_after=1.0),
    ),
    "two cuts": (
        AllParts(blocks=2, backup_after=1.0, commits=3),
        AllParts(blocks=5, backup_after=1.0),
    ),
    "rounds, then each": (Round(3), EachUpdate()),
    "batches, then blocks": (
        EachUpdate(blocks=3, commits=4),
        AllParts(blocks=4, backup_after=1.0),
    ),
}


class Chaos:
    """Workers that compute, die and join at random; it checks every order of the machine."""

    def __init__(self, stages: Stages, workers: int) -> None:
        self.machine = Assignment(stages, seed=1)
        self.now = 0.0
        self.hands: dict[int, list[tuple[int, int | None]]] = {}
        """What each worker has still to deliver, as (version, part)."""
        self.delivered: Counter[tuple[int, int, int | None]] = Counter()
        self.recorded: Counter[tuple[int, int, int | None]] = Counter()
        self.next = workers
        for worker in range(workers):
            self.machine.join(worker)
            self.ready(worker)
        self.settle()

    def ready(self, worker: int) -> None:
        self.hands[worker] = []
        order = self.machine.ready(worker, self.now)
        if order is not None:
            self.assigned(order)

    def assigned(self, order: Assign) -> None:
        machine = self.machine
        worker, read, part, last = order
        assert worker in machine.present
        assert not machine.closing, (
            "nothing is assigned between a commit and its answer"
        )
        assert read == machine.version
        assert self.hands[worker] == [], "a worker has one assignment at a time"
        if part is None:
            assert machine.stage.parts is None
            self.hands[worker] = [(read, None)]
        else:
            assert last is not None
            assert machine.stage.parts is not None
            assert 0 <= part <= last < machine.stage.parts
            self.hands[worker] = [(read, q) for q in range(part, last + 1)]

    def settle(self) -> None:
        while orders := self.machine.settle(self.now):
            for order in orders:
                if isinstance(order, Apply):
                    self.commit(order.arrivals)
                else:
                    assert isinstance(order, Assign)
                    self.assigned(order)

    def commit(self, arrivals: list[Arrival]) -> None:
        machine = self.machine
        stage, version = machine.stage, machine.version
        counting = [arrival for arrival in arrivals if arrival.counts]
        if isinstance(stage, AllParts):
            assert sorted(a.part for a in counting) == list(range(stage.rows))  # type: ignore[type-var]
        elif isinstance(stage, Round):
            assert len({a.worker for a in counting}) == len(counting) > 0
        else:
            assert len(counting) == stage.rows
        if not isinstance(stage, EachUpdate):
            assert {arrival.read for arrival in counting} == {version}
        elif stage.max_delay is not None:
            assert version - counting[0].read <= stage.max_delay
        self.recorded.update(arrival[:3] for arrival in arrivals)
        assert machine.settle(self.now) == [], "nobody gets work before the answer"
        assert machine.deadline == np.inf
        machine.committed(self.now)
        assert machine.version == version + 1

    def deliver(self, worker: int) -> None:
        read, part = self.hands[worker].pop(0)
        self.delivered[worker, read, part] += 1
        order = self.machine.deliver(worker, read, part, None, 1.0)
        if isinstance(order, Drop):
            self.recorded[order.arrival[:3]] += 1
        elif order is not None:
            self.commit(order.arrivals)
        # It continues with its block unless the version is over.
        if not self.hands[worker] or self.hands[worker][0][0] < self.machine.version:
            self.ready(worker)
        self.settle()

    def lose(self, worker: int) -> None:
        del self.hands[worker]
        self.machine.lost(worker)
        self.settle()

    def join(self, worker: int) -> None:
        self.machine.join(worker)
        self.ready(worker)
        self.settle()


@pytest.mark.parametrize("name", STAGES)
@given(workers=st.integers(1, 5), data=st.data())
def test_random_events_lead_to_orders_that_make_sense(
    name: str, workers: int, data: st.DataObject
) -> None:
    chaos = Chaos(STAGES[name], workers)
    gone: list[int] = []
    for kind, which in data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["deliver"] * 8 + ["lose", "join", "return", "wait"]),
                st.integers(0, 9),
            ),
            max_size=80,
        )
    ):
        computing = [w for w, hand in sorted(chaos.hands.items()) if hand]
        if kind == "deliver" and computing:
            chaos.deliver(computing[which % len(computing)])
        elif kind == "lose" and len(chaos.hands) > 1:
            gone.append(sorted(chaos.hands)[which % len(chaos.hands)])
            chaos.lose(gone[-1])
        elif kind == "join":
            chaos.join(chaos.next)
            chaos.next += 1
        elif kind == "return" and gone:
            chaos.join(gone.pop(which % len(gone)))
        elif kind == "wait":
            chaos.now += 0.3 * which
            chaos.settle()
    # Every update that arrived is recorded once, or waits.
    waiting = Counter(arrival[:3] for arrival in chaos.machine.waiting)
    assert chaos.recorded + waiting == chaos.delivered


@pytest.mark.parametrize("name", STAGES)
def test_the_machine_never_stops_while_there_is_a_worker(name: str) -> None:
    chaos = Chaos(STAGES[name], 3)
    chaos.lose(1)
    for _ in range(200):
        chaos.now += 1.0
        chaos.settle()
        computing = [w for w, hand in sorted(chaos.hands.items()) if hand]
        assert computing
        chaos.deliver(computing[-1])
    assert chaos.machine.version >= 200 // 10
