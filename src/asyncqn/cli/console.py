"""The console of the program, which prints no control characters of the text that it is given.

File names and texts in data files may contain escape sequences that would move the cursor or hide text.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from asyncqn.cli.ending import clean


class CleanConsole(Console):
    """A console that treats its input as plain text, without markup and control characters."""

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        # `soft_wrap`: long lines are left to the terminal, so that a path can be copied whole.
        super().__init__(
            stderr=stderr,
            quiet=quiet,
            soft_wrap=True,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            # Control segments are rich's own commands, with which a bar moves the cursor; only text is
            # cleaned.
            yield (
                segment
                if segment.control
                else Segment(clean(segment.text), segment.style)
            )
