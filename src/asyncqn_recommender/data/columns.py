"""The choice of the columns of a table that hold the user, the item, the rating and the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asyncqn.errors import BadInput

# Names are compared in lower case and without punctuation, so that "User-ID" is "userid".
_COMMON = {
    "user": ("user", "userid", "users", "uid", "u", "username", "reviewerid", "customerid", "memberid"),
    "item": (
        *("item", "itemid", "items", "iid", "i", "movie", "movieid", "product", "productid"),
        *("book", "bookid", "isbn", "asin", "parentasin", "song", "songid", "trackid", "artistid", "gameid"),
    ),
    "rating": ("rating", "ratings", "score", "stars", "value", "overall", "r", "bookrating", "playcount"),
    "time": (
        *("timestamp", "time", "datetime", "date", "ts", "t", "unixreviewtime", "createdat", "ratedat"),
        *("reviewtime", "eventtime", "ratingtimestamp"),
    ),
}


class Columns(NamedTuple):
    """The column names that a user has given; None: choose a column with a common name."""

    user: str | None = None
    item: str | None = None
    rating: str | None = None
    time: str | None = None


class Names(NamedTuple):
    """The column names of a table of ratings; without a rating, rows are clicks."""

    user: str
    item: str
    rating: str | None
    time: str | None = None

    @property
    def present(self) -> list[str]:
        """The columns that the table has."""
        return [name for name in self if name is not None]


def choose(found: Sequence[str], where: str, asked: Columns, clicks: bool = False) -> Names:
    """Return the requested columns, or those with common names; raise `BadInput` where one is missing.

    With `clicks` the rating may be missing.
    """
    listed = ", ".join(repr(name[:40]) for name in found[:30]) or "none"
    chosen: list[str | None] = []
    for role, name in zip(Columns._fields, asked):
        if name is None:
            # In the order of `_COMMON`, so that "user" wins over "uid" wherever the columns stand.
            fits = [word for common in _COMMON[role] for word in found if _bare(word) == common]
            if not fits and role != "time" and not (clicks and role == "rating"):
                if all(name.replace(".", "", 1).isdigit() for name in found):
                    raise BadInput(
                        f"{where}: the first line must name the columns, not {listed}: insert a line such as "
                        "user,item,rating before it."
                    )
                clicked = "; if every row is a click, use clicks=True, --clicks, or --feedback implicit"
                raise BadInput(
                    f"{where}: no column looks like the {role}; there are {listed}: name it with "
                    f"as_ratings(..., {role}=...) or --{role}-column, or check the delimiter"
                    f"{clicked if role == 'rating' else ''}."
                )
            # A repeated name of a time column is no reason to refuse a file whose times are not needed.
            usable = fits and (role != "time" or list(found).count(fits[0]) == 1)
            chosen.append(fits[0] if usable else None)
        elif name in found:
            chosen.append(name)
        else:
            raise BadInput(f"{where}: there is no column {name!r} for the {role}, only {listed}.")
    # A column can have only one role, and the time is the one that can be missing.
    if chosen[3] in chosen[:3] and asked.time is None:
        chosen[3] = None
    present = [name for name in chosen if name is not None]
    if len(set(present)) < len(present):
        raise BadInput(
            f"{where}: user, item, rating and time must be different columns, not {', '.join(present)}."
        )
    for name in present:
        if list(found).count(name) > 1:
            raise BadInput(f"{where}: more than one column has the name {name!r}: rename them.")
    return Names(str(chosen[0]), str(chosen[1]), chosen[2], chosen[3])


def _bare(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())
