"""Where the program prints: a console that obeys no control characters in what it is given."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from asyncqn.cli.ending import clean


class CleanConsole(Console):
    """A console that takes what it is given for plain text, without markup and control characters."""

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(
            stderr=stderr, quiet=quiet, soft_wrap=True, markup=False, emoji=False, highlight=False
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(clean(segment.text), segment.style)
