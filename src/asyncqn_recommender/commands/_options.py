"""Options that commands for ratings share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli import Output, option

if TYPE_CHECKING:
    from asyncqn_recommender.data import Reading

Source = Annotated[
    str, typer.Argument(help="Name of a stored set (see 'asyncqn recommender data list'), or a file.")
]
_FILE = "Reading a file"


@dataclass(frozen=True)
class ReadingOptions:
    """What the command line says of a file of ratings."""

    user_column: Annotated[str | None, option(_FILE, "Column that names the user.", metavar="NAME")] = None
    item_column: Annotated[str | None, option(_FILE, "Column that names the item.", metavar="NAME")] = None
    rating_column: Annotated[str | None, option(_FILE, "Column with the rating.", metavar="NAME")] = None
    time_column: Annotated[
        str | None, option(_FILE, "Column with the time, a number or an ISO date.", metavar="NAME")
    ] = None
    delimiter: Annotated[
        str | None, option(_FILE, "What stands between fields [, tab ; or |].", metavar="C")
    ] = None
    duplicates: Annotated[
        str | None,
        option(
            _FILE,
            "Of several ratings of an item by a user: last, first, mean, sum, error [error; clicks: sum].",
            metavar="WHICH",
        ),
    ] = None
    clicks: Annotated[bool, option(_FILE, "Rows are clicks: they need no rating.", "--clicks")] = False
    skip_bad: Annotated[bool, option(_FILE, "Skip bad rows instead of stopping.", "--skip-bad")] = False

    def given(self) -> dict[str, Any]:
        """Return what is said, in the words of `read_ratings`."""
        said = {name.removesuffix("_column"): value for name, value in vars(self).items()}
        return {name: value for name, value in said.items() if value}

    def read(self, source: str, out: Output) -> Reading:
        """Ratings by name or from a file, with remarks on what was skipped."""
        from asyncqn_recommender.data.cache import load_reading

        found = load_reading(source, **self.given())
        for sentence in found.remarks():
            out.say(sentence)
        return found
