"""The output of a command: remarks, results, errors and progress, for people and for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.ending import ENDINGS, Terminated, complain

if TYPE_CHECKING:
    from asyncqn.cli.console import CleanConsole
    from asyncqn.view.progress import Advance


def check_run_folder(folder: Path | None) -> None:
    """Raise `BadInput` early for a folder that `Run.save` would refuse."""
    from asyncqn.runs.archive import RUN

    if folder is not None:
        RUN.check_place(folder)


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
    log_level: Annotated[
        str | None,
        typer.Option(
            help="Lowest level of --log, or of stderr without --log: debug, info, warning or error.",
            metavar="LEVEL",
        ),
    ] = None

    @cached_property
    def console(self) -> CleanConsole:
        """The console for remarks and progress."""
        from asyncqn.cli.console import CleanConsole

        return CleanConsole(stderr=True, quiet=self.quiet)

    @cached_property
    def stdout(self) -> CleanConsole:
        """The console for results.  Lines are not wrapped unless it is a terminal."""
        from asyncqn.cli.console import CleanConsole

        return CleanConsole()

    def say(self, text: str) -> None:
        """Print a remark, unless --quiet is given."""
        if not self.quiet:
            self.console.print(text)

    def show(self, renderable: Any) -> None:
        """Print the command's result for people; with --json, `result` prints it instead."""
        if not self.json:
            self.stdout.print(renderable)

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
            sentence, code = ENDINGS[
                SIGTERM if isinstance(ending, Terminated) else SIGINT
            ]
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
        from asyncqn.view.progress import SECONDS_BETWEEN_LINES, Bar, Lines, displayed

        def make() -> Bar | Lines:
            if self.console.is_terminal:
                return Bar(label, total, self.console)
            return Lines(
                label.rstrip(), total, self.console.print, SECONDS_BETWEEN_LINES
            )

        with displayed(make) as advance:
            yield advance
