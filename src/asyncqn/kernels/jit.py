"""How every kernel is compiled: without the GIL, cached on disk, typed for the callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

REDUCTION_FLAGS = {"reassoc", "contract", "nsz", "arcp"}
"""Let sums be vectorised; never the flags that assume away NaN and infinity, for we look for both."""


def kernel(function: F) -> F:
    """Compile with strict IEEE arithmetic: the same bits on every machine."""
    return cast(F, njit(nogil=True, cache=True, error_model="numpy")(function))


def reducing_kernel(function: F) -> F:
    """Compile with reassociation: vectorised sums, the same bits on machines with the same vectors."""
    return cast(F, njit(nogil=True, cache=True, error_model="numpy", fastmath=REDUCTION_FLAGS)(function))


def inlined(function: F) -> F:
    """A strict piece that is compiled into the kernels that call it."""
    return cast(F, njit(nogil=True, cache=True, error_model="numpy", inline="always")(function))
