"""The one worker loop: what it sends, learns and measures over a link of a list, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import Quadratic

import asyncqn as aq
from asyncqn.engines.worker_loop import Received, Step, WorkerLoop
from asyncqn.errors import WorkerFailed

ENGINES = Path(aq.__file__).parent / "engines"


class ListLink:
    """Hands out orders of a list, one unit of time after the other, and keeps what is sent."""

    sending_counts = True

    def __init__(self, view: Any, orders: list[Step], over: bool = False) -> None:
        self.view, self.orders, self.over = view, orders, over
        self.sent: list[Any] = []
        self.states: list[Any] = []
        self.seconds: list[float | None] = []
        self.slept: list[float] = []

    def receive(self, timed: bool) -> Received | None:
        return Received(self.orders.pop(0), self.view) if self.orders else None

    def hand_in(self, arrays: Any) -> None:
        self.states.append(arrays)

    def send(self, update: Any | None, seconds: float | None) -> None:
        self.sent.append(update)
        self.seconds.append(seconds)

    def now(self) -> float:
        return 10.0

    def sleep_until(self, until: float) -> bool:
        self.slept.append(until)
        return not self.over


def orders(n: int, **more: Any) -> list[Step]:
    return [Step(0, 0, k, **more) for k in range(n)]


def loop_of(problem: Any, **more: Any) -> tuple[WorkerLoop, Any]:
    algorithm, theta0 = aq.AsyncSGD(h=1e-6, batch=4), np.ones(problem.dim)
    return WorkerLoop(algorithm, problem, theta0, 3, **more), algorithm.init(theta0)


def test_every_order_is_computed_sent_and_measured() -> None:
    loop, view = loop_of(
        Quadratic.random(), measured=lambda computation: computation != 1
    )
    link = ListLink(view, orders(3))
    loop.run(link)
    assert len(link.sent) == 3
    assert [seconds is None for seconds in link.seconds] == [False, True, False]
    assert loop.order == Step(0, 0, 2)


def test_a_state_is_handed_in_before_the_step_it_is_asked_with() -> None:
    loop, view = loop_of(Quadratic.random())
    link = ListLink(view, [*orders(1), Step(0, 0, 1, hand_in=True)])
    loop.run(link)
    assert len(link.states) == 1


def test_a_computation_is_stretched_with_its_messages_and_a_death_ends_the_loop() -> (
    None
):
    cluster = aq.Cluster(1, worker_mean=7.0, message=2.0)
    loop, view = loop_of(Quadratic.random(), timing_model=cluster)
    link = ListLink(view, orders(2))
    loop.run(link)
    assert link.slept == [19.0, 19.0]
    for over, sent in ((False, 0), (True, 2)):
        mortal = aq.Cluster(1, worker_mean=7.0, message=2.0, deaths={0: 12.0})
        loop, view = loop_of(Quadratic.random(), timing_model=mortal)
        link = ListLink(view, orders(2), over=over)
        loop.run(link)
        assert (len(link.sent), link.slept[0]) == (sent, 12.0), (
            "at the end of a run nobody dies"
        )


def test_an_error_names_the_worker_and_its_step() -> None:
    class Broken(Quadratic):
        def grad(self, theta: Any, rows: Any, out: Any) -> None:
            raise ZeroDivisionError("the data are gone")

    loop, view = loop_of(Broken.random())
    with pytest.raises(
        WorkerFailed, match=r"^worker 0 failed in its step 0, .*the data are gone\)\.$"
    ):
        loop.run(ListLink(view, orders(1)))


def test_no_engine_has_a_loop_of_its_own() -> None:
    users = [
        path.name
        for path in ENGINES.rglob("*.py")
        if "WorkerSteps(" in path.read_text()
    ]
    assert sorted(users) == ["precompile.py", "worker_loop.py"]
