"""Timing two things side by side, so that a busy machine disturbs both alike and the ratio survives.

Every measurement here is interleaved (A, B, A, B, ...): a slow minute of the machine falls on both
sides.  Medians are compared, minima are shown because they are nearest to an unloaded core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

Call = Callable[[], Any]


class Timing(NamedTuple):
    """Seconds per call over the repeats."""

    median: float
    minimum: float


class SideBySide(NamedTuple):
    a: Timing
    b: Timing

    @property
    def ratio(self) -> float:
        """Time of B over that of A: the ratio of the medians of the paired runs."""
        return self.b.median / self.a.median


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS and OpenMP libraries that are loaded use one thread inside the block."""
    with threadpool_limits(limits=1):
        yield


def seconds(call: Call, calls: int = 1) -> float:
    """Seconds per call, over `calls` calls in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def calls_for(call: Call, at_least: float) -> int:
    """Return how many calls in a row last about `at_least` seconds, without the first, which compiles."""
    call()
    # The constant guards against a clock that does not resolve the call.
    return max(1, int(np.ceil(at_least / max(seconds(call), 1e-7))))


def side_by_side(
    a: Call, b: Call, *, repeats: int = 21, at_least: float = 5e-3
) -> SideBySide:
    """Time A and B alternately, one BLAS thread, each turn lasting about `at_least` seconds or one call."""
    with one_blas_thread():
        n_a, n_b = calls_for(a, at_least), calls_for(b, at_least)
        # By default an odd number of repeats, so that the median is one of the measurements.
        pairs = [(seconds(a, n_a), seconds(b, n_b)) for _ in range(repeats)]
    times_a, times_b = zip(*pairs)
    return SideBySide(
        Timing(median(times_a), min(times_a)), Timing(median(times_b), min(times_b))
    )


def mover(nbytes: int) -> Call:
    """Return a call that moves `nbytes` bytes on one thread: half of them are read and half are written.

    A kernel is compared with it by the bytes it must read plus the bytes it must write, each once.
    """
    # Eight bytes of each number are read and eight are written.
    source = np.ones(max(1, nbytes // 16))
    target = np.zeros_like(source)
    return lambda: np.copyto(target, source)


def bytes_moved_time(nbytes: int, *, repeats: int = 21) -> float:
    """Median seconds for moving `nbytes` bytes; prefer `side_by_side(mover(nbytes), kernel)` for ratios."""
    move = mover(nbytes)
    calls = calls_for(move, 5e-3)
    return median(seconds(move, calls) for _ in range(repeats))


def record(
    name: str,
    value: float,
    unit: str,
    ratio: float | None = None,
    target: str | None = None,
) -> dict[str, Any]:
    """Return a record of `benchmarks.run`, which compares it with its target."""
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "ratio": ratio,
        "target": target,
    }
