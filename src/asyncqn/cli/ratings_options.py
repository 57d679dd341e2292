"""How a command is told which ratings to read, and reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.output import Output

if TYPE_CHECKING:
    from asyncqn.data import Reading

_PANEL = "Reading a file"

Source = Annotated[str, typer.Argument(help="Name of a stored set (see 'asyncqn data list'), or a file.")]
UserColumn = Annotated[
    str | None, typer.Option(help="Column that names the user.", metavar="NAME", rich_help_panel=_PANEL)
]
ItemColumn = Annotated[
    str | None, typer.Option(help="Column that names the item.", metavar="NAME", rich_help_panel=_PANEL)
]
RatingColumn = Annotated[
    str | None, typer.Option(help="Column with the rating.", metavar="NAME", rich_help_panel=_PANEL)
]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        help="Column with the time, a number or an ISO date.", metavar="NAME", rich_help_panel=_PANEL
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="What stands between fields [, tab ; or |].", metavar="C", rich_help_panel=_PANEL),
]
Duplicates = Annotated[
    str | None,
    typer.Option(
        help="Of several ratings of an item by a user: last, first, mean or error [error].",
        metavar="WHICH",
        rich_help_panel=_PANEL,
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Skip bad rows instead of stopping.", rich_help_panel=_PANEL)
]


def read(source: str, out: Output, **reading: Any) -> Reading:
    """Ratings by name or from a file, with remarks on what was skipped."""
    from asyncqn.data.cache import load_reading

    found = load_reading(source, **reading)
    for sentence in found.remarks():
        out.say(sentence)
    return found
