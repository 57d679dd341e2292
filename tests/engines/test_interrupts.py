"""However a run is ended, from outside or by its callback, it ends, and its checkpoint is there."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oracles import Quadratic

import asyncqn as aq
from asyncqn.errors import WorkerFailed
from asyncqn.runs.checkpoint_reading import load_checkpoint

ENGINES = {
    "threads": aq.Threads(2),
    "one thread": aq.Threads(1),
    "simulator": aq.Simulator(aq.Cluster(3, 2.0, 1.0)),
}
Send = Callable[..., None]
ALGORITHM = aq.AsyncSGD(1e-4, 3)
MANY = 1_000_000
"""Commits that no engine makes before the signals come."""


@pytest.fixture
def send() -> Iterator[Send]:
    """Sends this process signals at times from now; those that come after a run has ended change nothing."""
    before = {
        n: signal.signal(n, lambda number, frame: None)
        for n in (signal.SIGINT, signal.SIGTERM)
    }
    senders = []

    def later(times: list[float], number: int = signal.SIGINT) -> None:
        def work() -> None:
            begun = time.perf_counter()
            for moment in sorted(times):
                time.sleep(max(0.0, begun + moment - time.perf_counter()))
                os.kill(os.getpid(), number)

        senders.append(threading.Thread(target=work))
        senders[-1].start()

    yield later
    for sender in senders:
        sender.join()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_two_or_three_interrupts_at_any_moment_end_the_run_and_lose_nothing(
    engine: str, tmp_path: Path, send: Send
) -> None:
    draw = random.Random(engine)
    p = Quadratic.random()
    for i in range(15):
        times = [draw.expovariate(1 / 0.02) for _ in range(1 + i % 3)]
        folder = tmp_path / str(i)
        run = aq.minimize(
            p,
            ALGORITHM,
            engine=ENGINES[engine],
            commits=20_000 if engine == "simulator" else MANY,
            evaluate=MANY,
            callback=lambda progress, times=times: (
                send(times) if progress.commit == 0 else None
            ),
            checkpoint=folder,
        )
        saved = load_checkpoint(folder)
        if run.status != "completed":
            assert run.status == "interrupted"
            assert saved.commit == run.nit
        assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


class Stuck(Quadratic):
    """A worker that draws a certain row never comes back."""

    gate: threading.Event

    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        if threading.current_thread().name.endswith("worker 1") and self.seen > 200:
            self.gate.wait()
        self.seen += 1
        super().grad(theta, rows, out)


def test_a_second_interrupt_does_not_wait_for_a_worker_that_hangs(
    tmp_path: Path, send: Send
) -> None:
    p = Stuck.random()
    p.gate, p.seen = threading.Event(), 0  # type: ignore[attr-defined]
    run = aq.minimize(
        p,
        ALGORITHM,
        engine=aq.Threads(2),
        commits=MANY,
        evaluate=MANY,
        checkpoint=tmp_path / "c",
        callback=lambda progress: send([0.2, 0.4]),
    )
    saved = load_checkpoint(tmp_path / "c")
    p.gate.set()
    assert (run.status, saved.commit) == ("interrupted", run.nit)
    assert list(saved.document["workers"]) == ["0"], (
        "the state of the other was not to be had"
    )
    assert (
        aq.replay(run, problem=Quadratic(p.A, p.y)).theta.tobytes()
        == run.theta.tobytes()
    )


class Trouble(Exception):
    pass


@pytest.mark.parametrize("error", [Trouble, StopIteration])
@pytest.mark.parametrize("commit", [0, 40])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_callback_that_raises_leaves_a_checkpoint_of_its_commit(
    engine: str, commit: int, error: type[Exception], tmp_path: Path
) -> None:
    p = Quadratic.random()

    def callback(progress: Any) -> None:
        if progress.commit == commit:
            raise error("enough") from LookupError("its cause")

    def go() -> aq.Run:
        return aq.minimize(
            p,
            ALGORITHM,
            engine=ENGINES[engine],
            commits=100,
            evaluate=20,
            callback=callback,
            checkpoint=tmp_path / "c",
        )

    if error is StopIteration:
        assert (go().status, go.__name__) == ("stopped", "go")
    else:
        with pytest.raises(Trouble, match="enough") as caught:
            go()
        assert isinstance(caught.value.__cause__, LookupError)
    assert load_checkpoint(tmp_path / "c").commit == commit
    run = aq.resume(tmp_path / "c", problem=p)
    assert (run.status, run.nit) == ("completed", 100)
    assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


@pytest.mark.parametrize("method", ["grad", "value"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_stop_iteration_of_the_problem_is_not_taken_for_the_callback(
    engine: str, method: str
) -> None:
    begun = threading.Event()

    class Exhausted(Quadratic):
        def grad(self, theta: Any, rows: Any, out: Any) -> None:
            if method == "grad" and begun.is_set():
                raise StopIteration("no rows left")
            super().grad(theta, rows, out)

        def value(self, theta: Any) -> float:
            if method == "value" and begun.is_set():
                raise StopIteration("no rows left")
            return super().value(theta)

    with pytest.raises(WorkerFailed, match=r"StopIteration.*no rows left") as caught:
        aq.minimize(
            Exhausted.random(),
            ALGORITHM,
            engine=ENGINES[engine],
            commits=60,
            evaluate=20,
            callback=lambda progress: begun.set(),
        )
    assert "callback stopped" not in str(caught.value)
