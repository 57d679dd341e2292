"""What every command shares: where it talks, and how it shows progress."""

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
    """Refuse, before any work is done, a folder that `Run.save` will refuse after it."""
    from asyncqn.runs.archive import RUN
    from asyncqn.storage import check_folder, check_place

    if folder is not None:
        check_folder(folder, RUN)
        check_place(folder)


@dataclass(frozen=True)
class Output:
    """People read `say` and `show`; scripts read `result`, one JSON object, when --json is given."""

    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout, all else on stderr.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no remarks.")] = False
    log: Annotated[
        Path | None,
        typer.Option(help="Append what happens to this file: workers lost, checkpoints.", metavar="FILE"),
    ] = None
    log_level: Annotated[
        str | None,
        typer.Option(
            help="debug, info, warning or error: the lowest level for --log; without --log, for stderr.",
            metavar="LEVEL",
        ),
    ] = None

    @cached_property
    def console(self) -> CleanConsole:
        """Return where remarks and progress go."""
        from asyncqn.cli.console import CleanConsole

        return CleanConsole(stderr=True, quiet=self.quiet)

    @cached_property
    def stdout(self) -> CleanConsole:
        """Where results go.  Off a terminal nothing is folded: a script or a file gets each line whole."""
        from asyncqn.cli.console import CleanConsole

        return CleanConsole()

    def say(self, text: str) -> None:
        """A remark on the way; silent with --quiet."""
        if not self.quiet:
            self.console.print(text)

    def show(self, renderable: Any) -> None:
        """The command's answer, for people; nothing with --json, where `result` gives it."""
        if not self.json:
            self.stdout.print(renderable)

    def fail(self, sentence: str) -> None:
        """What went wrong: to stderr, even with --quiet."""
        complain(sentence)

    def result(self, values: dict[str, Any]) -> None:
        """The one JSON object."""
        from asyncqn.storage.serialise import to_json

        if self.json:
            sys.stdout.write(json.dumps(to_json(values), allow_nan=False) + "\n")

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """End the program in good order when Ctrl-C or SIGTERM ends the block.

        For a command that continues until somebody ends it, and has given its `result` before.
        """
        try:
            yield
        except (KeyboardInterrupt, Terminated) as ending:
            sentence, code = ENDINGS[SIGTERM if isinstance(ending, Terminated) else SIGINT]
            complain(sentence)
            sys.exit(code)

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Advance]:
        """A bar on a terminal, a plain line every few seconds otherwise, nothing with --quiet.

        It says what it waits for until it is first told how far the work is: compiling, most often.
        """
        if self.quiet:
            yield lambda done, note="": None
            return
        from asyncqn.view.progress import SECONDS_BETWEEN_LINES, Bar, Lines, displayed

        def make() -> Bar | Lines:
            if self.console.is_terminal:
                return Bar(label, total, self.console)
            return Lines(label.rstrip(), total, self.console.print, SECONDS_BETWEEN_LINES)

        with displayed(make) as advance:
            yield advance
