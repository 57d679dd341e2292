"""Ctrl-C as a request: with checkpoints, the run ends after the current commit and can be resumed.

An exception raised by a signal handler may come between any two instructions, even while a lock is held or a
file is written.  Signals therefore only set flags, which the engines read where nothing is half done.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asyncqn.runs.checkpoint import Checkpoints

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 10.0
"""Seconds that a run has to end in good order; a signal after that raises KeyboardInterrupt.  Our own
choice."""
SECOND_SIGNAL_WAIT = 2.0
"""Seconds that workers have after a second signal."""


@contextmanager
def listening_for_interrupts(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into requests to end the run, written to `checkpoints`, inside the block.

    The first lets workers finish what they compute; the second waits for them `SECOND_SIGNAL_WAIT` seconds; one
    that comes `GRACE` seconds after the first raises KeyboardInterrupt, unless a checkpoint is being written.
    Without checkpoints, or outside the main thread, signals do what they always do.
    """
    if checkpoints is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    first = 0.0

    def hear(number: int, frame: Any) -> None:
        nonlocal first
        if not checkpoints.interrupted:
            checkpoints.interrupted, first = number, time.monotonic()
            return
        checkpoints.hurry = True
        # A user who still presses Ctrl-C after the grace period wants out; a checkpoint is never cut in
        # half.
        if time.monotonic() - first >= GRACE and not checkpoints.writing:
            raise KeyboardInterrupt

    # The user's own handlers return when the run ends, whatever happened in it.
    before = {number: signal.signal(number, hear) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
