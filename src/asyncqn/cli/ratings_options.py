"""How a command is told which ratings to read, and reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.output import Output

if TYPE_CHECKING:
    from asyncqn.data import Reading

Source = Annotated[str, typer.Argument(help="Name of a stored set (see 'asyncqn data list'), or a file.")]


def _option(help_: str, metavar: str) -> Any:
    return typer.Option(help=help_, metavar=metavar, rich_help_panel="Reading a file")


@dataclass(frozen=True)
class ReadingOptions:
    """What the command line says of a file of ratings."""

    user_column: Annotated[str | None, _option("Column that names the user.", "NAME")] = None
    item_column: Annotated[str | None, _option("Column that names the item.", "NAME")] = None
    rating_column: Annotated[str | None, _option("Column with the rating.", "NAME")] = None
    time_column: Annotated[str | None, _option("Column with the time, a number or an ISO date.", "NAME")] = (
        None
    )
    delimiter: Annotated[str | None, _option("What stands between fields [, tab ; or |].", "C")] = None
    duplicates: Annotated[
        str | None,
        _option("Of several ratings of an item by a user: last, first, mean or error [error].", "WHICH"),
    ] = None
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad", help="Skip bad rows instead of stopping.", rich_help_panel="Reading a file"
        ),
    ] = False

    def given(self) -> dict[str, Any]:
        """What is said, in the words of `read_ratings`."""
        said = {name.removesuffix("_column"): value for name, value in vars(self).items()}
        return {name: value for name, value in said.items() if value}

    def read(self, source: str, out: Output) -> Reading:
        """Ratings by name or from a file, with remarks on what was skipped."""
        from asyncqn.data.cache import load_reading

        found = load_reading(source, **self.given())
        for sentence in found.remarks():
            out.say(sentence)
        return found
