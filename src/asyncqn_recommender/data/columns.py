"""The choice of the columns of a table that hold the user, the item, the rating and the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asyncqn.errors import BadInput, require

# Names are compared in lower case and without punctuation, so that "User-ID" is "userid".
_COMMON = {
    "user": "user userid users uid u username reviewerid customerid memberid",
    "item": (
        "item itemid items iid i movie movieid product productid book "
        "bookid isbn asin parentasin song songid trackid artistid gameid"
    ),
    "rating": "rating ratings score stars value overall r bookrating playcount",
    "time": (
        "timestamp time datetime date ts t unixreviewtime createdat ratedat "
        "reviewtime eventtime ratingtimestamp"
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


def choose(
    columns: Sequence[str], where: str, asked: Columns, clicks: bool = False
) -> Names:
    """Return the requested columns, or those with common names; raise `BadInput` where one is missing.

    With `clicks` the rating may be missing.
    """
    names: list[str | None] = []
    for role, name in zip(Columns._fields, asked):
        if name is None:
            optional = role == "time" or (clicks and role == "rating")
            names.append(_common(columns, where, role, optional))
        elif name in columns:
            names.append(name)
        else:
            raise BadInput(
                f"{where}: there is no column {name!r} for the {role}, only {_listing(columns)}."
            )
    # A column can have only one role, and the time is the one that can be missing.
    if names[3] in names[:3] and asked.time is None:
        names[3] = None
    present = [name for name in names if name is not None]
    require(
        len(set(present)) == len(present),
        f"{where}: user, item, rating and time must be different columns, not {', '.join(present)}.",
    )
    for name in present:
        require(
            list(columns).count(name) == 1,
            f"{where}: more than one column has the name {name!r}: rename them.",
        )
    return Names(str(names[0]), str(names[1]), names[2], names[3])


def _common(
    columns: Sequence[str], where: str, role: str, optional: bool
) -> str | None:
    """Return the column with a common name for a role, or None where it may be missing."""
    # In the order of `_COMMON`, so that "user" wins over "uid" wherever the columns stand.
    fits = [
        name
        for common in _COMMON[role].split()
        for name in columns
        if _bare(name) == common
    ]
    # A repeated name of a time column is no reason to refuse a file whose times are not needed.
    if fits and (role != "time" or list(columns).count(fits[0]) == 1):
        return fits[0]
    if optional:
        return None
    if all(name.replace(".", "", 1).isdigit() for name in columns):
        raise BadInput(
            f"{where}: the first line must name the columns, not {_listing(columns)}: insert a line such as "
            "user,item,rating before it."
        )
    clicked = (
        "; if every row is a click, use clicks=True, --clicks, or --feedback implicit"
    )
    raise BadInput(
        f"{where}: no column looks like the {role}; there are {_listing(columns)}: name it with "
        f"as_ratings(..., {role}=...) or --{role}, or check the delimiter"
        f"{clicked if role == 'rating' else ''}."
    )


def _listing(columns: Sequence[str]) -> str:
    return ", ".join(repr(name[:40]) for name in columns[:30]) or "none"


def _bare(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())
