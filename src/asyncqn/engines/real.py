"""What all real engines share: options, the coordinator, checkpoints during a run, and its conclusion."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from asyncqn.cluster.cluster import Cluster
from asyncqn.core.outcome import Outcome
from asyncqn.core.request import Request
from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.snapshots import last_checkpoint
from asyncqn.errors import require
from asyncqn.parameters import Checked, parameter
from asyncqn.runs.checkpoint import Saved
from asyncqn.runs.run import Run
from asyncqn.storage.serialise import to_json


@dataclass(frozen=True, kw_only=True)
class RealEngine(Checked):
    """Options of every real engine.

    Parameters
    ----------
    timing_model : Cluster, optional
        A cluster whose drawn computation, message and service times every computation is stretched to.
    time_unit : float, default 1.0
        Seconds of one unit of time, which the timing model, an algorithm's timeout and the schedule use.
    max_staleness : int, optional
        Asynchronous updates older than this many commits are dropped, and their workers read again.
    give_up_after : float, default inf
        Silence, in units of time, after which a worker counts as lost.
    """

    timing_model: Annotated[
        Cluster | None, parameter("Cluster whose drawn times every computation is stretched to")
    ] = None
    time_unit: Annotated[float, parameter("Length of one unit of time", unit="s", gt=0.0)] = 1.0
    max_staleness: Annotated[
        int | None, parameter("Age beyond which an update is dropped; None: never", unit="commits", ge=0)
    ] = None
    give_up_after: Annotated[
        float,
        parameter("Silence after which a worker counts as lost", unit="time_unit", gt=0.0, infinite=True),
    ] = math.inf

    def check_options(self, workers: int | None, *, mortal: bool = False) -> None:
        """Raise `BadInput` for impossible options; workers: how many, where that is known beforehand;
        mortal: whether the engine can follow the deaths and joins of a timing model."""
        model = self.timing_model
        require(
            model is None or mortal or not (model.deaths or model.joins),
            f"under {type(self).__name__} timing_model cannot have deaths or joins: use Threads for those.",
        )
        require(
            model is None or not (model.link or model.recoveries),
            "timing_model cannot have a link or recoveries, which only the simulator follows.",
        )
        require(
            model is None or workers is None or model.workers == workers,
            f"timing_model describes {model.workers if model else 0} workers, but there are {workers}.",
        )

    def coordinator(
        self, request: Request, kind: str, workers: int, clock: Clock, *, gives_up: bool = True
    ) -> Coordinator:
        """The state machine of the master; its checkpoint folder is made ready.

        clock: of the run, which stands still while metrics are evaluated.
        gives_up: whether it is the state that gives up silent workers, and not the engine itself.
        """
        state = Coordinator(
            request,
            workers=workers,
            engine={"kind": kind, **to_json(self)},
            pause=clock.paused,
            max_staleness=self.max_staleness,
            give_up_after=self.give_up_after if gives_up else math.inf,
            timing_model=self.timing_model,
        )
        if request.checkpoints is not None:
            request.checkpoints.prepare()
        return state


@contextmanager
def written_beside(coordinator: Coordinator) -> Iterator[Callable[[], None]]:
    """Inside the block checkpoints are written by a thread; the call begins with one once it is whole.

    Where the block fails, one that is whole is still written.
    """
    with ThreadPoolExecutor(1, "asyncqn checkpoints") as writer:
        writing: list[Future[None]] = []

        def write(saved: Saved) -> None:
            try:
                if coordinator.checkpoints is not None:
                    coordinator.checkpoints.write(saved)
            finally:
                coordinator.snapshots.writing = False

        def check_last() -> None:
            for last in writing:
                last.result()

        def write_whole() -> None:
            if (saved := coordinator.snapshots.whole()) is not None:
                check_last()
                coordinator.snapshots.writing = True
                writing[:] = [writer.submit(write, saved)]

        try:
            yield write_whole
        # A run that fails, or is broken off, still leaves its newest complete checkpoint behind.
        except BaseException:
            write_whole()
            raise
        check_last()


def concluded(coordinator: Coordinator, states: Mapping[int, Any]) -> Run:
    """The run, from the states of the workers that are still there, after its last checkpoint is written.

    Raises what the callback raised.
    """
    run = coordinator.finish(states)
    if coordinator.silent:
        who = ", ".join(map(str, sorted(coordinator.silent)))
        warnings.warn(
            f"worker {who} did not answer at the end of the run and was given up; the run is complete.",
            stacklevel=2,
        )
    if coordinator.checkpoints is not None and run.status is not Outcome.DIVERGED:
        coordinator.checkpoints.write(last_checkpoint(coordinator, states))
    if coordinator.failure is None:
        return run
    failure, coordinator.failure = coordinator.failure, None
    try:
        raise failure
    finally:
        # The traceback refers to this frame and through it to the workers' memory; without this line the two
        # would keep each other alive.
        del failure
