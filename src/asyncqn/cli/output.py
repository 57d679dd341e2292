"""What every command shares: where it talks, how it shows progress, how it ends."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from asyncqn.core.plain import to_plain
from asyncqn.errors import require
from asyncqn.storage import check_place

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, all else on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no remarks.")]


def check_run_folder(folder: Path) -> None:
    """Refuse, before any work is done, a folder that `Run.save` will refuse after it."""
    free = not folder.exists() or (
        folder.is_dir() and ((folder / "run.json").exists() or not any(folder.iterdir()))
    )
    require(free, f"{folder} exists and is not a run: choose another folder, or empty it.")
    check_place(folder)


class Advance(Protocol):
    """Tells the progress display how far the work is, with a few words beside it."""

    def __call__(self, done: int, note: str = "") -> None: ...


class Output:
    """People read `say` and `show`; scripts read `result`, one JSON object, when --json is given."""

    def __init__(self, json_: bool, quiet: bool) -> None:
        self.json, self.quiet = json_, quiet
        self.console = Console(stderr=True, quiet=quiet, soft_wrap=True, highlight=False)
        # Off a terminal nothing is folded: a script or a file gets each line whole.
        self.stdout = Console(stderr=json_, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """A remark on the way; silent with --quiet."""
        self.console.print(text, markup=False)

    def show(self, renderable: Any) -> None:
        """What the command is for: to stdout, or to stderr when stdout carries JSON."""
        if not (self.json and self.quiet):
            self.stdout.print(renderable, markup=False)

    def fail(self, sentence: str) -> None:
        """What went wrong: to stderr, even with --quiet."""
        print(f"asyncqn: {sentence}", file=sys.stderr)

    def result(self, values: dict[str, Any]) -> None:
        """The one JSON object."""
        if self.json:
            sys.stdout.write(json.dumps(to_plain(values), allow_nan=False) + "\n")

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Advance]:
        """A bar on a terminal, a plain line every few seconds otherwise, nothing with --quiet."""
        if self.quiet:
            yield lambda done, note="": None
        elif self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                       TimeRemainingColumn(), TextColumn("{task.fields[note]}"))  # fmt: skip
            with Progress(*columns, console=self.console) as bar:
                task = bar.add_task(label, total=total, note="")
                yield lambda done, note="": bar.update(task, completed=done, note=note)
        else:
            last = [time.monotonic()]

            def line(done: int, note: str = "") -> None:
                if done >= total or time.monotonic() - last[0] >= 5.0:
                    last[0] = time.monotonic()
                    self.console.print(f"{label}: {done}/{total} {note}".rstrip())

            yield line
