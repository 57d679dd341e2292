"""The output of a command: remarks, results, errors, log records and progress, for people and for scripts."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.ending import clean, complain

if TYPE_CHECKING:
    from rich.console import Console

    from asyncqn.view.progress import Advance

FILE_WIDTH = 1_000
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


@dataclass(frozen=True)
class Output:
    """The output options; people read `say` and `show`, and with --json scripts read `result`.

    Parameters
    ----------
    json : bool
        Print one JSON object on stdout, all else on stderr.
    quiet : bool
        Show no progress and no remarks.
    log : Path, optional
        Append events such as lost workers and checkpoints to this file.
    """

    json: bool = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False
    log: Path | None = None

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

    def show(self, result: Any) -> None:
        """Print a text or a table of rich for people; with --json, `result` prints instead."""
        if not self.json:
            print(clean(result if isinstance(result, str) else _text(result)))

    def table(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Print records as a table for people, whose columns have the names of the entries."""
        from rich.table import Table

        columns = [name.replace("_", " ") for name in records[0]] if records else []
        table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for record in records:
            table.add_row(*map(_word, record.values()))
        self.show(table)

    def numbers(self, values: Mapping[str, Any]) -> None:
        """Print names and values for people, one a line; values that are None are left out."""
        width = max(map(len, values), default=0)
        for name, value in values.items():
            if value is not None:
                self.show(f"{name:<{width}}  {_word(value)}")

    def result(self, values: dict[str, Any]) -> None:
        """Print the one JSON object, if --json is given."""
        from asyncqn.storage import to_json

        if self.json:
            # `allow_nan=False`: "NaN" is not JSON, and `to_json` has written it as a word.
            print(json.dumps(to_json(values), allow_nan=False), flush=True)

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Advance]:
        """Show a bar on a terminal, a plain line every few seconds otherwise, and nothing with --quiet."""
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
        with ExitStack() as undo:
            handlers: list[logging.Handler] = [_Stderr(logging.WARNING)]
            if self.log is not None:
                check_output(self.log)
                file = logging.FileHandler(self.log, encoding="utf-8", errors="replace")
                undo.callback(file.close)
                form = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
                file.setFormatter(logging.Formatter(form))
                handlers.append(file)
            # The logger passes what any handler wants.
            undo.callback(logger.setLevel, level)
            logger.setLevel(logging.WARNING if self.log is None else logging.INFO)
            for handler in handlers:
                logger.addHandler(handler)
                undo.callback(logger.removeHandler, handler)
            yield


def _word(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else f"{value}"


def _text(table: Any) -> str:
    """Return a table of rich as plain text."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else FILE_WIDTH
    text = io.StringIO()
    Console(file=text, width=width, markup=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
