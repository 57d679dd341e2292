"""The progress display of the library and of the command line.

On a terminal, and in a notebook with ipywidgets, it is a bar of rich; elsewhere plain lines, if requested.
A display never fails a run: if its stream is closed, it becomes silent.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
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
BROKEN_STREAM = (OSError, ValueError)


class Advance(Protocol):
    """A function that reports progress to a display, with a short note."""

    def __call__(self, step: int, note: str = "") -> None: ...


@contextmanager
def bar(
    console: Console, label: str, total: int | None, delay: float = 0.0
) -> Iterator[Advance]:
    """Yield a function that moves a bar, which appears after `delay` seconds of work."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars = Bars("{task.description}", *columns, "{task.fields[note]}", console=console)
    waiting = COMPILING if nothing_compiled_yet() else ""
    task = bars.add_task(label, total=total, note=waiting)
    # A user who waits for the compiler should see at once what happens.
    begins = time.monotonic() + (0.0 if waiting else delay)

    def advance(step: int, note: str = "") -> None:
        with suppress(*BROKEN_STREAM):
            # Updated before it begins, so that the bar appears with the current numbers.
            bars.update(task, completed=step, note=note)
            if not bars.live.is_started and time.monotonic() >= begins:
                bars.start()

    advance(0, waiting)
    try:
        yield advance
    finally:
        with suppress(*BROKEN_STREAM):
            bars.stop()


@contextmanager
def lines(
    write: Callable[[str], object],
    label: str,
    total: int | None,
    every: float,
    *,
    first: bool = False,
) -> Iterator[Advance]:
    """Yield a function that writes plain lines, at most one in `every` seconds, and one at the end.

    With `first`, the first step is written as well.
    """
    due = time.monotonic() + (0.0 if first else every)
    latest = (0, "")
    written_step = -1

    def put() -> None:
        nonlocal due, written_step
        step, note = latest
        # The end of the block comes here again, perhaps with a step that was written already.
        if step > written_step:
            written_step = step
            due = time.monotonic() + every
            count = f"{step:,}" if total is None else f"{step}/{total}"
            with suppress(*BROKEN_STREAM):
                write(f"{label}: {count} {note}".rstrip())

    def advance(step: int, note: str = "") -> None:
        nonlocal latest
        latest = (step, note)
        if time.monotonic() >= due or step == total:
            put()

    if nothing_compiled_yet():
        with suppress(*BROKEN_STREAM):
            write(f"{label}: {COMPILING}")
    try:
        yield advance
    finally:
        if written_step >= 0:  # otherwise the work was too short for any line
            put()


def on_console(
    console: Console, label: str, total: int | None, delay: float = 0.0
) -> AbstractContextManager[Advance]:
    """Return a display on a console: a bar where it can be drawn, else lines."""
    drawable = console.is_terminal
    if console.is_jupyter:
        drawable = find_spec("ipywidgets") is not None
    if drawable:
        return bar(console, label, total, delay)
    return lines(console.print, label, total, SECONDS_BETWEEN_LINES)


def shown(
    progress: bool | None, verbose: bool, total: int | None, label: str
) -> AbstractContextManager[Advance | None]:
    """Return the display of a run of the library, which yields None if nothing is to be shown.

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
    if progress or (progress is None and not verbose and watched()):
        from rich.console import Console

        console = Console(
            stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False
        )
        return on_console(console, label, total, SECONDS_BEFORE_A_BAR)
    if verbose:
        return lines(write_to_stderr, label, total, SECONDS_WHEN_VERBOSE, first=True)
    return nullcontext()


def logged(
    logger: logging.Logger, total: int | None, label: str
) -> AbstractContextManager[Advance | None]:
    """Return a display that logs every few seconds; it yields None if the logger is not enabled."""
    if not logger.isEnabledFor(logging.INFO):
        return nullcontext()
    return lines(logger.info, label, total, SECONDS_BETWEEN_LINES, first=True)


def write_to_stderr(text: str) -> None:
    """Write a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def watched() -> bool:
    """Return whether a person can see the output: in a notebook, or at a terminal.

    Only the main thread may draw by default, because several bars at once would overwrite each other.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    # Looking in `sys.modules` imports nothing: a notebook has loaded IPython already.
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    if type(shell).__name__ == "ZMQInteractiveShell":
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is no stderr, or it was closed
        return False


def as_callback(advance: Advance, *, simulated: bool) -> Callable[[Progress], None]:
    """Return a callback of `minimize` that reports a run's progress to a display.

    A real run also shows commits per second, staleness and workers.
    """
    last_commit = 0
    last_time = time.monotonic()
    # Workers may join late, so the expected number is the largest seen.
    expected = 0

    def report(progress: Progress) -> None:
        nonlocal last_commit, last_time, expected
        metrics = progress.metrics
        note = f"U {metrics['fun']:.6g}"
        if "error" in metrics:
            note = f"error {metrics['error']:.4g}"
        if not simulated:
            # The rate since the last row, not since the start: a slowdown should show.
            now = time.monotonic()
            rate = (progress.commit - last_commit) / max(now - last_time, 1e-9)
            last_commit = progress.commit
            last_time = now
            workers, lost = progress.workers, progress.workers_lost
            expected = max(expected, workers)
            there = headcount(workers, expected, lost) if lost else f"{workers} workers"
            note += (
                f", {rate:.0f} commits/s, staleness {progress.staleness:.1f}, {there}"
            )
        advance(progress.commit, note)

    return report
