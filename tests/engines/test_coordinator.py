"""The master's state machine under random events, and the memory of what it records."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engines.runs import assert_replays, make_problem
from hypothesis import given
from hypothesis import strategies as st

import asyncqn as aq
from asyncqn.core.outcome import Outcome
from asyncqn.core.request import Request
from asyncqn.core.worker import WorkerSteps
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.copies import sent_fields
from asyncqn.engines.worker_loop import Step
from asyncqn.runs.checkpoint import Saved
from asyncqn.runs.checkpoint_reading import unpack_log
from asyncqn.runs.snapshot import state_arrays

PROBLEM = make_problem()
THETA0 = np.full(PROBLEM.dim, 0.5)
SEED = 11
ALGORITHMS: dict[str, Any] = {
    "asynchronous": aq.ASLBFGS(
        h=1e-4, gamma=0.05, beta=100.0, memory=2, batch=8, overlap=3, initial_scale=0.01
    ),
    "rounds": aq.MBLBFGS(h=0.01, memory=2, batch=8, overlap=3, timeout=2.0, quorum=0.5),
    "blocks": aq.ExactLBFGS(blocks=3, pieces=2),
}


def as_loaded(saved: Saved) -> Saved:
    """A checkpoint as it comes back from disk: the content of its logs among the arrays."""
    arrays = dict(saved.arrays)
    for name, log in saved.logs.items():
        if log.length:
            unpack_log(name, log.between(0, log.length), arrays)
    arrays.setdefault("fingerprints", np.empty(0, np.uint32))
    return Saved(
        saved.document,
        {k: a for k, a in arrays.items() if not k.startswith("under_way.")},
    )


class Stage:
    """An engine without time of its own: it computes at once and sends when the test says so."""

    def __init__(self, algorithm: Any, **options: Any) -> None:
        self.algorithm = algorithm
        self.now = 0.0
        self.states: dict[int, Any] = {}
        self.flight: dict[int, Any] = {}
        self.read: dict[int, int] = {}
        self.checkpoints: list[Saved] = []
        self.start: Saved | None = options.get("start")
        asked = {
            name: options.pop(name)
            for name in ("commits", "callback", "stopping")
            if name in options
        }
        due = options.pop("due", lambda commit: False)
        kept: Any = SimpleNamespace(
            start=options.pop("start", None), due=due, interrupted=0
        )
        asked = {"commits": 10_000, "checkpoints": kept, **asked}
        request = Request(PROBLEM, algorithm, THETA0, seed=SEED, evaluate=5, **asked)
        self.coordinator: Any = Coordinator(
            request, workers=3, engine={"kind": "stage"}, **options
        )
        self.steps = WorkerSteps(algorithm, PROBLEM, self.coordinator.master.limit)
        self.coordinator.begin()

    def join(self, worker: int | None = None) -> None:
        w = self.coordinator.join(self.now, worker)
        fresh = self.algorithm.init_worker(PROBLEM, THETA0)
        known = self.start is not None and str(w) in self.start.document["workers"]
        self.states[w] = (
            self.start.tree(f"worker.{w}", fresh) if known and self.start else fresh
        )
        self.carry(self.coordinator.ask(w, self.now))

    def carry(self, orders: list[Step]) -> None:
        iterate = self.coordinator.master.iterate
        sent = sent_fields(self.algorithm, iterate)
        view = iterate._make(
            [getattr(iterate, f).copy() if f in sent else None for f in iterate._fields]
        )
        for order in orders:
            w = order.worker
            assert w not in self.flight, "one computation in flight per worker"
            assert order.read == self.coordinator.version
            if order.hand_in:
                self.coordinator.snapshots.hand_in(w, state_arrays(w, self.states[w]))
            task = order.task(SEED)
            update = self.steps.compute(view, self.states[w], task)
            self.states[w] = self.steps.learn(view, self.states[w], task, update)
            self.flight[w], self.read[w] = update, order.read
        if (saved := self.coordinator.snapshots.whole()) is not None:
            self.checkpoints.append(as_loaded(saved))

    def send(self, which: int, ask: bool = True) -> None:
        if self.flight:
            w = sorted(self.flight)[which % len(self.flight)]
            update = self.flight.pop(w)
            self.carry(self.coordinator.deliver(w, update, self.now, ask=ask))

    def lose(self, which: int) -> None:
        living = sorted(self.coordinator.members)
        if len(living) > 1:
            w = living[which % len(living)]
            self.flight.pop(w, None)
            self.carry(self.coordinator.lost(w, self.now))
            del self.states[w]

    def finish(self) -> aq.Run:
        if not self.coordinator.done:
            self.coordinator.stop(Outcome.STOPPED, "the test stopped the run.")
        return self.coordinator.finish(self.states)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["send"] * 8 + ["tick", "lose", "join"]),
        st.integers(0, 9),
        st.floats(0.0, 1.0),
    ),
    max_size=60,
)


def drive(stage: Stage, events: list[tuple[str, int, float]]) -> None:
    acts: dict[str, Callable[[int], None]] = {
        "send": stage.send,
        "lose": stage.lose,
        "join": lambda _: stage.join(),
        "tick": lambda _: stage.carry(stage.coordinator.tick(stage.now)),
    }
    for name, which, passes in events:
        if stage.coordinator.done:
            return
        stage.now += passes
        acts[name](which)


@pytest.mark.parametrize("pattern", list(ALGORITHMS))
@given(events=EVENTS)
def test_any_sequence_of_events_records_a_valid_schedule_that_replays(
    pattern: str, events: list[tuple[str, int, float]]
) -> None:
    stage = Stage(ALGORITHMS[pattern])
    for _ in range(3):
        stage.join()
    drive(stage, events)
    lost = stage.coordinator.lost_workers
    run = stage.finish()
    again = aq.replay(run)
    assert again.schedule == run.schedule
    assert again.theta.tobytes() == run.theta.tobytes()
    if not lost:  # the memory of a lost worker is gone, its pairs with it
        assert again.counters == run.counters


@pytest.mark.parametrize("pattern", list(ALGORITHMS))
@given(events=EVENTS, every=st.integers(1, 7), more=EVENTS)
def test_every_checkpoint_continues_into_a_run_that_replays_as_a_whole(
    pattern: str,
    events: list[tuple[str, int, float]],
    every: int,
    more: list[tuple[str, int, float]],
) -> None:
    stage = Stage(ALGORITHMS[pattern], due=lambda commit: commit % every == 0)
    for _ in range(3):
        stage.join()
    drive(stage, events)
    for saved in stage.checkpoints[-2:]:
        resumed = Stage(ALGORITHMS[pattern], start=saved)
        assert resumed.coordinator.version == saved.commit
        for _ in saved.document["workers"]:
            resumed.join()
        drive(resumed, more)
        run = resumed.finish()
        assert np.array_equal(
            run.fingerprints[: saved.commit],
            stage.coordinator.master.fingerprints[: saved.commit],
        )
        assert aq.replay(run).schedule == run.schedule


def test_an_update_beyond_the_staleness_bound_is_dropped_and_its_worker_reads_anew() -> (
    None
):
    stage = Stage(ALGORITHMS["asynchronous"], max_staleness=2)
    for _ in range(2):
        stage.join()
    for _ in range(3):
        stage.send(0)
    assert (stage.coordinator.version, stage.read[1]) == (3, 0)
    stage.send(1)
    assert (stage.coordinator.version, stage.read[1]) == (3, 3)
    run = stage.finish()
    assert run.counters["staleness_max"] <= 2
    assert_replays(run)
