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
from contextlib import contextmanager, suppress
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
    task = bars.add_task(label, total=total, note="")
    begins = time.monotonic() + delay

    def advance(step: int, note: str = "") -> None:
        with suppress(*BROKEN_STREAM):
            # Updated before it begins, so that the bar appears with the current numbers.
            bars.update(task, completed=step, note=note)
            # A user who waits for the compiler should see at once what happens.
            if note == COMPILING or time.monotonic() >= begins:
                bars.start()

    if nothing_compiled_yet():
        advance(0, COMPILING)
    try:
        yield advance
    finally:
        if bars.live.is_started:
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
    latest = ""
    written = None
    complete = False

    def put() -> None:
        nonlocal due, written
        due = time.monotonic() + every
        # The end of the block comes here again, perhaps with a line that was written already.
        if latest != written:
            written = latest
            with suppress(*BROKEN_STREAM):
                write(latest)

    def advance(step: int, note: str = "") -> None:
        nonlocal latest, complete
        count = f"{step:,}" if total is None else f"{step}/{total}"
        latest = f"{label}: {count} {note}".rstrip()
        # Work may go on at the last step, as a sampler's late chains do.
        before, complete = complete, step == total
        if time.monotonic() >= due or (complete and not before):
            put()

    if nothing_compiled_yet():
        with suppress(*BROKEN_STREAM):
            write(f"{label}: {COMPILING}")
    try:
        yield advance
    finally:
        if written is not None:  # otherwise the work was too short for any line
            put()


@contextmanager
def on_console(
    console: Console, label: str, total: int | None, delay: float = 0.0
) -> Iterator[Advance]:
    """Yield a function that reports progress on a console: a bar where it can be drawn, else lines."""
    drawable = console.is_terminal
    if console.is_jupyter:
        drawable = find_spec("ipywidgets") is not None
    if drawable:
        display = bar(console, label, total, delay)
    else:
        display = lines(console.print, label, total, SECONDS_BETWEEN_LINES)
    with display as advance:
        yield advance


@contextmanager
def shown(
    progress: bool | None, verbose: bool, total: int | None, label: str
) -> Iterator[Advance | None]:
    """Show the progress of a run of the library; yields None where nothing is to be shown.

    progress: whether to show a bar; None: only if a person can see it.  verbose: whether to write plain lines
    instead, where no bar is requested.
    """
    if progress or (progress is None and not verbose and watched()):
        from rich.console import Console

        console = Console(
            stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False
        )
        with on_console(console, label, total, SECONDS_BEFORE_A_BAR) as advance:
            yield advance
    elif verbose:
        every = SECONDS_WHEN_VERBOSE
        with lines(write_to_stderr, label, total, every, first=True) as advance:
            yield advance
    else:
        yield None


@contextmanager
def logged(
    logger: logging.Logger, total: int | None, label: str
) -> Iterator[Advance | None]:
    """Log the progress of a run every few seconds; yield None where the logger is not enabled."""
    if not logger.isEnabledFor(logging.INFO):
        yield None
        return
    with lines(logger.info, label, total, SECONDS_BETWEEN_LINES, first=True) as advance:
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

    simulated: whether the run is simulated.  A real one also shows commits per second, staleness and workers.
    """
    commits = 0
    seconds = time.monotonic()
    # Workers may join late, so the expected number is the largest seen.
    expected = 0

    def report(progress: Progress) -> None:
        nonlocal commits, seconds, expected
        metrics = progress.metrics
        note = f"U {metrics['fun']:.6g}"
        if "error" in metrics:
            note = f"error {metrics['error']:.4g}"
        if not simulated:
            # The rate since the last row, not since the start: a slowdown should show.
            now = time.monotonic()
            rate = (progress.commit - commits) / max(now - seconds, 1e-9)
            commits = progress.commit
            seconds = now
            workers, lost = progress.workers, progress.workers_lost
            expected = max(expected, workers)
            there = headcount(workers, expected, lost) if lost else f"{workers} workers"
            stale = progress.staleness
            note += f", {rate:.0f} commits/s, staleness {stale:.1f}, {there}"
        advance(progress.commit, note)

    return report
