"""Work on several processes, and how its progress is told."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Protocol

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
            self._made = pool(self._processes)
            self.callback(self._made.shutdown, cancel_futures=True)
        return self._made


def pool(processes: int) -> ProcessPoolExecutor:
    """Processes that share nothing and use one thread each."""
    for name in SINGLE_THREAD:
        os.environ.setdefault(name, "1")
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
