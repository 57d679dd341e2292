"""Base of all real engines: options, the coordinator, checkpoints during a run, and its conclusion."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.fit import stretched_to
from asyncqn.core.outcome import Outcome
from asyncqn.core.request import Request
from asyncqn.engines.clock import Clock
from asyncqn.engines.coordinator import Coordinator
from asyncqn.engines.round_trip import round_trip_seconds
from asyncqn.errors import require
from asyncqn.parameters import Checked, parameter
from asyncqn.runs.checkpoint import Saved
from asyncqn.runs.run import Run
from asyncqn.storage.serialise import to_json
from asyncqn.types import Array


@dataclass(frozen=True, kw_only=True)
class RealEngine(Checked):
    """Options of every real engine.

    Parameters
    ----------
    timing_model : Cluster, optional
        A cluster whose drawn times every computation is stretched to; without one, workers run at their own
        speed.
    time_unit : float, default 1.0
        Length of one unit of time, in seconds. The timing model, an algorithm's timeout and the schedule use
        it.
    max_staleness : int, optional
        Updates that are older than this many commits are dropped, and their workers read again; without it,
        none are.
    give_up_after : float, default inf
        Silence, in units of `time_unit`, after which a worker counts as lost.
    """

    timing_model: Cluster | None = None
    time_unit: Annotated[float, parameter(gt=0.0)] = 1.0
    max_staleness: Annotated[int | None, parameter(ge=0)] = None
    give_up_after: Annotated[float, parameter(gt=0.0, infinite=True)] = math.inf

    def check_options(self, workers: int | None, *, mortal: bool = False) -> None:
        """Raise `BadInput` for impossible options.

        `workers` is their number, if that is known beforehand; `mortal` says whether the engine can follow
        the deaths and joins of a timing model.
        """
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

    def message_seconds(self, theta0: Array) -> float | None:
        """Return the seconds of a message of theta's length to a worker and back, with nothing computed.

        Measured by a short run with one worker: with more of them, they would compete for processors here,
        where they only exchange messages, and not in a run, where they compute most of the time.
        """
        alone: Any = dataclasses.replace(
            self, workers=1, timing_model=None, time_unit=1.0
        )  # type: ignore[call-arg]
        return round_trip_seconds(alone, theta0)

    def agreed(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the numbers by which all processes of the user's program choose alike."""
        return numbers

    def stretched_model(self, request: Request) -> Cluster | None:
        """Return the timing model with its times for the rows of this algorithm, as the simulator does."""
        if self.timing_model is None:
            return None
        return stretched_to(
            self.timing_model,
            request.algorithm,
            request.commits,
            int(request.problem.n_data),
        )

    def coordinator(
        self, request: Request, kind: str, workers: int, clock: Clock
    ) -> Coordinator:
        """Return the master's state machine, with its checkpoint folder prepared.

        `clock` is the clock of the run, which stands still while metrics are evaluated.
        """
        state = Coordinator(
            request,
            workers=workers,
            engine={"kind": kind, **to_json(self)},
            pause=clock.paused,
            max_staleness=self.max_staleness,
            give_up_after=self.give_up_after,
            timing_model=self.stretched_model(request),
        )
        # After the arguments were checked: a mistake must not touch the folder of an earlier run.
        if request.checkpoints is not None:
            request.checkpoints.prepare()
        return state


@contextmanager
def written_beside(coordinator: Coordinator) -> Iterator[Callable[[], None]]:
    """Write checkpoints on a thread inside the block; the yielded function starts one that is complete.

    If the block fails, a complete checkpoint is still written.
    """
    # One thread: checkpoints are written one after the other, and the master continues meanwhile.
    with ThreadPoolExecutor(1, "asyncqn checkpoints") as writer:
        writing: list[Future[None]] = []  # the last one at most

        def write(saved: Saved) -> None:
            try:
                if coordinator.snapshots.checkpoints is not None:
                    coordinator.snapshots.checkpoints.write(saved)
            finally:
                # Even after an error: it is raised by `check_last`, and the run must not wait for ever.
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
    """Write the last checkpoint and return the run, from the states of the workers that are still there.

    An exception of the callback is raised here.
    """
    run = coordinator.finish(states)
    if coordinator.silent:
        who = ", ".join(map(str, sorted(coordinator.silent)))
        warnings.warn(
            f"worker {who} did not answer at the end of the run and was given up; the run is complete.",
            stacklevel=2,
        )
    # A diverged run is not worth resuming; its last good checkpoint stays.
    if (
        coordinator.snapshots.checkpoints is not None
        and run.status is not Outcome.DIVERGED
    ):
        coordinator.snapshots.checkpoints.write(coordinator.snapshots.last(states))
    if coordinator.failure is None:
        return run
    failure, coordinator.failure = coordinator.failure, None
    try:
        raise failure
    finally:
        # The traceback refers to this frame and through it to the workers' memory; without this line the two
        # would keep each other alive.
        del failure
