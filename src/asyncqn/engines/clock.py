"""Clock: the time axis of a real run, which stands still while metrics are evaluated.

Evaluating U costs a pass over the data and is not part of the method, so it must not move the time axis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLLING_INTERVAL = 0.05
"""Polling interval, in seconds, of a sleeping thread: the clock may have been paused meanwhile."""


class Clock:
    """Counts units of `unit` seconds from `start`; thread-safe for one pauser and many readers."""

    def __init__(self, unit: float = 1.0, start: float = 0.0) -> None:
        self.unit = unit
        self._frozen: float | None = None
        self.restart(start)

    def restart(self, start: float) -> None:
        """Count from `start` again, which is now."""
        # Monotonic: the system's clock may be set while a run lasts.
        self._zero = time.perf_counter() - start * self.unit

    def now(self) -> float:
        # Read once: another thread may end the pause between two reads.
        frozen = self._frozen
        if frozen is not None:
            return frozen
        return (time.perf_counter() - self._zero) / self.unit

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock inside the block."""
        begin = time.perf_counter()
        self._frozen = (begin - self._zero) / self.unit
        try:
            yield
        finally:
            # Moving the origin by the length of the pause removes it from all later times.
            self._zero += time.perf_counter() - begin
            self._frozen = None

    def remaining(self, until: float) -> float:
        """Return the seconds until then, not negative."""
        return max(0.0, (until - self.now()) * self.unit)

    def sleep_until(
        self, until: float, unless: Callable[[], bool] = lambda: False
    ) -> bool:
        """Sleep until the clock shows `until`; return False, and early, once `unless()` is true."""
        while (seconds := self.remaining(until)) > 0.0:
            if unless():
                return False
            # A pause of the clock makes the remaining time longer, so it is read again and again.
            time.sleep(min(seconds, POLLING_INTERVAL))
        return True
