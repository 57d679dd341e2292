"""Ctrl-C as a request: with checkpoints, the run ends after the current commit and can be resumed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asyncqn.core.checkpoint import Checkpoints

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def listening_for_interrupts(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Set `checkpoints.interrupted` on SIGINT or SIGTERM; a second one interrupts at once.

    Without checkpoints, or outside the main thread, signals do what they always do.
    """
    if checkpoints is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(number: int, frame: Any) -> None:
        if checkpoints.interrupted:
            raise KeyboardInterrupt
        checkpoints.interrupted = True

    before = {number: signal.signal(number, hear) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
