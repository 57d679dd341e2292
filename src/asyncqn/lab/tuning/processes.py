"""A pool of processes for trials, and the protocol for their progress."""

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

_THREAD_COUNTS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Environment variables by which libraries choose their number of threads."""


class Tell(Protocol):
    """A function that reports progress: the number of steps done, and a short note."""

    def __call__(self, done: int, note: str = "") -> None: ...


class SharedPool(ExitStack):
    """A pool that is started on first use and ends with the block, so that imports and compilation
    happen once for all jobs."""

    def __init__(self, processes: int) -> None:
        super().__init__()
        self._processes = processes
        self._made: ProcessPoolExecutor | None = None

    def executor(self) -> ProcessPoolExecutor:
        """Return the pool."""
        if self._made is None:
            self._made = self.enter_context(pool(self._processes))
        return self._made


@contextmanager
def pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes that share nothing, use one thread each, and end with this process, however it ends.

    Raises `WorkerFailed` if one of them is killed.
    """
    # Several processes with several threads each would compete for the processors.
    for name in _THREAD_COUNTS:
        # In this process, from which the pool inherits; a user's own setting stays.
        os.environ.setdefault(name, "1")
    # A forked process would inherit the locks that threads of this process hold.
    spawn = multiprocessing.get_context("spawn")
    with _safe_path():
        executor = ProcessPoolExecutor(processes, mp_context=spawn, initializer=_end_with_parent)
        try:
            yield executor
        except BrokenProcessPool:
            raise WorkerFailed(
                "a process of the pool was killed, perhaps because memory ran out: run the command "
                "again, which continues from what is saved, or use fewer processes."
            ) from None
        finally:
            # After an error, trials that have not started would only delay its message.
            executor.shutdown(cancel_futures=True)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep interpreters that multiprocessing starts from importing modules of the current folder."""
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
    """End this process when its parent ends: a killed parent cannot send a message."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="asyncqn parent", daemon=True).start()
