"""The progress display of the library and of the command line.

On a terminal it is a bar, in a notebook one line that is rewritten, and elsewhere plain lines, if requested.
A display never fails a run: if its stream is closed, it becomes silent.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from asyncqn.core.request import Progress, headcount
from asyncqn.kernels.jit import nothing_compiled_yet

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_BETWEEN_LINES = 5.0
"""Interval between two lines of a command whose stderr is not a terminal."""
SECONDS_WHEN_VERBOSE = 1.0
"""Interval between two lines of `minimize(verbose=True)`."""
SECONDS_BEFORE_A_BAR = 0.5
"""Shorter runs of the library show no bar."""
COMPILING = "compiling (first run only)"


class Advance(Protocol):
    """A function that reports progress to a display, with a short note."""

    def __call__(self, done: int, note: str = "") -> None: ...


class Display(Protocol):
    """A way to show progress."""

    def show(self, done: int, note: str) -> None:
        """Show how many steps are done."""

    def close(self) -> None:
        """End the display; its last state stays visible."""


class Bar:
    """A bar on a terminal.

    Parameters
    ----------
    label : str
        Name of the work.
    total : int or None
        Number of steps, or None if it is unknown.
    console : rich.console.Console
        Where the bar is drawn.
    delay : float, default 0.0
        Seconds of work before the bar appears.  It appears at once where kernels must be compiled first.
    """

    def __init__(
        self, label: str, total: int | None, console: Console, delay: float = 0.0
    ) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._bar = RichProgress(*columns, "{task.fields[note]}", console=console)
        waiting = COMPILING if nothing_compiled_yet() else ""
        self._task = self._bar.add_task(label, total=total, note=waiting)
        # A user who waits for the compiler should see at once what happens.
        self._begins = time.monotonic() + (0.0 if waiting else delay)
        self._begun = False
        self._begin_when_due()

    def _begin_when_due(self) -> None:
        if not self._begun and time.monotonic() >= self._begins:
            self._begun = True
            self._bar.start()

    def show(self, done: int, note: str) -> None:
        # Updated before it begins, so that the bar appears with the current numbers.
        self._bar.update(self._task, completed=done, note=note)
        self._begin_when_due()

    def close(self) -> None:
        if self._begun:
            self._bar.stop()


class Line:
    """One line in a notebook, which is rewritten."""

    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total = label, total
        self._length, self._next = 0, time.monotonic() + SECONDS_BEFORE_A_BAR
        self._last: tuple[int, str] | None = None

    def show(self, done: int, note: str) -> None:
        self._last = done, note
        if time.monotonic() >= self._next:
            # Notebooks slow down if a cell prints much more often.
            self._next = time.monotonic() + 0.2
            self._write(done, note)

    def _write(self, done: int, note: str) -> None:
        text = f"{self._label}: {count(done, self._total)} {note}"
        # Padding overwrites the rest of a longer line before.
        sys.stderr.write(f"\r{text:<{self._length}}")
        sys.stderr.flush()
        self._length = len(text)

    def close(self) -> None:
        # The last state was perhaps not shown, because lines are rate-limited.
        if self._length and self._last is not None:
            self._write(*self._last)
            sys.stderr.write("\n")


class Lines:
    """Plain lines, at most one in `every` seconds, and one at the end of the work.

    With `first`, the first step is shown as well.
    """

    def __init__(
        self,
        label: str,
        total: int | None,
        write: Callable[[str], None],
        every: float,
        *,
        first: bool = False,
    ) -> None:
        self._label, self._total, self._write, self._every = label, total, write, every
        self._next = time.monotonic() + (0.0 if first else every)
        self._shown, self._last = -1, (0, "")
        if nothing_compiled_yet():
            write(f"{label}: {COMPILING}")

    def show(self, done: int, note: str) -> None:
        self._last = done, note
        if time.monotonic() >= self._next or done == self._total:
            self._put()

    def _put(self) -> None:
        done, note = self._last
        # `close` comes here again, perhaps with a step that was shown already.
        if done > self._shown:
            self._shown, self._next = done, time.monotonic() + self._every
            self._write(f"{self._label}: {count(done, self._total)} {note}".rstrip())

    def close(self) -> None:
        if self._shown >= 0:  # otherwise the work was too short for any line
            self._put()


def count(done: int, total: int | None) -> str:
    """Return a phrase such as "3/10"."""
    return f"{done:,}" if total is None else f"{done}/{total}"


@contextmanager
def displayed(make: Callable[[], Display]) -> Iterator[Advance]:
    """Yield a function that reports progress to a display, which is closed after the block."""
    silent = OSError, ValueError  # raised by a closed or broken stream
    display: Display | None = None
    with suppress(*silent):
        display = make()

    def advance(done: int, note: str = "") -> None:
        if display is not None:
            with suppress(*silent):
                display.show(done, note)

    try:
        yield advance
    finally:
        if display is not None:
            with suppress(*silent):
                display.close()


@contextmanager
def shown(
    progress: bool | None, verbose: bool, total: int | None, label: str
) -> Iterator[Advance | None]:
    """Show the progress of a run of the library; yields None where nothing is to be shown.

    Parameters
    ----------
    progress : bool or None
        Whether to show a bar; None: only if a person can see it.
    verbose : bool
        Whether to write plain lines instead, where no bar is requested.
    total : int or None
        Number of steps, or None if it is unknown.
    label : str
        Name of the work.
    """
    if progress is None:
        progress = not verbose and watched()
    if not (progress or verbose):
        yield None
        return
    if not progress:
        with displayed(
            lambda: Lines(
                label, total, write_to_stderr, SECONDS_WHEN_VERBOSE, first=True
            )
        ) as advance:
            yield advance
        return

    def make() -> Display:
        if in_notebook():
            return Line(label, total)
        from rich.console import Console

        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        if console.is_terminal:
            return Bar(label, total, console, SECONDS_BEFORE_A_BAR)
        return Lines(label, total, write_to_stderr, SECONDS_BETWEEN_LINES)

    with displayed(make) as advance:
        yield advance


@contextmanager
def logged(
    logger: logging.Logger, total: int | None, label: str
) -> Iterator[Advance | None]:
    """Log the progress of a run every few seconds; yield None where the logger is not enabled."""
    if not logger.isEnabledFor(logging.INFO):
        yield None
        return
    with displayed(
        lambda: Lines(label, total, logger.info, SECONDS_BETWEEN_LINES, first=True)
    ) as advance:
        yield advance


def write_to_stderr(text: str) -> None:
    """Write a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def watched() -> bool:
    """Return whether a person can see the output: in a notebook, or at a terminal.

    Only the main thread may draw by default, because several bars at once would overwrite each other.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if in_notebook():
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is no stderr, or it was closed
        return False


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    # Looking in `sys.modules` imports nothing: a notebook has loaded IPython already.
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def as_callback(advance: Advance, *, simulated: bool) -> Callable[[Progress], None]:
    """Return a callback of `minimize` that reports a run's progress to a display.

    Parameters
    ----------
    advance : Advance
        The function of the display.
    simulated : bool
        Whether the run is simulated.  A real one also shows commits per second, staleness and workers.
    """
    # (commits, seconds) at the last report, and the largest number of workers so far.
    before, expected = (0, time.monotonic()), 0

    def progressed(progress: Progress) -> None:
        nonlocal before, expected
        now, metrics = (progress.commit, time.monotonic()), progress.metrics
        note = (
            f"error {metrics['error']:.4g}"
            if "error" in metrics
            else f"U {metrics['fun']:.6g}"
        )
        if not simulated:
            # The rate since the last row, not since the start: a slowdown should show.
            rate, before = (now[0] - before[0]) / max(now[1] - before[1], 1e-9), now
            workers, lost = progress.workers, progress.workers_lost
            # Workers may join late, so the expected number is the largest seen.
            expected = max(expected, workers)
            there = headcount(workers, expected, lost) if lost else f"{workers} workers"
            note += (
                f", {rate:.0f} commits/s, staleness {progress.staleness:.1f}, {there}"
            )
        advance(progress.commit, note)

    return progressed
