"""Work on several processes, and how its progress is told."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Protocol

SINGLE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Tell(Protocol):
    """How progress is shown: how much is done, and a few words."""

    def __call__(self, done: int, note: str = "") -> None: ...


def pool(processes: int) -> ProcessPoolExecutor:
    """Processes that share nothing and use one thread each."""
    for name in SINGLE_THREAD:
        os.environ.setdefault(name, "1")
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
