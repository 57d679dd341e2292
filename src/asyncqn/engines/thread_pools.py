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
    """Limit BLAS and OpenMP to one thread inside the block, if threadpoolctl is installed."""
    try:
        # A new import may have brought a new library; the number of modules tells.
        pools = _pools(len(sys.modules))
    except ImportError:
        yield
        return
    with pools.limit(limits=1):
        yield


@lru_cache(1)
def _pools(modules: int) -> Any:
    """Return the thread pools of this process; the search takes a millisecond, so it is repeated only after
    imports."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
