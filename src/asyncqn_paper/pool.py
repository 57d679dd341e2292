"""A pool of processes for cells, each of which uses one thread."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait

from asyncqn.errors import WorkerFailed

_THREAD_COUNTS = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
"""Environment variables by which libraries choose their number of threads."""


@contextmanager
def pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes that share nothing, and end with this process, however it ends.

    Raises `WorkerFailed` if one of them is killed.
    """
    before = {
        name: os.environ.get(name) for name in (*_THREAD_COUNTS, "PYTHONSAFEPATH")
    }
    # Several processes with several threads each would compete for the processors; a user's setting stays.
    for name in _THREAD_COUNTS:
        os.environ.setdefault(name, "1")
    # Interpreters of the pool do not import modules of the current folder.
    os.environ["PYTHONSAFEPATH"] = "1"
    # A forked process would inherit the locks that threads of this process hold.
    spawn = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(
        processes, mp_context=spawn, initializer=_end_with_parent
    )
    try:
        yield executor
    except BrokenProcessPool:
        raise WorkerFailed(
            "a process of the pool was killed, perhaps because memory ran out: run the command again, which "
            "continues from what is saved, or use fewer processes."
        ) from None
    finally:
        # After an error, cells that have not started would only delay its message.
        executor.shutdown(cancel_futures=True)
        # The environment belongs to the caller, who may start other processes later.
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _end_with_parent() -> None:
    """End this process when its parent ends: a killed parent cannot send a message."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="asyncqn parent", daemon=True).start()
