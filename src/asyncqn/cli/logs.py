"""Where the records of `logging` go while a command runs: warnings to stderr, and all of them to a file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from asyncqn.cli.ending import clean, complain
from asyncqn.errors import BadInput

LEVELS = ("debug", "info", "warning", "error")


class Stderr(logging.Handler):
    """Writes a record to stderr as the program writes every other sentence."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # a closed stream ends no run
            complain(record.getMessage())


class Clean(logging.Formatter):
    """Format time, level, logger and message, with control characters replaced."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


@contextmanager
def logging_to(file: Path | None, level: str | None) -> Iterator[None]:
    """Inside the block, records of asyncqn's loggers go to stderr and to a file.

    Parameters
    ----------
    file : Path or None
        Lines are appended to it, whole and at once; None: there is no file.
    level : str or None
        The lowest level that is written to the file, or to stderr where there is no file: "info" for a file
        if not given, and "warning" for stderr.
    """
    from asyncqn.storage import open_append

    if level is not None and level.lower() not in LEVELS:
        raise BadInput(f"--log-level must be one of {', '.join(LEVELS)}, not '{level}'.")
    chosen = getattr(logging, (level or "info").upper())
    stderr = Stderr(chosen if level is not None and file is None else logging.WARNING)
    handlers: list[logging.Handler] = [stderr]
    logger = logging.getLogger("asyncqn")
    before = logger.level
    stream = None if file is None else open_append(file)
    try:
        if stream is not None:
            to_file = logging.StreamHandler(stream)
            to_file.setLevel(chosen)
            to_file.setFormatter(Clean())
            handlers.append(to_file)
        logger.setLevel(min(handler.level for handler in handlers))
        for handler in handlers:
            logger.addHandler(handler)
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
        logger.setLevel(before)
        if stream is not None:
            stream.close()
