"""The output of a command: remarks, results, errors, log records and progress, for people and for scripts."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.ending import ENDINGS, Terminated, clean, complain

if TYPE_CHECKING:
    from rich.console import Console

    from asyncqn.view.progress import Advance

WIDTH_OF_FILES = 1_000
"""Width of output that is not a terminal, in characters: no table is squeezed into the columns of one."""


def check_run_folder(folder: Path | None) -> None:
    """Raise `BadInput` early for a folder that `Run.save` would refuse."""
    from asyncqn.runs.archive import RUN

    if folder is not None:
        RUN.check_place(folder)


class _Stderr(logging.Handler):
    """Writes a record to stderr in the form of every other sentence of the program."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # a closed stream must not end a run
            complain(record.getMessage())


class _CleanFormatter(logging.Formatter):
    """Format time, level, logger and message, with control characters replaced."""

    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


@dataclass(frozen=True)
class Output:
    """The output options; people read `say` and `show`, and with --json scripts read `result`."""

    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object on stdout, all else on stderr."
        ),
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress and no remarks.")
    ] = False
    log: Annotated[
        Path | None,
        typer.Option(
            help="Append events such as lost workers and checkpoints to this file.",
            metavar="FILE",
        ),
    ] = None

    @cached_property
    def console(self) -> Console:
        """The console for remarks and progress."""
        from rich.console import Console

        # `soft_wrap`: long lines are left to the terminal, so that a path can be copied whole.
        return Console(
            stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False
        )

    def say(self, text: str) -> None:
        """Print a remark, unless --quiet is given."""
        if not self.quiet:
            self.console.print(clean(text))

    def show(self, renderable: Any) -> None:
        """Print the command's result for people; with --json, `result` prints it instead."""
        if not self.json:
            print(clean(_text(renderable)))

    def table(self, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Print a table for people."""
        from rich.table import Table

        table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*row)
        self.show(table)

    def numbers(self, values: Mapping[str, Any]) -> None:
        """Print names and values for people, one a line; values that are None are left out."""
        width = max(map(len, values), default=0)
        for name, value in values.items():
            if value is not None:
                text = f"{value:.6g}" if isinstance(value, float) else f"{value}"
                self.show(f"{name:<{width}}  {text}")

    def fail(self, sentence: str) -> None:
        """Print an error to stderr, even with --quiet."""
        complain(sentence)

    def result(self, values: dict[str, Any]) -> None:
        """Print the one JSON object, if --json is given."""
        from asyncqn.storage.serialise import to_json

        if self.json:
            # `allow_nan=False`: "NaN" is not JSON, and `to_json` has written it as a word.
            sys.stdout.write(json.dumps(to_json(values), allow_nan=False) + "\n")

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """End the program with its usual sentence and code when Ctrl-C or SIGTERM ends the block.

        This is for a command that runs until it is interrupted, and has printed its `result` before.
        """
        try:
            yield
        except (KeyboardInterrupt, Terminated) as ending:
            number = SIGTERM if isinstance(ending, Terminated) else SIGINT
            sentence, code = ENDINGS[number]
            complain(sentence)
            sys.exit(code)

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Advance]:
        """Show a bar on a terminal, a plain line every few seconds otherwise, and nothing with --quiet.

        Until the first report it shows what it waits for, which is usually the compiler.
        """
        if self.quiet:
            yield lambda done, note="": None
            return
        from asyncqn.view.progress import on_console

        with on_console(self.console, label, total) as advance:
            yield advance

    @contextmanager
    def log_records(self) -> Iterator[None]:
        """Send warnings of asyncqn's loggers to stderr inside the block, and all events to the log file."""
        from asyncqn.storage import check_output

        logger = logging.getLogger("asyncqn")
        level = logger.level
        stderr = _Stderr(logging.WARNING)
        handlers: list[logging.Handler] = [stderr]
        stream = None
        if self.log is not None:
            check_output(self.log)
            stream = self.log.open("a", encoding="utf-8", errors="replace")
            file = logging.StreamHandler(stream)
            file.setFormatter(
                _CleanFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
            )
            handlers.append(file)
        try:
            # The logger passes what any handler wants.
            logger.setLevel(logging.WARNING if stream is None else logging.INFO)
            for handler in handlers:
                logger.addHandler(handler)
            yield
        finally:
            for handler in handlers:
                logger.removeHandler(handler)
            logger.setLevel(level)
            if stream is not None:
                stream.close()


def _text(renderable: Any) -> str:
    """Return a text, or a table of rich, as plain text."""
    if isinstance(renderable, str):
        return renderable
    from rich.console import Console

    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    console = Console(
        file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False
    )
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
