"""The destination of log records while a command runs: warnings go to stderr, all records to a file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from asyncqn.cli.ending import clean, complain
from asyncqn.errors import BadInput

LEVELS = ("debug", "info", "warning", "error")


class Stderr(logging.Handler):
    """Writes a record to stderr in the form of every other sentence of the program."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # a closed stream must not end a run
            complain(record.getMessage())


class Clean(logging.Formatter):
    """Format time, level, logger and message, with control characters replaced."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


@contextmanager
def logging_to(file: Path | None, level: str | None) -> Iterator[None]:
    """Send the records of asyncqn's loggers to stderr and to a file inside the block.

    Parameters
    ----------
    file : Path or None
        The file, to which whole lines are appended; None: no file.
    level : str or None
        The lowest level that is written to the file, or to stderr if there is no file.  The default is "info"
        for a file and "warning" for stderr.
    """
    from asyncqn.storage import check_output

    if level is not None and level.lower() not in LEVELS:
        raise BadInput(
            f"--log-level must be one of {', '.join(LEVELS)}, not '{level}'."
        )
    chosen = getattr(logging, (level or "info").upper())
    # With a file, --log-level belongs to the file, and stderr keeps to warnings.
    stderr = Stderr(chosen if level is not None and file is None else logging.WARNING)
    handlers: list[logging.Handler] = [stderr]
    logger = logging.getLogger("asyncqn")
    before = logger.level
    stream = None
    if file is not None:
        check_output(file)
        stream = file.open("a", encoding="utf-8", errors="replace")
    try:
        if stream is not None:
            to_file = logging.StreamHandler(stream)
            to_file.setLevel(chosen)
            to_file.setFormatter(Clean())
            handlers.append(to_file)
        # The logger passes what any handler wants; each handler then filters for itself.
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
