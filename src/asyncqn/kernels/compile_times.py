"""Compilation times: processor seconds of every kernel that numba compiles inside a block.

`asyncqn run --warm` prints them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from asyncqn.kernels.numba_internals import event


class KernelTime(NamedTuple):
    """A compiled function: its own processor seconds, and the number of compiled signatures."""

    name: str
    seconds: float
    signatures: int


class _Listener(event.Listener):
    """Adds up the time of each function, without the functions that it calls."""

    def __init__(self) -> None:
        self.own: Counter[str] = Counter()
        self.times: Counter[str] = Counter()
        self.open: list[tuple[str, float]] = []
        self.inner = [0.0]

    def on_start(self, event: Any) -> None:
        # Compilations nest: a kernel compiles the functions that it calls. The stack tells whose time it is.
        function = event.data["dispatcher"].py_func
        self.open.append(
            (f"{function.__module__}.{function.__qualname__}", time.process_time())
        )
        self.inner.append(0.0)

    def on_end(self, event: Any) -> None:
        name, began = self.open.pop()
        # Processor time, because the machine may be busy.
        took = time.process_time() - began
        self.own[name] += took - self.inner.pop()  # type: ignore[assignment]
        self.times[name] += 1
        self.inner[-1] += took


@contextmanager
def listening() -> Iterator[list[KernelTime]]:
    """Yield a list that holds, after the block, the functions compiled in it, the slowest first."""
    rows: list[KernelTime] = []
    listener = _Listener()
    with event.install_listener("numba:compile", listener):
        yield rows
    rows += [
        KernelTime(name, seconds, listener.times[name])
        for name, seconds in listener.own.most_common()
    ]
