"""What compiling costs: processor seconds of every kernel that numba compiles while one listens."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from asyncqn.kernels.numba_internals import event


class KernelTime(NamedTuple):
    """A compiled function: its own processor seconds, and how many signatures were compiled."""

    name: str
    seconds: float
    signatures: int


class _Listener(event.Listener):
    """Adds up the time of each function without that of the functions that it calls."""

    def __init__(self) -> None:
        self.own: Counter[str] = Counter()
        self.times: Counter[str] = Counter()
        self.open: list[tuple[str, float]] = []
        self.inner = [0.0]

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        self.open.append((f"{function.__module__}.{function.__qualname__}", time.process_time()))
        self.inner.append(0.0)

    def on_end(self, event: Any) -> None:
        name, began = self.open.pop()
        took = time.process_time() - began
        self.own[name] += took - self.inner.pop()  # type: ignore[assignment]
        self.times[name] += 1
        self.inner[-1] += took


@contextmanager
def listening() -> Iterator[list[KernelTime]]:
    """A list that holds, at the end of the block, what was compiled in it, the costliest first."""
    rows: list[KernelTime] = []
    listener = _Listener()
    with event.install_listener("numba:compile", listener):
        yield rows
    rows += [KernelTime(name, seconds, listener.times[name]) for name, seconds in listener.own.most_common()]
