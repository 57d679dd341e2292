"""What every real engine does with checkpoints while it runs, and how its run is concluded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from asyncqn.core.checkpoint import Checkpoints
from asyncqn.core.run import Run
from asyncqn.engines.master_state import MasterState
from asyncqn.engines.snapshots import last_checkpoint


@contextmanager
def written_beside(core: MasterState, checkpoints: Checkpoints | None) -> Iterator[Callable[[], None]]:
    """Inside the block checkpoints are written by a thread; the call begins with one once it is whole."""
    with ThreadPoolExecutor(1, "asyncqn checkpoints") as writer:
        writing: list[Future[None]] = []

        def write_whole() -> None:
            if checkpoints is not None and (saved := core.snapshots.whole()) is not None:
                writing[:] = [writer.submit(checkpoints.write, saved)]

        yield write_whole
        for last in writing:
            last.result()


def concluded(core: MasterState, states: Mapping[int, Any], checkpoints: Checkpoints | None) -> Run:
    """The run, from the states of the workers that are still there, after its last checkpoint is written.

    Raises what the callback raised.
    """
    run = core.finish(states)
    if checkpoints is not None and core.status != "diverged":
        checkpoints.write(last_checkpoint(core, states))
    if core.failure is None:
        return run
    failure, core.failure = core.failure, None
    try:
        raise failure
    finally:
        del failure  # its traceback holds this frame and, by it, the workers' memory: no circle of the two
