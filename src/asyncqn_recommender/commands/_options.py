"""Options that the commands for ratings share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli import Output

if TYPE_CHECKING:
    from asyncqn_recommender.data import Reading

Source = Annotated[
    str,
    typer.Argument(
        help="Name of a stored set (see 'asyncqn recommender data list'), or a file."
    ),
]


@dataclass(frozen=True)
class ReadingOptions:
    """The options for reading a file of ratings."""

    user_column: Annotated[
        str | None, typer.Option(help="Column with the user.", metavar="NAME")
    ] = None
    item_column: Annotated[
        str | None, typer.Option(help="Column with the item.", metavar="NAME")
    ] = None
    rating_column: Annotated[
        str | None, typer.Option(help="Column with the rating.", metavar="NAME")
    ] = None
    time_column: Annotated[
        str | None,
        typer.Option(
            help="Column with the time, a number or an ISO date.", metavar="NAME"
        ),
    ] = None
    delimiter: Annotated[
        str | None,
        typer.Option(help="Character between two fields.  [, tab ; or |]", metavar="C"),
    ] = None
    duplicates: Annotated[
        str | None,
        typer.Option(
            help="Several ratings of an item by a user: last, first, mean, sum or error.  [error; clicks: sum]",
            metavar="WHICH",
        ),
    ] = None
    clicks: Annotated[
        bool, typer.Option("--clicks", help="Rows are clicks, which need no rating.")
    ] = False
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip bad rows instead of stopping.")
    ] = False

    def given(self) -> dict[str, Any]:
        """Return the given options as arguments of `read_ratings`."""
        # --user-column is the parameter `user` of `read_ratings`, and so on.
        said = {
            name.removesuffix("_column"): value for name, value in vars(self).items()
        }
        return {name: value for name, value in said.items() if value}

    def read(self, source: str, out: Output) -> Reading:
        """Read ratings by name or from a file, and print remarks about what was skipped."""
        from asyncqn_recommender.data.cache import load_reading

        found = load_reading(source, **self.given())
        for sentence in found.remarks():
            out.say(sentence)
        return found
