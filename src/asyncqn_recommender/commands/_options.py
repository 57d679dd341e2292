"""Options that the commands for ratings share: the parameters of `read_ratings`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli import Generated, Output
from asyncqn_recommender.data.readers import read_ratings

if TYPE_CHECKING:
    from asyncqn_recommender.data import Reading

Source = Annotated[
    str,
    typer.Argument(
        help="Name of a stored set (see 'asyncqn recommender data list'), a file, or flight://HOST:PORT/NAME."
    ),
]
How = Annotated[
    dict[str, Any],
    Generated(
        read_ratings,
        (
            "user",
            "item",
            "rating",
            "time",
            "delimiter",
            "duplicates",
            "clicks",
            "skip_bad",
        ),
    ),
]
"""How a file is read: what the user gave."""


def read(source: str, out: Output, how: dict[str, Any]) -> Reading:
    """Read ratings by name or from a file, and print remarks about what was skipped."""
    from asyncqn_recommender.data.cache import load_reading

    reading = load_reading(source, **how)
    for sentence in reading.remarks():
        out.say(sentence)
    return reading
