"""Limit the thread pools of libraries: the workers are the parallelism, so each computes on one thread.

W workers with W BLAS threads each would compete for the same cores.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any


@contextmanager
def one_thread_pools() -> Iterator[None]:
    """BLAS and OpenMP use one thread inside the block, where threadpoolctl is there to say so."""
    try:
        pools = _pools(len(sys.modules))
    except ImportError:
        yield
        return
    with pools.limit(limits=1):
        yield


@lru_cache(1)
def _pools(modules: int) -> Any:
    """The thread pools of this process; to look for them takes a millisecond, so only after an import."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
