"""Work on several processes, and how its progress is told."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import wait
from typing import Protocol

from asyncqn.errors import WorkerFailed

SINGLE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Tell(Protocol):
    """How progress is shown: how much is done, and a few words."""

    def __call__(self, done: int, note: str = "") -> None: ...


class SharedPool(ExitStack):
    """A pool that is made when it is first asked for, and ends with the block it was opened for: what jobs
    import and compile is then loaded once."""

    def __init__(self, processes: int) -> None:
        super().__init__()
        self._processes = processes
        self._made: ProcessPoolExecutor | None = None

    def executor(self) -> ProcessPoolExecutor:
        """The processes."""
        if self._made is None:
            self._made = self.enter_context(pool(self._processes))
        return self._made


@contextmanager
def pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that share nothing, use one thread each, and end with this one, however it ends.

    Raises `WorkerFailed` where one of them is killed.
    """
    for name in SINGLE_THREAD:
        os.environ.setdefault(name, "1")
    spawn = multiprocessing.get_context("spawn")
    with _safe_path():
        executor = ProcessPoolExecutor(processes, mp_context=spawn, initializer=_end_with_parent)
        try:
            yield executor
        except BrokenProcessPool:
            raise WorkerFailed(
                "a process of the pool was killed, by the system where memory ran out, perhaps: run the "
                "command again, which goes on with what is saved, or use fewer processes."
            ) from None
        finally:
            executor.shutdown(cancel_futures=True)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Inside the block interpreters that multiprocessing starts import nothing from the current folder."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYTHONSAFEPATH", None)
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _end_with_parent() -> None:
    """End this process at once when its parent does: a killed parent cannot tell it to."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="asyncqn parent", daemon=True).start()
